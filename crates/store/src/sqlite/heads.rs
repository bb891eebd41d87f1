//! The lanes with a waiting task that is due before an instant.

use punctual_core::lane::LaneId;
use punctual_core::store::Head;
use punctual_core::time::Timestamp;
use rusqlite::OptionalExtension;

use crate::columns::count_column;

use super::fault::Fault;
use super::session::Session;
use super::statements::Sql;

/// Rows of missing lanes that one sweep reports.
const ASTRAY_MAX: usize = 1_000;

/// The heads that were found.
#[derive(Default)]
pub(crate) struct Heads {
    pub heads: Vec<Head>,
    /// The numbers of rows whose lane is missing: no claim could take them.
    pub astray: Vec<i64>,
}

/// Lists heads by lane number. One seek in the index per lane, however many tasks wait in it.
pub(crate) fn heads(
    session: &mut Session<'_>,
    after: Option<LaneId>,
    before: Timestamp,
    limit: usize,
) -> Result<Heads, Fault> {
    let mut last = after.map_or(i64::MIN, LaneId::number);
    let mut found = Heads::default();
    while found.heads.len() < limit {
        let next = session.statements.get(Sql::LaneHeadAfter)?;
        let head = next.query_row([last], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let Some((number, due_at)): Option<(i64, i64)> = head else { break };
        last = number;
        let due_at = Timestamp::from_millis(due_at);
        if due_at < before {
            match session.lanes.get(session.connection, number)? {
                Some(lane) => found.heads.push(Head { lane, due_at }),
                None => add_waiting(session, number, &mut found.astray)?,
            }
        }
    }
    Ok(found)
}

fn add_waiting(session: &mut Session<'_>, lane: i64, astray: &mut Vec<i64>) -> Result<(), Fault> {
    let query = session.statements.get(Sql::LaneWaiting)?;
    let mut rows = query.query((lane, count_column(ASTRAY_MAX.saturating_sub(astray.len()))))?;
    while let Some(row) = rows.next()? {
        astray.push(row.get(0)?);
    }
    Ok(())
}
