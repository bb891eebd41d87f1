//! Bulk operations. A client's own writes are urgent; there are few of them.

use async_trait::async_trait;
use punctual_core::bulk::{BulkOperation, BulkOperations};
use punctual_core::coordinator::LeaderLease;
use punctual_core::ids::OperationId;
use punctual_core::store::{Cursor, Filter, Page, Store, StoreError};
use punctual_core::time::Timestamp;

use super::SqliteStore;
use super::job_queue::WriteClass;
use super::session::Session;
use crate::portable::{bulk, ready};
use crate::write_queue::Weight;

#[async_trait]
impl BulkOperations for SqliteStore {
    async fn insert_operation(&self, operation: BulkOperation) -> Result<(), StoreError> {
        let work = move |session: &mut Session<'_>| ready(bulk::insert(session, &operation));
        self.writer().call(WriteClass::Urgent, Weight::SMALL, work).await
    }

    async fn write_operation(&self, operation: BulkOperation) -> Result<bool, StoreError> {
        let work = move |session: &mut Session<'_>| ready(bulk::write(session, &operation));
        self.writer().call(WriteClass::Urgent, Weight::SMALL, work).await
    }

    async fn advance_operation(&self, lease: &LeaderLease, operation: BulkOperation) -> Result<bool, StoreError> {
        let lease = lease.clone();
        let work = move |session: &mut Session<'_>| ready(bulk::advance(session, &lease, &operation));
        self.writer().call(WriteClass::Progress, Weight::SMALL, work).await
    }

    async fn operation(&self, tenant: &str, id: OperationId) -> Result<Option<BulkOperation>, StoreError> {
        let tenant = tenant.to_owned();
        self.readers().call(move |session| ready(bulk::get(session, &tenant, id))).await
    }

    async fn list_operations(
        &self,
        tenant: &str,
        after: Option<OperationId>,
        limit: usize,
    ) -> Result<Vec<BulkOperation>, StoreError> {
        let tenant = tenant.to_owned();
        self.readers().call(move |session| ready(bulk::list(session, &tenant, after, limit))).await
    }

    async fn running_operations(&self, limit: usize) -> Result<Vec<BulkOperation>, StoreError> {
        self.readers().call(move |session| ready(bulk::running(session, limit))).await
    }

    async fn list_current(&self, filter: Filter, after: Option<Cursor>, limit: usize) -> Result<Page, StoreError> {
        self.list(filter, after, limit).await
    }

    async fn prune_operations(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let work = move |session: &mut Session<'_>| ready(bulk::prune(session, before, limit));
        self.writer().call(WriteClass::Progress, Weight::SMALL, work).await
    }
}
