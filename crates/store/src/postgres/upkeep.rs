//! The upkeep of the tables: makes the months of the history ahead, and removes old ones.
//!
//! The leader calls it. A change of tables needs the migration lock, on a connection of its own. So
//! two leaders, or a leader and a migrating node, never change them at once. Other sessions queue
//! behind a change that waits for its lock, so it gives up soon and is tried again in the next
//! round.

use std::time::Duration;

use punctual_core::store::StoreError;
use punctual_core::time::Timestamp;
use tokio_postgres::error::SqlState;
use tracing::{debug, info};

use super::PostgresStore;
use super::connection::Address;
use super::connection::Session;
use super::fault::Fault;
use super::statements::Sql;
use crate::migrations::postgres::LOCK;

/// The number of months of history that have partitions, the current one included.
const MONTHS_AHEAD: i32 = 3;

/// The maximum number of rows of a month that are moved into its partition. Moving holds a lock
/// that every read of the history waits for.
const MOVED_ROWS_MAX: i64 = 10_000;

/// The number of counts that are merged at once.
const PORTION_ROWS: i64 = 1_000;

/// How long a change of the tables waits for the sessions that use them. Later sessions wait behind
/// it.
const SHORT_WAITS: &str = "SET lock_timeout = '200ms'";

/// How often the lock is asked for, and the pause in between: mostly the leader itself holds it,
/// for another change.
const LOCK_TRIES: usize = 10;
const LOCK_PAUSE: Duration = Duration::from_millis(100);

impl PostgresStore {
    /// Makes the partitions of the history for the next months, merges the counts of writers that
    /// are gone, and corrects the counts of queues. Returns how many partitions were made.
    pub async fn upkeep(&self, now: Timestamp) -> Result<u32, StoreError> {
        upkeep(self.address(), now).await.map_err(|fault| fault.to_store_error())
    }
}

async fn upkeep(address: &Address, now: Timestamp) -> Result<u32, Fault> {
    let Some(session) = lock(address).await? else { return Ok(0) };
    let rows = session.query(Sql::HistoryAhead, &[&now.as_millis(), &MONTHS_AHEAD, &MOVED_ROWS_MAX]).await?;
    fold_counts(&session).await?;
    fold_queue_counts(&session).await?;
    session.execute(Sql::QueueCountsCorrect, &[]).await?;
    let made = rows.first().map_or(0, |row| row.get::<_, i32>(0));
    Ok(u32::try_from(made).unwrap_or_default())
}

/// Merges the counts that writers have in shares of their own. Writers wait for a portion at most.
async fn fold_counts(session: &Session) -> Result<(), Fault> {
    let mut after = (i64::MIN, i16::MIN, i32::MIN);
    loop {
        let (lane, state, shard) = after;
        let last = session.query(Sql::CountsFold, &[&lane, &state, &shard, &PORTION_ROWS]).await?;
        let Some(last) = last.first() else { return Ok(()) };
        after = (last.get(0), last.get(1), last.get(2));
    }
}

/// The same for the counts of queues.
async fn fold_queue_counts(session: &Session) -> Result<(), Fault> {
    let mut after = (String::new(), String::new(), i16::MIN, i32::MIN);
    loop {
        let (tenant, queue, state, shard) = &after;
        let last = session.query(Sql::QueueCountsFold, &[tenant, queue, state, shard, &PORTION_ROWS]).await?;
        let Some(last) = last.first() else { return Ok(()) };
        after = (last.get(0), last.get(1), last.get(2), last.get(3));
    }
}

/// A month of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Month {
    name: String,
    pub begins: Timestamp,
    pub ends: Timestamp,
}

/// The months that have partitions.
pub(crate) async fn months(session: &Session) -> Result<Vec<Month>, Fault> {
    let rows = session.query(Sql::HistoryPartitions, &[]).await?;
    let month = |row: &tokio_postgres::Row| {
        let (begins, ends) = bounds(row.get(1))?;
        Some(Month { name: row.get(0), begins, ends })
    };
    Ok(rows.iter().filter_map(month).collect())
}

/// Removes months, each in a transaction of its own. (PostgreSQL cannot detach concurrently from a
/// table with a default partition.) A month that is being read, by a long backup for example, stays
/// for now.
pub(crate) async fn remove_months(address: &Address, months: &[Month]) -> Result<(), Fault> {
    let Some(session) = lock(address).await? else { return Ok(()) };
    for Month { name, .. } in months {
        match session.run(&format!("ALTER TABLE history DETACH PARTITION {name}; DROP TABLE {name}")).await {
            Ok(()) => info!(month = name, "removed a month of history"),
            Err(Fault::Postgres(error)) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                debug!(month = name, "cannot remove a month of history that is in use; trying again in the next round");
            }
            Err(fault) => return Err(fault),
        }
    }
    Ok(())
}

/// A connection that holds the lock for changes of tables; none while another one holds it.
async fn lock(address: &Address) -> Result<Option<Session>, Fault> {
    let session = Session::open(address, &[]).await?;
    session.run(SHORT_WAITS).await?;
    for _ in 0..LOCK_TRIES {
        let rows = session.query(Sql::UpkeepLock, &[&LOCK]).await?;
        if rows.first().is_some_and(|row| row.get(0)) {
            return Ok(Some(session));
        }
        tokio::time::sleep(LOCK_PAUSE).await;
    }
    Ok(None)
}

/// Where a partition begins and ends, read from `FOR VALUES FROM ('1793491200000') TO
/// ('1796083200000')`.
fn bounds(spelled: &str) -> Option<(Timestamp, Timestamp)> {
    let (begins, ends) = spelled.strip_prefix("FOR VALUES FROM ('")?.split_once("') TO ('")?;
    let instant = |millis: &str| millis.parse().ok().map(Timestamp::from_millis);
    Some((instant(begins)?, instant(ends.strip_suffix("')")?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_of_a_partition_are_read() {
        let spelled = "FOR VALUES FROM ('1793491200000') TO ('1796083200000')";
        let (begins, ends) = bounds(spelled).unwrap();
        assert_eq!((begins.as_millis(), ends.as_millis()), (1_793_491_200_000, 1_796_083_200_000));
        assert_eq!(bounds("DEFAULT"), None);
    }
}
