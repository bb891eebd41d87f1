//! Carries the worker's counts, and how the node stands, over to the metrics, once a second.

use std::sync::Arc;
use std::time::Duration;

use punctual_api::metrics::Metrics;
use punctual_leader::membership::Skew;
use punctual_scheduler::ownership::Owned;
use punctual_store::postgres::PostgresStore;
use punctual_worker::{Ended, WorkerStats};
use tokio_util::sync::CancellationToken;

use super::parts::Parts;

/// See the module.
pub struct Tally {
    metrics: Metrics,
    stats: Arc<WorkerStats>,
    owned: Arc<Owned>,
    skew: Skew,
    shared: Option<PostgresStore>,
    seen: [u64; Ended::ALL.len()],
}

impl Tally {
    /// From the parts to their metrics.
    pub fn new(parts: &Parts) -> Self {
        Self {
            metrics: parts.metrics.clone(),
            stats: Arc::clone(&parts.worker_stats),
            owned: Arc::clone(&parts.owned),
            skew: Arc::clone(&parts.skew),
            shared: parts.shared.clone(),
            seen: Default::default(),
        }
    }

    /// Carries over until told to stop.
    pub async fn run(mut self, stop: CancellationToken) {
        self.carry_over();
        while !stop.is_cancelled() {
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
            self.carry_over();
        }
    }

    fn carry_over(&mut self) {
        self.metrics.partitions_owned.set(i64::try_from(self.owned.partitions()).unwrap_or(i64::MAX));
        self.metrics.clock_skew((self.skew)());
        self.metrics.read_store_lag(self.shared.as_ref().and_then(PostgresStore::read_store_lag));
        self.metrics.webhooks_in_flight.set(i64::try_from(self.stats.in_flight()).unwrap_or(i64::MAX));
        for how in Ended::ALL {
            let ended = self.stats.ended(how);
            let seen = std::mem::replace(&mut self.seen[how as usize], ended);
            self.metrics.settled(how.as_str(), ended - seen);
        }
    }
}
