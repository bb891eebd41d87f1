//! The reads that the dispatcher decides by: the heads of lanes, and the counts.
//!
//! `ports` calls them on a shared connection. They change nothing.

use punctual_core::lane::LaneId;
use punctual_core::store::{Count, Head};
use punctual_core::time::Timestamp;

use super::connection::Session;
use super::fault::Fault;
use super::lanes::LaneDirectory;
use super::row;
use super::statements::Sql;
use super::writer::WriterShared;

/// The number of lanes whose heads one statement reads.
const LANES: i64 = 2_000;

/// Lists the lanes with a waiting task that is due before an instant, by number. Each is read from
/// its scan cursor on: there are dead entries before it.
pub(crate) async fn heads(
    session: &Session,
    shared: &WriterShared,
    after: Option<LaneId>,
    before: Timestamp,
    limit: usize,
) -> Result<Vec<Head>, Fault> {
    let mut after = after.map_or(i64::MIN, LaneId::number);
    let mut found: Vec<(i64, i64)> = Vec::new();
    while found.len() < limit {
        let page = session.query(Sql::LanePage, &[&after, &LANES]).await?;
        let lanes: Vec<i64> = page.iter().map(|row| row.get(0)).collect();
        let Some(last) = lanes.last() else { break };
        after = *last;
        let (due, seq): (Vec<i64>, Vec<i64>) = lanes.iter().map(|lane| shared.cursors.place(*lane)).unzip();
        let heads = session.query(Sql::LaneNextDue, &[&lanes, &due, &seq]).await?;
        let head = |(lane, row): (i64, &tokio_postgres::Row)| Some((lane, row.get::<_, Option<i64>>(0)?));
        let heads = lanes.into_iter().zip(&heads).filter_map(head);
        found.extend(heads.filter(|(_, due_at)| *due_at < before.as_millis()));
    }
    found.truncate(limit);
    let known = shared.lanes.get(session, found.iter().map(|(lane, _)| *lane)).await?;
    let head = |(lane, due_at): (i64, i64)| {
        Some(Head { lane: known.get(&lane)?.clone(), due_at: Timestamp::from_millis(due_at) })
    };
    Ok(found.into_iter().filter_map(head).collect())
}

/// Counts live tasks by lane and state, as every transaction keeps them.
pub(crate) async fn counts(session: &Session, lanes: &LaneDirectory) -> Result<Vec<Count>, Fault> {
    let rows = session.query(Sql::CountsList, &[]).await?;
    let known = lanes.get(session, rows.iter().map(|row| row.get(0))).await?;
    let counted = |row: &tokio_postgres::Row| {
        let lane = known.get(&row.get(0))?.clone();
        let state = row::state(row, 1)?;
        Some(Count { lane, state, tasks: u64::try_from(row.get::<_, i64>(2)).unwrap_or(0) })
    };
    Ok(rows.iter().filter_map(counted).collect())
}
