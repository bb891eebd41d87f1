//! The lanes with a waiting task that is due before an instant.

use punctual_core::lane::LaneId;
use punctual_core::store::Head;
use punctual_core::time::Timestamp;
use rusqlite::OptionalExtension;

use super::fault::Fault;
use super::session::Session;
use super::statements::Sql;

/// Lists heads by lane number. One seek in the index for each lane with something waiting, however much it is.
pub(crate) fn heads(
    session: &mut Session<'_>,
    after: Option<LaneId>,
    before: Timestamp,
    limit: usize,
) -> Result<Vec<Head>, Fault> {
    let next = session.statements.get(Sql::LaneHeadAfter)?;
    let mut last = after.map_or(i64::MIN, LaneId::number);
    let mut heads = Vec::new();
    while heads.len() < limit {
        let found = next.query_row([last], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let Some((lane, due_at)): Option<(i64, i64)> = found else { break };
        last = lane;
        let due_at = Timestamp::from_millis(due_at);
        // A lane without a key is found by claims on it, if somebody knows its number; there is nothing to tell of it.
        if due_at < before
            && let Some(lane) = session.lanes.get(session.connection, lane)?
        {
            heads.push(Head { lane, due_at });
        }
    }
    Ok(heads)
}
