//! The loop that records counts, opens breakers, and closes those whose probes succeeded.
//!
//! Every node runs it, once a second. A node writes nothing while no run fails. If the
//! total counts require a breaker to open, the node waits for the others' counts and checks again.

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

/// The time between two passes.
const INTERVAL: Duration = Duration::from_secs(1);
/// The maximum number of open breakers; beyond it no further one opens.
const OPEN_MAX: usize = 10_000;
/// The maximum number of rows that a call reads or writes.
const PAGE_ROWS: usize = 1_000;

/// When breakers open, and how they are probed.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// When they open.
    pub rules: BreakerRules,
    /// The time from the opening to the first probe, and from one probe to the next.
    pub probe_millis: i64,
    /// How long the counts must show that a breaker must open before it opens. Meanwhile the other
    /// nodes record their counts.
    pub confirm: Duration,
}

/// The loop (see the module).
pub struct BreakerWatch {
    store: Arc<dyn SidePorts>,
    circuits: Arc<Circuits>,
    hints: Arc<Hints>,
    clock: Arc<dyn Clock>,
    node: NodeId,
    config: Config,
    windows: Windows,
    /// Runs that ended under open breakers, to be checked for probes.
    under_breakers: VecDeque<RunUnderBreaker>,
    /// The keys of which the store has counts, of any node.
    counted_keys: BTreeSet<BreakerKey>,
    /// Breakers that must open, and since when the counts show it.
    suspects: HashMap<BreakerKey, Instant>,
    pruned_before: Option<Timestamp>,
}

impl BreakerWatch {
    /// Keeps `circuits` in step with `store`, and wakes the dispatcher through `hints` when a
    /// breaker opens or closes.
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
            under_breakers: VecDeque::new(),
            counted_keys: BTreeSet::new(),
            suspects: HashMap::new(),
            pruned_before: None,
        }
    }

    /// Runs until `stop` is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        let circuits = Arc::clone(&self.circuits);
        let mut is_failing = false;
        while !stop.is_cancelled() {
            match self.run_once().await {
                Ok(()) => is_failing = false,
                Err(error) if !std::mem::replace(&mut is_failing, true) => {
                    tracing::warn!(error = %error, "cannot update the breakers; retrying every second");
                }
                Err(_) => {}
            }
            let probe_ended = async {
                if is_failing {
                    std::future::pending::<()>().await;
                }
                circuits.probe_ended.notified().await;
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = probe_ended => {}
                () = tokio::time::sleep(INTERVAL) => {}
            }
        }
    }

    /// One pass.
    pub async fn run_once(&mut self) -> Result<(), StoreError> {
        let now = self.clock.now();
        // Before the breakers are read. A probe is recorded before it runs, so the breakers that
        // are read name every probe that has ended.
        let (counts, failing) = self.circuits.take_new_counts();
        self.under_breakers.extend(counts.under_breakers);
        self.under_breakers.truncate(super::ENDED_RUNS_MAX);
        for (tenant, targets) in counts.runs {
            for (target, runs) in targets {
                self.windows.add(&tenant, &target, runs, now);
            }
        }
        for key in failing {
            self.windows.forget_successes(&key);
        }
        let mut open = self.read().await?;
        self.end_probes(now, &mut open).await?;
        self.close_idle(now, &mut open).await?;
        for breaker in self.circuits.open().iter().filter(|breaker| open.get(&breaker.key).is_none()) {
            self.windows.forget(&breaker.key);
        }
        // Before the counts are written: if that fails, a closed breaker must not hold tasks up.
        self.publish(open.clone());
        self.record_counts(now).await?;
        self.open_failing(now, &mut open).await?;
        self.publish(open);
        self.circuits.prune_streaks();
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
            let page = self.store.list_breakers(after, PAGE_ROWS).await?;
            after = page.last().map(|breaker| breaker.key.clone());
            let is_last = page.len() < PAGE_ROWS;
            for breaker in page {
                open.insert(breaker);
            }
            if is_last {
                break;
            }
        }
        Ok(open)
    }

    /// Records the ends of probes, in their order. A success closes the breaker, also if the next
    /// probe has overtaken this one.
    async fn end_probes(&mut self, now: Timestamp, open: &mut OpenBreakers) -> Result<(), StoreError> {
        while let Some(RunUnderBreaker { key, task, end, error }) = self.under_breakers.front() {
            if open.get(key).is_some_and(|breaker| breaker.is_probe(*task)) {
                let task = *task;
                let event = match end {
                    RunEnd::Completed | RunEnd::Accepted => BreakerEvent::Succeeded(task),
                    RunEnd::Retried | RunEnd::DeadLettered => BreakerEvent::Failed(task, FailedProbe::new(now, error)),
                    RunEnd::GivenBack => {
                        BreakerEvent::GivenBack { task, again_at: now.plus_millis(PROBE_RETRY_MILLIS) }
                    }
                    // The next probe comes in its time. Otherwise a worker that releases every task
                    // would get one a second.
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
            self.under_breakers.pop_front();
        }
        Ok(())
    }

    /// Closes breakers that could not be probed for a whole window, since no task was under them.
    /// They would stay open forever. If their target still fails, its runs are counted again.
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

    /// Records the counts of tenants that have failures.
    async fn record_counts(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let counts = self.windows.to_report(now, &self.counted_keys);
        for page in counts.chunks(PAGE_ROWS) {
            self.store.record_counts(self.node, page.to_vec()).await?;
            self.windows.confirm(page.to_vec());
        }
        Ok(())
    }

    /// Opens the breakers that must open by the counts of all nodes.
    async fn open_failing(&mut self, now: Timestamp, open: &mut OpenBreakers) -> Result<(), StoreError> {
        if self.windows.is_empty() {
            self.counted_keys.clear();
            self.suspects.clear();
            return Ok(());
        }
        let counts = self.store.counts_since(self.config.rules.since(now)).await?;
        let opening = self.config.rules.to_open(&counts);
        self.counted_keys = counts.into_iter().map(|(key, _)| key).collect();
        let suspected: HashSet<&BreakerKey> = opening.iter().map(|(key, _)| key).collect();
        self.suspects.retain(|key, _| suspected.contains(key));
        let seen_at = Instant::now();
        for (key, runs) in opening {
            self.circuits.suspect(&key);
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

    /// Removes the counts before the window, once a slot.
    async fn prune(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let since = self.config.rules.since(now);
        if self.pruned_before != Some(since) {
            self.store.prune(Prunable::BreakerCounts, since, PAGE_ROWS).await?;
            self.pruned_before = Some(since);
        }
        Ok(())
    }
}
