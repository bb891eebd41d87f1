//! The breakers as this node knows them: which are open, and how runs ended since the last pass.
//!
//! Settlers and the reaper count how runs end ([`Circuits::count`]). That takes one short lock for
//! a batch, no clock and no store. The dispatcher asks which breakers are open before it gives a
//! lane its home, and makes probes ([`Circuits::probe`]). The [`BreakerWatch`] connects the two:
//! once a second it records counts in the store, opens and closes breakers, and reads the open
//! ones. Without breakers ([`Circuits::off`]) all of this does nothing.

mod open;
mod streaks;
mod watch;

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use punctual_core::breakers::window::BreakerRules;
use punctual_core::breakers::{BreakerChange, BreakerEvent, BreakerKey, Breakers, FailedProbe, Runs, target_of};
use punctual_core::ids::TaskId;
use punctual_core::lane::LaneKey;
use punctual_core::run_end::RunEnd;
use punctual_core::store::{Claimed, StoreError};
use punctual_core::time::Timestamp;
use tokio::sync::Notify;

use self::streaks::Streaks;
use crate::ownership::OwnedPartitions;
use crate::polls::UntakenTask;

pub use open::OpenBreakers;
pub use watch::{BreakerWatch, Config};

/// The maximum number of runs under open breakers that are kept until the next pass. A probe beyond
/// them is missed, and the next one follows it.
const ENDED_RUNS_MAX: usize = 4_096;
/// No reachable host has a longer name, and the store's key has no room for it.
const TARGET_BYTES_MAX: usize = 512;
/// After this another probe may be made, if there was no task for one or the task was given back.
/// If only its queue let nothing through, another lane may be probed at once.
const PROBE_RETRY_MILLIS: i64 = 1_000;

/// A run that ended.
#[derive(Clone, Debug)]
pub struct EndedRun<'a> {
    /// The tenant of the task.
    pub tenant: &'a str,
    /// The target of the webhook; empty if a worker settled the run through the API.
    pub target: &'a str,
    /// The task.
    pub task: TaskId,
    /// How the run ended, as far as it concerns the target ([`RunEnd::for_breakers`]).
    pub end: RunEnd,
    /// What went wrong, if it failed. Operators see it if the run was a probe.
    pub error: Option<Cow<'a, str>>,
}

impl<'a> EndedRun<'a> {
    /// Whether it succeeded; none if it says nothing about that.
    fn is_success(&self) -> Option<bool> {
        match self.end {
            RunEnd::Completed | RunEnd::Accepted => Some(true),
            RunEnd::Retried | RunEnd::DeadLettered => Some(false),
            RunEnd::GivenBack | RunEnd::Released | RunEnd::Cancelled | RunEnd::Stale => None,
        }
    }

    /// A claimed task that no worker has taken.
    pub(crate) fn given_back(task: &'a UntakenTask) -> Self {
        let (tenant, target) = (task.lane.key.tenant.as_str(), target_of(&task.lane.key));
        Self { tenant, target, task: task.id, end: RunEnd::GivenBack, error: None }
    }
}

/// The breakers of this node (see the module).
#[derive(Default)]
pub struct Circuits {
    store: Option<Arc<dyn Breakers>>,
    probe_millis: i64,
    open: RwLock<Arc<OpenBreakers>>,
    is_any_open: AtomicBool,
    new_counts: Mutex<NewCounts>,
    /// None without breakers.
    streaks: Option<Mutex<Streaks>>,
    /// A probe that this node has made has ended.
    probe_ended: Notify,
    opened: AtomicU64,
}

/// The runs that ended since the watch's last pass.
#[derive(Debug, Default)]
struct NewCounts {
    /// By tenant and target.
    runs: HashMap<String, HashMap<String, Runs>>,
    under_breakers: VecDeque<RunUnderBreaker>,
}

/// A run that ended under an open breaker and may have been its probe.
#[derive(Debug)]
struct RunUnderBreaker {
    key: BreakerKey,
    task: TaskId,
    end: RunEnd,
    /// What went wrong, if it failed; bounded.
    error: String,
}

impl Circuits {
    /// Breakers that are kept in `store`, open by these rules and are probed every `probe_millis`.
    /// The node runs the webhooks of the partitions in `owned`.
    pub fn new(store: Arc<dyn Breakers>, rules: BreakerRules, probe_millis: i64, owned: Arc<OwnedPartitions>) -> Self {
        let streaks = Some(Mutex::new(Streaks::new(rules, owned)));
        Self { store: Some(store), probe_millis, streaks, ..Self::default() }
    }

    /// No breakers: nothing is counted, and nothing opens.
    pub fn off() -> Self {
        Self::default()
    }

    /// Counts ended runs. A run under an open breaker is not counted: it may be the probe.
    pub fn count<'a>(&self, ended: impl IntoIterator<Item = EndedRun<'a>>) {
        let Some(streaks) = &self.streaks else { return };
        let open = self.is_any_open.load(Ordering::Relaxed).then(|| self.open());
        let mut is_probe = false;
        let (mut counts, mut streaks) = (self.new_counts.lock(), streaks.lock());
        for run in ended {
            let mut over = open.iter().flat_map(|open| open.over(run.tenant, run.target)).peekable();
            if let (None, Some(is_success)) = (over.peek(), run.is_success()) {
                counts.add(&run, is_success);
                streaks.add(run.tenant, run.target, is_success);
            }
            for breaker in over {
                // Whether an accepted run succeeds is not known yet, and a tenant's breaker depends
                // on that.
                if !(breaker.key.is_of_tenant() && run.end == RunEnd::Accepted) {
                    is_probe |= breaker.is_probe(run.task);
                    counts.add_under(&breaker.key, &run);
                }
            }
        }
        drop((counts, streaks));
        if is_probe {
            self.probe_ended.notify_one();
        }
    }

    /// Whether a run of the lane that fails now uses up no attempt: a breaker is open over it, as
    /// far as this node knows, or may be about to open.
    pub fn spares(&self, lane: &LaneKey) -> bool {
        let is_open = self.is_any_open.load(Ordering::Relaxed) && self.open.read().is_over(lane);
        let streaks = self.streaks.as_ref().filter(|_| !is_open);
        is_open || streaks.is_some_and(|streaks| streaks.lock().spares(&lane.tenant, target_of(lane)))
    }

    /// The breakers that are open.
    pub fn open(&self) -> Arc<OpenBreakers> {
        Arc::clone(&self.open.read())
    }

    /// How many breakers this node has opened.
    pub fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Probes breakers that are over the same lane: asks each for its permission, makes `claim`,
    /// which takes one task, and records the task as the probe. Returns nothing if a breaker
    /// refuses.
    pub async fn probe(
        &self,
        keys: &[BreakerKey],
        now: Timestamp,
        claim: impl Future<Output = Result<Vec<Claimed>, StoreError>>,
    ) -> Result<Vec<Claimed>, StoreError> {
        let Some(store) = &self.store else { return Ok(Vec::new()) };
        let next = now.plus_millis(self.probe_millis);
        let mut permitted = Vec::new();
        for key in keys {
            match self.change(store, key, BreakerEvent::RequestProbe { now, next }).await? {
                BreakerChange::Changed => permitted.push(key),
                // The breaker has closed meanwhile.
                BreakerChange::NotOpen | BreakerChange::Closed => {}
                BreakerChange::Kept => {
                    self.end_permission(store, &permitted, BreakerEvent::NoProbe { next, again_at: now }).await;
                    return Ok(Vec::new());
                }
            }
        }
        let claimed = claim.await?;
        let probe = claimed.iter().flat_map(|answer| &answer.tasks).map(|task| task.id).next();
        let is_limited = claimed.iter().any(|answer| !answer.limited.is_empty());
        let again_at = if is_limited { now } else { now.plus_millis(PROBE_RETRY_MILLIS) };
        let event = match probe {
            Some(task) => BreakerEvent::NameProbe { next, task },
            None => BreakerEvent::NoProbe { next, again_at },
        };
        self.end_permission(store, &permitted, event).await;
        Ok(claimed)
    }

    /// Records which task is the probe, before a worker runs it, or that there is none. If that
    /// fails, the probe is not recognised, and the next one follows.
    async fn end_permission(&self, store: &Arc<dyn Breakers>, keys: &[&BreakerKey], event: BreakerEvent) {
        for key in keys {
            if let Err(error) = self.change(store, key, event.clone()).await {
                tracing::debug!(error = %error, "cannot record the probe of a breaker; the next one will follow");
            }
        }
    }

    /// Changes a breaker in the store, and then here, so that the dispatcher need not wait for the
    /// watch.
    async fn change(
        &self,
        store: &Arc<dyn Breakers>,
        key: &BreakerKey,
        event: BreakerEvent,
    ) -> Result<BreakerChange, StoreError> {
        let change = store.change_breaker(key, event.clone()).await?;
        let mut open = self.open.write();
        if change == BreakerChange::Changed
            && let Some(mut breaker) = open.get(key).cloned()
            && breaker.change(&event) == BreakerChange::Changed
        {
            Arc::make_mut(&mut open).insert(breaker);
        }
        Ok(change)
    }

    /// Sets which breakers are open; returns whether that differs from before.
    fn set_open(&self, open: OpenBreakers) -> bool {
        let mut known = self.open.write();
        let has_changed = **known != open;
        if has_changed {
            self.is_any_open.store(!open.is_empty(), Ordering::Relaxed);
            *known = Arc::new(open);
        }
        has_changed
    }

    /// The runs since the last call, and the targets where `minimum` runs in a row have failed.
    fn take_new_counts(&self) -> (NewCounts, Vec<BreakerKey>) {
        let mut counts = self.new_counts.lock();
        let failing = self.streaks.as_ref().map(|streaks| streaks.lock().reached());
        (std::mem::take(&mut *counts), failing.unwrap_or_default())
    }

    /// Notes that the breaker over a target must open by the counts of all nodes.
    fn suspect(&self, key: &BreakerKey) {
        if let Some(streaks) = &self.streaks {
            streaks.lock().reach(key);
        }
    }

    fn prune_streaks(&self) {
        if let Some(streaks) = &self.streaks {
            let open = self.open();
            streaks.lock().prune(|key| open.over(&key.tenant, &key.target).next().is_some());
        }
    }
}

impl NewCounts {
    fn add(&mut self, run: &EndedRun<'_>, is_success: bool) {
        if run.target.len() > TARGET_BYTES_MAX {
            return;
        }
        let runs = match self.runs.get_mut(run.tenant).and_then(|targets| targets.get_mut(run.target)) {
            Some(runs) => runs,
            None => self.runs.entry(run.tenant.to_owned()).or_default().entry(run.target.to_owned()).or_default(),
        };
        if is_success {
            runs.ok += 1;
        } else {
            runs.failed += 1;
        }
    }

    fn add_under(&mut self, key: &BreakerKey, run: &EndedRun<'_>) {
        if self.under_breakers.len() < ENDED_RUNS_MAX {
            let error = run.error.as_deref().unwrap_or_default();
            let error = error[..error.floor_char_boundary(FailedProbe::ERROR_MAX_BYTES)].to_owned();
            self.under_breakers.push_back(RunUnderBreaker { key: key.clone(), task: run.task, end: run.end, error });
        }
    }
}

impl std::fmt::Debug for Circuits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (is_on, open) = (self.store.is_some(), self.open.read().len());
        f.debug_struct("Circuits").field("is_on", &is_on).field("open", &open).finish_non_exhaustive()
    }
}
