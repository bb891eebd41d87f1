//! Pruning in small steps.
//!
//! The walks differ from SQLite's because the tables do: the history here is partitioned by month.
//! A month that is past is dropped as a whole. A walk deletes single rows only of the current
//! month, if they are kept for less than that, and rows that are in no month. So if rows are kept
//! for weeks or months, hardly any is ever deleted. Neither table has an index by time: a walk
//! reads the rows of a month by id, the oldest first, and the keys block by block. A step continues
//! where the last one ended; after a restart a walk begins again.

use async_trait::async_trait;
use punctual_core::store::StoreError;
use punctual_core::time::Timestamp;
use punctual_core::upkeep::{Prunable, Pruned, Resolved, Upkeep};
use tokio_postgres::Row;
use uuid::Uuid;

use super::PostgresStore;
use super::connection::Session;
use super::resolve::ResolverStep;
use super::statements::Sql;
use super::tid::Tid;
use super::upkeep::{Month, months, remove_months};
use crate::columns::count_column;
use crate::lane_reclaim::LaneRound;
use crate::portable::upkeep;
use crate::write_queue::Weight;

/// The number of rows that a step reads.
const STEP_ROWS: i64 = 2_000;

/// The number of blocks of keys that a step reads.
const STEP_BLOCKS: u32 = 32;

/// How far the clock that made an id may have been ahead of the database's. If it was further
/// ahead, the row stays until its month is past.
const SKEW_MILLIS: i64 = 24 * 3_600_000;

/// Where the walks continue.
#[derive(Default)]
pub(crate) struct Walks {
    history: Walk,
    /// At this block of keys.
    block: u32,
    /// The round over the lanes that is under way.
    pub lanes: Option<LaneRound>,
}

/// Where the walk over the history continues: behind an id, among the rows in no month or in the
/// current month.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Walk {
    #[default]
    Begins,
    Rest(Uuid),
    Month(Uuid),
}

#[async_trait]
impl Upkeep for PostgresStore {
    async fn prune(&self, what: Prunable, before: Timestamp, limit: usize) -> Result<Pruned, StoreError> {
        match what {
            Prunable::History => self.prune_history(before, limit).await,
            Prunable::Keys => self.prune_keys(before, limit).await,
            Prunable::Ledger => self.prune_ledger(before, limit).await,
            Prunable::Lanes => self.prune_lanes(before, limit).await,
            Prunable::Forecast
            | Prunable::Occurrences
            | Prunable::BreakerCounts
            | Prunable::Workers
            | Prunable::Nonces => {
                self.reads().call(async |mut session| upkeep::prune(&mut session, what, before, limit).await).await
            }
        }
    }

    async fn resolve(&self) -> Result<Resolved, StoreError> {
        self.resolving(ResolverStep::Resolve).await
    }

    async fn review(&self) -> Result<(), StoreError> {
        self.resolving(ResolverStep::Review).await.map(drop)
    }

    async fn wait_for_notes(&self) {
        self.writers().outbox.wait().await;
    }
}

impl PostgresStore {
    async fn resolving(&self, step: ResolverStep) -> Result<Resolved, StoreError> {
        let weight = Weight { bytes: 0, rows: 1 };
        let mut answers = self.write_queues().call(|verbs| &mut verbs.resolve, vec![step], weight).await?;
        Ok(answers.pop().unwrap_or_default())
    }

    /// Only PostgreSQL has a ledger: a worker (`Ledger` in `crates/client`) keeps it in its own
    /// database.
    async fn prune_ledger(&self, before: Timestamp, limit: usize) -> Result<Pruned, StoreError> {
        let (before, most) = (before.as_millis(), count_column(limit));
        let prune = async |session: &Session| session.execute(Sql::LedgerPrune, &[&before, &most]).await;
        let removed = self.reads().call(prune).await?;
        Ok(Pruned { removed, more: reached_limit(removed, limit) })
    }

    async fn prune_history(&self, before: Timestamp, limit: usize) -> Result<Pruned, StoreError> {
        let walk = self.walks().lock().history;
        let (walk, removed) = match walk {
            Walk::Begins => (Walk::Rest(Uuid::nil()), self.prune_months(before, limit).await?),
            Walk::Rest(after) => {
                let walk = async |session: &Session| session.query(Sql::HistoryRestWalk, &[&after, &STEP_ROWS]).await;
                let rows = self.reads().call(walk).await?;
                let (next, removed) = self.remove(&rows, before, limit).await?;
                (next.map_or(Walk::Month(Uuid::nil()), Walk::Rest), removed)
            }
            Walk::Month(after) => {
                let rows = self.month_rows(before, after).await?;
                let (next, removed) = self.remove(&rows, before, limit).await?;
                (next.map_or(Walk::Begins, Walk::Month), removed)
            }
        };
        self.walks().lock().history = walk;
        let (past, most) = (before.as_millis(), count_column(limit));
        // A child that is no longer in the history cannot be revived.
        let forget = async |session: &Session| session.execute(Sql::FailedChildPrune, &[&past, &most]).await;
        let forgotten = self.reads().call(forget).await?;
        Ok(Pruned { removed, more: walk != Walk::Begins || forgotten >= limit as u64 })
    }

    async fn prune_keys(&self, before: Timestamp, limit: usize) -> Result<Pruned, StoreError> {
        let block = self.walks().lock().block;
        let of_inbox = if block == 0 { self.prune_inbox(before, limit).await? } else { 0 };
        let (from, to) = (Tid::first_of(block), Tid::first_of(block + STEP_BLOCKS));
        let (before, most) = (before.as_millis(), count_column(limit));
        let step = async |session: &Session| {
            let freed = session.execute(Sql::IdempotencyFree, &[&from, &to, &before, &most]).await?;
            let blocks = session.query(Sql::IdempotencyBlocks, &[]).await?;
            Ok((freed, blocks.first().map_or(0, |row| row.get::<_, i64>(0))))
        };
        let (freed, blocks) = self.reads().call(step).await?;
        let next = if reached_limit(freed, limit) { block } else { block + STEP_BLOCKS };
        let more = i64::from(next) < blocks;
        self.walks().lock().block = if more { next } else { 0 };
        Ok(Pruned { removed: freed + of_inbox, more })
    }

    /// Removes the months that are past, and old rows of the quarantine.
    async fn prune_months(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let mut past = self.reads().call(months).await?;
        past.retain(|month| month.ends <= before);
        if !past.is_empty() {
            remove_months(self.address(), &past).await.map_err(|fault| fault.to_store_error())?;
        }
        let (before, limit) = (before.as_millis(), count_column(limit));
        self.reads().call(async |session| session.execute(Sql::QuarantinePrune, &[&before, &limit]).await).await
    }

    /// Rows of the current month that were submitted before an instant in it, by their ids.
    async fn month_rows(&self, before: Timestamp, after: Uuid) -> Result<Vec<Row>, StoreError> {
        let now = self.now();
        let months = self.reads().call(months).await?;
        let is_current = |month: &Month| month.begins < before && month.begins <= now && now < month.ends;
        let Some(month) = months.into_iter().find(is_current) else { return Ok(Vec::new()) };
        let until = first_id_at(before.as_millis().saturating_add(SKEW_MILLIS));
        let (begins, ends) = (month.begins.as_millis(), month.ends.as_millis());
        let walk = async |session: &Session| {
            session.query(Sql::HistoryMonthWalk, &[&begins, &ends, &after, &until, &STEP_ROWS]).await
        };
        self.reads().call(walk).await
    }

    /// Removes the rows that finished before `before`. Returns where the next step continues, and
    /// how many rows were removed.
    async fn remove(&self, rows: &[Row], before: Timestamp, limit: usize) -> Result<(Option<Uuid>, u64), StoreError> {
        let (mut ids, mut instants): (Vec<Uuid>, Vec<i64>) = (Vec::new(), Vec::new());
        let mut read = 0;
        for row in rows {
            if ids.len() >= limit {
                break;
            }
            let (id, completed_at): (Uuid, i64) = (row.get(0), row.get(1));
            if completed_at < before.as_millis() {
                ids.push(id);
                instants.push(completed_at);
            }
            read += 1;
        }
        let is_end = read == rows.len() && count_column(rows.len()) < STEP_ROWS;
        let next = rows[..read].last().filter(|_| !is_end).map(|row| row.get(0));
        if ids.is_empty() {
            return Ok((next, 0));
        }
        let remove = async |session: &Session| session.execute(Sql::HistoryRemove, &[&ids, &instants]).await;
        Ok((next, self.reads().call(remove).await?))
    }
}

/// Whether a step removed as many rows as it may: there can be more.
fn reached_limit(removed: u64, limit: usize) -> bool {
    usize::try_from(removed).is_ok_and(|removed| removed >= limit)
}

/// The smallest id of version 7 that can be made at this instant.
pub(crate) fn first_id_at(millis: i64) -> Uuid {
    Uuid::from_u128(u128::try_from(millis).unwrap_or_default() << 80)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_in_the_order_of_their_instants() {
        let (early, late) = (first_id_at(1_779_472_800_000), first_id_at(1_779_472_800_001));
        let between = Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, 1_779_472_800, 0));
        assert!(early < between && between < late);
        assert_eq!(first_id_at(-1), Uuid::nil());
    }
}
