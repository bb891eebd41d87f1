//! Removes what is over in small steps.
//!
//! A month of the history that is past goes as a whole. Row by row goes only what is in the
//! month that lasts, if it is kept for less than that, and what is in no month; so with weeks
//! or months to keep, next to nothing is ever deleted. There is no index by time for either:
//! the rows of a month are looked at by id, of which the oldest come first, and the keys block
//! by block. A walk goes on where the last step ended; one that is forgotten begins anew.

use async_trait::async_trait;
use punctual_core::forecast::Minute;
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
use super::upkeep::{self, Month};
use crate::write_queue::Weight;

/// Rows that a step looks at.
const LOOK: i64 = 2_000;

/// Blocks of keys that a step looks at.
const BLOCKS: u32 = 32;

/// How much the clock that an id was made by may have been ahead of the database's. One that was
/// more keeps its row until its month is past.
const SKEW_MILLIS: i64 = 24 * 3_600_000;

/// Where the walks stand.
#[derive(Default)]
pub(crate) struct Walks {
    history: Walk,
    /// The block of keys that is next.
    block: u32,
}

/// Where a walk over the history stands: behind an id, among the rows that are in no month or in
/// the month that lasts.
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
            Prunable::Ledger => {
                let removed = self.prune_ledger(before, limit).await?;
                Ok(Pruned { removed, more: is_all(removed, limit) })
            }
            Prunable::Forecast => self.prune_rows(Sql::ForecastPrune, Minute::of(before).number(), limit).await,
            Prunable::Occurrences => self.prune_rows(Sql::OccurrencePrune, before.as_millis(), limit).await,
            Prunable::BreakerCounts => self.prune_all(Sql::BreakerCountsPrune, before).await,
            Prunable::Workers => self.prune_all(Sql::WorkerForget, before).await,
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

    /// Removes at most `limit` rows whose number is smaller, by a statement.
    async fn prune_rows(&self, sql: Sql, before: i64, limit: usize) -> Result<Pruned, StoreError> {
        let most = column(limit);
        let prune = async |session: &Session| session.execute(sql, &[&before, &most]).await;
        let removed = self.reads().call(prune).await?;
        Ok(Pruned { removed, more: is_all(removed, limit) })
    }

    /// Removes all that is over, by a statement: of what there is little.
    async fn prune_all(&self, sql: Sql, before: Timestamp) -> Result<Pruned, StoreError> {
        let prune = async |session: &Session| session.execute(sql, &[&before.as_millis()]).await;
        Ok(Pruned { removed: self.reads().call(prune).await?, more: false })
    }

    async fn prune_history(&self, before: Timestamp, limit: usize) -> Result<Pruned, StoreError> {
        let walk = self.walks().lock().history;
        let (walk, removed) = match walk {
            Walk::Begins => (Walk::Rest(Uuid::nil()), self.begin(before, limit).await?),
            Walk::Rest(after) => {
                let looking = async |session: &Session| session.query(Sql::HistoryRestWalk, &[&after, &LOOK]).await;
                let rows = self.reads().call(looking).await?;
                let (next, removed) = self.remove(&rows, before, limit).await?;
                (next.map_or(Walk::Month(Uuid::nil()), Walk::Rest), removed)
            }
            Walk::Month(after) => {
                let rows = self.look_at_month(before, after).await?;
                let (next, removed) = self.remove(&rows, before, limit).await?;
                (next.map_or(Walk::Begins, Walk::Month), removed)
            }
        };
        self.walks().lock().history = walk;
        Ok(Pruned { removed, more: walk != Walk::Begins })
    }

    async fn prune_keys(&self, before: Timestamp, limit: usize) -> Result<Pruned, StoreError> {
        let block = self.walks().lock().block;
        let of_inbox = if block == 0 { self.prune_inbox(before, limit).await? } else { 0 };
        let (from, to) = (Tid::first_of(block), Tid::first_of(block + BLOCKS));
        let (before, most) = (before.as_millis(), column(limit));
        let step = async |session: &Session| {
            let freed = session.execute(Sql::IdempotencyFree, &[&from, &to, &before, &most]).await?;
            let blocks = session.query(Sql::IdempotencyBlocks, &[]).await?;
            Ok((freed, blocks.first().map_or(0, |row| row.get::<_, i64>(0))))
        };
        let (freed, blocks) = self.reads().call(step).await?;
        let next = if is_all(freed, limit) { block } else { block + BLOCKS };
        let more = i64::from(next) < blocks;
        self.walks().lock().block = if more { next } else { 0 };
        Ok(Pruned { removed: freed + of_inbox, more })
    }

    /// Removes the months that are past, and what was put in quarantine as long ago.
    async fn begin(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let mut past = self.reads().call(upkeep::months).await?;
        past.retain(|month| month.ends <= before);
        if !past.is_empty() {
            upkeep::remove(self.address(), &past).await.map_err(|fault| fault.to_store_error())?;
        }
        let (before, limit) = (before.as_millis(), column(limit));
        self.reads().call(async |session| session.execute(Sql::QuarantinePrune, &[&before, &limit]).await).await
    }

    /// Rows of the month that lasts, if a part of it is over: those that were submitted before, by
    /// their ids.
    async fn look_at_month(&self, before: Timestamp, after: Uuid) -> Result<Vec<Row>, StoreError> {
        let now = self.now();
        let months = self.reads().call(upkeep::months).await?;
        let lasts = |month: &Month| month.begins < before && month.begins <= now && now < month.ends;
        let Some(month) = months.into_iter().find(lasts) else { return Ok(Vec::new()) };
        let until = first_id_at(before.as_millis().saturating_add(SKEW_MILLIS));
        let (begins, ends) = (month.begins.as_millis(), month.ends.as_millis());
        let looking = async |session: &Session| {
            session.query(Sql::HistoryMonthWalk, &[&begins, &ends, &after, &until, &LOOK]).await
        };
        self.reads().call(looking).await
    }

    /// Removes those of the rows that are over; where the next look begins, and how many were
    /// removed.
    async fn remove(&self, rows: &[Row], before: Timestamp, limit: usize) -> Result<(Option<Uuid>, u64), StoreError> {
        let (mut ids, mut instants): (Vec<Uuid>, Vec<i64>) = (Vec::new(), Vec::new());
        let mut looked = 0;
        for row in rows {
            if ids.len() >= limit {
                break;
            }
            let (id, completed_at): (Uuid, i64) = (row.get(0), row.get(1));
            if completed_at < before.as_millis() {
                ids.push(id);
                instants.push(completed_at);
            }
            looked += 1;
        }
        let is_end = looked == rows.len() && column(rows.len()) < LOOK;
        let next = rows[..looked].last().filter(|_| !is_end).map(|row| row.get(0));
        if ids.is_empty() {
            return Ok((next, 0));
        }
        let removing = async |session: &Session| session.execute(Sql::HistoryRemove, &[&ids, &instants]).await;
        Ok((next, self.reads().call(removing).await?))
    }
}

/// Whether a step did as much as it may: there can be more where it was.
fn is_all(removed: u64, limit: usize) -> bool {
    usize::try_from(removed).is_ok_and(|removed| removed >= limit)
}

/// The least id of version 7 that is made at this instant.
pub(crate) fn first_id_at(millis: i64) -> Uuid {
    Uuid::from_u128(u128::try_from(millis).unwrap_or_default() << 80)
}

fn column(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
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
