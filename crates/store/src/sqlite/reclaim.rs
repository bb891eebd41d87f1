//! Removes lanes that are empty and that nothing names (`lane_reclaim.rs` decides), in small steps.
//!
//! A mark is the number of the last task: all tasks of a lane that is empty have smaller numbers,
//! and the history is in the order of the numbers. A reader looks, and the writer changes only what
//! is still so. The history of a marked lane can only shrink, so what the reader found of it holds.

use punctual_core::store::StoreError;
use punctual_core::upkeep::Pruned;

use super::SqliteStore;
use super::fault::Fault;
use super::job_queue::WriteClass;
use super::session::Session;
use super::statements::Sql;
use crate::columns::count_column;
use crate::lane_reclaim::{LanePlan, LaneRound, NamedLanes, VisitedLane};
use crate::write_queue::Weight;

/// The number of lanes that a step visits.
const STEP_LANES: usize = 1_000;

/// The number of finished tasks whose lanes a round knows: that takes some milliseconds. Lanes with
/// later marks wait until the tasks before them are pruned.
const FRONT_ROWS: usize = 10_000;

impl SqliteStore {
    pub(super) async fn prune_lanes(&self, limit: usize) -> Result<Pruned, StoreError> {
        let begun = self.walks().lock().lanes.clone();
        let (mut round, plan) = self.readers().call(move |session| visit(session, begun, limit)).await?;
        let (next, changes) = (plan.next, plan.empty.len() + plan.unnamed.len());
        let removed = if changes == 0 {
            0
        } else {
            let weight = Weight { bytes: 0, rows: changes };
            self.writer().call(WriteClass::Progress, weight, move |session| change(session, &plan)).await?
        };
        round.after = next.unwrap_or(round.after);
        self.walks().lock().lanes = next.map(|_| round);
        Ok(Pruned { removed, more: next.is_some() })
    }
}

/// Visits the next lanes of the round, or the first ones of a new round.
fn visit(session: &mut Session<'_>, begun: Option<LaneRound>, limit: usize) -> Result<(LaneRound, LanePlan), Fault> {
    let round = match begun {
        Some(round) => round,
        None => LaneRound { named: named(session)?, after: i64::MIN },
    };
    let walk = session.statements.get(Sql::LaneWalk)?;
    let visited = walk.query_map((round.after, count_column(STEP_LANES)), |row| {
        let (id, empty_since, is_counted, has_tasks) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
        Ok(VisitedLane { id, empty_since, is_counted, has_tasks })
    })?;
    let page = visited.collect::<Result<Vec<_>, _>>()?;
    let plan = LanePlan::new(&page, STEP_LANES, &round.named, limit);
    Ok((round, plan))
}

/// The lanes of the tasks at the front of the history, and of quarantined ones.
fn named(session: &mut Session<'_>) -> Result<NamedLanes, Fault> {
    let front = session.statements.get(Sql::HistoryFront)?;
    let rows = front.query_map((i64::MIN, count_column(FRONT_ROWS)), |row| Ok((row.get(0)?, row.get(1)?)))?;
    let front = rows.collect::<Result<Vec<(i64, i64)>, _>>()?;
    let quarantined = session.statements.get(Sql::QuarantineLanes)?;
    let rows = quarantined.query_map((i64::MIN, count_column(FRONT_ROWS)), |row| row.get(0))?;
    let quarantined = rows.collect::<Result<Vec<i64>, _>>()?;
    let last = front.last().filter(|_| front.len() >= FRONT_ROWS).map_or(i64::MAX, |(seq, _)| *seq);
    let until = (quarantined.len() < FRONT_ROWS).then_some(last);
    Ok(NamedLanes { lanes: front.into_iter().map(|(_, lane)| lane).chain(quarantined).collect(), until })
}

/// Carries out a plan, as far as it still holds. Returns how many lanes were removed.
pub(super) fn change(session: &mut Session<'_>, plan: &LanePlan) -> Result<u64, Fault> {
    let last = session.last_seq()?;
    for lane in &plan.empty {
        session.statements.get(Sql::CountsClear)?.execute([lane])?;
        session.statements.get(Sql::LaneEmpty)?.execute((lane, last))?;
    }
    let mut removed = 0;
    for (lane, mark) in &plan.unnamed {
        // What this transaction has counted is not written before its end.
        if !session.tally.has_moved(*lane) && session.statements.get(Sql::LaneRemove)?.execute((lane, mark))? == 1 {
            session.lanes.remove(*lane);
            removed += 1;
        }
    }
    Ok(removed)
}
