//! What keeps tasks from being claimed, told by a reader: each call sees one state of the database.

use std::collections::BTreeMap;

use punctual_core::ids::TaskId;
use punctual_core::lane::Lane;
use punctual_core::obstacles::{Blocker, Blockers, Holder, Holders, TasksAhead, TurnStatus};
use punctual_core::queues::Bucket;
use punctual_core::state::State;
use punctual_core::time::Timestamp;
use rusqlite::{OptionalExtension, Params};
use uuid::Uuid;

use super::fault::Fault;
use super::outbox::Ordering;
use super::resolve;
use super::session::Session;
use super::statements::Sql;
use crate::columns::count_column;
use crate::obstacles::{LANES, RankedTask, counted};

pub(super) fn blockers(
    session: &mut Session<'_>,
    child: TaskId,
    parents: &[TaskId],
    most: usize,
) -> Result<Blockers, Fault> {
    let Some(seq) = number_of(session, child)? else { return Ok(Blockers::default()) };
    let query = session.statements.get(Sql::ChildGet)?;
    let count = query.query_row([seq], |row| row.get::<_, Option<i64>>(5)).optional()?.flatten().unwrap_or(0);
    let mut blockers = Blockers { first: Vec::new(), count: u64::try_from(count).unwrap_or(0) };
    if blockers.count == 0 {
        return Ok(blockers);
    }
    for id in parents {
        if blockers.first.len() == most {
            break;
        }
        let Some(parent) = number_of(session, *id)? else { continue };
        if !session.statements.get(Sql::EdgeGet)?.exists([parent, seq])? {
            continue;
        }
        if let Some((_, state)) = stands(session, parent)? {
            let holds = resolve::holds(session, parent)?;
            blockers.first.push(Blocker { id: *id, state, holds });
        }
    }
    Ok(blockers)
}

pub(super) fn key_turn(session: &mut Session<'_>, id: TaskId, most: usize) -> Result<Option<TurnStatus>, Fault> {
    let query = session.statements.get(Sql::TurnLook)?;
    let found = query.query_row([id.uuid().as_bytes()], |row| {
        let (seq, ordering): (i64, Ordering) = (row.get(0)?, row.get(1)?);
        Ok((seq, ordering, row.get::<_, i64>(2)?, row.get::<_, bool>(3)?))
    });
    let Some((seq, ordering, execute_at, is_own)) = found.optional()? else { return Ok(None) };
    let query = session.statements.get(Sql::OrderGet)?;
    let order = query.query_row([ordering], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let (head, letter): (Option<i64>, Option<i64>) = order.unwrap_or_default();
    let mut turn = TurnStatus { is_own, holder: None, held_by: None, ahead: TasksAhead::default() };
    if let Some(head) = head.filter(|head| *head != seq) {
        turn.holder = stands(session, head)?.filter(|(_, state)| !state.is_final());
    }
    if let Some(letter) = letter
        && resolve::holds(session, letter)?
    {
        turn.held_by = stands(session, letter)?.map(|(id, _)| id);
    }
    if !is_own {
        // Whoever has the turn may be among them.
        let limit = count_column(most.saturating_add(2));
        let before = numbers(session, Sql::TurnBefore, (ordering, execute_at, seq, limit))?;
        turn.ahead = counted(before.iter().filter(|seq| Some(**seq) != head).count(), most);
    }
    Ok(Some(turn))
}

pub(super) fn ahead(
    session: &mut Session<'_>,
    id: TaskId,
    lane: &Lane,
    aging_millis: i64,
    most: usize,
) -> Result<TasksAhead, Fault> {
    let key = &lane.key;
    let query = session.statements.get(Sql::TaskLook)?;
    let found = query.query_row([id.uuid().as_bytes()], |row| Ok((row.get(4)?, row.get(0)?))).optional()?;
    let Some(own) = found else { return Ok(TasksAhead::default()) };
    let ranked = RankedTask { own, priority: key.priority, aging_millis, now: session.now() };
    // Its own first: whatever else there is, those before it there are counted.
    let mut lanes: Vec<(i64, u8)> = vec![(lane.id.number(), key.priority)];
    let query = session.statements.get(Sql::QueueLanes)?;
    let mut rows =
        query.query((&key.tenant, &key.queue, ranked.least_urgent(), count_column(LANES), lane.id.number()))?;
    while let Some(row) = rows.next()? {
        lanes.push((row.get(0)?, row.get(1)?));
    }
    drop(rows);
    let is_cut_off = lanes.len() > LANES;
    lanes.truncate(LANES);
    let mut tasks = 0;
    for (lane, priority) in lanes {
        let (due_at, seq) = ranked.place_before(priority);
        let limit = count_column(most.saturating_add(1) - tasks);
        tasks += numbers(session, Sql::LaneBefore, (lane, due_at, seq, limit))?.len();
        if tasks > most {
            break;
        }
    }
    let ahead = counted(tasks, most);
    Ok(TasksAhead { or_more: ahead.or_more || is_cut_off, ..ahead })
}

pub(super) fn bucket(session: &mut Session<'_>, tenant: &str, queue: &str) -> Result<Option<Bucket>, Fault> {
    let found = session.statements.get(Sql::BucketGet)?.query_row((tenant, queue), |row| {
        Ok(Bucket { tokens: row.get(0)?, refilled_at: Timestamp::from_millis(row.get(1)?) })
    });
    Ok(found.optional()?)
}

/// One more lease than `most` is enough to know that there are more.
pub(super) fn holders(session: &mut Session<'_>, tenant: &str, most: usize) -> Result<Holders, Fault> {
    let (now, limit) = (session.now().as_millis(), count_column(most.saturating_add(1)));
    let mut rows = session.statements.get(Sql::WorkerHolds)?.query((now, limit))?;
    let (mut leases, mut held) = (0, BTreeMap::new());
    while let Some(row) = rows.next()? {
        leases += 1;
        let is_own = row.get_ref(0)?.as_str().is_ok_and(|of| of == tenant);
        if let (true, Some(worker)) = (is_own, row.get::<_, Option<String>>(1)?) {
            let (tasks, seen_at) = held.entry(worker).or_insert((0, i64::MIN));
            *tasks += 1;
            *seen_at = row.get::<_, i64>(2)?.max(*seen_at);
        }
    }
    let holder = |(worker, (tasks, seen_at))| Holder { worker, tasks, seen_at: Timestamp::from_millis(seen_at) };
    Ok(Holders { workers: held.into_iter().map(holder).collect(), or_more: leases > most })
}

/// The number of a task, if it is there.
fn number_of(session: &mut Session<'_>, id: TaskId) -> Result<Option<i64>, Fault> {
    let find = session.statements.get(Sql::IdGet)?;
    Ok(find.query_row([id.uuid().as_bytes()], |row| row.get(0)).optional()?)
}

/// Which task has a number, and where it stands.
pub(crate) fn stands(session: &mut Session<'_>, seq: i64) -> Result<Option<(TaskId, State)>, Fault> {
    let query = session.statements.get(Sql::TaskStands)?;
    let found = query.query_row([seq], |row| Ok((Uuid::from_bytes(row.get(0)?), row.get::<_, i64>(1)?)));
    Ok(found.optional()?.and_then(|(id, state)| Some((TaskId::from_uuid(id), State::from_code(state)?))))
}

/// The numbers that a statement gives.
fn numbers(session: &mut Session<'_>, sql: Sql, parameters: impl Params) -> Result<Vec<i64>, Fault> {
    let rows = session.statements.get(sql)?.query_map(parameters, |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}
