//! Breakers. Every statement is a transaction of its own.

use async_trait::async_trait;
use punctual_core::breakers::{BreakerChange, BreakerEvent, BreakerKey, Breakers, IntervalCounts, OpenBreaker, Runs};
use punctual_core::ids::NodeId;
use punctual_core::store::StoreError;
use punctual_core::time::Timestamp;

use super::PostgresStore;
use crate::portable::breakers;

#[async_trait]
impl Breakers for PostgresStore {
    async fn record_counts(&self, node: NodeId, counts: Vec<IntervalCounts>) -> Result<(), StoreError> {
        self.reads().call(async |mut session| breakers::record_counts(&mut session, node, &counts).await).await
    }

    async fn counts_since(&self, since: Timestamp) -> Result<Vec<(BreakerKey, Runs)>, StoreError> {
        self.reads().call(async |mut session| breakers::counts_since(&mut session, since).await).await
    }

    async fn open_breaker(&self, breaker: OpenBreaker) -> Result<bool, StoreError> {
        self.reads().call(async |mut session| breakers::open(&mut session, &breaker).await).await
    }

    async fn list_breakers(&self, after: Option<BreakerKey>, limit: usize) -> Result<Vec<OpenBreaker>, StoreError> {
        self.reads().call(async |mut session| breakers::list(&mut session, after.as_ref(), limit).await).await
    }

    async fn breaker_over(&self, tenant: &str, target: &str) -> Result<Option<OpenBreaker>, StoreError> {
        self.reads().call(async |mut session| breakers::over(&mut session, tenant, target).await).await
    }

    async fn change_breaker(&self, key: &BreakerKey, event: BreakerEvent) -> Result<BreakerChange, StoreError> {
        self.reads().call(async |mut session| breakers::change(&mut session, key, &event).await).await
    }
}
