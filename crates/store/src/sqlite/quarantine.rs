//! Moves live rows that cannot be read out of the way.
//!
//! A row that a claim, a start or the reaper cannot read is moved unchanged to the table
//! `quarantine`. The next claim does not meet it again, nothing of it is lost, and an operator can
//! inspect it. Its body stays where it is. This module logs it, once.

use punctual_core::ids::TaskId;
use punctual_core::state::State;
use punctual_core::time::Timestamp;
use rusqlite::OptionalExtension;
use tracing::error;
use uuid::Uuid;

use super::fault::Fault;
use super::get;
use super::outbox::{self, NotedRow};
use super::session::Session;
use super::statements::Sql;
use crate::effects::{Effects, LaneInstant};

/// Moves one unreadable row and logs it.
pub(crate) fn put_away(session: &mut Session<'_>, seq: i64, column: &str) -> Result<(), Fault> {
    put_away_because(session, seq, &format!("its {column} cannot be read"))
}

/// Whether a live row is astray: its id leads to another row, or the history has it as well. No
/// change can reach such a row.
pub(crate) fn is_astray(session: &mut Session<'_>, seq: i64) -> Result<bool, Fault> {
    let look = session.statements.get(Sql::TaskIsAstray)?;
    Ok(look.query_row([seq], |row| row.get(0)).optional()?.unwrap_or(false))
}

/// Moves a row that is astray.
pub(crate) fn put_astray(session: &mut Session<'_>, seq: i64) -> Result<(), Fault> {
    put_away_because(session, seq, "its id leads to another row, or it is in the history as well")
}

fn put_away_because(session: &mut Session<'_>, seq: i64, reason: &str) -> Result<(), Fault> {
    let query = session.statements.get(Sql::TaskPlace)?;
    let row = query.query_row([seq], |row| {
        let ordering: Option<outbox::Ordering> = row.get(3).unwrap_or_default();
        let awaited: Option<bool> = row.get(4).unwrap_or_default();
        let at = LaneInstant { lane: row.get(1)?, due_at: Timestamp::from_millis(row.get(5)?) };
        let effects = Effects::of_quarantine(State::from_code(row.get(2)?), at);
        let concurrency: Option<outbox::Concurrency> = row.get(6).unwrap_or_default();
        let noted = NotedRow { seq, ordering, concurrency, awaited: awaited == Some(true) };
        Ok((row.get::<_, [u8; 16]>(0).ok(), effects, noted))
    });
    let Some((id, effects, noted)) = row.optional()? else { return Ok(()) };
    let now = session.now();
    session.statements.get(Sql::QuarantineInsert)?.execute((seq, now.as_millis(), reason))?;
    session.statements.get(Sql::TaskDelete)?.execute([seq])?;
    outbox::record(session, &effects, &noted)?;
    let id = id.map_or_else(|| "without an id".to_owned(), |id| TaskId::from_uuid(Uuid::from_bytes(id)).to_string());
    error!(task.id = id, task.seq = seq, reason, "cannot read a task; it is moved to the quarantine");
    Ok(())
}

/// Moves the rows that a reader found unreadable or astray, if they still are.
pub(crate) fn put_away_unreadable(session: &mut Session<'_>, rows: &[i64]) -> Result<(), Fault> {
    for seq in rows {
        match get::live(session, *seq)? {
            Some(Err(bad)) => put_away(session, *seq, bad.fault.0)?,
            Some(Ok(_)) if is_astray(session, *seq)? => put_astray(session, *seq)?,
            _ => {}
        }
    }
    Ok(())
}

/// Counts the rows in quarantine, up to ten thousand.
pub(crate) fn count(session: &mut Session<'_>) -> Result<u64, Fault> {
    let count: i64 = session.statements.get(Sql::QuarantineCount)?.query_row([], |row| row.get(0))?;
    Ok(u64::try_from(count).unwrap_or(0))
}
