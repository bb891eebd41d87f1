//! The reads that scheduling is decided by: heads, what is overdue, and the counts.

use punctual_core::ids::{NodeId, TaskId};
use punctual_core::lane::LaneId;
use punctual_core::state::State;
use punctual_core::store::{Count, Head};
use punctual_core::task::Task;
use punctual_core::time::Timestamp;

use super::fault::Fault;
use super::lanes::Lanes;
use super::session::Session;
use super::statements::Sql;
use super::{get, row};
use crate::columns::node_column;

/// Lists the lanes with a waiting task that is due before an instant, by number.
pub(crate) async fn heads(
    session: &Session,
    lanes: &Lanes,
    after: Option<LaneId>,
    before: Timestamp,
    limit: usize,
) -> Result<Vec<Head>, Fault> {
    let after = after.map_or(i64::MIN, LaneId::number);
    let rows = session.query(Sql::Heads, &[&after, &before.as_millis(), &count(limit)]).await?;
    let known = lanes.get(session, rows.iter().map(|row| row.get(0))).await?;
    let head = |row: &tokio_postgres::Row| {
        let lane = known.get(&row.get(0))?.clone();
        Some(Head { lane, due_at: Timestamp::from_millis(row.get(1)) })
    };
    Ok(rows.iter().filter_map(head).collect())
}

/// What was found to be overdue.
#[derive(Default)]
pub(crate) struct Overdue {
    pub tasks: Vec<Task>,
    /// Rows that could not be read.
    pub unreadable: Vec<TaskId>,
}

/// Finds what the reaper takes back, each once.
pub(crate) async fn overdue(
    session: &Session,
    lanes: &Lanes,
    now: Timestamp,
    dead: &[NodeId],
    limit: usize,
) -> Result<Overdue, Fault> {
    let dead: Vec<i64> = dead.iter().copied().map(node_column).collect();
    let rows = session.query(Sql::Overdue, &[&now.as_millis(), &dead, &count(limit)]).await?;
    let mut found = get::read(session, lanes, &rows).await?;
    let mut overdue = Overdue::default();
    for row in &rows {
        let id = TaskId::from_uuid(row.get(row::ID));
        match found.remove(&id) {
            Some(Ok(task)) => overdue.tasks.push(task),
            Some(Err(_)) => overdue.unreadable.push(id),
            None => {}
        }
    }
    Ok(overdue)
}

/// Counts live tasks by lane and state, as every transaction keeps them.
pub(crate) async fn counts(session: &Session, lanes: &Lanes) -> Result<Vec<Count>, Fault> {
    let rows = session.query(Sql::CountsList, &[]).await?;
    let known = lanes.get(session, rows.iter().map(|row| row.get(0))).await?;
    let counted = |row: &tokio_postgres::Row| {
        let lane = known.get(&row.get(0))?.clone();
        let state = State::from_code(i64::from(row.get::<_, i16>(1)))?;
        Some(Count { lane, state, tasks: u64::try_from(row.get::<_, i64>(2)).unwrap_or(0) })
    };
    Ok(rows.iter().filter_map(counted).collect())
}

fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
