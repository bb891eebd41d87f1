//! One run, step by step: call the target, judge its answer, settle the outcome.
//!
//! The consumer spawns [`Executor::run`] for every run that it has started. Invariant: the slot at
//! the target is free as soon as the call is over, whatever its result is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use punctual_core::clock::Clock;
use punctual_core::run_end::RunOutcome;
use punctual_core::task::Task;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::answer::{WebhookResult, judge, fit_retry_after};
use crate::settler::FinishedRun;
use crate::slots::TargetSlot;
use crate::stats::WorkerStats;
use crate::webhook::Webhooks;

/// The longest wait for a run, whatever its task's timeout is.
pub(crate) const RUN_MAX: Duration = Duration::from_hours(30 * 24);

/// A run that has started in the store, and the slots that it uses here.
pub(crate) struct StartedRun {
    pub(crate) task: Task,
    /// No other node takes the task before this.
    pub(crate) held_until: Instant,
    pub(crate) call_slot: OwnedSemaphorePermit,
    pub(crate) target_slot: TargetSlot,
}

/// Runs tasks (see the module).
pub(crate) struct Executor {
    pub(crate) webhooks: Webhooks,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) stats: Arc<WorkerStats>,
    /// Where finished runs go.
    pub(crate) settler: mpsc::Sender<FinishedRun>,
    /// Cancelled when the shutdown begins.
    pub(crate) shutdown: CancellationToken,
    /// Cancelled when calls must end at once.
    pub(crate) abort: CancellationToken,
    /// Calls that ended by themselves after `shutdown`.
    pub(crate) drained: AtomicUsize,
}

impl Executor {
    /// Call → judge → settle.
    pub(crate) async fn run(self: Arc<Self>, run: StartedRun) {
        let StartedRun { task, held_until, call_slot, target_slot } = run;
        let result = self.call(&task).await;
        drop(target_slot);
        let outcome = self.judge(&task, result);
        self.settle(FinishedRun::new(&task, outcome, held_until)).await;
        // Kept until the settler has the outcome: a store that falls behind slows the calls down.
        drop(call_slot);
    }

    /// Calls the webhook within the task's timeout. None if the call was aborted.
    async fn call(&self, task: &Task) -> Option<WebhookResult> {
        if self.abort.is_cancelled() {
            return None;
        }
        let now = self.clock.now();
        let lateness = now.millis_since(task.due_at.max(task.created_at));
        let _in_flight = self.stats.start(u64::try_from(lateness).unwrap_or(0));
        let deadline = Instant::now() + Duration::from_millis(task.body.timeout_millis).min(RUN_MAX);
        tokio::select! {
            biased;
            result = self.webhooks.call(task, now, deadline) => Some(result),
            () = self.abort.cancelled() => None,
        }
    }

    /// What the result means for the task. Without one, the node gives the task back.
    fn judge(&self, task: &Task, result: Option<WebhookResult>) -> RunOutcome {
        let Some(result) = result else { return RunOutcome::GivenBack };
        if self.shutdown.is_cancelled() {
            self.drained.fetch_add(1, Ordering::Relaxed);
        }
        fit_retry_after(judge(result, self.clock.now()), &task.body.retry_policy, rand::random())
    }

    /// Hands the outcome to the settler, which writes it in a batch.
    async fn settle(&self, finished: FinishedRun) {
        if let Err(unsent) = self.settler.send(finished).await {
            tracing::error!(task.id = %unsent.0.id, "cannot settle a run: the settler has ended; the reaper will take it back");
        }
    }
}
