//! Carries the worker's counts over to the metrics, once a second.

use std::sync::Arc;
use std::time::Duration;

use punctual_api::metrics::Metrics;
use punctual_worker::{Ended, WorkerStats};
use tokio_util::sync::CancellationToken;

/// See the module.
pub struct Tally {
    metrics: Metrics,
    stats: Arc<WorkerStats>,
    seen: [u64; Ended::ALL.len()],
}

impl Tally {
    /// From `stats` to `metrics`.
    pub fn new(metrics: Metrics, stats: Arc<WorkerStats>) -> Self {
        Self { metrics, stats, seen: Default::default() }
    }

    /// Carries over until told to stop.
    pub async fn run(mut self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
            self.carry_over();
        }
    }

    fn carry_over(&mut self) {
        self.metrics.webhooks_in_flight.set(i64::try_from(self.stats.in_flight()).unwrap_or(i64::MAX));
        for how in Ended::ALL {
            let ended = self.stats.ended(how);
            let seen = std::mem::replace(&mut self.seen[how as usize], ended);
            self.metrics.settled(how.as_str(), ended - seen);
        }
    }
}
