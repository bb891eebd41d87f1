//! Breakers, as this node has them in mind: which are open, and what it has seen since.
//!
//! Whoever settles runs says how they ended ([`Circuits::count`]): one short lock for a batch, and
//! no clock and no store. The dispatcher asks which breakers are open before a lane comes on its
//! board, and makes probes ([`Circuits::probe`]). In between is the [`BreakerWatch`]: once a second
//! it tells the store what was counted, opens, closes, and reads what is open. Where breakers are
//! off, all of this does nothing.

mod open;
mod watch;

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use punctual_core::breakers::{BreakerChange, BreakerEvent, BreakerKey, Breakers, FailedProbe, Runs, target_of};
use punctual_core::ids::TaskId;
use punctual_core::lane::LaneKey;
use punctual_core::run_end::RunEnd;
use punctual_core::store::{Claimed, StoreError};
use punctual_core::task::Task;
use punctual_core::time::Timestamp;
use tokio::sync::Notify;

pub use open::OpenBreakers;
pub use watch::{BreakerWatch, Config};

/// Runs under open breakers that are kept in mind until the next look; those beyond are not, and a
/// probe among them is followed by the next one.
const ENDED_RUNS_MAX: usize = 4_096;
/// What is longer is no host that anybody could reach, and too long for a key of the store.
const TARGET_BYTES_MAX: usize = 512;
/// When nothing was there to be a probe, or it was given back, another may be made after this.
/// Where only its queue let nothing through another lane may be tried at once: whoever asks leaves
/// that queue alone.
const PROBE_RETRY_MILLIS: i64 = 1_000;

/// A run that ended.
#[derive(Clone, Debug)]
pub struct EndedRun<'a> {
    /// Whose.
    pub tenant: &'a str,
    /// To which target; empty: of a worker that tells by itself.
    pub target: &'a str,
    /// Of which task.
    pub task: TaskId,
    /// How.
    pub end: RunEnd,
    /// What went wrong, if it failed: operators see it of a probe.
    pub error: Option<Cow<'a, str>>,
}

impl<'a> EndedRun<'a> {
    /// That of a task that nobody has taken.
    pub(crate) fn given_back(task: &'a Task) -> Self {
        let (tenant, target) = (task.tenant(), target_of(&task.lane.key));
        Self { tenant, target, task: task.id, end: RunEnd::GivenBack, error: None }
    }
}

/// See the module.
#[derive(Default)]
pub struct Circuits {
    store: Option<Arc<dyn Breakers>>,
    probe_millis: i64,
    open: RwLock<Arc<OpenBreakers>>,
    is_any_open: AtomicBool,
    new_counts: Mutex<NewCounts>,
    /// A probe that this node has made has ended.
    probe_ended: Notify,
    opened: AtomicU64,
}

/// What was counted since the watch looked last.
#[derive(Debug, Default)]
struct NewCounts {
    runs: HashMap<String, HashMap<String, Runs>>,
    ended: VecDeque<RunUnderBreaker>,
}

/// A run that ended under an open breaker, and may have been its probe.
#[derive(Debug)]
struct RunUnderBreaker {
    key: BreakerKey,
    task: TaskId,
    end: RunEnd,
    /// What went wrong, if it failed; bounded.
    error: String,
}

impl Circuits {
    /// Breakers that are kept in `store`, and probed again after so many milliseconds.
    pub fn new(store: Arc<dyn Breakers>, probe_millis: i64) -> Self {
        Self { store: Some(store), probe_millis, ..Self::default() }
    }

    /// No breakers: nothing is counted, and nothing opens.
    pub fn off() -> Self {
        Self::default()
    }

    /// Runs ended. What ends under an open breaker is not counted: it may be its probe.
    pub fn count<'a>(&self, ended: impl IntoIterator<Item = EndedRun<'a>>) {
        if self.store.is_none() {
            return;
        }
        let open = self.is_any_open.load(Ordering::Relaxed).then(|| self.open());
        let mut is_probe = false;
        let mut counts = self.new_counts.lock();
        for run in ended {
            if let Some(open) = &open {
                let mut is_under_open = false;
                for breaker in open.over(run.tenant, run.target) {
                    is_under_open = true;
                    // Whether the run itself succeeds is not known yet, and that is what a tenant's
                    // breaker goes by.
                    if breaker.key.is_of_tenant() && run.end == RunEnd::Accepted {
                        continue;
                    }
                    is_probe |= breaker.is_probe(run.task);
                    if counts.ended.len() < ENDED_RUNS_MAX {
                        counts.ended.push_back(RunUnderBreaker {
                            key: breaker.key.clone(),
                            task: run.task,
                            end: run.end,
                            error: bounded(run.error.as_deref().unwrap_or_default()),
                        });
                    }
                }
                if is_under_open {
                    continue;
                }
            }
            match run.end {
                RunEnd::Completed | RunEnd::Accepted => counts.add(run.tenant, run.target, true),
                RunEnd::Retried | RunEnd::DeadLettered => counts.add(run.tenant, run.target, false),
                RunEnd::GivenBack | RunEnd::Released | RunEnd::Cancelled | RunEnd::Stale => {}
            }
        }
        drop(counts);
        if is_probe {
            self.probe_ended.notify_one();
        }
    }

    /// Whether a breaker is open over a lane, as far as this node knows: then a run of it that
    /// fails does not use up an attempt. Where none is open at all that takes no lock.
    pub fn is_open_over(&self, lane: &LaneKey) -> bool {
        self.is_any_open.load(Ordering::Relaxed) && self.open.read().is_over(lane)
    }

    /// The breakers that are open.
    pub fn open(&self) -> Arc<OpenBreakers> {
        Arc::clone(&self.open.read())
    }

    /// How many breakers this node has opened.
    pub fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Makes a probe of breakers that are all over the same lane: `claim` is to take one task, and
    /// is asked if all of them permit it. Empty when they do not.
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
            match store.change_breaker(key, BreakerEvent::RequestProbe { now, next }).await? {
                BreakerChange::Changed => permitted.push(key),
                // The lane is not under it any more.
                BreakerChange::NotOpen | BreakerChange::Closed => {}
                BreakerChange::Kept => {
                    self.name_probe(store, &permitted, next, Err(now)).await;
                    return Ok(Vec::new());
                }
            }
        }
        let claimed = claim.await?;
        let probe = claimed.iter().flat_map(|answer| &answer.tasks).map(|task| task.id).next();
        let is_held_back = claimed.iter().any(|answer| !answer.limited.is_empty());
        let again_at = if is_held_back { now } else { now.plus_millis(PROBE_RETRY_MILLIS) };
        self.name_probe(store, &permitted, next, probe.ok_or(again_at)).await;
        Ok(claimed)
    }

    /// Tells which task the probe is, before anybody runs it. If that fails, nobody will know it
    /// for the probe, and the next one follows.
    async fn name_probe(
        &self,
        store: &Arc<dyn Breakers>,
        keys: &[&BreakerKey],
        next: Timestamp,
        probe: Result<TaskId, Timestamp>,
    ) {
        for key in keys {
            let event = match probe {
                Ok(task) => BreakerEvent::NameProbe { next, task },
                Err(again_at) => BreakerEvent::NoProbe { next, again_at },
            };
            match store.change_breaker(key, event).await {
                Ok(_) => self.learn_probe(key, probe.map_or_else(|again_at| again_at, |_| next), probe.ok()),
                Err(error) => tracing::debug!(error = %error, "could not tell which task the probe of a breaker is"),
            }
        }
    }

    fn learn_probe(&self, key: &BreakerKey, next_probe_at: Timestamp, probe: Option<TaskId>) {
        let mut open = self.open.write();
        if let Some(mut breaker) = open.get(key).cloned() {
            breaker.next_probe_at = next_probe_at;
            breaker.overtake();
            breaker.probe = probe;
            breaker.half_open = probe.is_some();
            Arc::make_mut(&mut open).insert(breaker);
        }
    }

    /// These are open now; whether that is news.
    fn set_open(&self, open: OpenBreakers) -> bool {
        let mut known = self.open.write();
        let is_news = **known != open;
        if is_news {
            self.is_any_open.store(!open.is_empty(), Ordering::Relaxed);
            *known = Arc::new(open);
        }
        is_news
    }

    fn take_new_counts(&self) -> NewCounts {
        std::mem::take(&mut *self.new_counts.lock())
    }
}

/// As much of an error as is kept of a probe's: there may be thousands of them until the next look.
fn bounded(error: &str) -> String {
    error[..error.floor_char_boundary(FailedProbe::ERROR_MAX_BYTES)].to_owned()
}

impl NewCounts {
    fn add(&mut self, tenant: &str, target: &str, is_success: bool) {
        if target.len() > TARGET_BYTES_MAX {
            return;
        }
        let runs = match self.runs.get_mut(tenant).and_then(|targets| targets.get_mut(target)) {
            Some(runs) => runs,
            None => self.runs.entry(tenant.to_owned()).or_default().entry(target.to_owned()).or_default(),
        };
        if is_success {
            runs.ok += 1;
        } else {
            runs.failed += 1;
        }
    }
}

impl std::fmt::Debug for Circuits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (is_on, open) = (self.store.is_some(), self.open.read().len());
        f.debug_struct("Circuits").field("is_on", &is_on).field("open", &open).finish_non_exhaustive()
    }
}
