//! Bulk operations. Every statement is a transaction of its own.

use async_trait::async_trait;
use punctual_core::bulk::{BulkOperation, BulkOperations};
use punctual_core::coordinator::LeaderLease;
use punctual_core::ids::OperationId;
use punctual_core::store::{Cursor, Filter, Page, StoreError};
use punctual_core::time::Timestamp;

use super::PostgresStore;
use crate::portable::bulk;

#[async_trait]
impl BulkOperations for PostgresStore {
    async fn insert_operation(&self, operation: BulkOperation) -> Result<(), StoreError> {
        self.reads().call(async |mut session| bulk::insert(&mut session, &operation).await).await
    }

    async fn write_operation(&self, operation: BulkOperation) -> Result<bool, StoreError> {
        self.reads().call(async |mut session| bulk::write(&mut session, &operation).await).await
    }

    async fn advance_operation(&self, lease: &LeaderLease, operation: BulkOperation) -> Result<bool, StoreError> {
        self.reads().call(async |mut session| bulk::advance(&mut session, lease, &operation).await).await
    }

    async fn operation(&self, tenant: &str, id: OperationId) -> Result<Option<BulkOperation>, StoreError> {
        self.reads().call(async |mut session| bulk::get(&mut session, tenant, id).await).await
    }

    async fn list_operations(
        &self,
        tenant: &str,
        after: Option<OperationId>,
        limit: usize,
    ) -> Result<Vec<BulkOperation>, StoreError> {
        self.reads().call(async |mut session| bulk::list(&mut session, tenant, after, limit).await).await
    }

    async fn running_operations(&self, limit: usize) -> Result<Vec<BulkOperation>, StoreError> {
        self.reads().call(async |mut session| bulk::running(&mut session, limit).await).await
    }

    async fn list_current(&self, filter: Filter, after: Option<Cursor>, limit: usize) -> Result<Page, StoreError> {
        self.list_from_primary(&filter, after, limit).await
    }

    async fn prune_operations(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        self.reads().call(async |mut session| bulk::prune(&mut session, before, limit).await).await
    }
}
