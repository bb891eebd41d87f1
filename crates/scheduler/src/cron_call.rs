//! Wakes the cron loop before its next pass: this node has written a schedule, or has finished a
//! task that a schedule may wait for.
//!
//! The notifying wrappers of the store call it. A lost call costs a moment and nothing else.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// The wake-up of the cron loop (see the module).
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

    /// A task has finished. Costs one atomic load while no schedule waits for any.
    pub fn task_finished(&self) {
        if self.waits.load(Ordering::Relaxed) {
            self.called.notify_one();
        }
    }

    /// Sets whether a schedule waits for a task to finish.
    pub fn set_waits(&self, waits: bool) {
        self.waits.store(waits, Ordering::Relaxed);
    }

    /// Returns once there was a call since the last time.
    pub async fn called(&self) {
        self.called.notified().await;
    }
}
