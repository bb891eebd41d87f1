//! Wakes the cron loop before its next pass: this node has written a schedule, or has finished a
//! task that a schedule may wait for.
//!
//! The notifying wrappers of the store call it. A lost call costs a moment and nothing else.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// The wake-up of the cron loop (see the module).
#[derive(Debug, Default)]
pub struct CronWaker {
    woken: Notify,
    waiting: AtomicBool,
}

impl CronWaker {
    /// A schedule was written.
    pub fn schedule_written(&self) {
        self.woken.notify_one();
    }

    /// A task has finished. Costs one atomic load while no schedule waiting for any.
    pub fn task_finished(&self) {
        if self.waiting.load(Ordering::Relaxed) {
            self.woken.notify_one();
        }
    }

    /// Sets whether a schedule waiting for a task to finish.
    pub fn set_waiting(&self, waiting: bool) {
        self.waiting.store(waiting, Ordering::Relaxed);
    }

    /// Returns once there was a call since the last time.
    pub async fn wait(&self) {
        self.woken.notified().await;
    }
}
