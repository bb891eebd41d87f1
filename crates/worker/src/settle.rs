//! Writes what came of runs, many in one call to the store.
//!
//! Whatever gathers while one batch is written is the next batch. A change that finds its
//! task changed by somebody else is a normal end: the run was taken back, or cancelled.
//! A store that does not answer is asked again for as long as the run can still be ours;
//! after that the reaper has it.

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_core::breakers::target_of;
use punctual_core::clock::Clock;
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::lane::Lane;
use punctual_core::retry::RetryPolicy;
use punctual_core::state::{By, Change, Event, Position, State, transition};
use punctual_core::store::{Applied, Beat, Store};
use punctual_core::task::Task;
use punctual_core::trail::{Actor, Trail};
use punctual_scheduler::breakers::{Circuits, EndedRun, RunEnd};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::outcome::Outcome;
use crate::retry::{GaveUp, retry};
use crate::stats::{Ended, WorkerStats};

/// A run that ended, to be written.
#[derive(Debug)]
pub struct Finished {
    id: TaskId,
    lane: Arc<Lane>,
    position: Position,
    policy: RetryPolicy,
    outcome: Outcome,
    held_until: Instant,
}

impl Finished {
    /// The run of `task` ended so; nobody takes it from us before `held_until`.
    pub fn new(task: &Task, outcome: Outcome, held_until: Instant) -> Self {
        let (position, policy) = (task.position, task.body.retry_policy);
        Self { id: task.id, lane: Arc::clone(&task.lane), position, policy, outcome, held_until }
    }
}

/// Settles runs (see the module).
pub struct Settler {
    /// The truth.
    pub store: Arc<dyn Store>,
    /// The store's clock.
    pub clock: Arc<dyn Clock>,
    /// This process.
    pub node: NodeId,
    /// The name under which it runs tasks.
    pub worker: String,
    /// What is counted.
    pub stats: Arc<WorkerStats>,
    /// The breakers, which are told how runs end.
    pub circuits: Arc<Circuits>,
    /// At most how many changes one write has.
    pub batch: usize,
}

impl Settler {
    /// Settles what arrives until every sender is gone; after `give_up` the store is not asked again. Answers how
    /// many tasks were given back.
    pub async fn run(self, mut finished: mpsc::Receiver<Finished>, give_up: CancellationToken) -> usize {
        let mut batch = Vec::new();
        let mut given_back = 0;
        while finished.recv_many(&mut batch, self.batch).await > 0 {
            given_back += self.settle(std::mem::take(&mut batch), &give_up).await;
        }
        given_back
    }

    /// Writes a batch; answers how many tasks were given back.
    async fn settle(&self, batch: Vec<Finished>, give_up: &CancellationToken) -> usize {
        let (accepted, ended) = batch.into_iter().partition(|finished| finished.outcome == Outcome::Accepted);
        self.detach(accepted, give_up).await;
        let writes = ended.into_iter().filter_map(|finished| self.write(finished)).collect();
        let (done, lost) = self.apply(writes, give_up).await;
        if !lost.is_empty() {
            self.explain(lost, give_up).await;
        }
        done.into_iter().filter(|ended| *ended == Ended::GivenBack).count()
    }

    /// What a target has taken on goes on without us: the end of this process must not end it.
    async fn detach(&self, accepted: Vec<Finished>, give_up: &CancellationToken) {
        if accepted.is_empty() {
            return;
        }
        let beat = |run: &Finished| Beat {
            tenant: run.lane.key.tenant.clone(),
            id: run.id,
            token: run.position.version,
            progress: None,
            checkpoint: None,
            detach: true,
        };
        let until = accepted.iter().map(|run| run.held_until).max();
        let ask = || self.store.extend(accepted.iter().map(beat).collect());
        if retry("cannot detach runs", until, give_up, ask).await.is_err() {
            tracing::warn!(runs = accepted.len(), "runs that targets took on are still tied to this node");
        }
        for _ in &accepted {
            self.stats.count(Ended::Accepted);
        }
        self.circuits.count(accepted.iter().filter_map(|run| ended_run(&run.lane, run.id, Ended::Accepted, None)));
    }

    fn write(&self, finished: Finished) -> Option<Write> {
        let now = self.clock.now();
        let (actor, given_back) = match finished.outcome {
            Outcome::GivenBack => (Actor::Node, true),
            _ => (Actor::Worker(self.worker.as_str().into()), false),
        };
        let mut event = finished.outcome.event(finished.policy, now, rand::random())?;
        if let Event::Fail(failure) = &mut event {
            failure.is_under_breaker = self.circuits.is_open_over(&finished.lane.key);
        }
        let change = transition(&finished.position, event, &By { now, node: self.node, actor }).ok()?;
        let ended = match change.to {
            State::Completed => Ended::Completed,
            State::Pending if given_back => Ended::GivenBack,
            State::Pending => Ended::Retried,
            State::Cancelled => Ended::Cancelled,
            _ => Ended::DeadLettered,
        };
        let Finished { id, lane, position, held_until, .. } = finished;
        Some(Write { id, lane, token: position.version, change, ended, held_until })
    }

    /// Applies changes; answers how those ended that were applied, and which came too late.
    async fn apply(&self, writes: Vec<Write>, give_up: &CancellationToken) -> (Vec<Ended>, Vec<Write>) {
        let (mut done, mut lost) = (Vec::new(), Vec::new());
        let mut batches = vec![writes];
        while let Some(writes) = batches.pop() {
            let until = writes.iter().map(|write| write.held_until).max();
            let ask = || self.store.apply(writes.iter().map(|write| (write.id, write.change.clone())).collect());
            match retry("cannot settle runs", until, give_up, ask).await {
                Ok(applied) => {
                    let settled =
                        writes.iter().zip(&applied).filter(|(_, applied)| matches!(applied, Applied::Done(_)));
                    let runs = settled.filter_map(|(write, _)| {
                        ended_run(&write.lane, write.id, write.ended, Some(&write.change.trail))
                    });
                    self.circuits.count(runs);
                    for (write, applied) in writes.into_iter().zip(applied) {
                        match applied {
                            Applied::Done(_) => {
                                self.stats.count(write.ended);
                                done.push(write.ended);
                            }
                            Applied::Lost => lost.push(write),
                        }
                    }
                }
                // One task that cannot be read must not hold up the others of its batch.
                Err(GaveUp::Permanent(_)) if writes.len() > 1 => {
                    batches.extend(writes.into_iter().map(|write| vec![write]));
                }
                Err(GaveUp::Permanent(error)) => {
                    tracing::error!(error = %error, task.id = %writes[0].id, "a run could not be settled");
                }
                Err(GaveUp::OutOfTime) => {
                    tracing::warn!(runs = writes.len(), "runs were not settled in time and will be taken back");
                }
            }
        }
        (done, lost)
    }

    /// Looks at tasks that somebody else has changed. One that was asked to stop is stopped now; anything else is no
    /// longer ours.
    async fn explain(&self, lost: Vec<Write>, give_up: &CancellationToken) {
        let mut by_tenant: BTreeMap<String, Vec<Write>> = BTreeMap::new();
        for write in lost {
            by_tenant.entry(write.lane.key.tenant.clone()).or_default().push(write);
        }
        for (tenant, writes) in by_tenant {
            let until = writes.iter().map(|write| write.held_until).max();
            let ask = || self.store.get(&tenant, writes.iter().map(|write| write.id).collect());
            let tasks = retry("cannot read tasks", until, give_up, ask).await.unwrap_or_default();
            let mut stops = Vec::new();
            for (write, task) in writes.into_iter().zip(tasks) {
                if let Some(stop) = task.and_then(|task| self.stop(&task, write.token)) {
                    stops.push(Write { change: stop, ended: Ended::Cancelled, ..write });
                } else {
                    tracing::debug!(task.id = %write.id, token = write.token, "a run's outcome came too late");
                    self.stats.count(Ended::Lost);
                }
            }
            if !stops.is_empty() {
                let (_, lost) = self.apply(stops, give_up).await;
                for _ in lost {
                    self.stats.count(Ended::Lost);
                }
            }
        }
    }

    fn stop(&self, task: &Task, token: u64) -> Option<Change> {
        let by = By { now: self.clock.now(), node: self.node, actor: Actor::Worker(self.worker.as_str().into()) };
        if task.position.is_asked_to_stop(token) { transition(&task.position, Event::Stopped, &by).ok() } else { None }
    }
}

/// A run as its breakers see it, with the error in the steps that ended it; none if it says nothing of its target.
fn ended_run<'a>(lane: &'a Lane, task: TaskId, ended: Ended, steps: Option<&'a Trail>) -> Option<EndedRun<'a>> {
    let end = match ended {
        Ended::Completed => RunEnd::Succeeded,
        Ended::Accepted => RunEnd::TakenOn,
        Ended::Retried | Ended::DeadLettered => RunEnd::Failed,
        Ended::GivenBack => RunEnd::GivenBack,
        Ended::Cancelled => RunEnd::Released,
        Ended::Lost => return None,
    };
    let steps = steps.filter(|_| end == RunEnd::Failed);
    let error = steps.and_then(Trail::last_error).map(|(_, error)| error.message);
    Some(EndedRun { tenant: &lane.key.tenant, target: target_of(&lane.key), task, end, error })
}

/// A change on its way to the store.
struct Write {
    id: TaskId,
    lane: Arc<Lane>,
    token: u64,
    change: Change,
    ended: Ended,
    held_until: Instant,
}
