//! The ledger of the workers' effects. `Ledger` in `crates/client` writes it; the leader prunes it.

use punctual_core::store::StoreError;
use punctual_core::time::Timestamp;

use super::PostgresStore;
use super::statements::Sql;
use crate::columns::count_column;

impl PostgresStore {
    /// Removes at most `limit` entries that expired by `now`; returns how many.
    pub async fn prune_ledger(&self, now: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let (now, limit) = (now.as_millis(), count_column(limit));
        self.reads().call(async |session| session.execute(Sql::LedgerPrune, &[&now, &limit]).await).await
    }
}
