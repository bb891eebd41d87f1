//! Circuit breakers: what fails nearly always is left alone, and tried once in a while.
//!
//! A breaker stands over a webhook target of a tenant, or over everything of a tenant, pull workers
//! included. Nodes count how runs end and tell the store ([`Breakers::tell_counts`]); whoever sees by
//! all counts together ([`window`]) that nearly everything fails opens the breaker. While it is open
//! no node takes what is under it, except for a *probe*: one task, by a permission that one node is
//! given at a time. When that run succeeds the breaker closes; when it fails that costs its task no
//! attempt (`Failure::is_under_breaker`).
//!
//! An open breaker is a row, a closed one is none. Nothing here is needed to get a task right: what
//! is lost (counts of a node that dies, a probe that never ends) costs time and nothing else.
//!
//! # Contract
//! Each sentence is a test of the same name in `testkit::breakers`, stamped for every implementation.
//!
//! - `counts_of_nodes_are_added_together`: by key, over the slots from an instant on.
//! - `counts_that_are_told_again_replace_the_first`: a node tells all it has counted in a slot, so that an answer that was
//!   lost does no harm.
//! - `counts_of_open_breakers_are_not_told`: they have been judged.
//! - `old_counts_are_pruned`: those of slots before an instant, and no others.
//! - `opening_succeeds_once`: of however many that try; the first's facts stay.
//! - `breakers_are_listed_in_order`: by tenant and target, page by page; a tenant's own first.
//! - `the_breaker_over_a_target_is_found`: its own, or else the tenant's; another tenant's as little as another target's.
//! - `a_probe_is_permitted_to_one`: not before its time, and to one of however many ask; the next one's time comes later.
//! - `a_permission_can_be_returned`: by whom it was given to, until the next one is given.
//! - `only_its_probes_close_a_breaker`: the run of a task that was named, and only once.
//! - `a_probe_that_is_overtaken_is_kept_in_mind`: it closes the breaker, or fails, as the last one does; of more than a bound the
//!   first and the last ones.
//! - `a_failed_probe_leaves_it_open`: and ends the probe; the last one's error is told with the breaker, until it closes.
//! - `a_probe_that_is_given_back_was_none`: another may be made as soon as is said, unless it was already.
//! - `closing_forgets_the_counts`: of its target; of a tenant's breaker those of all its targets.
//! - `resetting_closes_whatever_it_is`: and says whether there was one.
//! - `breakers_outlive_the_process`: open ones, with the time of their next probe.
//!
//! Every await may be dropped; the call then has happened or not, and nothing stays locked.

pub mod window;

use async_trait::async_trait;

use crate::ids::{NodeId, TaskId};
use crate::lane::{LaneKey, Route};
use crate::store::StoreError;
use crate::time::Timestamp;

/// What a breaker stands over.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Whose tasks.
    pub tenant: String,
    /// To which target (`scheme://host:port`); empty: everything of the tenant.
    pub target: String,
}

impl Key {
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

/// The target of a lane as keys name it: empty for one that is pulled.
pub fn target_of(lane: &LaneKey) -> &str {
    match &lane.route {
        Route::Pull => "",
        Route::Push(target) => target,
    }
}

/// How many runs ended how.
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

    /// These and others.
    #[must_use]
    pub fn plus(self, other: Runs) -> Self {
        Self { ok: self.ok.saturating_add(other.ok), failed: self.failed.saturating_add(other.failed) }
    }
}

/// All that a node has counted of a key in a slot of the window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Of what. With an empty target: of pull workers, and of targets at which nothing failed.
    pub key: Key,
    /// The begin of the slot.
    pub slot_at: Timestamp,
    /// The runs.
    pub runs: Runs,
}

/// A breaker that is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenBreaker {
    /// What it stands over.
    pub key: Key,
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
    /// The task that is the probe, once it is known.
    pub probe: Option<TaskId>,
    /// Probes before it that have not ended as far as is known, the latest first.
    pub overtaken: Vec<TaskId>,
    /// How the last probe failed, if one has.
    pub last_probe: Option<FailedProbe>,
}

impl OpenBreaker {
    /// Probes that the next one has overtaken that are kept in mind.
    pub const MOST_OVERTAKEN: usize = 16;

    /// The probe is overtaken by the next one. Of too many the one in the middle is forgotten: the first will end first,
    /// and if it never does the last ones are there.
    pub fn overtake(&mut self) {
        self.overtaken.splice(..0, self.probe.take());
        if self.overtaken.len() > Self::MOST_OVERTAKEN {
            self.overtaken.remove(Self::MOST_OVERTAKEN / 2);
        }
    }

    /// Whether a task is its probe, or one that was overtaken.
    pub fn is_probe(&self, task: TaskId) -> bool {
        self.probe == Some(task) || self.overtaken.contains(&task)
    }
}

/// A probe that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedProbe {
    /// When that was seen.
    pub at: Timestamp,
    /// What went wrong, in the words of its run.
    pub error: String,
}

impl FailedProbe {
    /// Bytes of the error that are kept.
    pub const LONGEST_ERROR: usize = 500;

    /// One that failed so; the error is cut to its bound, and has nothing in it that a store could not keep.
    pub fn new(at: Timestamp, error: &str) -> Self {
        let mut kept = String::new();
        for c in error.chars().map(|c| if c.is_control() { ' ' } else { c }) {
            if kept.len() + c.len_utf8() > Self::LONGEST_ERROR {
                break;
            }
            kept.push(c);
        }
        Self { at, error: kept }
    }
}

/// The answer to a node that wants to make a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// It may take one task.
    Given,
    /// It is not time, or somebody else was faster.
    NotYet,
    /// The breaker is not open any more.
    Closed,
}

/// Open breakers, and what they are judged by (see the module's contract).
#[async_trait]
pub trait Breakers: Send + Sync {
    /// What a node has counted, in place of what it told of the same keys and slots before.
    async fn tell_counts(&self, node: NodeId, counts: Vec<Counted>) -> Result<(), StoreError>;

    /// The runs of every key that has counts in slots from `since` on and no open breaker, in order.
    async fn counts_since(&self, since: Timestamp) -> Result<Vec<(Key, Runs)>, StoreError>;

    /// Opens a breaker; false when it is open already.
    async fn open_breaker(&self, breaker: OpenBreaker) -> Result<bool, StoreError>;

    /// The open breakers in the order of their keys, strictly after `after`.
    async fn open_breakers(&self, after: Option<Key>, limit: usize) -> Result<Vec<OpenBreaker>, StoreError>;

    /// The open breaker over tasks of a tenant to a target (empty: tasks that are pulled): the target's own, or else the
    /// tenant's.
    async fn breaker_over(&self, tenant: &str, target: &str) -> Result<Option<OpenBreaker>, StoreError>;

    /// Asks to make a probe at `now`; if it may, the next one is made at `next` at the earliest.
    async fn permit_probe(&self, key: &Key, now: Timestamp, next: Timestamp) -> Result<Permission, StoreError>;

    /// The probe that was permitted with `next` is this task; or there was none to take, and another may be made from
    /// `again_at` on.
    async fn name_probe(&self, key: &Key, next: Timestamp, probe: Result<TaskId, Timestamp>) -> Result<(), StoreError>;

    /// The run of a task succeeded: if that is a probe, the breaker closes. Whether it did.
    async fn close_breaker(&self, key: &Key, probe: TaskId) -> Result<bool, StoreError>;

    /// The run of a task failed so: if that is a probe, it has ended.
    async fn probe_failed(&self, key: &Key, probe: TaskId, failed: FailedProbe) -> Result<(), StoreError>;

    /// A task was given back and was not run: if that is a probe, it has ended; if it is the last one, another may be made
    /// from `again_at` on, or when it would be anyway.
    async fn return_probe(&self, key: &Key, probe: TaskId, again_at: Timestamp) -> Result<(), StoreError>;

    /// Closes a breaker whatever its probes say; false when it is not open.
    async fn reset_breaker(&self, key: &Key) -> Result<bool, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_a_probe_is_bounded_plain_text() {
        let at = Timestamp::from_millis(1);
        let kept = |error: &str| FailedProbe::new(at, error).error;
        assert_eq!(kept("connection\n\0refused"), "connection  refused");
        assert_eq!(kept(&"a".repeat(FailedProbe::LONGEST_ERROR)).len(), FailedProbe::LONGEST_ERROR);
        assert_eq!(kept(&format!("a{}", "\u{e9}".repeat(4_096))), format!("a{}", "\u{e9}".repeat(249)));
    }
}
