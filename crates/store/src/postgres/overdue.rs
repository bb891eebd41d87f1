//! Finds what the reaper takes back: expired holds, holds of dead nodes, waiting tasks that
//! expired.
//!
//! Holds that ended leave dead entries in the index. Where scanning them takes long, a scan begins
//! at its low watermark: where the last scan found everything, lowered by what this process has
//! written since. Rows that another process wrote below it (a retry of an expired task, say) are
//! found by a scan from the beginning, which then runs rarely.

use std::time::Duration;

use parking_lot::Mutex;
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::task::Task;
use punctual_core::time::Timestamp;
use tokio::time::Instant;
use tokio_postgres::Row;
use tracing::debug;

use super::connection::Session;
use super::fault::Fault;
use super::get;
use super::statements::Sql;
use super::writer::WriterShared;
use crate::columns::{count_column, node_column};
use crate::found_tasks::FoundTasks;
use crate::task_row::{EXPIRES_AT, ID, LEASE_EXPIRES_AT};

/// Slow scans from the beginning take at most 1/`SHARE` of the time.
const SHARE: u32 = 50;

/// Rows that expired within this time are scanned again: they may have been committed since.
const MARGIN_MILLIS: i64 = 1_000;

/// The low watermarks of the scans (see the module).
pub(crate) struct LowWatermarks {
    state: Mutex<WatermarkState>,
    /// A scan from the beginning that is faster than this runs every time.
    quick: Duration,
}

struct WatermarkState {
    watermark: LowWatermark,
    /// The lowest write since the last scan began, which may not have seen it.
    lowest: LowWatermark,
    /// When to scan from the beginning again.
    again: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LowWatermark {
    /// Every hold that expired up to then was found.
    held: i64,
    /// Every waiting task that expired up to then was found.
    waiting: i64,
}

const LOWEST: LowWatermark = LowWatermark { held: i64::MIN, waiting: i64::MIN };
const HIGHEST: LowWatermark = LowWatermark { held: i64::MAX, waiting: i64::MAX };

impl LowWatermark {
    fn min(self, other: Self) -> Self {
        Self { held: self.held.min(other.held), waiting: self.waiting.min(other.waiting) }
    }
}

impl LowWatermarks {
    /// The watermarks before the first scan.
    pub(crate) fn new(quick: Duration) -> Self {
        Self { state: Mutex::new(WatermarkState { watermark: LOWEST, lowest: HIGHEST, again: Instant::now() }), quick }
    }

    /// Lowers the watermarks: waiting tasks and holds were written that expire at these instants.
    pub(crate) fn wrote(
        &self,
        waiting: impl IntoIterator<Item = Timestamp>,
        held: impl IntoIterator<Item = Timestamp>,
    ) {
        let first = |instants: &mut dyn Iterator<Item = Timestamp>| {
            instants.min().map_or(i64::MAX, |instant| instant.as_millis().saturating_sub(1))
        };
        let below = LowWatermark { held: first(&mut held.into_iter()), waiting: first(&mut waiting.into_iter()) };
        let mut state = self.state.lock();
        (state.watermark, state.lowest) = (state.watermark.min(below), state.lowest.min(below));
    }
}

/// Finds overdue tasks, each once, and unreadable rows.
pub(crate) async fn overdue(
    session: &Session,
    shared: &WriterShared,
    dead: &[NodeId],
    limit: usize,
) -> Result<FoundTasks<Task, TaskId>, Fault> {
    let now = shared.clock.now();
    let rows = look(session, shared, dead, limit, now).await?;
    if rows.len() < limit {
        let mut state = shared.low_watermarks.state.lock();
        state.watermark = watermark_after(now, rows.iter().map(ends)).min(state.lowest);
    }
    let mut found = get::read(session, &shared.lanes, &rows).await?;
    let mut overdue = FoundTasks::default();
    for row in &rows {
        let id = TaskId::from_uuid(row.get(ID.0));
        match found.remove(&id) {
            Some(Ok(task)) => overdue.tasks.push(task),
            Some(Err(_)) => overdue.unreadable.push(id),
            None => {}
        }
    }
    Ok(overdue)
}

async fn look(
    session: &Session,
    shared: &WriterShared,
    dead: &[NodeId],
    limit: usize,
    now: Timestamp,
) -> Result<Vec<Row>, Fault> {
    let dead: Vec<i64> = dead.iter().copied().map(node_column).collect();
    let (now, limit) = (now.as_millis(), count_column(limit));
    let (watermark, again) = {
        let mut state = shared.low_watermarks.state.lock();
        state.lowest = HIGHEST;
        (state.watermark, state.again)
    };
    let began = Instant::now();
    if began >= again {
        let found = session.query(Sql::Overdue, &[&now, &dead, &limit]).await;
        let took = began.elapsed();
        if took > shared.low_watermarks.quick {
            shared.low_watermarks.state.lock().again = Instant::now() + took * SHARE;
        }
        match found {
            Err(fault) if !fault.breaks_connection() && watermark != LOWEST => {
                debug!(error = %fault.to_store_error(), "cannot scan for overdue tasks from the beginning; scanning from the low watermark");
            }
            found => return found,
        }
    }
    let node = node_column(shared.node);
    session.query(Sql::OverdueSince, &[&now, &dead, &limit, &watermark.held, &watermark.waiting, &node]).await
}

/// When the hold of a row ends, and when the row expires while it waits.
fn ends(row: &Row) -> (Option<i64>, Option<i64>) {
    (row.get(LEASE_EXPIRES_AT.0), row.get(EXPIRES_AT.0))
}

/// The watermark after a complete scan at `now`. The rows that it found may still be there.
fn watermark_after(now: Timestamp, found: impl Iterator<Item = (Option<i64>, Option<i64>)>) -> LowWatermark {
    let up_to = now.as_millis().saturating_sub(MARGIN_MILLIS);
    found.fold(LowWatermark { held: up_to, waiting: up_to }, |watermark, (held, waiting)| {
        let below = |ends: Option<i64>| ends.map_or(i64::MIN, |ends| ends.saturating_sub(1));
        watermark.min(match held {
            Some(_) => LowWatermark { held: below(held), ..HIGHEST },
            None => LowWatermark { waiting: below(waiting), ..HIGHEST },
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn the_watermark_stays_below_what_was_found() {
        assert_eq!(watermark_after(at(10_000), std::iter::empty()), LowWatermark { held: 9_000, waiting: 9_000 });
        let found = [(Some(500), Some(100)), (None, Some(700)), (Some(400), None)];
        assert_eq!(watermark_after(at(10_000), found.into_iter()), LowWatermark { held: 399, waiting: 699 });
    }

    #[test]
    fn the_watermark_goes_below_what_is_written() {
        let low_watermarks = LowWatermarks::new(Duration::ZERO);
        low_watermarks.state.lock().watermark = watermark_after(at(10_000), std::iter::empty());
        low_watermarks.wrote([at(9_500), at(8_000)], []);
        assert_eq!(low_watermarks.state.lock().watermark, LowWatermark { held: 9_000, waiting: 7_999 });
        low_watermarks.wrote([], [at(3)]);
        assert_eq!(low_watermarks.state.lock().lowest, LowWatermark { held: 2, waiting: 7_999 });
    }
}
