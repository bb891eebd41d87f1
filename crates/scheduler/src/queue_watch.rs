//! The loop that refreshes the node's knowledge of queue settings.
//!
//! Every node runs it. It reads the settings every second, and at once when the store reports a
//! change. A change also wakes the dispatcher, which may have limited lanes because of a queue.

use std::sync::Arc;
use std::time::Duration;

use punctual_core::queues::Queues;
use punctual_core::store::StoreError;
use punctual_submission::QueueCache;
use tokio_util::sync::CancellationToken;

use crate::hints::Hints;

/// How often settings are read again.
const INTERVAL: Duration = Duration::from_secs(1);

/// Keeps a [`QueueCache`] up to date (see the module).
pub struct QueueWatch {
    queues: Arc<dyn Queues>,
    cache: QueueCache,
    hints: Arc<Hints>,
}

impl QueueWatch {
    /// Refreshes `cache` from `queues`, and notifies `hints` of changes.
    pub fn new(queues: Arc<dyn Queues>, cache: QueueCache, hints: Arc<Hints>) -> Self {
        Self { queues, cache, hints }
    }

    /// Refreshes until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let mut failures = 0_u32;
        let mut next = tokio::time::Instant::now();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                changes = self.queues.wait_for_limit_changes() => {
                    for (tenant, queue) in &changes.freed {
                        self.hints.free(tenant, queue);
                    }
                    if !changes.changed {
                        continue;
                    }
                    // Limited lanes need not wait for the read: the store uses the new settings
                    // already.
                    self.hints.free_all();
                }
                () = tokio::time::sleep_until(next) => {}
            }
            match self.run_once().await {
                Ok(()) => failures = 0,
                Err(error) => {
                    failures += 1;
                    if failures == 1 {
                        tracing::warn!(error = %error, "cannot read the settings of queues; using the last known ones until it works");
                    }
                }
            }
            next = tokio::time::Instant::now() + INTERVAL;
        }
    }

    /// Reads the settings of all queues that have some.
    pub async fn run_once(&self) -> Result<(), StoreError> {
        self.cache.update(self.queues.special_queues().await?);
        Ok(())
    }
}
