//! Counts live tasks by lane and state.

use punctual_core::state::State;
use punctual_core::store::Count;

use super::fault::Fault;
use super::session::Session;
use super::statements::Sql;

/// Reads the counts, which every transaction updates (see `tally.rs`).
pub(crate) fn counts(session: &mut Session<'_>) -> Result<Vec<Count>, Fault> {
    let query = session.statements.get(Sql::CountsList)?;
    let mut rows = query.query([])?;
    let mut counts = Vec::new();
    while let Some(row) = rows.next()? {
        let lane = session.lanes.get(session.connection, row.get(0)?)?;
        let tasks = u64::try_from(row.get::<_, i64>(2)?).unwrap_or(0);
        if let (Some(lane), Some(state)) = (lane, State::from_code(row.get(1)?)) {
            counts.push(Count { lane, state, tasks });
        }
    }
    Ok(counts)
}
