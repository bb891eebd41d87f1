//! The loop that tells what was counted, opens breakers, and closes those whose probes succeeded.
//!
//! Every node runs it, once a second. A healthy system tells the store nothing. Whoever sees by the
//! counts of all nodes that a breaker has to open waits for a moment, so that the others can tell
//! what they have counted of it, and looks again.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use punctual_core::breakers::window::{BreakerRules, Windows};
use punctual_core::breakers::{BreakerChange, BreakerEvent, BreakerKey, FailedProbe, OpenBreaker, Runs};
use punctual_core::clock::Clock;
use punctual_core::database::SidePorts;
use punctual_core::ids::NodeId;
use punctual_core::run_end::RunEnd;
use punctual_core::store::StoreError;
use punctual_core::time::Timestamp;
use punctual_core::upkeep::Prunable;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Circuits, OpenBreakers, PROBE_RETRY_MILLIS, RunUnderBreaker};
use crate::hints::Hints;

/// How often it looks.
const INTERVAL: Duration = Duration::from_secs(1);
/// Open breakers that a node keeps in mind; beyond them none is opened.
const OPEN_MAX: usize = 10_000;
/// Read or written in one call.
const PAGE: usize = 1_000;

/// When breakers open, and how they are probed.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// When they open.
    pub rules: BreakerRules,
    /// How long after one has opened, and after a probe, the next probe is made.
    pub probe_millis: i64,
    /// How long it must be seen that one has to open, before it does: the other nodes tell their
    /// counts meanwhile.
    pub confirm: Duration,
}

/// See the module.
pub struct BreakerWatch {
    /// The breakers, and what prunes their counts.
    store: Arc<dyn SidePorts>,
    circuits: Arc<Circuits>,
    hints: Arc<Hints>,
    clock: Arc<dyn Clock>,
    node: NodeId,
    config: Config,
    windows: Windows,
    /// Runs that ended under open breakers, and were not looked at yet.
    ended: VecDeque<RunUnderBreaker>,
    /// Keys of which any node has told counts.
    known: BTreeSet<BreakerKey>,
    /// Breakers that have to open, and since when that is seen.
    suspects: HashMap<BreakerKey, Instant>,
    pruned: Option<Timestamp>,
}

impl BreakerWatch {
    /// Keeps `circuits` in step with `store`; those who take `hints` are told when something opens
    /// or closes.
    pub fn new(
        store: Arc<dyn SidePorts>,
        circuits: Arc<Circuits>,
        hints: Arc<Hints>,
        clock: Arc<dyn Clock>,
        node: NodeId,
        config: Config,
    ) -> Self {
        Self {
            store,
            circuits,
            hints,
            clock,
            node,
            config,
            windows: Windows::new(config.rules),
            ended: VecDeque::new(),
            known: BTreeSet::new(),
            suspects: HashMap::new(),
            pruned: None,
        }
    }

    /// Works until told to stop.
    pub async fn run(mut self, stop: CancellationToken) {
        let circuits = Arc::clone(&self.circuits);
        let mut is_failing = false;
        while !stop.is_cancelled() {
            match self.run_once().await {
                Ok(()) => is_failing = false,
                Err(error) if !std::mem::replace(&mut is_failing, true) => {
                    tracing::warn!(error = %error, "breakers cannot be looked after at present");
                }
                Err(_) => {}
            }
            let told = async {
                if is_failing {
                    std::future::pending::<()>().await;
                }
                circuits.probe_ended.notified().await;
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = told => {}
                () = tokio::time::sleep(INTERVAL) => {}
            }
        }
    }

    /// One look.
    pub async fn run_once(&mut self) -> Result<(), StoreError> {
        let now = self.clock.now();
        // Taken before the breakers are read: a probe is named before it runs, so that what has
        // ended is named there.
        let counts = self.circuits.take_new_counts();
        self.ended.extend(counts.ended);
        self.ended.truncate(super::ENDED_RUNS_MAX);
        for (tenant, targets) in counts.runs {
            for (target, runs) in targets {
                self.windows.add(&tenant, &target, runs, now);
            }
        }
        let mut open = self.read().await?;
        self.end_probes(now, &mut open).await?;
        self.close_idle(now, &mut open).await?;
        for breaker in self.circuits.open().iter().filter(|breaker| open.get(&breaker.key).is_none()) {
            self.windows.forget(&breaker.key);
        }
        // Known before anything else is tried: what has closed must not stay shut because of a
        // count.
        self.publish(open.clone());
        self.record_counts(now).await?;
        self.open_failing(now, &mut open).await?;
        self.publish(open);
        self.prune(now).await
    }

    fn publish(&self, open: OpenBreakers) {
        if self.circuits.set_open(open) {
            self.hints.wake();
        }
    }

    async fn read(&self) -> Result<OpenBreakers, StoreError> {
        let mut open = OpenBreakers::default();
        let mut after = None;
        while open.len() < OPEN_MAX {
            let page = self.store.list_breakers(after, PAGE).await?;
            after = page.last().map(|breaker| breaker.key.clone());
            let is_last = page.len() < PAGE;
            for breaker in page {
                open.insert(breaker);
            }
            if is_last {
                break;
            }
        }
        Ok(open)
    }

    /// Closes breakers of which a probe succeeded, also one that the next has overtaken; what
    /// happened first goes first.
    async fn end_probes(&mut self, now: Timestamp, open: &mut OpenBreakers) -> Result<(), StoreError> {
        while let Some(RunUnderBreaker { key, task, end, error }) = self.ended.front() {
            if open.get(key).is_some_and(|breaker| breaker.is_probe(*task)) {
                let task = *task;
                let event = match end {
                    RunEnd::Completed | RunEnd::Accepted => BreakerEvent::Succeeded(task),
                    RunEnd::Retried | RunEnd::DeadLettered => BreakerEvent::Failed(task, FailedProbe::new(now, error)),
                    RunEnd::GivenBack => {
                        BreakerEvent::GivenBack { task, again_at: now.plus_millis(PROBE_RETRY_MILLIS) }
                    }
                    // The next one comes in its time. Otherwise a worker that gives back all it
                    // gets would get one a second.
                    RunEnd::Released | RunEnd::Cancelled | RunEnd::Stale => {
                        BreakerEvent::GivenBack { task, again_at: Timestamp::MAX }
                    }
                };
                if self.store.change_breaker(key, event).await? == BreakerChange::Closed {
                    tracing::info!(
                        tenant = key.tenant,
                        target = key.target,
                        "a breaker has closed: its probe succeeded, and its tasks are dispatched again"
                    );
                    open.remove(key);
                }
            }
            self.ended.pop_front();
        }
        Ok(())
    }

    /// Closes breakers that nobody had anything to probe with for a whole window: they hold nothing
    /// back, and would stay for ever. Should what was under them still fail, it is counted anew.
    async fn close_idle(&self, now: Timestamp, open: &mut OpenBreakers) -> Result<(), StoreError> {
        let before = now.plus_millis(-self.config.rules.window_millis);
        let idle: Vec<BreakerKey> = open.idle_since(before).map(|breaker| breaker.key.clone()).collect();
        for key in idle {
            if self.store.change_breaker(&key, BreakerEvent::Reset).await? == BreakerChange::Closed {
                tracing::info!(
                    tenant = key.tenant,
                    target = key.target,
                    "a breaker has closed: nothing came up to probe it with"
                );
            }
            open.remove(&key);
        }
        Ok(())
    }

    /// Tells what was counted of tenants at which something fails.
    async fn record_counts(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let counts = self.windows.to_report(now, &self.known);
        for page in counts.chunks(PAGE) {
            self.store.record_counts(self.node, page.to_vec()).await?;
            self.windows.confirm(page.to_vec());
        }
        Ok(())
    }

    /// Opens breakers by what all nodes have told.
    async fn open_failing(&mut self, now: Timestamp, open: &mut OpenBreakers) -> Result<(), StoreError> {
        if self.windows.is_empty() {
            self.known.clear();
            self.suspects.clear();
            return Ok(());
        }
        let counts = self.store.counts_since(self.config.rules.since(now)).await?;
        let opening = self.config.rules.to_open(&counts);
        self.known = counts.into_iter().map(|(key, _)| key).collect();
        let suspected: HashSet<&BreakerKey> = opening.iter().map(|(key, _)| key).collect();
        self.suspects.retain(|key, _| suspected.contains(key));
        let seen_at = Instant::now();
        for (key, runs) in opening {
            let since = *self.suspects.entry(key.clone()).or_insert(seen_at);
            if seen_at.duration_since(since) < self.config.confirm || open.len() >= OPEN_MAX {
                continue;
            }
            self.suspects.remove(&key);
            let breaker = self.breaker(key, runs, now);
            if self.store.open_breaker(breaker.clone()).await? {
                self.circuits.opened.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(
                    tenant = breaker.key.tenant,
                    target = breaker.key.target,
                    reason = breaker.reason,
                    "a breaker has opened: nothing under it is dispatched but a probe now and then"
                );
                open.insert(breaker);
            }
        }
        Ok(())
    }

    fn breaker(&self, key: BreakerKey, runs: Runs, now: Timestamp) -> OpenBreaker {
        let seconds = Duration::from_millis(self.config.rules.window_millis.unsigned_abs()).as_secs();
        let whose = if key.is_of_tenant() { "of the tenant" } else { "to the target" };
        let reason = format!("{} of {} runs {whose} failed within {seconds} seconds", runs.failed, runs.all());
        let next_probe_at = now.plus_millis(self.config.probe_millis);
        let (half_open, probe, overtaken, last_probe) = (false, None, Vec::new(), None);
        OpenBreaker { key, opened_at: now, next_probe_at, runs, reason, half_open, probe, overtaken, last_probe }
    }

    /// Once a slot, what is before the window is removed.
    async fn prune(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let since = self.config.rules.since(now);
        if self.pruned != Some(since) {
            self.store.prune(Prunable::BreakerCounts, since, PAGE).await?;
            self.pruned = Some(since);
        }
        Ok(())
    }
}
