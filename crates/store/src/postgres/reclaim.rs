//! Removes lanes that are empty and that nothing names (`lane_reclaim.rs` decides), in small steps.
//!
//! A mark is an instant: all tasks of a lane that is empty finished before it, apart from the
//! errors of clocks. So they are in the months up to it, or in no month. Once those months are
//! dropped, nothing names the lane. Two leaders at once do no harm: `lanes_remove` compares the
//! mark, and excludes the transactions that put tasks into lanes (`lanes.rs`).

use punctual_core::store::StoreError;
use punctual_core::time::Timestamp;
use punctual_core::upkeep::Pruned;
use tracing::debug;

use super::PostgresStore;
use super::connection::Session;
use super::fault::Fault;
use super::statements::Sql;
use super::upkeep::months;
use crate::columns::count_column;
use crate::lane_reclaim::{LanePlan, LaneRound, NamedLanes, VisitedLane};

/// The number of lanes that a step visits.
const STEP_LANES: usize = 1_000;

/// The number of rows in no month, and in quarantine, whose lanes a round knows. If there are more,
/// it removes nothing.
const NAMING_ROWS_MAX: usize = 10_000;

/// How far the clock by which a task finished may have been ahead of the one that marks lanes.
const SKEW_MILLIS: i64 = 24 * 3_600_000;

impl PostgresStore {
    pub(super) async fn prune_lanes(&self, now: Timestamp, limit: usize) -> Result<Pruned, StoreError> {
        let begun = self.walks().lock().lanes.clone();
        let visit = async |session: &Session| visit(session, begun, limit).await;
        let (mut round, plan) = self.reads().call(visit).await?;
        if !plan.empty.is_empty() {
            self.reads().call(async |session| mark(session, &plan.empty, now).await).await?;
        }
        let removed = match round.named.until {
            Some(until) if !plan.unnamed.is_empty() => self.remove_lanes(&plan, until).await?,
            _ => Some(0),
        };
        // While a long transaction puts tasks into lanes, none can be removed: the next round tries
        // again.
        let next = plan.next.filter(|_| removed.is_some());
        round.after = next.unwrap_or(round.after);
        self.walks().lock().lanes = next.map(|_| round);
        Ok(Pruned { removed: removed.unwrap_or(0), more: next.is_some() })
    }

    /// Removes lanes. None: they are in use just now.
    async fn remove_lanes(&self, plan: &LanePlan, until: i64) -> Result<Option<u64>, StoreError> {
        let ids: Vec<i64> = plan.unnamed.iter().map(|(lane, _)| *lane).collect();
        let remove = async |session: &Session| match session.query(Sql::LaneRemove, &[&ids, &until]).await {
            Ok(rows) => Ok(rows.first().map(|row| row.get::<_, i64>(0))),
            Err(fault) if fault.is_lock_timeout() => Ok(None),
            Err(fault) => Err(fault),
        };
        let removed = self.reads().call(remove).await?;
        if removed.is_none() {
            debug!("cannot remove empty lanes while tasks are put into lanes; trying again in the next round");
        }
        self.lanes().forget(ids);
        Ok(removed.map(|removed| u64::try_from(removed).unwrap_or_default()))
    }
}

/// Visits the next lanes of the round, or the first ones of a new round.
async fn visit(session: &Session, begun: Option<LaneRound>, limit: usize) -> Result<(LaneRound, LanePlan), Fault> {
    let round = match begun {
        Some(round) => round,
        None => LaneRound { named: named(session).await?, after: i64::MIN },
    };
    let rows = session.query(Sql::LaneWalk, &[&round.after, &count_column(STEP_LANES)]).await?;
    let visited = rows.iter().map(|row| VisitedLane {
        id: row.get(0),
        empty_since: row.get(1),
        is_counted: row.get(2),
        has_tasks: row.get(3),
    });
    let page: Vec<VisitedLane> = visited.collect();
    let plan = LanePlan::new(&page, STEP_LANES, &round.named, limit);
    Ok((round, plan))
}

/// Marks lanes as empty: removes their counts, which the writers have in shares of their own. If a
/// task comes meanwhile, its count stays.
async fn mark(session: &Session, empty: &[i64], now: Timestamp) -> Result<(), Fault> {
    session.execute(Sql::LaneCountsFold, &[&empty]).await?;
    session.execute(Sql::LaneEmpty, &[&empty, &now.as_millis()]).await?;
    Ok(())
}

/// The lanes of rows that are in no month, and how old the others can be. The months are read last:
/// a row that moves to one meanwhile is found twice, not never.
async fn named(session: &Session) -> Result<NamedLanes, Fault> {
    let rows = session.query(Sql::LanesNamed, &[&count_column(NAMING_ROWS_MAX)]).await?;
    let first = months(session).await?.iter().map(|month| month.begins.as_millis()).min();
    let until = first.filter(|_| rows.len() < NAMING_ROWS_MAX).map(|begins| begins.saturating_sub(SKEW_MILLIS));
    Ok(NamedLanes { lanes: rows.iter().map(|row| row.get(0)).collect(), until })
}
