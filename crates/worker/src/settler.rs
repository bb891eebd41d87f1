//! Settles webhook runs, many in one call to the store.
//!
//! The consumer starts it, and executors send it [`FinishedRun`]s. The runs that arrive during one
//! batch are the next batch. If a task has changed meanwhile, that is normal: the reaper took it
//! back, or it was cancelled. Invariant: a call that fails is retried only while this node holds
//! the task; after that the reaper takes it back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use punctual_core::breakers::target_of;
use punctual_core::clock::Clock;
use punctual_core::failure::TargetHealth;
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::lane::Lane;
use punctual_core::retry::RetryPolicy;
use punctual_core::run_end::{RunEnd, RunOutcome};
use punctual_core::state::{By, Change, Position};
use punctual_core::store::{Applied, Beat, Store};
use punctual_core::task::Task;
use punctual_core::trail::{Actor, Trail};
use punctual_scheduler::breakers::{Circuits, EndedRun};
use punctual_scheduler::settle::stop_if_asked;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::retry::{RetryError, retry};
use crate::stats::WorkerStats;

/// A run that has ended and is not settled yet.
#[derive(Debug)]
pub(crate) struct FinishedRun {
    pub(crate) id: TaskId,
    lane: Arc<Lane>,
    position: Position,
    policy: RetryPolicy,
    outcome: RunOutcome,
    held_until: Instant,
}

impl FinishedRun {
    /// The run of `task` has this outcome; no other node takes the task before `held_until`.
    pub(crate) fn new(task: &Task, outcome: RunOutcome, held_until: Instant) -> Self {
        let (position, policy) = (task.position, task.body.retry_policy.clone());
        Self { id: task.id, lane: Arc::clone(&task.lane), position, policy, outcome, held_until }
    }
}

/// After a batch of at least this many runs the next one waits for others, since a write costs
/// about the same for few runs as for many.
const BUSY_BATCH: usize = 16;
/// How long after the last batch the next one begins, if that was a busy one.
const GROUPED_WITHIN: Duration = Duration::from_millis(5);

/// Settles the runs of webhooks (see the module).
pub(crate) struct WebhookSettler {
    /// The store.
    pub(crate) store: Arc<dyn Store>,
    /// The store's clock.
    pub(crate) clock: Arc<dyn Clock>,
    /// This process.
    pub(crate) node: NodeId,
    /// The name under which it runs tasks.
    pub(crate) worker: String,
    /// The worker's counters.
    pub(crate) stats: Arc<WorkerStats>,
    /// The breakers, which count how runs end.
    pub(crate) circuits: Arc<Circuits>,
    /// The maximum number of changes in one call.
    pub(crate) batch: usize,
}

impl WebhookSettler {
    /// Settles runs until every sender is dropped; after `give_up` it does not call the store
    /// again. Returns how many tasks were given back.
    pub(crate) async fn run(self, mut finished: mpsc::Receiver<FinishedRun>, give_up: CancellationToken) -> usize {
        let mut batch = Vec::new();
        let mut given_back = 0;
        while finished.recv_many(&mut batch, self.batch).await > 0 {
            let next_at = (BUSY_BATCH..self.batch).contains(&batch.len()).then(|| Instant::now() + GROUPED_WITHIN);
            given_back += self.settle(std::mem::take(&mut batch), &give_up).await;
            if let Some(next_at) = next_at {
                sleep_until(next_at).await;
            }
        }
        given_back
    }

    /// Settles a batch; returns how many tasks were given back.
    async fn settle(&self, batch: Vec<FinishedRun>, give_up: &CancellationToken) -> usize {
        let (accepted, ended) = batch.into_iter().partition(|finished| finished.outcome == RunOutcome::Accepted);
        self.detach(accepted, give_up).await;
        let writes = ended.into_iter().filter_map(|finished| self.end_write(finished)).collect();
        let (ends, lost) = self.apply(writes, give_up).await;
        if !lost.is_empty() {
            self.stop_cancelled(lost, give_up).await;
        }
        ends.into_iter().filter(|end| *end == RunEnd::GivenBack).count()
    }

    /// Detaches accepted runs from this node: they continue at their target and outlive this
    /// process.
    async fn detach(&self, accepted: Vec<FinishedRun>, give_up: &CancellationToken) {
        if accepted.is_empty() {
            return;
        }
        let beat = |run: &FinishedRun| Beat {
            tenant: run.lane.key.tenant.clone(),
            id: run.id,
            token: run.position.version,
            progress: None,
            checkpoint: None,
            detach: true,
        };
        let deadline = accepted.iter().map(|run| run.held_until).max();
        let call = || self.store.extend(accepted.iter().map(beat).collect());
        if retry("cannot detach accepted runs", deadline, give_up, call).await.is_err() {
            tracing::warn!(runs = accepted.len(), "cannot detach accepted runs; they are lost when this node ends");
        }
        for _ in &accepted {
            self.stats.count(RunEnd::Accepted);
        }
        self.circuits.count(accepted.iter().map(|run| {
            let (tenant, target) = (run.lane.key.tenant.as_str(), target_of(&run.lane.key));
            EndedRun { tenant, target, task: run.id, end: RunEnd::Accepted, error: None }
        }));
    }

    /// The write that ends a run; none if its state does not allow the outcome.
    fn end_write(&self, finished: FinishedRun) -> Option<EndWrite> {
        let actor = match finished.outcome {
            RunOutcome::GivenBack => Actor::Node,
            _ => self.worker(),
        };
        let FinishedRun { id, lane, position, policy, outcome, held_until } = finished;
        let by = By { now: self.clock.now(), node: self.node, actor };
        let is_under_breaker = || self.circuits.spares(&lane.key);
        let health = match &outcome {
            RunOutcome::Failed(failure) => failure.health(),
            _ => TargetHealth::Well,
        };
        let (change, end) = outcome.end_run(&position, &policy, is_under_breaker, rand::random(), &by)?;
        Some(EndWrite { id, lane, token: position.version, change, end, health, held_until })
    }

    /// Applies writes; returns the ends of those that were applied, and the writes that lost to
    /// another writer.
    async fn apply(&self, writes: Vec<EndWrite>, give_up: &CancellationToken) -> (Vec<RunEnd>, Vec<EndWrite>) {
        let (mut ends, mut lost) = (Vec::new(), Vec::new());
        let mut batches = vec![writes];
        while let Some(writes) = batches.pop() {
            let deadline = writes.iter().map(|write| write.held_until).max();
            let call = || self.store.apply(writes.iter().map(|write| (write.id, write.change.clone())).collect());
            match retry("cannot settle runs", deadline, give_up, call).await {
                Ok(applied) => {
                    let written = writes.iter().zip(&applied).filter(|(_, one)| matches!(one, Applied::Done(_)));
                    self.circuits.count(written.map(|(write, _)| write.ended_run()));
                    for (write, applied) in writes.into_iter().zip(applied) {
                        match applied {
                            Applied::Done(_) => {
                                self.stats.count(write.end);
                                ends.push(write.end);
                            }
                            Applied::Lost | Applied::TooManyLanes(_) => lost.push(write),
                        }
                    }
                }
                // One unreadable task must not hold up the others of its batch.
                Err(RetryError::Permanent(_)) if writes.len() > 1 => {
                    batches.extend(writes.into_iter().map(|write| vec![write]));
                }
                Err(RetryError::Permanent(error)) => {
                    tracing::error!(error = %error, task.id = %writes[0].id, "cannot settle a run; the reaper will take it back");
                }
                Err(RetryError::OutOfTime) => {
                    tracing::warn!(runs = writes.len(), "cannot settle runs in time; the reaper will take them back");
                }
            }
        }
        (ends, lost)
    }

    /// Reads the tasks of lost writes, and stops those that were asked to stop. The outcomes of the
    /// others are stale.
    async fn stop_cancelled(&self, lost: Vec<EndWrite>, give_up: &CancellationToken) {
        let mut by_tenant: BTreeMap<String, Vec<EndWrite>> = BTreeMap::new();
        for write in lost {
            by_tenant.entry(write.lane.key.tenant.clone()).or_default().push(write);
        }
        for (tenant, writes) in by_tenant {
            let deadline = writes.iter().map(|write| write.held_until).max();
            let call = || self.store.get(&tenant, writes.iter().map(|write| write.id).collect());
            let tasks = retry("cannot read tasks", deadline, give_up, call).await.unwrap_or_default();
            let mut stops = Vec::new();
            for (write, task) in writes.into_iter().zip(tasks) {
                let by = By { now: self.clock.now(), node: self.node, actor: self.worker() };
                if let Some(stop) = task.and_then(|task| stop_if_asked(&task.position, write.token, &by)) {
                    stops.push(EndWrite { change: stop, end: RunEnd::Cancelled, ..write });
                } else {
                    tracing::debug!(task.id = %write.id, token = write.token, "discarded a stale outcome");
                    self.stats.count(RunEnd::Stale);
                }
            }
            if !stops.is_empty() {
                let (_, lost) = self.apply(stops, give_up).await;
                for _ in lost {
                    self.stats.count(RunEnd::Stale);
                }
            }
        }
    }

    fn worker(&self) -> Actor<'_> {
        Actor::Worker(self.worker.as_str().into())
    }
}

/// A change that ends a run, on its way to the store.
struct EndWrite {
    id: TaskId,
    lane: Arc<Lane>,
    token: u64,
    change: Change,
    end: RunEnd,
    /// What the outcome says about the target, if it was a failure.
    health: TargetHealth,
    held_until: Instant,
}

impl EndWrite {
    /// The run for the breakers, with the error in the steps that ended it.
    fn ended_run(&self) -> EndedRun<'_> {
        let end = self.end.for_breakers(self.health);
        let steps = Some(&self.change.trail).filter(|_| end.is_failure());
        let error = steps.and_then(Trail::last_error).map(|(_, error)| error.message);
        let (tenant, target) = (self.lane.key.tenant.as_str(), target_of(&self.lane.key));
        EndedRun { tenant, target, task: self.id, end, error }
    }
}

#[cfg(test)]
mod tests {
    use punctual_core::state::State;
    use punctual_core::time::Timestamp;

    use super::*;
    use crate::answer::{CallFault, WebhookAnswer, WebhookResult, cut_off, judge};

    #[test]
    fn breakers_learn_from_the_target_alone() {
        let now = Timestamp::from_millis(1);
        let by = By { now, node: NodeId::new(1), actor: Actor::Node };
        let running = Position { state: State::Running, version: 3, attempts: 1, crashes: 0, cancel_requested: false };
        let policy = RetryPolicy { max_retries: 0, ..RetryPolicy::default() };
        let broken = |fault| judge(WebhookResult::Broken { status: None, fault }, now);
        let answered = |status| judge(WebhookResult::Answered(WebhookAnswer { status, ..Default::default() }), now);
        for (outcome, counted) in [
            (cut_off(&policy), RunEnd::GivenBack),
            (broken(CallFault::Blocked), RunEnd::GivenBack),
            (broken(CallFault::Timeout), RunEnd::DeadLettered),
            (broken(CallFault::Dns("no such name".to_owned())), RunEnd::DeadLettered),
            (answered(429), RunEnd::DeadLettered),
            (answered(402), RunEnd::Completed),
        ] {
            let RunOutcome::Failed(failure) = &outcome else { panic!("{outcome:?} is a failure") };
            let health = failure.health();
            let (_, end) = outcome.clone().end_run(&running, &policy, || false, 0, &by).unwrap();
            assert_eq!(end, RunEnd::DeadLettered, "the task is never called twice");
            assert_eq!(end.for_breakers(health), counted, "{outcome:?}");
        }
    }
}
