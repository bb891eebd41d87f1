//! Wakes the cron loop early: this node has written a schedule, or has finished a task that a
//! schedule may wait for.
//!
//! The notifying store calls it. A lost call only costs punctuality.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Wakes the cron loop (see the module).
#[derive(Debug, Default)]
pub struct CronWaker {
    woken: Notify,
    waiting: AtomicBool,
}

impl CronWaker {
    /// Wakes it for a schedule that was written.
    pub fn schedule_written(&self) {
        self.woken.notify_one();
    }

    /// Wakes it for a finished task. Costs one atomic load while no schedule waits for a task.
    pub fn task_finished(&self) {
        if self.waiting.load(Ordering::Relaxed) {
            self.woken.notify_one();
        }
    }

    /// Sets whether a schedule waits for a task to finish.
    pub fn set_waiting(&self, waiting: bool) {
        self.waiting.store(waiting, Ordering::Relaxed);
    }

    /// Returns once the loop was woken since the last call.
    pub async fn wait(&self) {
        self.woken.notified().await;
    }
}
