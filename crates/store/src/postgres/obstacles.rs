//! What keeps tasks from being claimed. Each call is a few statements, and what moves between them
//! shows in some.

use std::collections::HashMap;

use punctual_core::ids::TaskId;
use punctual_core::obstacles::{Blocker, Blockers, Holder, Holders, TasksAhead, TurnStatus};
use punctual_core::state::State;
use punctual_core::task::Task;
use punctual_core::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::claim::scan_cursors::ScanCursors;
use super::connection::Session;
use super::fault::Fault;
use super::resolve::holding;
use super::statements::Sql;
use crate::columns::count_column;
use crate::obstacles::{LANES, LanePlace, RankedTask, counted};

pub(super) async fn blockers(session: &Session, task: &Task, most: usize) -> Result<Blockers, Fault> {
    let (child, parents) = (task.id.uuid(), &task.body.dependencies.ids);
    let rows = session.query(Sql::ChildBlockers, &[&child]).await?;
    let blocked = rows.first().filter(|row| state_of(row, 0) == Some(State::Blocked));
    let count = blocked.and_then(|row| row.get::<_, Option<i32>>(1)).unwrap_or(0);
    let count = u64::try_from(count).unwrap_or(0);
    if count == 0 {
        return Ok(Blockers::default());
    }
    let parents: Vec<Uuid> = parents.iter().map(|id| id.uuid()).collect();
    let rows = session.query(Sql::EdgeFirst, &[&child, &parents, &count_column(most)]).await?;
    let waited_for: Vec<Uuid> = rows.iter().map(|row| row.get(0)).collect();
    let states = states(session, &waited_for).await?;
    let holding = holding(session, &waited_for).await?;
    let blocker = |id: &Uuid| {
        let state = *states.get(id)?;
        Some(Blocker { id: TaskId::from_uuid(*id), state, holds: holding.contains(id) })
    };
    Ok(Blockers { first: waited_for.iter().filter_map(blocker).collect(), count })
}

pub(super) async fn key_turn(session: &Session, id: TaskId, most: usize) -> Result<Option<TurnStatus>, Fault> {
    let own = id.uuid();
    let rows = session.query(Sql::TurnLook, &[&own]).await?;
    let waiting = rows.first().filter(|row| matches!(state_of(row, 0), Some(State::Pending | State::Blocked)));
    let Some((row, ordering)) = waiting.and_then(|row| Some((row, row.get::<_, Option<Uuid>>(1)?))) else {
        return Ok(None);
    };
    let (execute_at, seq, is_own): (i64, i64, bool) = (row.get(2), row.get(3), row.get(4));
    let (head, letter): (Option<Uuid>, Option<Uuid>) = (row.get(5), row.get(6));
    let head = head.filter(|head| *head != own);
    let (heads, letters): (Vec<Uuid>, Vec<Uuid>) = (head.into_iter().collect(), letter.into_iter().collect());
    let states = states(session, &heads).await?;
    let holder = head.and_then(|head| Some((TaskId::from_uuid(head), *states.get(&head)?)));
    let holding = holding(session, &letters).await?;
    let mut ahead = TasksAhead::default();
    if !is_own {
        // Whoever has the turn may be among them.
        let limit = count_column(most.saturating_add(2));
        let before = session.query(Sql::TurnBefore, &[&ordering, &execute_at, &seq, &limit]).await?;
        ahead = counted(before.iter().filter(|row| Some(row.get::<_, Uuid>(0)) != head).count(), most);
    }
    Ok(Some(TurnStatus {
        is_own,
        holder: holder.filter(|(_, state)| !state.is_final()),
        held_by: letter.filter(|letter| holding.contains(letter)).map(TaskId::from_uuid),
        ahead,
    }))
}

/// Each lane is read from its mark on: what was taken before it leaves dead entries.
pub(super) async fn ahead(
    session: &Session,
    cursors: &ScanCursors,
    task: &Task,
    (aging_millis, now): (i64, Timestamp),
    most: usize,
) -> Result<TasksAhead, Fault> {
    let rows = session.query(Sql::TaskPlace, &[&task.id.uuid()]).await?;
    let Some(own) = rows.first().map(|row| (row.get(0), row.get(1))) else { return Ok(TasksAhead::default()) };
    let key = &task.lane.key;
    let (own_lane, limit) = (task.lane.id.number(), count_column(LANES));
    let ranked = RankedTask { own, priority: key.priority, aging_millis, now };
    let least_urgent = i16::from(ranked.least_urgent());
    let parameters: [&(dyn ToSql + Sync); 5] = [&key.tenant, &key.queue, &least_urgent, &limit, &own_lane];
    let rows = session.query(Sql::QueueLanes, &parameters).await?;
    // Its own first: whatever else there is, those before it there are counted.
    let others = rows.iter().map(|row| (row.get::<_, i64>(0), row.get::<_, i16>(1)));
    let lanes: Vec<(i64, i16)> = [(own_lane, i16::from(key.priority))].into_iter().chain(others).collect();
    let is_cut_off = lanes.len() > LANES;
    let lanes = &lanes[..lanes.len().min(LANES)];
    let after: Vec<LanePlace> = lanes.iter().map(|(lane, _)| cursors.place(*lane)).collect();
    let before: Vec<LanePlace> =
        lanes.iter().map(|(_, priority)| ranked.place_before(u8::try_from(*priority).unwrap_or(0))).collect();
    let lanes: Vec<i64> = lanes.iter().map(|(lane, _)| *lane).collect();
    let (after_due, after_seq): (Vec<i64>, Vec<i64>) = after.into_iter().unzip();
    let (before_due, before_seq): (Vec<i64>, Vec<i64>) = before.into_iter().unzip();
    let limit = count_column(most.saturating_add(1));
    let parameters: [&(dyn ToSql + Sync); 6] = [&lanes, &after_due, &after_seq, &before_due, &before_seq, &limit];
    let found = session.query(Sql::LanesBefore, &parameters).await?;
    let found = found.first().map_or(0, |row| row.get::<_, i64>(0));
    let ahead = counted(usize::try_from(found).unwrap_or(0), most);
    Ok(TasksAhead { or_more: ahead.or_more || is_cut_off, ..ahead })
}

/// One more lease than `most` is enough to know that there are more.
pub(super) async fn holders(session: &Session, tenant: &str, now: Timestamp, most: usize) -> Result<Holders, Fault> {
    let limit = count_column(most.saturating_add(1));
    let rows = session.query(Sql::WorkerHolds, &[&tenant, &now.as_millis(), &limit]).await?;
    let mut holders = Holders::default();
    for row in rows {
        let (worker, count): (Option<String>, i64) = (row.get(0), row.get(1));
        match worker {
            Some(worker) => {
                let (tasks, seen_at) = (u64::try_from(count).unwrap_or(0), Timestamp::from_millis(row.get(2)));
                holders.workers.push(Holder { worker, tasks, seen_at });
            }
            None => holders.or_more = usize::try_from(count).is_ok_and(|leases| leases > most),
        }
    }
    holders.workers.sort_unstable_by(|one, other| one.worker.cmp(&other.worker));
    Ok(holders)
}

/// Where tasks stand, of those that are there.
async fn states(session: &Session, ids: &[Uuid]) -> Result<HashMap<Uuid, State>, Fault> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let mut states: HashMap<Uuid, State> = HashMap::with_capacity(ids.len());
    for row in session.query(Sql::TaskStates, &[&ids]).await? {
        let Some(state) = state_of(&row, 1) else { continue };
        // One that was submitted again under its old id lives; the history tells of its past.
        states
            .entry(row.get(0))
            .and_modify(|known| *known = if state.is_final() { *known } else { state })
            .or_insert(state);
    }
    Ok(states)
}

fn state_of(row: &Row, column: usize) -> Option<State> {
    State::from_code(i64::from(row.get::<_, i16>(column)))
}
