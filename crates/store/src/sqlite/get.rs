//! Reads whole tasks, by their numbers or by their ids.

use std::sync::Arc;

use punctual_core::ids::TaskId;
use punctual_core::lane::Lane;
use punctual_core::task::Task;
use rusqlite::{OptionalExtension, Row};

use crate::columns::Unreadable;

use super::fault::Fault;
use super::row;
use super::session::Session;
use super::statements::Sql;

/// A row that exists but cannot be read.
#[derive(Clone, Debug)]
pub(crate) struct BadRow {
    pub seq: i64,
    pub is_live: bool,
    pub lane: Option<Arc<Lane>>,
    pub fault: Unreadable,
}

/// The task that was found, or the row that could not be read.
pub(crate) type FoundTask = Option<Result<Task, BadRow>>;

/// The tasks that were found by their ids.
#[derive(Default)]
pub(crate) struct Got {
    /// In the order of the ids.
    pub tasks: Vec<Option<Task>>,
    /// The numbers of unreadable rows that were left out of the answer.
    pub unreadable: Vec<i64>,
}

/// Reads tasks of one tenant by their ids. An unreadable row fails the call if its owner asked for
/// it alone. Otherwise it is left out, so that the other tasks are answered.
pub(crate) fn get(session: &mut Session<'_>, tenant: &str, ids: &[TaskId]) -> Result<Got, Fault> {
    let mut got = Got { tasks: Vec::with_capacity(ids.len()), unreadable: Vec::new() };
    for id in ids {
        let task = match by_id(session, *id)? {
            Some(Ok(task)) => Some(task).filter(|task| task.tenant() == tenant),
            Some(Err(bad)) if ids.len() == 1 && is_of(bad.lane.as_ref(), tenant) => {
                return Err(Fault::Corrupt(format!("{id}: its {} cannot be read", bad.fault.0)));
            }
            Some(Err(bad)) => {
                if bad.is_live {
                    got.unreadable.push(bad.seq);
                } else {
                    session.complain(bad.seq, *id, bad.fault);
                }
                None
            }
            None if ids.len() == 1 => {
                return quarantined(session, tenant, *id).map(|()| Got { tasks: vec![None], ..got });
            }
            None => None,
        };
        got.tasks.push(task);
    }
    Ok(got)
}

fn is_of(lane: Option<&Arc<Lane>>, tenant: &str) -> bool {
    lane.is_some_and(|lane| lane.key.tenant == tenant)
}

/// Reads a task, live or final.
pub(crate) fn by_id(session: &mut Session<'_>, id: TaskId) -> Result<FoundTask, Fault> {
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
pub(crate) fn live(session: &mut Session<'_>, seq: i64) -> Result<FoundTask, Fault> {
    read(session, Sql::TaskRead, seq, true, row::live)
}

/// Reads a final task.
pub(crate) fn finished(session: &mut Session<'_>, seq: i64) -> Result<FoundTask, Fault> {
    read(session, Sql::HistoryRead, seq, false, row::finished)
}

type Decode = fn(&Row<'_>, Option<Arc<Lane>>) -> Result<Task, Unreadable>;

fn read(session: &mut Session<'_>, sql: Sql, seq: i64, is_live: bool, decode: Decode) -> Result<FoundTask, Fault> {
    let query = session.statements.get(sql)?;
    let mut rows = query.query([seq])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let lane = row.get(row::LANE).map_or(Ok(None), |lane| session.lanes.get(session.connection, lane))?;
    Ok(Some(decode(row, lane.clone()).map_err(|fault| BadRow { seq, is_live, lane, fault })))
}

/// Fails if the task is in quarantine and belongs to the tenant that asks.
fn quarantined(session: &mut Session<'_>, tenant: &str, id: TaskId) -> Result<(), Fault> {
    let query = session.statements.get(Sql::QuarantineGet)?;
    let found = query.query_row([id.uuid().as_bytes()], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let Some((lane, reason)): Option<(i64, String)> = found else { return Ok(()) };
    let lane = session.lanes.get(session.connection, lane)?;
    if is_of(lane.as_ref(), tenant) {
        return Err(Fault::Corrupt(format!("{id}: it is in quarantine: {reason}")));
    }
    Ok(())
}
