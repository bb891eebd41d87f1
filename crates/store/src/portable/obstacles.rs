//! What keeps a task from being claimed. On SQLite a call reads one snapshot; on PostgreSQL each of
//! its statements reads its own, as the port allows.

mod ranked_task;

use std::collections::{BTreeMap, HashMap};

use punctual_core::ids::TaskId;
use punctual_core::lane::Lane;
use punctual_core::obstacles::{Blocker, Blockers, Holder, Holders, TasksAhead, TurnStatus};
use punctual_core::queues::Bucket;
use punctual_core::state::State;
use punctual_core::time::Timestamp;
use serde_json::json;
use uuid::Uuid;

use super::lists::{Names, rows_column};
use super::{Connection, Corrupt, Parameter, PortableSql, Row};
use crate::columns::count_column;
use ranked_task::RankedTask;

/// The maximum number of lanes of a queue that are counted. With more, the count is a lower bound.
const LANES_MAX: usize = 1_000;

/// The place of a task in its lane: its due instant and its number of submission.
pub(crate) type LanePlace = (i64, i64);

pub(crate) async fn blockers<C: Connection>(
    connection: &mut C,
    child: TaskId,
    parents: &[TaskId],
    first: usize,
) -> Result<Blockers, C::Fault> {
    let child = child.uuid();
    let rows = connection.query(PortableSql::ChildBlockers, &[&child]).await?;
    let Some(row) = rows.first() else { return Ok(Blockers::default()) };
    let count = row.get::<Option<i64>>(1)?.and_then(|count| u64::try_from(count).ok()).unwrap_or(0);
    if count == 0 || state_of(row, 0)? != Some(State::Blocked) {
        return Ok(Blockers::default());
    }
    let parents = parents.iter().map(|id| id.uuid());
    let rows = connection.query(PortableSql::EdgeFirst, &[&child, &Names(&hex(parents)), &count_column(first)]).await?;
    let parents: Vec<Uuid> = rows.iter().map(|row| row.get(0)).collect::<Result<_, _>>()?;
    let tasks = standings(connection, &parents).await?;
    let blocker = |id: &Uuid| {
        let Standing { state, holds } = *tasks.get(id)?;
        Some(Blocker { id: TaskId::from_uuid(*id), state, holds })
    };
    Ok(Blockers { first: parents.iter().filter_map(blocker).collect(), count })
}

pub(crate) async fn key_turn<C: Connection>(
    connection: &mut C,
    id: TaskId,
    most: usize,
) -> Result<Option<TurnStatus>, C::Fault> {
    let own = id.uuid();
    let rows = connection.query(PortableSql::TurnPlace, &[&own]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let (ordering, is_own): (Option<Uuid>, bool) = (row.get(1)?, row.get(4)?);
    let (Some(State::Pending | State::Blocked), Some(ordering)) = (state_of(row, 0)?, ordering) else {
        return Ok(None);
    };
    let (execute_at, seq): (i64, i64) = (row.get(2)?, row.get(3)?);
    let (head, letter): (Option<Uuid>, Option<Uuid>) = (row.get(5)?, row.get(6)?);
    let head = head.filter(|head| *head != own);
    let tasks = standings(connection, &head.into_iter().chain(letter).collect::<Vec<_>>()).await?;
    let mut ahead = TasksAhead::default();
    if !is_own {
        // The task that has the turn may be among them.
        let limit = count_column(most.saturating_add(2));
        let before = connection.query(PortableSql::TurnBefore, &[&ordering, &execute_at, &seq, &limit]).await?;
        let before: Vec<Uuid> = before.iter().map(|row| row.get(0)).collect::<Result<_, _>>()?;
        ahead = counted(before.into_iter().filter(|id| Some(*id) != head).count(), most);
    }
    let holder = head.and_then(|head| Some((TaskId::from_uuid(head), tasks.get(&head)?.state)));
    let is_holding = |letter: &Uuid| tasks.get(letter).is_some_and(|task| task.holds);
    Ok(Some(TurnStatus {
        is_own,
        holder: holder.filter(|(_, state)| !state.is_final()),
        held_by: letter.filter(is_holding).map(TaskId::from_uuid),
        ahead,
    }))
}

pub(crate) async fn key_places<C: Connection>(connection: &mut C, key: Uuid, most: u32) -> Result<u64, C::Fault> {
    let rows = connection.query(PortableSql::PlaceHeld, &[&key, &i64::from(most)]).await?;
    Ok(rows.first().map_or(Ok(0), |row| row.number(0))?)
}

/// Counts in each lane behind the place that `after` returns: dead index entries may lie before it.
pub(crate) async fn ahead<C: Connection>(
    connection: &mut C,
    (id, lane): (TaskId, &Lane),
    (aging_millis, now): (i64, Timestamp),
    most: usize,
    after: impl Fn(i64) -> LanePlace,
) -> Result<TasksAhead, C::Fault> {
    let rows = connection.query(PortableSql::TaskLanePlace, &[&id.uuid()]).await?;
    let Some(row) = rows.first() else { return Ok(TasksAhead::default()) };
    let ranked = RankedTask { own: (row.get(0)?, row.get(1)?), priority: lane.key.priority, aging_millis, now };
    let (own_lane, limit, least_urgent) = (lane.id.number(), count_column(LANES_MAX), i16::from(ranked.least_urgent()));
    let parameters: [&dyn Parameter; 5] = [&lane.key.tenant, &lane.key.queue, &least_urgent, &limit, &own_lane];
    let rows = connection.query(PortableSql::QueueLanes, &parameters).await?;
    let others = rows.iter().map(|row| Ok((row.get(0)?, u8::try_from(row.get::<i64>(1)?).unwrap_or(0))));
    let mut lanes: Vec<(i64, u8)> = others.collect::<Result<_, Corrupt>>()?;
    // Its own lane is counted in any case.
    lanes.insert(0, (own_lane, lane.key.priority));
    let is_cut_off = lanes.len() > LANES_MAX;
    lanes.truncate(LANES_MAX);
    let range = |(lane, priority): &(i64, u8)| {
        let ((after_due, after_seq), (before_due, before_seq)) = (after(*lane), ranked.place_before(*priority));
        json!([lane, after_due, after_seq, before_due, before_seq])
    };
    let ranges = rows_column(lanes.iter().map(range));
    let rows = connection.query(PortableSql::LanesBefore, &[&ranges, &count_column(most.saturating_add(1))]).await?;
    let found = rows.first().map_or(Ok(0), |row| row.get::<i64>(0))?;
    let ahead = counted(usize::try_from(found).unwrap_or(0), most);
    Ok(TasksAhead { or_more: ahead.or_more || is_cut_off, ..ahead })
}

pub(crate) async fn bucket<C: Connection>(
    connection: &mut C,
    tenant: &str,
    queue: &str,
) -> Result<Option<Bucket>, C::Fault> {
    let rows = connection.query(PortableSql::BucketGet, &[&tenant, &queue]).await?;
    let bucket = |row: &C::Row| Ok::<_, Corrupt>(Bucket { tokens: row.get(0)?, refilled_at: row.instant(1)? });
    Ok(rows.first().map(bucket).transpose()?)
}

/// One more lease than `most` is enough to know that there are more.
pub(crate) async fn holders<C: Connection>(
    connection: &mut C,
    tenant: &str,
    now: Timestamp,
    most: usize,
) -> Result<Holders, C::Fault> {
    let limit = count_column(most.saturating_add(1));
    let rows = connection.query(PortableSql::WorkerHolds, &[&tenant, &now.as_millis(), &limit]).await?;
    let (mut leases, mut workers) = (0, BTreeMap::new());
    for row in &rows {
        let tasks = row.number(1)?;
        leases += tasks;
        // A lease without a name is of another tenant, or of a webhook.
        if let Some(worker) = row.get::<Option<String>>(0)? {
            let seen_at = row.instant(2)?;
            let holder = workers.entry(worker.clone()).or_insert(Holder { worker, tasks: 0, seen_at });
            holder.tasks += tasks;
            holder.seen_at = holder.seen_at.max(seen_at);
        }
    }
    let or_more = usize::try_from(leases).is_ok_and(|leases| leases > most);
    Ok(Holders { workers: workers.into_values().collect(), or_more })
}

/// The state of a task, and whether it is a dead letter whose queue holds the tasks behind it.
#[derive(Clone, Copy)]
struct Standing {
    state: State,
    holds: bool,
}

/// The standings of the tasks that exist.
async fn standings<C: Connection>(connection: &mut C, ids: &[Uuid]) -> Result<HashMap<Uuid, Standing>, C::Fault> {
    let mut tasks: HashMap<Uuid, Standing> = HashMap::with_capacity(ids.len());
    if ids.is_empty() {
        return Ok(tasks);
    }
    for row in connection.query(PortableSql::TaskStandings, &[&Names(&hex(ids.iter().copied()))]).await? {
        let (Some(state), holds) = (state_of(&row, 1)?, row.get(2)?) else { continue };
        let task = tasks.entry(row.get(0)?).or_insert(Standing { state, holds });
        // A task that was submitted again under its old id is in the history too.
        if !state.is_final() {
            task.state = state;
        }
        task.holds |= holds;
    }
    Ok(tasks)
}

/// The result when `found` tasks were counted, at most one more than `most`.
fn counted(found: usize, most: usize) -> TasksAhead {
    TasksAhead { tasks: u64::try_from(found.min(most)).unwrap_or(u64::MAX), or_more: found > most }
}

/// The hexadecimal digits of ids. SQLite has no type for ids in a JSON array.
fn hex(ids: impl Iterator<Item = Uuid>) -> Vec<String> {
    ids.map(|id| id.simple().to_string()).collect()
}

fn state_of<R: Row>(row: &R, index: usize) -> Result<Option<State>, Corrupt> {
    row.get(index).map(State::from_code)
}
