//! Reads whole tasks: by number for those who found it in an index, by id for `get`.

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

/// A row that is there but cannot be read.
#[derive(Clone, Debug)]
pub(crate) struct BadRow {
    pub seq: i64,
    pub lane: Option<Arc<Lane>>,
    pub fault: Unreadable,
}

/// What was found where a task was looked for.
pub(crate) type Found = Option<Result<Task, BadRow>>;

/// Reads tasks of one tenant by their ids. A row that cannot be read fails the call if it is all that was asked for; in
/// a batch it is left out, so that the others get their answer.
pub(crate) fn get(session: &mut Session<'_>, tenant: &str, ids: &[TaskId]) -> Result<Vec<Option<Task>>, Fault> {
    if let [id] = ids {
        return one(session, tenant, *id).map(|task| vec![task]);
    }
    let mut tasks = Vec::with_capacity(ids.len());
    for id in ids {
        tasks.push(by_id(session, *id)?.and_then(Result::ok).filter(|task| task.tenant() == tenant));
    }
    Ok(tasks)
}

fn one(session: &mut Session<'_>, tenant: &str, id: TaskId) -> Result<Option<Task>, Fault> {
    let (lane, reason) = match by_id(session, id)? {
        Some(Ok(task)) => return Ok((task.tenant() == tenant).then_some(task)),
        Some(Err(bad)) => (bad.lane, format!("its {} cannot be read", bad.fault.0)),
        None => match quarantined(session, id)? {
            Some((lane, reason)) => (lane, format!("it is in quarantine: {reason}")),
            None => return Ok(None),
        },
    };
    match lane {
        Some(lane) if lane.key.tenant == tenant => Err(Fault::Corrupt(format!("{id}: {reason}"))),
        _ => Ok(None),
    }
}

/// Reads a task, live or final.
pub(crate) fn by_id(session: &mut Session<'_>, id: TaskId) -> Result<Found, Fault> {
    let find = session.statements.get(Sql::IdGet)?;
    let Some(seq) = find.query_row([id.uuid().as_bytes()], |row| row.get(0)).optional()? else { return Ok(None) };
    match live(session, seq)? {
        Some(task) => Ok(Some(task)),
        None => finished(session, seq),
    }
}

/// Reads a live task.
pub(crate) fn live(session: &mut Session<'_>, seq: i64) -> Result<Found, Fault> {
    read(session, Sql::TaskRead, seq, row::live)
}

/// Reads a final task.
pub(crate) fn finished(session: &mut Session<'_>, seq: i64) -> Result<Found, Fault> {
    read(session, Sql::HistoryRead, seq, row::finished)
}

type Decode = fn(&Row<'_>, Option<Arc<Lane>>) -> Result<Task, Unreadable>;

fn read(session: &mut Session<'_>, sql: Sql, seq: i64, decode: Decode) -> Result<Found, Fault> {
    let query = session.statements.get(sql)?;
    let mut rows = query.query([seq])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let lane = row.get(row::LANE).map_or(Ok(None), |lane| session.lanes.get(session.connection, lane))?;
    Ok(Some(decode(row, lane.clone()).map_err(|fault| BadRow { seq, lane, fault })))
}

/// The lane of a task in quarantine, and why it is there.
type Quarantined = (Option<Arc<Lane>>, String);

/// Why a task that is nowhere is nowhere: it may have been put in quarantine.
fn quarantined(session: &mut Session<'_>, id: TaskId) -> Result<Option<Quarantined>, Fault> {
    let query = session.statements.get(Sql::QuarantineGet)?;
    let found = query.query_row([id.uuid().as_bytes()], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let Some((lane, reason)) = found else { return Ok(None) };
    Ok(Some((session.lanes.get(session.connection, lane)?, reason)))
}
