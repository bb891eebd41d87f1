//! Writes the changes that the state machine made, many at once: one conditional write each.
//!
//! Every statement names the state and the version that a row must have and returns the rows that
//! it changed; the other changes are lost. A statement names no task twice, and the tasks are
//! sorted, so that writers do not deadlock.

use std::collections::{HashMap, HashSet};

use punctual_core::ids::TaskId;
use punctual_core::state::{Change, State};
use punctual_core::task::Edit;
use punctual_core::time::Timestamp;
use punctual_core::trail::Trail;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::columns::{
    callback_body_column, instant_column, json_column, map_column, node_column, number_column, policy_column,
};
use crate::effects::{Effects, LaneInstant};
use crate::postgres::connection::Session;
use crate::postgres::fault::Fault;
use crate::postgres::outbox::NotedRow;
use crate::postgres::row::{class_numbers, count_column, sparse, state_column};
use crate::postgres::statements::Sql;
use crate::postgres::tid::Tid;
use crate::postgres::writer::Writer;

/// A change of a row, and its new lane if that changes.
#[derive(Clone, Copy)]
pub(crate) struct RowChange<'a> {
    pub id: TaskId,
    pub change: &'a Change,
    pub lane: Option<i64>,
    /// The name of its new ordering key, if it gets one.
    pub ordering: Option<Uuid>,
    /// The name of its concurrency key, if it gets another by moving to another queue.
    pub concurrency: Option<Uuid>,
}

impl<'a> RowChange<'a> {
    /// A change that leaves the lane and the keys as they are.
    pub(crate) fn in_place(id: TaskId, change: &'a Change) -> Self {
        Self { id, change, lane: None, ordering: None, concurrency: None }
    }
}

/// A row after its change.
pub(crate) struct ChangedRow {
    pub id: Uuid,
    pub lane: i64,
    /// When it is due, or was due if it finished.
    pub due_at: i64,
    pub expires_at: Option<i64>,
    /// The name of its ordering key.
    pub ordering: Option<Uuid>,
    /// The name of its concurrency key.
    pub concurrency: Option<Uuid>,
    /// Whether other tasks may depend on it.
    pub awaited: bool,
}

impl ChangedRow {
    /// Its lane and due instant, for the counts.
    pub(crate) fn at(&self) -> LaneInstant {
        LaneInstant::of_columns(self.lane, self.due_at)
    }

    /// The row as the notes name it.
    pub(crate) fn noted(&self) -> NotedRow {
        let Self { id, ordering, concurrency, awaited, .. } = *self;
        NotedRow { id, ordering, concurrency, awaited }
    }
}

/// Records the effects of changes that leave their rows in their lanes.
pub(crate) fn record(writer: &mut Writer, changed: &[ChangedRow], wanted: &[RowChange<'_>], now: Timestamp) {
    if changed.is_empty() {
        return;
    }
    let change_of: HashMap<Uuid, &Change> = wanted.iter().map(|wanted| (wanted.id.uuid(), wanted.change)).collect();
    for changed in changed {
        let effects = Effects::in_place(change_of[&changed.id], changed.at());
        writer.tally.record(&effects, || now);
        writer.notes.record(&effects, &changed.noted());
    }
}

/// Finishes live tasks: those whose places are known there, the others by their ids.
pub(crate) async fn finish(writer: &Writer, wanted: &[RowChange<'_>]) -> Result<Vec<ChangedRow>, Fault> {
    let places = writer.shared.held_places.take(wanted.iter().map(|wanted| (wanted.id, wanted.change)));
    let (mut held, mut by_id, mut tids) = (Vec::new(), Vec::new(), Vec::new());
    for (wanted, place) in wanted.iter().zip(places) {
        match place {
            Some(tid) => {
                held.push(*wanted);
                tids.push(tid);
            }
            None => by_id.push(*wanted),
        }
    }
    let session = &writer.session;
    let mut finished = finish_held(session, &held, &tids).await?;
    if finished.len() < held.len() {
        let done: HashSet<Uuid> = finished.iter().map(|finished| finished.id).collect();
        by_id.extend(held.into_iter().filter(|wanted| !done.contains(&wanted.id.uuid())));
        by_id.sort_unstable_by_key(|wanted| wanted.id);
    }
    finished.extend(finish_by_id(session, &by_id).await?);
    debug_assert!(finished.len() <= wanted.len(), "a change changes at most one row");
    Ok(finished)
}

async fn finish_held(session: &Session, wanted: &[RowChange<'_>], places: &[Tid]) -> Result<Vec<ChangedRow>, Fault> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let (of, class) = (Conditions::of(wanted), FinishClasses::of(wanted));
    let result = results(wanted);
    let place: [&(dyn ToSql + Sync); 1] = [&places];
    let parameters = [&of.finish(&class.number, &result)[..], &class.columns(), &place].concat();
    Ok(session.query(Sql::TaskFinishByPlace, &parameters).await?.iter().map(finished).collect())
}

async fn finish_by_id(session: &Session, wanted: &[RowChange<'_>]) -> Result<Vec<ChangedRow>, Fault> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let (of, class) = (Conditions::of(wanted), FinishClasses::of(wanted));
    let result = results(wanted);
    let conditions: [&(dyn ToSql + Sync); 3] = [&of.judged_until, &of.judged_node, &class.tenant];
    let parameters = [&of.finish(&class.number, &result)[..], &class.columns(), &conditions].concat();
    Ok(session.query(Sql::TaskFinishById, &parameters).await?.iter().map(finished).collect())
}

fn results<'a>(wanted: &[RowChange<'a>]) -> Vec<Option<&'a str>> {
    sparse(each(wanted, |change| json_column(change.result.as_ref())))
}

/// The row that a statement which finishes tasks returns.
fn finished(row: &Row) -> ChangedRow {
    ChangedRow {
        id: row.get(0),
        lane: row.get(1),
        due_at: row.get(4),
        expires_at: None,
        ordering: row.get(2),
        concurrency: row.get(5),
        awaited: row.get::<_, Option<bool>>(3).unwrap_or(false),
    }
}

/// What many tasks that finish have in common, and which of it each of them has.
struct FinishClasses<'a> {
    number: Vec<i32>,
    from: Vec<i16>,
    state: Vec<i16>,
    growth: Vec<i64>,
    completed_at: Vec<i64>,
    tenant: Vec<Option<&'a str>>,
}

impl<'a> FinishClasses<'a> {
    fn of(wanted: &[RowChange<'a>]) -> Self {
        let alike = |a: &Change, b: &Change| {
            (a.from, a.to, a.at, &a.tenant, growth(a)) == (b.from, b.to, b.at, &b.tenant, growth(b))
        };
        debug_assert!(wanted.iter().all(|wanted| wanted.change.to.is_final()), "only final tasks finish");
        let classes: Vec<&[RowChange<'a>]> = wanted.chunk_by(|a, b| alike(a.change, b.change)).collect();
        let first: Vec<RowChange<'a>> = classes.iter().map(|class| class[0]).collect();
        Self {
            number: class_numbers(&classes),
            from: each(&first, |change| state_column(change.from)),
            state: each(&first, |change| state_column(change.to)),
            growth: each(&first, growth),
            completed_at: each(&first, |change| change.at.as_millis()),
            tenant: each(&first, |change| change.tenant.as_deref()),
        }
    }

    fn columns(&self) -> [&(dyn ToSql + Sync); 4] {
        [&self.from, &self.state, &self.growth, &self.completed_at]
    }
}

/// By how much the version grows.
fn growth(change: &Change) -> i64 {
    number_column(change.version).saturating_sub(number_column(change.expected_version))
}

/// Changes tasks that stay live.
pub(crate) async fn change(session: &Session, wanted: &[RowChange<'_>]) -> Result<Vec<ChangedRow>, Fault> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let of = Conditions::of(wanted);
    let runs = |change: &Change| change.to == State::Running;
    let asks: Vec<bool> = each(wanted, |change| change.cancel_requested);
    let due_at: Vec<Option<i64>> = each(wanted, |change| instant_column(change.due_at));
    let held = |change: &'_ Change, column: fn(&punctual_core::task::Hold) -> i64| change.hold.as_ref().map(column);
    let worker: Vec<Option<&str>> = each(wanted, |change| holder(change).filter(|_| runs(change)));
    let holder: Vec<Option<&str>> = each(wanted, |change| holder(change).filter(|_| !runs(change)));
    let node: Vec<Option<i64>> =
        each(wanted, |change| change.hold.as_ref().and_then(|hold| hold.node).map(node_column));
    let since: Vec<Option<i64>> = each(wanted, |change| held(change, |hold| hold.since.as_millis()));
    let until: Vec<Option<i64>> = each(wanted, |change| held(change, |hold| hold.expires_at.as_millis()));
    let deadline: Vec<Option<i64>> = each(wanted, |change| held(change, |hold| hold.deadline_at.as_millis()));
    let lease: Vec<Option<i64>> = each(wanted, |change| held(change, |hold| number_column(hold.lease_millis)));
    let started_at: Vec<Option<i64>> = each(wanted, |change| runs(change).then_some(change.at.as_millis()));
    let judged: [&(dyn ToSql + Sync); 2] = [&of.judged_until, &of.judged_node];
    let change: [&(dyn ToSql + Sync); 10] =
        [&asks, &due_at, &worker, &holder, &node, &since, &until, &deadline, &lease, &started_at];
    let parameters = [&of.row()[..], &judged, &of.position(), &change, &[&of.kept_trail]].concat();
    let rows = session.query(Sql::TaskChange, &parameters).await?;
    debug_assert!(rows.len() <= wanted.len(), "a change changes at most one row");
    Ok(rows.iter().map(changed).collect())
}

/// Edits waiting tasks.
pub(crate) async fn edit(session: &Session, wanted: &[RowChange<'_>]) -> Result<Vec<ChangedRow>, Fault> {
    let (of, edits, moves) = (Conditions::of(wanted), Edits::of(wanted), Edits::of_moves(wanted));
    let judged: [&(dyn ToSql + Sync); 2] = [&of.judged_until, &of.judged_node];
    let kept: [&(dyn ToSql + Sync); 1] = [&of.kept_trail];
    let parameters = [&of.row()[..], &judged, &of.position(), &edits.columns(), &kept, &moves.columns()].concat();
    Ok(session.query(Sql::TaskEdit, &parameters).await?.iter().map(changed).collect())
}

/// Re-drives dead letters, which have no hold that could have been judged.
pub(crate) async fn redrive(session: &Session, wanted: &[RowChange<'_>]) -> Result<Vec<ChangedRow>, Fault> {
    let (of, edits) = (Conditions::of(wanted), Edits::of(wanted));
    let parameters = [&of.row()[..], &of.position(), &edits.columns()].concat();
    Ok(session.query(Sql::TaskRedrive, &parameters).await?.iter().map(changed).collect())
}

/// Purges dead letters, which stay in the history.
pub(crate) async fn purge(session: &Session, wanted: &[RowChange<'_>]) -> Result<Vec<ChangedRow>, Fault> {
    let of = Conditions::of(wanted);
    let parameters = [&of.row()[..], &of.position()].concat();
    Ok(session.query(Sql::TaskPurge, &parameters).await?.iter().map(changed).collect())
}

/// The row that a statement returns.
pub(crate) fn changed(row: &Row) -> ChangedRow {
    ChangedRow {
        id: row.get(0),
        lane: row.get(1),
        due_at: row.get(2),
        expires_at: row.get(3),
        ordering: row.get(4),
        concurrency: row.get(6),
        awaited: row.get::<_, Option<bool>>(5).unwrap_or(false),
    }
}

fn holder(change: &Change) -> Option<&str> {
    change.hold.as_ref().map(|hold| hold.worker.as_str())
}

/// A column: one value of each change.
fn each<'a, T>(wanted: &[RowChange<'a>], column: impl Fn(&'a Change) -> T) -> Vec<T> {
    wanted.iter().map(|wanted| column(wanted.change)).collect()
}

/// The columns of every change: what the row must be, and what it becomes.
struct Conditions<'a> {
    id: Vec<Uuid>,
    expected_version: Vec<i64>,
    from: Vec<i16>,
    tenant: Vec<Option<&'a str>>,
    judged_until: Vec<Option<i64>>,
    judged_node: Vec<Option<i64>>,
    state: Vec<i16>,
    version: Vec<i64>,
    attempts: Vec<Option<i32>>,
    crashes: Vec<Option<i32>>,
    trail: Vec<&'a [u8]>,
    /// Only for tasks that stay live.
    kept_trail: Vec<Option<&'a [u8]>>,
}

impl<'a> Conditions<'a> {
    fn of(wanted: &[RowChange<'a>]) -> Self {
        Self {
            id: wanted.iter().map(|wanted| wanted.id.uuid()).collect(),
            expected_version: each(wanted, |change| number_column(change.expected_version)),
            from: each(wanted, |change| state_column(change.from)),
            tenant: sparse(each(wanted, |change| change.tenant.as_deref())),
            judged_until: sparse(each(wanted, |change| {
                change.expected_hold.map(|judged| judged.expires_at.as_millis())
            })),
            judged_node: sparse(each(wanted, |change| {
                change.expected_hold.and_then(|judged| judged.node).map(node_column)
            })),
            state: each(wanted, |change| state_column(change.to)),
            version: each(wanted, |change| number_column(change.version)),
            attempts: sparse(each(wanted, |change| change.attempts.map(count_column))),
            crashes: sparse(each(wanted, |change| change.crashes.map(count_column))),
            trail: each(wanted, |change| change.trail.as_bytes()),
            kept_trail: sparse(each(wanted, |change| change.kept_trail.as_ref().map(Trail::as_bytes))),
        }
    }

    /// What the row must be.
    fn row(&self) -> [&(dyn ToSql + Sync); 4] {
        [&self.id, &self.expected_version, &self.from, &self.tenant]
    }

    /// What a task that finishes must be, and becomes.
    fn finish<'b>(&'b self, class: &'b Vec<i32>, result: &'b Vec<Option<&'a str>>) -> [&'b (dyn ToSql + Sync); 7] {
        [&self.id, &self.expected_version, class, &self.trail, result, &self.attempts, &self.crashes]
    }

    /// What it becomes.
    fn position(&self) -> [&(dyn ToSql + Sync); 5] {
        [&self.state, &self.version, &self.attempts, &self.crashes, &self.trail]
    }
}

/// The columns of edits and re-drives, in the order of their statements.
struct Edits<'a>(Vec<Box<dyn ToSql + Sync + Send + 'a>>);

impl<'a> Edits<'a> {
    fn of(wanted: &[RowChange<'a>]) -> Self {
        fn edited<'a, T>(wanted: &[RowChange<'a>], column: impl Fn(&'a Edit) -> Option<T>) -> Vec<Option<T>> {
            each(wanted, |change| change.edit.as_deref().and_then(&column))
        }
        let sets = |is_set: fn(&Edit) -> bool| each(wanted, |change| change.edit.as_deref().is_some_and(is_set));
        Self(vec![
            Box::new(each(wanted, |change| instant_column(change.due_at))),
            Box::new(wanted.iter().map(|wanted| wanted.lane).collect::<Vec<_>>()),
            Box::new(edited(wanted, |edit| instant_column(edit.execute_at))),
            Box::new(sets(|edit| edit.expires_at.is_some())),
            Box::new(edited(wanted, |edit| instant_column(edit.expires_at.flatten()))),
            Box::new(edited(wanted, |edit| json_column(edit.payload.as_ref()))),
            Box::new(sets(|edit| edit.retry_policy.is_some())),
            Box::new(edited(wanted, |edit| edit.retry_policy.as_ref().and_then(policy_column))),
            Box::new(sets(|edit| edit.metadata.is_some())),
            Box::new(edited(wanted, |edit| edit.metadata.as_ref().and_then(map_column))),
        ])
    }

    /// The columns that only an edit of a waiting task has.
    fn of_moves(wanted: &[RowChange<'a>]) -> Self {
        fn edited<'a, T>(wanted: &[RowChange<'a>], column: impl Fn(&'a Edit) -> Option<T>) -> Vec<Option<T>> {
            each(wanted, |change| change.edit.as_deref().and_then(&column))
        }
        let sets = |is_set: fn(&Edit) -> bool| each(wanted, |change| change.edit.as_deref().is_some_and(is_set));
        let callback = |edit: &'a Edit| edit.destination.as_ref()?.callback.as_ref();
        Self(vec![
            Box::new(sets(|edit| edit.destination.is_some())),
            Box::new(edited(wanted, |edit| Some(callback(edit)?.url.as_str()))),
            Box::new(edited(wanted, |edit| map_column(&callback(edit)?.headers))),
            Box::new(edited(wanted, |edit| edit.timeout_millis.map(number_column))),
            Box::new(sets(|edit| edit.ordering_key.is_some())),
            Box::new(wanted.iter().map(|wanted| wanted.ordering).collect::<Vec<_>>()),
            Box::new(edited(wanted, |edit| edit.ordering_key.as_ref()?.to.as_deref())),
            Box::new(wanted.iter().map(|wanted| wanted.concurrency).collect::<Vec<_>>()),
            Box::new(edited(wanted, |edit| callback_body_column(callback(edit)))),
        ])
    }

    fn columns(&self) -> Vec<&(dyn ToSql + Sync)> {
        self.0.iter().map(|column| &**column as &(dyn ToSql + Sync)).collect()
    }
}
