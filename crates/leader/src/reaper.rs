//! The reaper: takes back tasks whose holder is lost, and ends tasks that have expired.
//!
//! The leader runs it. It makes one conditional write per task. If the holder settles at the same
//! moment, one of the two writes finds the task changed and does nothing. Invariant: the reaper
//! writes as the holder of the leader's lease, and ends when another node has held it since.

use std::sync::Arc;
use std::time::Duration;

use punctual_core::clock::Clock;
use punctual_core::coordinator::LeaderLease;
use punctual_core::failure::FailureCause;
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::registry::{NodePresence, Registry};
use punctual_core::run_end::RunEnd;
use punctual_core::state::{By, Change, Event, Failure, State, transition};
use punctual_core::store::{Applied, Store, StoreError};
use punctual_core::task::{Hold, Task};
use punctual_core::time::Timestamp;
use punctual_core::trail::{Actor, RunError};
use punctual_scheduler::breakers::{Circuits, EndedRun};
use tokio_util::sync::CancellationToken;

use crate::membership::OwnPresence;

mod taken_back;

use taken_back::TakenBack;

/// How the reaper works.
#[derive(Clone, Debug)]
pub struct Config {
    /// The time between two passes.
    pub interval: Duration,
    /// A node that has been silent for longer is dead, unless it says its own lease.
    pub lost_after: Duration,
    /// How many lost workers make a task poison; zero means that none do.
    pub poison_after: u32,
    /// This node's own presence: unless it is steady, no silent node counts as dead. None where no
    /// other process can use the store, so that every other node in the registry is dead.
    pub presence: Option<Arc<OwnPresence>>,
}

/// The reaper (see the module).
pub struct Reaper {
    store: Arc<dyn Store>,
    registry: Arc<dyn Registry>,
    clock: Arc<dyn Clock>,
    node: NodeId,
    config: Config,
    circuits: Arc<Circuits>,
}

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Tasks taken back or failed.
    pub reaped: usize,
    /// Tasks that another writer changed first.
    pub lost_races: usize,
    /// Dead nodes that held nothing any more and were removed from the registry.
    pub removed_nodes: usize,
}

/// The maximum number of tasks that are read and written at once.
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

    /// The same, and reports lost runs to the breakers.
    #[must_use]
    pub fn with_circuits(self, circuits: Arc<Circuits>) -> Self {
        Self { circuits, ..self }
    }

    /// Reaps as the holder of `lease`, until `shutdown`, or until another node has held it since.
    pub async fn run(&self, lease: &LeaderLease, shutdown: CancellationToken) {
        while !shutdown.is_cancelled() {
            match self.run_once(lease).await {
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(error) => tracing::warn!(error = %error, "cannot look for lost tasks; retrying at the next pass"),
            }
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = tokio::time::sleep(self.config.interval) => {}
            }
        }
    }

    /// Takes back all tasks that are lost by now. None if another node has held the lease since.
    pub async fn run_once(&self, lease: &LeaderLease) -> Result<Option<Report>, StoreError> {
        let asked_at = self.clock.now();
        let dead = self.dead_nodes().await?;
        let (mut report, mut taken_back) = (Report::default(), TakenBack::default());
        let all_seen = loop {
            let tasks = self.store.overdue(dead.clone(), PAGE_TASKS).await?;
            let found = tasks.len();
            let decided = tasks.iter().filter_map(|task| Some((task, self.decide(task, asked_at)?)));
            let decided = decided.map(|(task, (id, change))| ((task, lost_run(task, &change)), (id, change)));
            let (judged, changes): (Vec<_>, Vec<(TaskId, Change)>) = decided.unzip();
            let tried = changes.len();
            if tried == 0 && dead.is_empty() {
                break true;
            }
            // Also without changes: only the leader may remove nodes.
            let Some(applied) = self.store.apply_as(lease, changes).await? else { return Ok(None) };
            debug_assert_eq!(applied.len(), tried, "an answer for each change");
            let is_done = |(_, applied): &(_, &Applied)| matches!(applied, Applied::Done(_));
            let reaped = judged.into_iter().zip(&applied).filter(is_done).map(|(judged, _)| judged);
            let (tasks, runs): (Vec<&Task>, Vec<Option<EndedRun<'_>>>) = reaped.unzip();
            self.circuits.count(runs.into_iter().flatten());
            let (done, now) = (tasks.len(), self.clock.now());
            for task in tasks {
                taken_back.add(task, now);
            }
            report.reaped += done;
            report.lost_races += tried - done;
            // A page of nothing but lost races could come again forever: leave it to the next pass.
            if found < PAGE_TASKS || done == 0 {
                break found < PAGE_TASKS;
            }
        };
        taken_back.log();
        // If a page was full of lost races, a dead node may hold more: a later pass removes it.
        for node in dead.into_iter().filter(|_| all_seen) {
            self.registry.remove_node(node).await?;
            report.removed_nodes += 1;
        }
        Ok(Some(report))
    }

    /// The nodes that were declared gone, or were silent for longer than their leases.
    async fn dead_nodes(&self) -> Result<Vec<NodeId>, StoreError> {
        // Read before: an answer that is long on its way must not make its nodes older.
        let now = self.clock.now();
        let nodes = self.registry.nodes().await?;
        let is_dead = |node: &NodePresence| match &self.config.presence {
            None => true,
            Some(_) if node.gone_at.is_some() => true,
            Some(own) => node.lost_at(self.config.lost_after) < now && own.is_steady_for(node.lease),
        };
        Ok(nodes.iter().filter(|node| node.id != self.node && is_dead(node)).map(|node| node.id).collect())
    }

    /// What becomes of an overdue task. None: it stays as it is. A node that was dead at `asked_at`
    /// may have returned since and hold it.
    fn decide(&self, task: &Task, asked_at: Timestamp) -> Option<(TaskId, Change)> {
        let now = self.clock.now();
        if task.hold.as_ref().is_some_and(|hold| hold.since > asked_at && hold.expires_at > now) {
            return None;
        }
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
        let (cause, code, message) = if is_timed_out(hold, now) {
            let seconds = Duration::from_millis(task.body.timeout_millis).as_secs_f64();
            let unit = if task.body.timeout_millis == 1_000 { "second" } else { "seconds" };
            (FailureCause::Timeout, "timeout", format!("the run did not end within {seconds} {unit}"))
        } else {
            (FailureCause::Lost, "worker_lost", format!("{} has stopped reporting", hold.worker))
        };
        let mut policy = task.body.retry_policy.clone();
        if task.body.callback.is_none() {
            // It is about webhooks. A pull worker whose lease ends with its timeout may well be
            // lost.
            policy.retry_on = None;
        }
        // A task may well kill the pull worker that runs it. A node only calls its target.
        let poison_after = if hold.node.is_none() { self.config.poison_after } else { 0 };
        Failure {
            cause,
            error: RunError { code: code.into(), message: message.into(), details: None },
            http_status: None,
            retryable: true,
            retry_after_millis: None,
            policy,
            poison_after,
            is_under_breaker: self.circuits.spares(&task.lane.key),
            random: rand::random(),
        }
    }
}

/// Whether a run used up its timeout, or else was lost. A node ends its webhooks at their timeout
/// itself: one that has not was lost with its node. So was a pull worker whose lease ended before.
fn is_timed_out(hold: &Hold, now: Timestamp) -> bool {
    hold.node.is_none() && hold.expires_at >= hold.deadline_at && hold.deadline_at <= now
}

/// The run that the change ends, for the breakers, if a pull worker lost it. A webhook that a node
/// lost says nothing about its target.
fn lost_run<'a>(task: &'a Task, change: &Change) -> Option<EndedRun<'a>> {
    let is_worker = task.hold.as_ref().is_some_and(|hold| hold.node.is_none());
    let is_lost = task.state() == State::Running && !task.position.cancel_requested && is_worker;
    let error = || change.trail.last_error().map(|(_, error)| error.message.into_owned().into());
    let end = RunEnd::failed(change.to);
    is_lost.then(|| EndedRun { tenant: task.tenant(), target: "", task: task.id, end, error: error() })
}
