//! Breakers. A reset is urgent; the other writes are progress.

use async_trait::async_trait;
use punctual_core::breakers::{BreakerChange, BreakerEvent, BreakerKey, Breakers, IntervalCounts, OpenBreaker, Runs};
use punctual_core::ids::NodeId;
use punctual_core::store::StoreError;
use punctual_core::time::Timestamp;

use super::SqliteStore;
use super::fault::Fault;
use super::job_queue::WriteClass;
use super::session::Session;
use super::statements::Sql;
use crate::portable::{breakers, ready};
use crate::write_queue::Weight;

#[async_trait]
impl Breakers for SqliteStore {
    async fn record_counts(&self, node: NodeId, counts: Vec<IntervalCounts>) -> Result<(), StoreError> {
        let weight = Weight { rows: counts.len(), bytes: counts.len() * Weight::SMALL.bytes };
        let work = move |session: &mut Session<'_>| ready(breakers::record_counts(session, node, &counts));
        self.writer().call(WriteClass::Progress, weight, work).await
    }

    async fn counts_since(&self, since: Timestamp) -> Result<Vec<(BreakerKey, Runs)>, StoreError> {
        self.readers().call(move |session| ready(breakers::counts_since(session, since))).await
    }

    async fn open_breaker(&self, breaker: OpenBreaker) -> Result<bool, StoreError> {
        let work = move |session: &mut Session<'_>| ready(breakers::open(session, &breaker));
        self.writer().call(WriteClass::Progress, Weight::SMALL, work).await
    }

    async fn list_breakers(&self, after: Option<BreakerKey>, limit: usize) -> Result<Vec<OpenBreaker>, StoreError> {
        self.readers().call(move |session| ready(breakers::list(session, after.as_ref(), limit))).await
    }

    async fn breaker_over(&self, tenant: &str, target: &str) -> Result<Option<OpenBreaker>, StoreError> {
        let (tenant, target) = (tenant.to_owned(), target.to_owned());
        self.readers().call(move |session| ready(breakers::over(session, &tenant, &target))).await
    }

    async fn change_breaker(&self, key: &BreakerKey, event: BreakerEvent) -> Result<BreakerChange, StoreError> {
        let key = key.clone();
        let class = if event == BreakerEvent::Reset { WriteClass::Urgent } else { WriteClass::Progress };
        self.writer().call(class, Weight::SMALL, move |session| change(session, &key, &event)).await
    }
}

/// Changes a breaker. Closing it also removes its counts, by a second statement: SQLite has no
/// statement that deletes from two tables.
fn change(session: &mut Session<'_>, key: &BreakerKey, event: &BreakerEvent) -> Result<BreakerChange, Fault> {
    let change = ready(breakers::change(session, key, event))?;
    if change == BreakerChange::Closed {
        session.statements.get(Sql::BreakerCountsForget)?.execute((&key.tenant, &key.target))?;
    }
    Ok(change)
}
