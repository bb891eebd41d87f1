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

use crate::answer::{WebhookResult, cut_off, fit_retry_after, judge};
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

/// How a call ended.
enum CallEnd {
    /// With a result, good or bad.
    Answered(WebhookResult),
    /// The node shut down before there was one. The target may have got the request.
    CutOff,
    /// The node shut down before it was made.
    NotMade,
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
        let end = self.call(&task).await;
        drop(target_slot);
        let outcome = self.judge(&task, end);
        self.settle(FinishedRun::new(&task, outcome, held_until)).await;
        // Kept until the settler has the outcome: a store that falls behind slows the calls down.
        drop(call_slot);
    }

    /// Calls the webhook within the task's timeout.
    async fn call(&self, task: &Task) -> CallEnd {
        if self.abort.is_cancelled() {
            return CallEnd::NotMade;
        }
        let now = self.clock.now();
        let lateness = now.millis_since(task.due_at.max(task.created_at));
        let _in_flight = self.stats.start(u64::try_from(lateness).unwrap_or(0));
        let deadline = Instant::now() + Duration::from_millis(task.body.timeout_millis).min(RUN_MAX);
        tokio::select! {
            biased;
            result = self.webhooks.call(task, now, deadline) => CallEnd::Answered(result),
            () = self.abort.cancelled() => CallEnd::CutOff,
        }
    }

    /// What the end of the call means for the task.
    fn judge(&self, task: &Task, end: CallEnd) -> RunOutcome {
        let result = match end {
            CallEnd::Answered(result) => result,
            CallEnd::CutOff => return cut_off(&task.body.retry_policy),
            CallEnd::NotMade => return RunOutcome::GivenBack,
        };
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
