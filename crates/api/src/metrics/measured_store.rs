//! A store that times its calls and counts their errors.
//!
//! It is between the adapter and everything else, so a call is what the adapter makes of it: a
//! batch counts once. Its cost is two readings of the clock and an update of a histogram.

use std::sync::Arc;

use async_trait::async_trait;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use punctual_core::coordinator::LeaderLease;
use punctual_core::forward_store;
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::lane::LaneId;
use punctual_core::queues::LiveCounts;
use punctual_core::state::Change;
use punctual_core::store::{
    Applied, Beat, Claim, Claimed, Count, Cursor, Filter, Head, Inserted, Page, Start, Store, StoreError, TaskResult,
};
use punctual_core::task::{Hold, NewTask, Task};
use punctual_core::time::Timestamp;
use tokio::time::Instant;

/// The metrics of the store. Cheap to clone.
#[derive(Clone, Debug)]
pub struct StoreMetrics {
    /// Whether the store answered the last call.
    pub(super) up: Gauge,
    pub(super) errors: Family<ErrorLabel, Counter>,
    pub(super) call_seconds: Family<CallLabel, Histogram, fn() -> Histogram>,
    /// The connections that are open.
    pub connections: Gauge,
    /// Those of them that are at work.
    pub connections_in_use: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CallLabel {
    call: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ErrorLabel {
    error: &'static str,
}

impl StoreMetrics {
    /// Takes in the outcome of a call.
    fn count(&self, outcome: Result<(), &StoreError>) {
        let error = match outcome {
            Ok(()) => None,
            Err(StoreError::Unavailable(_)) => Some("unavailable"),
            Err(StoreError::Full(_)) => Some("full"),
            Err(StoreError::Overloaded) => Some("overloaded"),
            Err(StoreError::Corrupt(_)) => Some("corrupt"),
        };
        if let Some(error) = error {
            self.errors.get_or_create(&ErrorLabel { error }).inc();
        }
        // It has not asked the store if too many calls wait.
        if error != Some("overloaded") {
            self.up.set(i64::from(error != Some("unavailable")));
        }
    }
}

/// The store (see the module).
pub struct MeasuredStore {
    inner: Arc<dyn Store>,
    metrics: StoreMetrics,
}

impl MeasuredStore {
    /// Measures the calls of `inner`, which has just been opened.
    pub fn new(inner: Arc<dyn Store>, metrics: StoreMetrics) -> Self {
        metrics.up.set(1);
        // An alert on a rate needs the zero before the first error.
        for error in ["unavailable", "full", "overloaded", "corrupt"] {
            drop(metrics.errors.get_or_create(&ErrorLabel { error }));
        }
        Self { inner, metrics }
    }

    async fn measure<T>(
        &self,
        call: &'static str,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let begun = Instant::now();
        let outcome = work.await;
        let elapsed = begun.elapsed().as_secs_f64();
        self.metrics.call_seconds.get_or_create(&CallLabel { call }).observe(elapsed);
        self.metrics.count(outcome.as_ref().map(drop));
        outcome
    }
}

#[async_trait]
impl Store for MeasuredStore {
    async fn insert(&self, tasks: Vec<NewTask>) -> Result<Vec<Inserted>, StoreError> {
        self.measure("insert", self.inner.insert(tasks)).await
    }

    async fn insert_all(&self, tasks: Vec<NewTask>) -> Result<Vec<Inserted>, StoreError> {
        self.measure("insert", self.inner.insert_all(tasks)).await
    }

    async fn claim(&self, claims: Vec<Claim>) -> Result<Vec<Claimed>, StoreError> {
        self.measure("claim", self.inner.claim(claims)).await
    }

    async fn start(&self, starts: Vec<Start>) -> Result<Vec<Option<Task>>, StoreError> {
        self.measure("start", self.inner.start(starts)).await
    }

    async fn apply(&self, changes: Vec<(TaskId, Change)>) -> Result<Vec<Applied>, StoreError> {
        self.measure("apply", self.inner.apply(changes)).await
    }

    async fn apply_as(
        &self,
        lease: &LeaderLease,
        changes: Vec<(TaskId, Change)>,
    ) -> Result<Option<Vec<Applied>>, StoreError> {
        self.measure("apply", self.inner.apply_as(lease, changes)).await
    }

    async fn extend(&self, beats: Vec<Beat>) -> Result<Vec<Option<Hold>>, StoreError> {
        self.measure("extend", self.inner.extend(beats)).await
    }

    async fn get(&self, tenant: &str, ids: Vec<TaskId>) -> Result<Vec<Option<Task>>, StoreError> {
        self.measure("get", self.inner.get(tenant, ids)).await
    }

    async fn live(&self, ids: Vec<TaskId>) -> Result<Vec<TaskId>, StoreError> {
        self.measure("live", self.inner.live(ids)).await
    }

    async fn results(&self, ids: Vec<TaskId>, max_bytes: usize) -> Result<Vec<Option<TaskResult>>, StoreError> {
        self.measure("results", self.inner.results(ids, max_bytes)).await
    }

    async fn list(&self, filter: Filter, after: Option<Cursor>, limit: usize) -> Result<Page, StoreError> {
        self.measure("list", self.inner.list(filter, after, limit)).await
    }

    async fn heads(&self, after: Option<LaneId>, before: Timestamp, limit: usize) -> Result<Vec<Head>, StoreError> {
        self.measure("heads", self.inner.heads(after, before, limit)).await
    }

    async fn overdue(&self, dead: Vec<NodeId>, limit: usize) -> Result<Vec<Task>, StoreError> {
        self.measure("overdue", self.inner.overdue(dead, limit)).await
    }

    async fn counts(&self) -> Result<Vec<Count>, StoreError> {
        self.measure("counts", self.inner.counts()).await
    }

    async fn live_counts(&self) -> Result<LiveCounts, StoreError> {
        self.measure("live_counts", self.inner.live_counts()).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.measure("check", self.inner.check()).await
    }

    forward_store!(inner: quarantined, close);
}
