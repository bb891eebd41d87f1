//! One run: the call, bounded by the task's timeout, and what came of it.

use std::sync::Arc;
use std::time::Duration;

use punctual_core::clock::Clock;
use punctual_core::task::Task;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::outcome::Outcome;
use crate::stats::WorkerStats;
use crate::webhook::Webhooks;

/// Runs tasks.
pub struct Executor {
    webhooks: Webhooks,
    clock: Arc<dyn Clock>,
    stats: Arc<WorkerStats>,
}

/// No run is waited for longer, whatever its task says.
pub(crate) const LONGEST_RUN: Duration = Duration::from_hours(30 * 24);

impl Executor {
    /// Runs tasks with this client.
    pub fn new(webhooks: Webhooks, clock: Arc<dyn Clock>, stats: Arc<WorkerStats>) -> Self {
        Self { webhooks, clock, stats }
    }

    /// Runs a task that has begun; gives it back when `abort` is cancelled before the answer is there.
    pub async fn run(&self, task: &Task, abort: &CancellationToken) -> Outcome {
        if abort.is_cancelled() {
            return Outcome::GivenBack;
        }
        let now = self.clock.now();
        let _in_flight =
            self.stats.start(u64::try_from(now.millis_since(task.due_at.max(task.created_at))).unwrap_or(0));
        let deadline = Instant::now() + Duration::from_millis(task.body.timeout_millis).min(LONGEST_RUN);
        tokio::select! {
            biased;
            answer = self.webhooks.call(task, now, deadline) => Outcome::of(answer, self.clock.now()),
            () = abort.cancelled() => Outcome::GivenBack,
        }
    }
}
