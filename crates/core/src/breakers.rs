//! The port of circuit breakers, which stop the dispatch to targets that nearly always fail.
//!
//! A breaker stands over a webhook target of a tenant, or over everything of a tenant, pull workers
//! included. Nodes count how runs end and report the counts ([`Breakers::record_counts`]). A node
//! that sees nearly every run of all nodes fail ([`window`]) opens the breaker. While it is open,
//! nodes claim nothing under it except a *probe*: one task, by a permission that one node has at a
//! time. If that run succeeds the breaker closes. If it fails, its attempt is not counted
//! (`Failure::is_under_breaker`).
//!
//! An open breaker is a row; a closed breaker has no row. Tasks stay correct without breakers: lost
//! counts of a dead node, or a probe that never ends, cost only time.
//!
//! # Contract
//! Each sentence is a test of the same name in `testkit::breakers`, stamped for every
//! implementation.
//!
//! - `counts_of_nodes_are_added_together`: by key, over the intervals from an instant on.
//! - `counts_that_are_reported_again_replace_the_first`: a node reports everything it has counted
//!   in an interval, so a lost answer does no harm.
//! - `counts_of_open_breakers_are_not_listed`: they have opened it already.
//! - `old_counts_are_pruned`: those of intervals before an instant, and no others.
//! - `opening_succeeds_once`: however many nodes try. The facts of the first stay.
//! - `breakers_are_listed_in_order`: by tenant and target, page by page; a tenant's own breaker
//!   first.
//! - `the_breaker_over_a_target_is_found`: its own, or else the tenant's; never that of another
//!   tenant or target.
//! - `a_probe_is_permitted_to_one`: not before its time, and to one node, however many ask. The
//!   time of the next probe is later.
//! - `a_permission_can_be_returned`: by the node that got it, until the next one is given.
//! - `only_its_probes_close_a_breaker`: the run of a task that was named, and only once.
//! - `an_overtaken_probe_still_counts`: it closes the breaker, or fails, as the last probe does. If
//!   there are too many, the oldest and the newest are remembered.
//! - `a_failed_probe_leaves_it_open`: and ends the probe. The breaker shows the error of the last
//!   one until it closes.
//! - `a_probe_that_is_given_back_does_not_count`: another may be made at the time that the caller
//!   names, unless one was made already.
//! - `closing_forgets_the_counts`: those of its target, or of all targets for a tenant's breaker.
//! - `a_reset_closes_any_breaker`: and says whether there was one.
//! - `breakers_outlive_the_process`: open ones, with the time of their next probe.
//!
//! Every await may be dropped: the call then happens or not, and nothing stays locked.

pub mod window;

use async_trait::async_trait;

use crate::ids::{NodeId, TaskId};
use crate::lane::{LaneKey, Route};
use crate::store::StoreError;
use crate::time::Timestamp;

/// The target or tenant that a breaker stands over.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BreakerKey {
    /// The tenant of the tasks.
    pub tenant: String,
    /// Their target (`scheme://host:port`); empty for everything of the tenant.
    pub target: String,
}

impl BreakerKey {
    /// Over a target of a tenant.
    pub fn new(tenant: &str, target: &str) -> Self {
        Self { tenant: tenant.to_owned(), target: target.to_owned() }
    }

    /// Over everything of a tenant.
    pub fn of_tenant(tenant: &str) -> Self {
        Self::new(tenant, "")
    }

    /// Whether it stands over everything of its tenant.
    pub fn is_of_tenant(&self) -> bool {
        self.target.is_empty()
    }
}

/// The target of a lane as keys name it; empty for a pull lane.
pub fn target_of(lane: &LaneKey) -> &str {
    match &lane.route {
        Route::Pull => "",
        Route::Push(target) => target,
    }
}

/// How many runs succeeded and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// They succeeded.
    pub ok: u64,
    /// They failed, timed out or were lost.
    pub failed: u64,
}

impl Runs {
    /// All of them.
    pub fn all(self) -> u64 {
        self.ok.saturating_add(self.failed)
    }

    /// The sum of these and other runs.
    #[must_use]
    pub fn plus(self, other: Runs) -> Self {
        Self { ok: self.ok.saturating_add(other.ok), failed: self.failed.saturating_add(other.failed) }
    }
}

/// The runs that a node has counted for a key in one interval of the window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntervalCounts {
    /// The key. An empty target stands for pull workers and for targets without failures.
    pub key: BreakerKey,
    /// When the interval begins; the column is called so.
    pub slot_at: Timestamp,
    /// The runs.
    pub runs: Runs,
}

/// A breaker that is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenBreaker {
    /// The target or tenant that it stands over.
    pub key: BreakerKey,
    /// Since when.
    pub opened_at: Timestamp,
    /// When the next probe may be made.
    pub next_probe_at: Timestamp,
    /// What was counted when it opened.
    pub runs: Runs,
    /// Why it opened, in words.
    pub reason: String,
    /// Whether a probe is under way.
    pub half_open: bool,
    /// The task that is the probe, once it was named.
    pub probe: Option<TaskId>,
    /// Earlier probes that are not known to have ended, the latest first.
    pub overtaken: Vec<TaskId>,
    /// How the last probe failed, if one has.
    pub last_probe: Option<FailedProbe>,
}

impl OpenBreaker {
    /// The maximum number of overtaken probes that are remembered.
    pub const OVERTAKEN_MAX: usize = 16;

    /// Makes room for the next probe. If too many probes were overtaken it forgets the middle one:
    /// the oldest probably ends first, and if it never ends the newest are still known.
    pub fn overtake(&mut self) {
        self.overtaken.splice(..0, self.probe.take());
        if self.overtaken.len() > Self::OVERTAKEN_MAX {
            self.overtaken.remove(Self::OVERTAKEN_MAX / 2);
        }
    }

    /// Whether a task is its probe or an overtaken one.
    pub fn is_probe(&self, task: TaskId) -> bool {
        self.probe == Some(task) || self.overtaken.contains(&task)
    }
}

/// A probe that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedProbe {
    /// When its failure was recorded.
    pub at: Timestamp,
    /// The error of its run.
    pub error: String,
}

impl FailedProbe {
    /// The maximum number of bytes of the error.
    pub const ERROR_MAX_BYTES: usize = 500;

    /// A failed probe. The error is cut to its bound, and control characters become blanks.
    pub fn new(at: Timestamp, error: &str) -> Self {
        let mut kept = String::new();
        for c in error.chars().map(|c| if c.is_control() { ' ' } else { c }) {
            if kept.len() + c.len_utf8() > Self::ERROR_MAX_BYTES {
                break;
            }
            kept.push(c);
        }
        Self { at, error: kept }
    }
}

/// An event that may change an open breaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BreakerEvent {
    /// A node asks to make a probe. `Changed` permits it.
    RequestProbe {
        /// When it asks.
        now: Timestamp,
        /// The earliest time of the next probe.
        next: Timestamp,
    },
    /// The probe that was permitted with `next` is this task.
    NameProbe {
        /// Identifies the permission.
        next: Timestamp,
        /// The task.
        task: TaskId,
    },
    /// There was no task for the probe that was permitted with `next`.
    NoProbe {
        /// Identifies the permission.
        next: Timestamp,
        /// When another probe may be made.
        again_at: Timestamp,
    },
    /// The run of a task succeeded. If it is a probe, the breaker closes.
    Succeeded(TaskId),
    /// The run of a task failed. If it is a probe, the probe has ended.
    Failed(TaskId, FailedProbe),
    /// A task was given back without a run. If it is a probe, the probe has ended.
    GivenBack {
        /// The task.
        task: TaskId,
        /// When another probe may be made at the latest, if it was the last one.
        again_at: Timestamp,
    },
    /// An operator closes the breaker, or no task is under it any more.
    Reset,
}

/// The effect of an event on a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerChange {
    /// The breaker is not open.
    NotOpen,
    /// The event does not concern this breaker, which stays as it is.
    Kept,
    /// It is open and has changed.
    Changed,
    /// It is closed from now on.
    Closed,
}

impl OpenBreaker {
    /// Changes the breaker by an event. Only this function decides what an event does; a store
    /// writes the result.
    pub fn change(&mut self, event: &BreakerEvent) -> BreakerChange {
        let (is_probe, is_last) = match event {
            BreakerEvent::Succeeded(task) | BreakerEvent::Failed(task, _) | BreakerEvent::GivenBack { task, .. } => {
                (self.is_probe(*task), self.probe == Some(*task))
            }
            _ => (false, false),
        };
        match event {
            BreakerEvent::RequestProbe { now, next } if self.next_probe_at <= *now => {
                self.overtake();
                (self.next_probe_at, self.half_open) = (*next, true);
            }
            BreakerEvent::NameProbe { next, task } if self.next_probe_at == *next && self.half_open => {
                self.probe = Some(*task);
            }
            BreakerEvent::NoProbe { next, again_at } if self.next_probe_at == *next && self.probe.is_none() => {
                (self.next_probe_at, self.half_open) = (*again_at, false);
            }
            BreakerEvent::Succeeded(_) if is_probe => return BreakerChange::Closed,
            BreakerEvent::Reset => return BreakerChange::Closed,
            BreakerEvent::Failed(task, failed) if is_probe => {
                self.end_probe(*task);
                self.last_probe = Some(failed.clone());
            }
            BreakerEvent::GivenBack { task, again_at } if is_probe => {
                self.end_probe(*task);
                if is_last {
                    self.next_probe_at = self.next_probe_at.min(*again_at);
                }
            }
            _ => return BreakerChange::Kept,
        }
        // A named probe of a breaker that is not half open would never end.
        debug_assert!(self.probe.is_none() || self.half_open, "a probe makes the breaker half open");
        debug_assert!(self.overtaken.len() <= Self::OVERTAKEN_MAX, "overtaken probes are bounded");
        BreakerChange::Changed
    }

    /// Ends a probe. The breaker stays half open until its last probe has ended.
    fn end_probe(&mut self, task: TaskId) {
        if self.probe == Some(task) {
            (self.probe, self.half_open) = (None, false);
        }
        self.overtaken.retain(|overtaken| *overtaken != task);
    }
}

/// Open breakers and the counts that open them (see the module's contract).
#[async_trait]
pub trait Breakers: Send + Sync {
    /// Records a node's counts. They replace its earlier counts of the same keys and intervals.
    async fn record_counts(&self, node: NodeId, counts: Vec<IntervalCounts>) -> Result<(), StoreError>;

    /// Sums the runs of every key without an open breaker over the intervals from `since` on, in
    /// the order of keys.
    async fn counts_since(&self, since: Timestamp) -> Result<Vec<(BreakerKey, Runs)>, StoreError>;

    /// Opens a breaker. False if it is open already.
    async fn open_breaker(&self, breaker: OpenBreaker) -> Result<bool, StoreError>;

    /// Lists the open breakers in the order of their keys, strictly after `after`.
    async fn list_breakers(&self, after: Option<BreakerKey>, limit: usize) -> Result<Vec<OpenBreaker>, StoreError>;

    /// Reads the open breaker over a target of a tenant: the target's own, or else the tenant's. An
    /// empty target stands for pull tasks.
    async fn breaker_over(&self, tenant: &str, target: &str) -> Result<Option<OpenBreaker>, StoreError>;

    /// Changes a breaker by an event ([`OpenBreaker::change`]), in one transaction. Closing also
    /// removes its counts.
    async fn change_breaker(&self, key: &BreakerKey, event: BreakerEvent) -> Result<BreakerChange, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_probe_is_bounded_plain_text() {
        let at = Timestamp::from_millis(1);
        let kept = |error: &str| FailedProbe::new(at, error).error;
        assert_eq!(kept("connection\n\0refused"), "connection  refused");
        assert_eq!(kept(&"a".repeat(FailedProbe::ERROR_MAX_BYTES)).len(), FailedProbe::ERROR_MAX_BYTES);
        assert_eq!(kept(&format!("a{}", "\u{e9}".repeat(4_096))), format!("a{}", "\u{e9}".repeat(249)));
    }

    const KEY: (&str, &str) = ("acme", "https://example.com:443");

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    /// Opened at 100, to be probed at 160.
    fn opened() -> OpenBreaker {
        OpenBreaker {
            key: BreakerKey::new(KEY.0, KEY.1),
            opened_at: at(100),
            next_probe_at: at(160),
            runs: Runs { ok: 1, failed: 99 },
            reason: "99 of 100 runs failed".to_owned(),
            half_open: false,
            probe: None,
            overtaken: Vec::new(),
            last_probe: None,
        }
    }

    /// A task that is the probe from `now` on; the next one is made at `next`.
    fn probe(breaker: &mut OpenBreaker, now: i64, next: i64) -> TaskId {
        let (now, next, task) = (at(now), at(next), TaskId::new());
        assert_eq!(breaker.change(&BreakerEvent::RequestProbe { now, next }), BreakerChange::Changed);
        assert_eq!(breaker.change(&BreakerEvent::NameProbe { next, task }), BreakerChange::Changed);
        task
    }

    /// Events about a task that is no probe, or about a permission that was not given.
    fn unrelated_events() -> [BreakerEvent; 6] {
        let (next, task, again_at) = (at(1), TaskId::new(), at(2));
        [
            BreakerEvent::RequestProbe { now: at(159), next },
            BreakerEvent::NameProbe { next, task },
            BreakerEvent::NoProbe { next, again_at },
            BreakerEvent::Succeeded(task),
            BreakerEvent::Failed(task, FailedProbe::new(at(1), "no")),
            BreakerEvent::GivenBack { task, again_at },
        ]
    }

    #[test]
    fn an_unrelated_event_changes_nothing() {
        let mut half_open = opened();
        probe(&mut half_open, 160, 220);
        for before in [opened(), half_open] {
            for event in unrelated_events() {
                let mut breaker = before.clone();
                assert_eq!(breaker.change(&event), BreakerChange::Kept, "{event:?}");
                assert_eq!(breaker, before, "{event:?}");
            }
        }
    }

    #[test]
    fn a_probe_is_permitted_once_for_its_time() {
        let mut breaker = opened();
        let ask = |now, next| BreakerEvent::RequestProbe { now: at(now), next: at(next) };
        assert_eq!(breaker.change(&ask(160, 220)), BreakerChange::Changed);
        assert_eq!((breaker.half_open, breaker.next_probe_at), (true, at(220)));
        assert_eq!(breaker.change(&ask(160, 220)), BreakerChange::Kept);
        let none = BreakerEvent::NoProbe { next: at(220), again_at: at(161) };
        assert_eq!(breaker.change(&none), BreakerChange::Changed);
        assert_eq!((breaker.half_open, breaker.next_probe_at), (false, at(161)));
    }

    #[test]
    fn every_probe_that_was_named_closes_it() {
        let mut breaker = opened();
        let (first, last) = (probe(&mut breaker, 160, 220), probe(&mut breaker, 220, 280));
        assert_eq!((breaker.probe, &breaker.overtaken), (Some(last), &vec![first]));
        for task in [first, last] {
            assert_eq!(breaker.clone().change(&BreakerEvent::Succeeded(task)), BreakerChange::Closed);
        }
        assert_eq!(opened().change(&BreakerEvent::Reset), BreakerChange::Closed);
    }

    #[test]
    fn only_the_end_of_the_last_probe_ends_half_open() {
        let mut breaker = opened();
        let (first, last) = (probe(&mut breaker, 160, 220), probe(&mut breaker, 220, 280));
        let failed = FailedProbe::new(at(221), "refused");
        assert_eq!(breaker.change(&BreakerEvent::Failed(first, failed.clone())), BreakerChange::Changed);
        assert_eq!((breaker.half_open, breaker.probe, &breaker.last_probe), (true, Some(last), &Some(failed)));
        assert!(!breaker.is_probe(first));
        let given_back = BreakerEvent::GivenBack { task: last, again_at: at(230) };
        assert_eq!(breaker.change(&given_back), BreakerChange::Changed);
        assert_eq!((breaker.half_open, breaker.probe, breaker.next_probe_at), (false, None, at(230)));
    }

    #[test]
    fn an_overtaken_probe_that_is_given_back_moves_no_time() {
        let mut breaker = opened();
        let (first, last) = (probe(&mut breaker, 160, 220), probe(&mut breaker, 220, 280));
        let given_back = |task, again_at| BreakerEvent::GivenBack { task, again_at };
        assert_eq!(breaker.change(&given_back(first, at(221))), BreakerChange::Changed);
        assert_eq!((breaker.half_open, breaker.next_probe_at), (true, at(280)));
        assert_eq!(breaker.change(&given_back(last, Timestamp::MAX)), BreakerChange::Changed);
        assert_eq!(breaker.next_probe_at, at(280), "not later than it would be anyway");
    }

    #[test]
    fn the_first_and_the_last_probes_are_kept() {
        let mut breaker = opened();
        let probes: Vec<TaskId> = (0..40).map(|turn| probe(&mut breaker, 160 + turn, 161 + turn)).collect();
        assert_eq!(breaker.overtaken.len(), OpenBreaker::OVERTAKEN_MAX);
        let half = OpenBreaker::OVERTAKEN_MAX / 2;
        let latest: Vec<TaskId> = probes[..39].iter().rev().take(half).copied().collect();
        assert_eq!(&breaker.overtaken[..half], latest);
        assert_eq!(breaker.overtaken.last(), probes.first());
    }
}
