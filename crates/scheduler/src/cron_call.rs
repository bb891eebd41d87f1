//! Calls the cron loop, so that it does not wait for its next look: a schedule was written on this
//! node, or a task came to rest here that a schedule may wait for.
//!
//! Losing a call costs a moment and nothing else.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// See the module.
#[derive(Debug, Default)]
pub struct CronCall {
    called: Notify,
    waits: AtomicBool,
}

impl CronCall {
    /// A schedule was written.
    pub fn written(&self) {
        self.called.notify_one();
    }

    /// Tasks have come to rest. Costs next to nothing while no schedule waits for any.
    pub fn rested(&self) {
        if self.waits.load(Ordering::Relaxed) {
            self.called.notify_one();
        }
    }

    /// Whether a schedule waits for a task to come to rest.
    pub fn set_waits(&self, waits: bool) {
        self.waits.store(waits, Ordering::Relaxed);
    }

    /// Returns once somebody has called since the last time.
    pub async fn called(&self) {
        self.called.notified().await;
    }
}
