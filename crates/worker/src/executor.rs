//! One run, step by step: sign and call the target, judge its answer, settle the outcome.
//!
//! The worker hands over runs that have started ([`Executor::begin`]); each becomes a task of its
//! own. Invariant: the slot at the target is free as soon as the call is over, whatever its result
//! is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use punctual_core::clock::Clock;
use punctual_core::run_end::RunOutcome;
use punctual_core::store::Store;
use punctual_core::task::{CallbackBody, Task};
use punctual_core::time::Timestamp;
use punctual_scheduler::dependency_results::{self, Results};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, timeout_at};

use crate::answer::{WebhookResult, cut_off, fit_retry_after, judge};
use crate::retry::{RetryError, retry};
use crate::settler::FinishedRun;
use crate::shutdown::ShutdownPhases;
use crate::signature::SigningKeys;
use crate::signing::SigningKeyCache;
use crate::slots::TargetSlot;
use crate::stats::WorkerStats;
use crate::webhook::Webhooks;

/// The longest wait for a run, whatever its task's timeout is.
pub(crate) const RUN_MAX: Duration = Duration::from_hours(30 * 24);

/// How far this node's clock may be behind the store's when it decides whether it still holds a
/// task.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(1);

/// A run that has started in the store, and the slots that it uses here.
pub(crate) struct StartedRun {
    pub(crate) task: Task,
    /// No other node takes the task before this.
    held_until: Instant,
    /// None for the probe of a breaker that came when all were taken.
    call_slot: Option<OwnedSemaphorePermit>,
    target_slot: TargetSlot,
}

impl StartedRun {
    /// The run of a task that was started before `now`, by the store's clock.
    pub(crate) fn new(
        task: Task,
        now: Timestamp,
        call_slot: Option<OwnedSemaphorePermit>,
        target_slot: TargetSlot,
    ) -> Self {
        let expires_at = task.hold.as_ref().map_or(task.due_at, |hold| hold.expires_at);
        let held_for = expires_at.duration_from(now).min(RUN_MAX) + CLOCK_TOLERANCE;
        Self { task, held_until: Instant::now() + held_for, call_slot, target_slot }
    }

    /// Whether its webhook gets results of dependencies, so that they have to be read.
    fn needs_results(&self) -> bool {
        let body = &self.task.body;
        let has_envelope = body.callback.as_ref().is_some_and(|callback| callback.body == CallbackBody::Envelope);
        has_envelope && !body.dependencies.ids.is_empty()
    }
}

/// How a call ended.
enum CallEnd {
    /// With a result, good or bad.
    Answered(WebhookResult),
    /// The node shut down before there was one. The target may have got the request.
    CutOff,
    /// The node shut down before it was made, its target had no slot in time, or the keys to sign
    /// it with could not be read.
    NotMade,
}

/// Runs tasks (see the module).
pub(crate) struct Executor {
    pub(crate) webhooks: Webhooks,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) stats: Arc<WorkerStats>,
    /// Where the results of dependencies are read.
    pub(crate) store: Arc<dyn Store>,
    /// How long runs wait for the results of dependencies before they are given back.
    pub(crate) results_wait: Duration,
    /// How long runs wait for a slot at their target before they are given back.
    pub(crate) slot_wait: Duration,
    /// The keys that calls are signed with.
    pub(crate) keys: SigningKeyCache,
    /// How long runs wait for the keys of their tenant before they are given back.
    pub(crate) keys_wait: Duration,
    /// Where finished runs go.
    pub(crate) settler: mpsc::Sender<FinishedRun>,
    /// Where the shutdown is.
    pub(crate) phases: ShutdownPhases,
    /// Calls that ended by themselves after the shutdown began.
    pub(crate) drained: Arc<AtomicUsize>,
}

impl Executor {
    /// Runs tasks, each by itself.
    pub(crate) fn begin(self: &Arc<Self>, runs: impl Iterator<Item = StartedRun>) {
        let (runs, mut waiting) = (runs.collect::<Vec<_>>(), Vec::new());
        self.keys.prepare(runs.iter().map(|run| run.task.lane.key.tenant.as_str()));
        for run in runs {
            if run.needs_results() {
                waiting.push(run);
            } else {
                tokio::spawn(Arc::clone(self).run(run, Some(Vec::new())));
            }
        }
        if !waiting.is_empty() {
            tokio::spawn(Arc::clone(self).run_with_results(waiting));
        }
    }

    /// Reads the results that the webhooks of these tasks get, and then runs each task. A store
    /// that does not answer is no fault of the tasks: after a while they are given back, uncounted.
    async fn run_with_results(self: Arc<Self>, mut runs: Vec<StartedRun>) {
        let deadline = Instant::now() + self.results_wait;
        while !runs.is_empty() {
            let tasks: Vec<&Task> = runs.iter().map(|run| &run.task).collect();
            let read = || dependency_results::of_the_first(&*self.store, &tasks);
            let read = retry("cannot read the results of dependencies", Some(deadline), &self.phases.abort, read);
            let results = match timeout_at(deadline, read).await {
                Ok(Ok(results)) => results,
                // Nothing will be read there. The target can ask for the results by their ids.
                Ok(Err(RetryError::Permanent(error))) => {
                    tracing::warn!(error = %error, "cannot read the results of dependencies; calling webhooks without them");
                    vec![None; runs.len()]
                }
                Ok(Err(RetryError::OutOfTime)) | Err(_) => return self.give_back(runs).await,
            };
            for (run, results) in runs.drain(..results.len()).zip(results) {
                tokio::spawn(Arc::clone(&self).run(run, results));
            }
        }
    }

    async fn give_back(&self, runs: Vec<StartedRun>) {
        for StartedRun { task, held_until, call_slot, target_slot } in runs {
            drop(target_slot);
            self.settle(FinishedRun::new(&task, RunOutcome::GivenBack, held_until)).await;
            drop(call_slot);
        }
    }

    /// Sign and call → judge → settle. `results` are those of the task's dependencies, for an
    /// envelope.
    async fn run(self: Arc<Self>, run: StartedRun, results: Results) {
        let StartedRun { task, held_until, call_slot, mut target_slot } = run;
        let may_call = target_slot.try_enter() || self.wait_for_slot(&mut target_slot).await;
        let keys = if may_call { self.keys_of(&task).await } else { None };
        let end = match keys {
            Some(keys) => self.call(&task, results, &keys).await,
            None => CallEnd::NotMade,
        };
        drop(target_slot);
        let outcome = self.judge(&task, end);
        self.settle(FinishedRun::new(&task, outcome, held_until)).await;
        // Kept until the settler has the outcome: a store that falls behind slows the calls down.
        drop(call_slot);
    }

    /// Waits until the target has a slot; returns whether it has. If calls there do not end, or the
    /// node shuts down, other nodes may be quicker.
    async fn wait_for_slot(&self, target_slot: &mut TargetSlot) -> bool {
        tokio::select! {
            biased;
            () = target_slot.enter() => true,
            () = self.phases.shutdown.cancelled() => false,
            () = tokio::time::sleep(self.slot_wait) => false,
        }
    }

    /// The keys to sign the call with. They are asked for when it is about to be made, so they are
    /// not older than they may be. None if the store does not answer, or the node shuts down: a
    /// tenant that has a secret gets no call without a signature.
    async fn keys_of(&self, task: &Task) -> Option<Arc<SigningKeys>> {
        tokio::select! {
            biased;
            keys = self.keys.of_tenant(&task.lane.key.tenant, Instant::now() + self.keys_wait) => keys,
            () = self.phases.abort.cancelled() => None,
        }
    }

    /// Calls the webhook within the task's timeout.
    async fn call(&self, task: &Task, results: Results, keys: &SigningKeys) -> CallEnd {
        if self.phases.abort.is_cancelled() {
            return CallEnd::NotMade;
        }
        let now = self.clock.now();
        let lateness = now.millis_since(task.due_at.max(task.created_at));
        let _in_flight = self.stats.start(u64::try_from(lateness).unwrap_or(0));
        let deadline = Instant::now() + Duration::from_millis(task.body.timeout_millis).min(RUN_MAX);
        tokio::select! {
            biased;
            result = self.webhooks.call(task, results, keys, now, deadline) => CallEnd::Answered(result),
            () = self.phases.abort.cancelled() => CallEnd::CutOff,
        }
    }

    /// What the end of the call means for the task.
    fn judge(&self, task: &Task, end: CallEnd) -> RunOutcome {
        let result = match end {
            CallEnd::Answered(result) => result,
            CallEnd::CutOff => return cut_off(&task.body.retry_policy),
            CallEnd::NotMade => return RunOutcome::GivenBack,
        };
        if self.phases.shutdown.is_cancelled() {
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
