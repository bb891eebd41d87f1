//! Reads whole tasks, by their numbers or by their ids.

use std::sync::Arc;

use punctual_core::ids::TaskId;
use punctual_core::lane::Lane;
use punctual_core::store::TaskResult;
use punctual_core::task::Task;
use rusqlite::{OptionalExtension, Row};

use crate::columns::{self, Unreadable};
use crate::found_tasks::{BadRow, FoundTask, FoundTasks, is_of};
use crate::task_row::LANE;

use super::fault::Fault;
use super::row;
use super::session::Session;
use super::statements::Sql;

/// The task that was found, or the row that could not be read; none if there is no row.
pub(crate) type FoundRow = Option<FoundTask<i64>>;

/// Reads tasks of one tenant by their ids. An unreadable row fails the call if its owner asked for
/// it alone. Otherwise it is left out and the other tasks are returned.
pub(crate) fn get(
    session: &mut Session<'_>,
    tenant: &str,
    ids: &[TaskId],
) -> Result<FoundTasks<Option<Task>, i64>, Fault> {
    let mut got = FoundTasks { tasks: Vec::with_capacity(ids.len()), unreadable: Vec::new() };
    for id in ids {
        let task = match by_id(session, *id)? {
            Some(Ok(task)) => Some(task).filter(|task| task.tenant() == tenant),
            Some(Err(bad)) if ids.len() == 1 && bad.is_of(tenant) => return Err(Fault::Corrupt(bad.describe(*id))),
            Some(Err(bad)) => {
                if bad.is_live {
                    got.unreadable.push(bad.row);
                } else {
                    session.complain(bad.row, *id, bad.fault);
                }
                None
            }
            None => {
                if ids.len() == 1 {
                    check_quarantine(session, tenant, *id)?;
                }
                None
            }
        };
        got.tasks.push(task);
    }
    Ok(got)
}

/// Which of these tasks have not finished.
pub(crate) fn still_live(session: &mut Session<'_>, ids: Vec<TaskId>) -> Result<Vec<TaskId>, Fault> {
    let mut live = Vec::new();
    for id in ids {
        if session.statements.get(Sql::TaskIsLive)?.exists([id.uuid().as_bytes()])? {
            live.push(id);
        }
    }
    Ok(live)
}

/// The states and results of tasks, as far as the results have room.
pub(crate) fn results(
    session: &mut Session<'_>,
    ids: &[TaskId],
    max_bytes: usize,
) -> Result<Vec<Option<TaskResult>>, Fault> {
    let (mut results, mut room) = (Vec::with_capacity(ids.len()), max_bytes);
    for id in ids {
        let query = session.statements.get(Sql::TaskResult)?;
        let mut rows = query.query([id.uuid().as_bytes()])?;
        let Some(row) = rows.next()? else {
            results.push(None);
            continue;
        };
        let text = row.get_ref(1)?.as_str_or_null().ok().flatten();
        let Some(left) = room.checked_sub(text.map_or(0, str::len)) else { break };
        room = left;
        results.push(columns::task_result(row.get(0).ok(), text));
    }
    Ok(results)
}

/// Reads a task, live or final.
pub(crate) fn by_id(session: &mut Session<'_>, id: TaskId) -> Result<FoundRow, Fault> {
    let find = session.statements.get(Sql::IdGet)?;
    let Some(seq) = find.query_row([id.uuid().as_bytes()], |row| row.get(0)).optional()? else { return Ok(None) };
    let found = match live(session, seq)? {
        Some(task) => Some(task),
        None => finished(session, seq)?,
    };
    // An id that leads to another task counts as unknown.
    Ok(found.filter(|found| found.as_ref().map_or(true, |task| task.id == id)))
}

/// Reads a live task.
pub(crate) fn live(session: &mut Session<'_>, seq: i64) -> Result<FoundRow, Fault> {
    read(session, Sql::TaskRead, seq, true, row::live)
}

/// Reads a final task.
pub(crate) fn finished(session: &mut Session<'_>, seq: i64) -> Result<FoundRow, Fault> {
    read(session, Sql::HistoryRead, seq, false, row::finished)
}

type Decode = fn(&Row<'_>, Option<Arc<Lane>>) -> Result<Task, Unreadable>;

fn read(session: &mut Session<'_>, sql: Sql, seq: i64, is_live: bool, decode: Decode) -> Result<FoundRow, Fault> {
    let query = session.statements.get(sql)?;
    let mut rows = query.query([seq])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let lane = row.get(LANE.0).map_or(Ok(None), |lane| session.lanes.get(session.connection, lane))?;
    Ok(Some(decode(row, lane.clone()).map_err(|fault| BadRow { row: seq, is_live, lane, fault })))
}

/// Fails if the task is in quarantine and belongs to the tenant that asks.
fn check_quarantine(session: &mut Session<'_>, tenant: &str, id: TaskId) -> Result<(), Fault> {
    let query = session.statements.get(Sql::QuarantineGet)?;
    let found = query.query_row([id.uuid().as_bytes()], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let Some((lane, reason)): Option<(i64, String)> = found else { return Ok(()) };
    let lane = session.lanes.get(session.connection, lane)?;
    if is_of(lane.as_ref(), tenant) {
        return Err(Fault::Corrupt(format!("{id}: it is in quarantine: {reason}")));
    }
    Ok(())
}
