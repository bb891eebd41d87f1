//! Applies changes: each one conditional write, as the state machine made it.
//!
//! Claims and starts change their rows here too: no other module changes a row.

use std::sync::Arc;

use punctual_core::coordinator::LeaderLease;
use punctual_core::ids::TaskId;
use punctual_core::lane::{Lane, LaneKey};
use punctual_core::state::{Change, ExpectedHold, State};
use punctual_core::store::Applied;
use punctual_core::task::{Edit, OrderingKeyEdit};
use punctual_core::time::Timestamp;
use punctual_core::trail::Trail;
use rusqlite::types::ToSqlOutput;
use rusqlite::{ErrorCode, OptionalExtension, params};

use crate::apply_kind::ApplyKind;
use crate::columns::{
    callback_body_column, instant_column, json_column, map_column, node_column, number_column, policy_column,
};
use crate::dependencies;
use crate::effects::{Effects, LaneInstant};
use crate::ordering::ordering;
use crate::places::concurrency;

use super::fault::Fault;
use super::leases;
use super::outbox::{self, Concurrency, NotedRow, Ordering};
use super::quarantine;
use super::session::Session;
use super::statements::Sql;

/// Applies changes, each by itself; answers in order.
pub(crate) fn apply(session: &mut Session<'_>, changes: &[(TaskId, Change)]) -> Result<Vec<Applied>, Fault> {
    changes.iter().map(|(id, change)| apply_one(session, *id, change)).collect()
}

/// Applies changes as the holder of a lease. None: another node has held the lease since.
pub(crate) fn apply_as(
    session: &mut Session<'_>,
    lease: &LeaderLease,
    changes: &[(TaskId, Change)],
) -> Result<Option<Vec<Applied>>, Fault> {
    if leases::is_last(session, lease)? { apply(session, changes).map(Some) } else { Ok(None) }
}

fn apply_one(session: &mut Session<'_>, id: TaskId, change: &Change) -> Result<Applied, Fault> {
    if let Some(judged) = change.expected_hold
        && !is_still_held(session, id, judged)?
    {
        return Ok(Applied::Lost);
    }
    let Some(kind) = ApplyKind::of(change) else { return Ok(Applied::Lost) };
    if kind == ApplyKind::Finish {
        return Ok(if finish(session, id, change)? { Applied::Done(None) } else { Applied::Lost });
    }
    let Some(place) = look(session, id, change.from)? else { return Ok(Applied::Lost) };
    if !fits(change, place.state, place.version) || !is_of_tenant(session, place.lane, change.tenant.as_deref())? {
        return Ok(Applied::Lost);
    }
    match kind {
        ApplyKind::Redrive => return redrive(session, place, change),
        ApplyKind::Purge => return purge(session, &place, change),
        ApplyKind::Finish | ApplyKind::Change | ApplyKind::Edit => {}
    }
    let lane = match &change.edit {
        Some(edit) => match new_lane(session, &place, edit)? {
            NewLane::Refused(most) => return Ok(Applied::TooManyLanes(most)),
            NewLane::Found(lane) => edit_task(session, &place, edit, lane)?,
        },
        None => place.lane,
    };
    change_task(session, place.seq, change)?;
    place.record(session, change, lane)
}

/// The row that a change is about, as far as the change needs to know it.
struct TargetRow {
    seq: i64,
    lane: i64,
    state: i64,
    version: i64,
    due_at: i64,
    /// The name of the ordering key of a live task.
    ordering: Option<Ordering>,
    /// The name of the concurrency key of a live task.
    concurrency: Option<Concurrency>,
}

impl TargetRow {
    /// Records the effects of a change that leaves the task live, in this lane.
    fn record(&self, session: &mut Session<'_>, change: &Change, lane: i64) -> Result<Applied, Fault> {
        let before = LaneInstant::of_columns(self.lane, self.due_at);
        let after = LaneInstant { lane, due_at: change.due_at.unwrap_or(before.due_at) };
        let Self { seq, ordering, concurrency, .. } = *self;
        let row = NotedRow { seq, ordering, concurrency, awaited: false };
        outbox::record(session, &Effects::of(change, before, after), &row)?;
        waits_at(session, lane, change.to, after.due_at)
    }
}

/// Finds the row that a change from `from` is about.
fn look(session: &mut Session<'_>, id: TaskId, from: State) -> Result<Option<TargetRow>, Fault> {
    let sql = if from.is_final() { Sql::HistoryLook } else { Sql::TaskLook };
    let place = session.statements.get(sql)?.query_row([id.uuid().as_bytes()], |row| {
        Ok(TargetRow {
            seq: row.get(0)?,
            lane: row.get(1)?,
            state: row.get(2)?,
            version: row.get(3)?,
            due_at: row.get(4)?,
            ordering: row.get(5)?,
            concurrency: row.get(6)?,
        })
    });
    Ok(place.optional()?)
}

fn fits(change: &Change, state: i64, version: i64) -> bool {
    state == i64::from(change.from.code()) && version == number_column(change.expected_version)
}

/// Whether the hold is the one that was judged. A sign of life changes the hold but not the
/// version.
fn is_still_held(session: &mut Session<'_>, id: TaskId, judged: ExpectedHold) -> Result<bool, Fault> {
    let look = session.statements.get(Sql::HoldJudge)?;
    let hold = look.query_row([id.uuid().as_bytes()], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let judged: (Option<i64>, Option<i64>) = (Some(judged.expires_at.as_millis()), judged.node.map(node_column));
    Ok(hold == Some(judged))
}

fn is_of_tenant(session: &mut Session<'_>, lane: i64, tenant: Option<&str>) -> Result<bool, Fault> {
    let Some(tenant) = tenant else { return Ok(true) };
    Ok(session.lanes.get(session.connection, lane)?.is_some_and(|lane| lane.key.tenant == tenant))
}

/// Changes the row of a task that stays live.
pub(crate) fn change_task(session: &mut Session<'_>, seq: i64, change: &Change) -> Result<(), Fault> {
    debug_assert!(change.version > change.expected_version, "a change raises the version");
    debug_assert!(!change.to.is_final(), "a final task moves to the history");
    if change.cancel_requested {
        let ask = session.statements.get(Sql::TaskAskToStop)?;
        let changed = ask.execute((seq, number_column(change.version), change.trail.as_bytes()))?;
        debug_assert_eq!(changed, 1, "a change is applied to the row that was read");
        return Ok(());
    }
    let hold = change.hold.as_ref();
    let runs = change.to == State::Running;
    let holder = hold.map(|hold| hold.worker.as_str());
    let update = session.statements.get(Sql::TaskChange)?;
    let changed = update.execute((
        seq,
        change.to.code(),
        number_column(change.version),
        change.attempts,
        change.crashes,
        instant_column(change.due_at),
        holder.filter(|_| runs),
        holder.filter(|_| !runs),
        hold.and_then(|hold| hold.node).map(node_column),
        hold.map(|hold| hold.since.as_millis()),
        hold.map(|hold| hold.expires_at.as_millis()),
        hold.map(|hold| hold.deadline_at.as_millis()),
        hold.map(|hold| number_column(hold.lease_millis)),
        runs.then_some(change.at.as_millis()),
        change.trail.as_bytes(),
        change.kept_trail.as_ref().map(Trail::as_bytes),
    ))?;
    debug_assert_eq!(changed, 1, "a change is applied to the row that was read");
    Ok(())
}

/// Finishes a live task: its row moves to the history. False: the row is not as the change expects.
pub(crate) fn finish(session: &mut Session<'_>, id: TaskId, change: &Change) -> Result<bool, Fault> {
    let [leave, insert] = session.statements.two(Sql::TaskLeave, Sql::HistoryInsert)?;
    let mut rows = leave.query([id.uuid().as_bytes()])?;
    let Some(row) = rows.next()? else { return Ok(false) };
    let lane: i64 = row.get(0)?;
    if !fits(change, row.get(1)?, row.get(2)?) {
        return Ok(false);
    }
    if let Some(tenant) = &change.tenant
        && session.lanes.get(session.connection, lane)?.is_none_or(|lane| lane.key.tenant != *tenant)
    {
        return Ok(false);
    }
    let seq: i64 = row.get(5)?;
    let (ordering, awaited): (Option<Ordering>, Option<bool>) = (row.get(15)?, row.get(16)?);
    let concurrency: Option<Concurrency> = row.get(17)?;
    let due_at = Timestamp::from_millis(row.get(8)?);
    let mut trail = row.get_ref(14)?.as_blob().unwrap_or_default().to_vec();
    trail.extend_from_slice(change.trail.as_bytes());
    let column = |at: usize| row.get_ref(at).map(ToSqlOutput::Borrowed);
    let moved = insert.execute(params![
        lane,
        change.to.code(),
        number_column(change.version),
        change.attempts.map_or(row.get(3), Ok)?,
        change.crashes.map_or(row.get(4), Ok)?,
        seq,
        column(6)?,
        column(7)?,
        column(8)?,
        column(9)?,
        column(10)?,
        column(11)?,
        column(12)?,
        column(13)?,
        trail,
        change.at.as_millis(),
        json_column(change.result.as_ref()),
    ]);
    drop(rows);
    if let Err(error) = moved {
        if error.sqlite_error_code() != Some(ErrorCode::ConstraintViolation) {
            return Err(error.into());
        }
        // The history already has the row, which our code never causes. Other changes must not fail
        // because of it.
        quarantine::put_astray(session, seq)?;
        return Ok(false);
    }
    let deleted = session.statements.get(Sql::TaskDelete)?.execute([seq])?;
    debug_assert_eq!(deleted, 1, "a finished task leaves the live rows");
    let row = NotedRow { seq, ordering, concurrency, awaited: awaited == Some(true) };
    outbox::record(session, &Effects::in_place(change, LaneInstant { lane, due_at }), &row)?;
    if change.from == State::Blocked {
        stop_waiting(session, seq)?;
    }
    Ok(true)
}

/// Removes the edges to the parents of a task that finished.
fn stop_waiting(session: &mut Session<'_>, child: i64) -> Result<(), Fault> {
    let query = session.statements.get(Sql::BodyDependsOn)?;
    let parents: Option<Option<Vec<u8>>> = query.query_row([child], |row| row.get(0)).optional()?;
    for parent in dependencies::ids(parents.flatten().as_deref()).unwrap_or_default() {
        let query = session.statements.get(Sql::IdGet)?;
        let parent: Option<i64> = query.query_row([parent.uuid().as_bytes()], |row| row.get(0)).optional()?;
        if let Some(parent) = parent {
            session.statements.get(Sql::EdgeRemove)?.execute([parent, child])?;
        }
    }
    Ok(())
}

/// Revives a task that finished because of a parent. None: the row is not as the change expects.
pub(crate) fn revive(session: &mut Session<'_>, id: TaskId, change: &Change) -> Result<Option<Applied>, Fault> {
    match look(session, id, change.from)? {
        Some(place) if fits(change, place.state, place.version) => redrive(session, place, change).map(Some),
        _ => Ok(None),
    }
}

/// Brings a task back from the history.
fn redrive(session: &mut Session<'_>, mut place: TargetRow, change: &Change) -> Result<Applied, Fault> {
    let keys = TaskKeys::of(session, &place)?;
    (place.ordering, place.concurrency) = (keys.ordering(), keys.concurrency());
    session.statements.get(Sql::HistoryRedrive)?.execute((
        place.seq,
        change.to.code(),
        number_column(change.version),
        change.attempts,
        change.crashes,
        instant_column(change.due_at),
        change.trail.as_bytes(),
        place.ordering,
        place.concurrency,
    ))?;
    session.statements.get(Sql::HistoryDelete)?.execute([place.seq])?;
    let lane = match &change.edit {
        Some(edit) => edit_task(session, &place, edit, place.lane)?,
        None => place.lane,
    };
    if change.revives_dependents {
        outbox::revived(session, place.seq)?;
    }
    place.record(session, change, lane)
}

/// Purges a dead letter. Tasks may wait for it, so its new end leaves a note.
fn purge(session: &mut Session<'_>, place: &TargetRow, change: &Change) -> Result<Applied, Fault> {
    let purge = session.statements.get(Sql::HistoryPurge)?;
    purge.execute((place.seq, change.to.code(), number_column(change.version), change.trail.as_bytes()))?;
    let ordering = TaskKeys::of(session, place)?.ordering();
    let row = NotedRow { seq: place.seq, ordering, concurrency: None, awaited: true };
    let at = LaneInstant::of_columns(place.lane, place.due_at);
    outbox::record(session, &Effects::in_place(change, at), &row)?;
    Ok(Applied::Done(None))
}

/// The keys of a task, from its body, and its lane.
struct TaskKeys {
    lane: Arc<Lane>,
    ordering: Option<String>,
    concurrency: Option<String>,
}

impl TaskKeys {
    fn of(session: &mut Session<'_>, place: &TargetRow) -> Result<Self, Fault> {
        let query = session.statements.get(Sql::BodyKeys)?;
        let keys = query.query_row([place.seq], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let (ordering, concurrency) = keys.unwrap_or_default();
        Ok(Self { lane: lane_of(session, place.lane)?, ordering, concurrency })
    }

    fn ordering(&self) -> Option<Ordering> {
        self.ordering.as_deref().map(|key| ordering(&self.lane.key.tenant, key).into_bytes())
    }

    fn concurrency(&self) -> Option<Concurrency> {
        let LaneKey { tenant, queue, .. } = &self.lane.key;
        self.concurrency.as_deref().map(|key| concurrency(tenant, queue, key).into_bytes())
    }
}

/// The lane of a task after an edit.
enum NewLane {
    Found(i64),
    /// Its tenant may have only so many.
    Refused(u64),
}

fn new_lane(session: &mut Session<'_>, place: &TargetRow, edit: &Edit) -> Result<NewLane, Fault> {
    let lane = lane_of(session, place.lane)?;
    let Some(key) = edit.lane(&lane.key) else { return Ok(NewLane::Found(place.lane)) };
    // An edit of the priority is never refused.
    if edit.moves()
        && let Some(most) = session.lanes.admit(session.connection, &key)?
    {
        return Ok(NewLane::Refused(most));
    }
    Ok(NewLane::Found(session.lanes.resolve(session.connection, &key)?.id.number()))
}

/// Writes an edit that moves the task to `lane`, which it returns.
fn edit_task(session: &mut Session<'_>, place: &TargetRow, edit: &Edit, lane: i64) -> Result<i64, Fault> {
    if let Some(key) = &edit.ordering_key {
        edit_ordering(session, place, key)?;
    }
    if edit.queue.is_some() && place.concurrency.is_some() {
        let keys = TaskKeys { lane: lane_of(session, lane)?, ..TaskKeys::of(session, place)? };
        session.statements.get(Sql::TaskEditConcurrency)?.execute((place.seq, keys.concurrency()))?;
    }
    if lane != place.lane || edit.execute_at.is_some() || edit.expires_at.is_some() {
        session.statements.get(Sql::TaskEdit)?.execute((
            place.seq,
            lane,
            instant_column(edit.execute_at),
            edit.expires_at.is_some(),
            instant_column(edit.expires_at.flatten()),
        ))?;
    }
    let callback = edit.destination.as_ref().and_then(|destination| destination.callback.as_ref());
    let is_time_or_lane_alone = Edit {
        execute_at: edit.execute_at,
        expires_at: edit.expires_at,
        priority: edit.priority,
        queue: edit.queue.clone(),
        ..Edit::default()
    } == *edit;
    if !is_time_or_lane_alone {
        session.statements.get(Sql::BodyEdit)?.execute((
            place.seq,
            json_column(edit.payload.as_ref()),
            edit.retry_policy.is_some(),
            edit.retry_policy.as_ref().and_then(policy_column),
            edit.metadata.is_some(),
            edit.metadata.as_ref().and_then(map_column),
            edit.destination.is_some(),
            callback.map(|callback| callback.url.as_str()),
            callback.and_then(|callback| map_column(&callback.headers)),
            edit.timeout_millis.map(number_column),
            edit.ordering_key.is_some(),
            edit.ordering_key.as_ref().and_then(|key| key.to.as_deref()),
            callback_body_column(callback),
        ))?;
    }
    Ok(lane)
}

/// Gives a task another ordering key. The turn of the old one is noted by the caller.
fn edit_ordering(session: &mut Session<'_>, place: &TargetRow, key: &OrderingKeyEdit) -> Result<(), Fault> {
    let lane = lane_of(session, place.lane)?;
    let name = key.to.as_deref().map(|key| ordering(&lane.key.tenant, key).into_bytes());
    session.statements.get(Sql::TaskEditOrdering)?.execute((place.seq, name))?;
    outbox::turn(session, name, None)
}

fn waits_at(session: &mut Session<'_>, lane: i64, state: State, due_at: Timestamp) -> Result<Applied, Fault> {
    if state != State::Pending {
        return Ok(Applied::Done(None));
    }
    Ok(Applied::Done(Some((lane_of(session, lane)?, due_at))))
}

/// A lane that has tasks.
pub(crate) fn lane_of(session: &mut Session<'_>, lane: i64) -> Result<Arc<Lane>, Fault> {
    let found = session.lanes.get(session.connection, lane)?;
    found.ok_or_else(|| Fault::Corrupt(format!("lane {lane} has tasks but does not exist")))
}
