//! The loop that refreshes the node's knowledge of queue settings.
//!
//! Every node runs it. It reads what has changed every second, and at once when the store reports a
//! change. Every minute it reads all settings, and so finds what a node of an older version changed
//! without a number. A change also wakes the dispatcher, which may have limited lanes because of a
//! queue.

use std::sync::Arc;
use std::time::Duration;

use punctual_core::queues::Queues;
use punctual_core::store::StoreError;
use punctual_submission::QueueCache;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::hints::Hints;

/// How often changes are read.
const INTERVAL: Duration = Duration::from_secs(1);
/// How often all settings are read.
const WHOLE_INTERVAL: Duration = Duration::from_mins(1);

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
        let mut next = Instant::now();
        let mut next_whole = next;
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
            let is_whole = Instant::now() >= next_whole;
            let read = if is_whole { self.read_since(0).await } else { self.run_once().await };
            match read {
                Ok(()) => {
                    failures = 0;
                    if is_whole {
                        next_whole = Instant::now() + WHOLE_INTERVAL;
                    }
                }
                Err(error) => {
                    failures += 1;
                    if failures == 1 {
                        tracing::warn!(error = %error, "cannot read the settings of queues; using the last known ones until it works");
                    }
                }
            }
            next = Instant::now() + INTERVAL;
        }
    }

    /// Reads the settings of the queues that changed since the last read; the first time, of all.
    pub async fn run_once(&self) -> Result<(), StoreError> {
        self.read_since(self.cache.read_to()).await
    }

    async fn read_since(&self, after: u64) -> Result<(), StoreError> {
        self.cache.take_changes(after, self.queues.queues_changed_since(after).await?);
        Ok(())
    }
}
