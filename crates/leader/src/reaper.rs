//! The reaper: takes back what was lost.
//!
//! A hold that ran out, a node that died, a waiting task that expired: each becomes one
//! conditional write. If the holder settles at the same moment, one of the two writes
//! finds the task changed and does nothing. It writes as the holder of the leader's lease, and
//! ends when the store says that this is somebody else by now.

use std::sync::Arc;
use std::time::Duration;

use punctual_core::clock::Clock;
use punctual_core::coordinator::LeaderLease;
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::registry::Registry;
use punctual_core::run_end::RunEnd;
use punctual_core::state::{By, Change, Event, Failure, State, transition};
use punctual_core::store::{Applied, Store, StoreError};
use punctual_core::task::{Hold, Task};
use punctual_core::time::Timestamp;
use punctual_core::trail::{Actor, FailedHow, RunError};
use punctual_scheduler::breakers::{Circuits, EndedRun};
use tokio_util::sync::CancellationToken;

use crate::membership::OwnPresence;

/// How the reaper works.
#[derive(Clone, Debug)]
pub struct Config {
    /// How often it looks.
    pub interval: Duration,
    /// A node that was silent for longer is dead.
    pub lost_after: Duration,
    /// Lost workers that make a task poison; zero means never.
    pub poison_after: u32,
    /// This node's own signs of life: unless they are steady it takes nobody for dead. None where
    /// no other process can be on the store, so that every other node in the registry is dead
    /// already.
    pub presence: Option<Arc<OwnPresence>>,
}

/// See the module.
pub struct Reaper {
    store: Arc<dyn Store>,
    registry: Arc<dyn Registry>,
    clock: Arc<dyn Clock>,
    node: NodeId,
    config: Config,
    circuits: Arc<Circuits>,
}

/// What a round did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Tasks taken back or failed.
    pub reaped: usize,
    /// Tasks that somebody else changed first.
    pub lost_races: usize,
    /// Dead nodes that hold nothing any more.
    pub removed_nodes: usize,
}

/// Tasks handled in one step.
const PAGE_TASKS: usize = 500;

impl Reaper {
    /// A reaper for this node.
    pub fn new(
        store: Arc<dyn Store>,
        registry: Arc<dyn Registry>,
        clock: Arc<dyn Clock>,
        node: NodeId,
        config: Config,
    ) -> Self {
        Self { store, registry, clock, node, config, circuits: Arc::new(Circuits::off()) }
    }

    /// The same, and tells breakers which runs were lost.
    #[must_use]
    pub fn with_circuits(self, circuits: Arc<Circuits>) -> Self {
        Self { circuits, ..self }
    }

    /// Reaps as the holder of `lease`, until told to stop or somebody else has held it since.
    pub async fn run(&self, lease: &LeaderLease, shutdown: CancellationToken) {
        while !shutdown.is_cancelled() {
            match self.run_once(lease).await {
                Ok(Some(report)) if report.reaped > 0 => {
                    tracing::info!(
                        tasks = report.reaped,
                        "took back tasks whose holder was lost, or ended those past their time"
                    );
                }
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(error) => tracing::warn!(error = %error, "could not look for lost tasks"),
            }
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = tokio::time::sleep(self.config.interval) => {}
            }
        }
    }

    /// Takes back everything that is lost by now. None: somebody else has held the lease since.
    pub async fn run_once(&self, lease: &LeaderLease) -> Result<Option<Report>, StoreError> {
        let dead = self.dead_nodes().await?;
        let mut report = Report::default();
        let all_seen = loop {
            let tasks = self.store.overdue(dead.clone(), PAGE_TASKS).await?;
            let found = tasks.len();
            let decided = tasks.iter().filter_map(|task| Some((task, self.decide(task)?)));
            let decided = decided.map(|(task, (id, change))| (lost_run(task, &change), (id, change)));
            let (runs, changes): (Vec<Option<EndedRun<'_>>>, Vec<(TaskId, Change)>) = decided.unzip();
            let tried = changes.len();
            if tried == 0 && dead.is_empty() {
                break true;
            }
            // Also with nothing to change, before anybody is removed_nodes: that is for the leader to do.
            let Some(applied) = self.store.apply_as(lease, changes).await? else { return Ok(None) };
            let lost = runs.into_iter().zip(&applied).filter(|(_, applied)| matches!(applied, Applied::Done(_)));
            self.circuits.count(lost.filter_map(|(run, _)| run));
            let done = applied.iter().filter(|applied| matches!(applied, Applied::Done(_))).count();
            report.reaped += done;
            report.lost_races += tried - done;
            // A page of nothing but lost races would come again for ever; the next round is soon
            // enough for it.
            if found < PAGE_TASKS || done == 0 {
                break found < PAGE_TASKS;
            }
        };
        // With a page still full of lost races a dead node may hold more: bury it in a later round.
        for node in dead.into_iter().filter(|_| all_seen) {
            self.registry.remove_node(node).await?;
            report.removed_nodes += 1;
        }
        Ok(Some(report))
    }

    async fn dead_nodes(&self) -> Result<Vec<NodeId>, StoreError> {
        let before = match &self.config.presence {
            None => Timestamp::MAX,
            Some(presence) if presence.is_steady() => self.clock.now().minus(self.config.lost_after),
            Some(_) => return Ok(Vec::new()),
        };
        let mut dead = self.registry.dead_nodes(before).await?;
        dead.retain(|node| *node != self.node);
        Ok(dead)
    }

    fn decide(&self, task: &Task) -> Option<(TaskId, Change)> {
        let now = self.clock.now();
        let by = By { now, node: self.node, actor: Actor::Reaper };
        let expired = task.has_expired(now);
        let event = match (task.state(), &task.hold) {
            (State::Blocked | State::Pending | State::Queued, _) if expired => Event::Expire,
            (State::Queued, _) => Event::GiveBack(now),
            (State::Running, _) if task.position.cancel_requested => Event::Stopped,
            (State::Running, Some(hold)) => Event::Fail(self.failure(task, hold, now)),
            _ => return None,
        };
        let change = transition(&task.position, event, &by).ok()?;
        Some((task.id, change.expecting_hold(task.hold.as_ref())))
    }

    fn failure(&self, task: &Task, hold: &Hold, now: Timestamp) -> Failure<'static> {
        let timed_out = hold.deadline_at <= now;
        let (how, code, message) = if timed_out {
            // Not up to the deadline: that of a webhook is later by the time a node has to tell
            // what came of it.
            let seconds = Duration::from_millis(task.body.timeout_millis).as_secs_f64();
            let unit = if task.body.timeout_millis == 1_000 { "second" } else { "seconds" };
            (FailedHow::TimedOut, "timeout", format!("the run did not end within {seconds} {unit}"))
        } else {
            (FailedHow::Lost, "worker_lost", format!("{} was not heard of any more", hold.worker))
        };
        // Our own nodes do not die of a task they only push; what kills a pull worker may well be
        // the task.
        let poison_after = if hold.node.is_none() { self.config.poison_after } else { 0 };
        Failure {
            how,
            error: RunError { code: code.into(), message: message.into(), details: None },
            http_status: None,
            retryable: true,
            retry_after_millis: None,
            policy: task.body.retry_policy,
            poison_after,
            is_under_breaker: self.circuits.is_open_over(&task.lane.key),
            random: rand::random(),
        }
    }
}

/// A run that its worker lost, if the change says so. Of a webhook that one of our own nodes lost
/// nothing is known, least of all that its target is to blame.
fn lost_run<'a>(task: &'a Task, change: &Change) -> Option<EndedRun<'a>> {
    let is_worker = task.hold.as_ref().is_some_and(|hold| hold.node.is_none());
    let is_lost = task.state() == State::Running && !task.position.cancel_requested && is_worker;
    let error = || change.trail.last_error().map(|(_, error)| error.message.into_owned().into());
    let end = RunEnd::failed(change.to);
    is_lost.then(|| EndedRun { tenant: task.tenant(), target: "", task: task.id, end, error: error() })
}
