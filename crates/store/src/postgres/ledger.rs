//! The ledger of what workers have done: `Ledger` in `crates/client` writes it, and the leader has
//! what is over removed.

use punctual_core::store::StoreError;
use punctual_core::time::Timestamp;

use super::PostgresStore;
use super::statements::Sql;
use crate::columns::count_column;

impl PostgresStore {
    /// Removes at most `limit` entries that have expired by `now`; gives how many there were.
    pub async fn prune_ledger(&self, now: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let (now, limit) = (now.as_millis(), count_column(limit));
        self.reads().call(async |session| session.execute(Sql::LedgerPrune, &[&now, &limit]).await).await
    }
}
