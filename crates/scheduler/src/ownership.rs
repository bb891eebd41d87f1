//! Which partitions this node owns, and the loop that keeps them.
//!
//! The dispatcher asks [`OwnedPartitions`] before it claims pushed tasks, and names the terms of
//! its partitions to the store, which refuses claims in an older term.
//!
//! Invariant: a node that cannot renew stops after two thirds of the lease, by its own monotonic
//! clock. So it has stopped before another node begins.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::RwLock;
use punctual_core::lane::{LaneKey, Route};
use punctual_core::partitions::{Ownership, Partition};
use punctual_core::time::{Timestamp, signed_millis};
use tokio::sync::Notify;
use tokio::time::Instant;

mod ownership_loop;
#[cfg(test)]
mod tests;

pub use ownership_loop::{Config, OwnershipLoop, another_count};

/// The partitions of this node (see the module).
#[derive(Debug)]
pub struct OwnedPartitions {
    count: u16,
    /// Whether other nodes may own partitions.
    is_shared: bool,
    state: RwLock<OwnershipState>,
    changed: Notify,
    pass_requested: Notify,
}

/// The term in which this node owns the partition of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnershipTerm {
    /// The partition and the number of the term, for the store to check; none where no other node
    /// can own anything.
    pub fence: Option<(Partition, u64)>,
    /// When the term began, by the store's clock. Tasks that were due before are the backlog.
    pub since: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct TermRecord {
    term: u64,
    since: Timestamp,
}

#[derive(Debug)]
struct OwnershipState {
    terms: HashMap<Partition, TermRecord>,
    good_until: Instant,
    /// Whether the terms were not renewed in time; that was logged.
    is_over: bool,
    /// Grows whenever the partitions change, also when their terms run out.
    generation: u64,
}

impl OwnedPartitions {
    /// None of `count` partitions.
    pub fn nothing(count: u16) -> Self {
        Self::new(count, true, HashMap::new(), Instant::now())
    }

    /// Everything, always: for a node that does not share its store.
    pub fn everything() -> Self {
        let always = TermRecord { term: 0, since: Timestamp::from_millis(i64::MIN) };
        let good_until = Instant::now() + Duration::from_hours(100 * 366 * 24);
        Self::new(1, false, HashMap::from([(Partition::new(0), always)]), good_until)
    }

    /// The first `owned` of `count` partitions, always.
    #[cfg(test)]
    pub(crate) fn first(owned: usize, count: u16) -> Self {
        let everything = Self::everything();
        let state = everything.state.into_inner();
        let term = state.terms[&Partition::new(0)];
        let terms = (0..count).take(owned).map(|number| (Partition::new(number), term)).collect();
        Self::new(count, true, terms, state.good_until)
    }

    fn new(count: u16, is_shared: bool, terms: HashMap<Partition, TermRecord>, good_until: Instant) -> Self {
        let state = OwnershipState { terms, good_until, is_over: false, generation: 0 };
        Self { count, is_shared, state: RwLock::new(state), changed: Notify::new(), pass_requested: Notify::new() }
    }

    /// The partition of a lane.
    pub fn partition(&self, lane: &LaneKey) -> Partition {
        Partition::of(lane, self.count)
    }

    /// The term in which this node owns the partition of a lane, if it does.
    pub fn term_of(&self, lane: &LaneKey) -> Option<OwnershipTerm> {
        let partition = self.partition(lane);
        let state = self.state.read();
        let known = state.terms.get(&partition).filter(|_| Instant::now() < state.good_until)?;
        let fence = self.is_shared.then_some((partition, known.term));
        Some(OwnershipTerm { fence, since: known.since })
    }

    /// Whether this node claims tasks of this lane: workers pull them, or it owns their partition.
    pub fn concerns(&self, lane: &LaneKey) -> bool {
        lane.route == Route::Pull || self.term_of(lane).is_some()
    }

    /// How many partitions this node owns.
    pub fn partitions(&self) -> usize {
        let state = self.state.read();
        if Instant::now() < state.good_until { state.terms.len() } else { 0 }
    }

    /// The part of `whole` that falls to this node if all partitions have the same part, rounded
    /// down. None if it owns nothing.
    pub fn share_of(&self, whole: u64) -> Option<u64> {
        let (owned, count) = (self.partitions() as u128, u128::from(self.count.max(1)));
        let share = (u128::from(whole) * owned / count).min(u128::from(whole));
        (owned > 0).then(|| u64::try_from(share).unwrap_or(whole))
    }

    /// A number that grows whenever this node owns other partitions than before.
    pub fn generation(&self) -> u64 {
        let mut state = self.state.write();
        if !state.is_over && !state.terms.is_empty() && Instant::now() >= state.good_until {
            state.is_over = true;
            state.generation += 1;
            let partitions = state.terms.len();
            tracing::warn!(
                partitions,
                "cannot renew the partitions of this node in time; dispatching none until they are renewed"
            );
        }
        state.generation
    }

    /// Returns once this node owns other partitions than before.
    pub async fn wait(&self) {
        self.changed.notified().await;
    }

    /// Has the ownership loop run at once: partitions may be free, or this node may have too many.
    pub fn request_pass(&self) {
        self.pass_requested.notify_one();
    }

    /// Forgets partitions that another node owns, and has the ownership loop run at once.
    pub fn forget(&self, partitions: &[Partition]) {
        let mut state = self.state.write();
        let before = state.terms.len();
        for partition in partitions {
            state.terms.remove(partition);
        }
        state.generation += 1;
        let owned = state.terms.len();
        drop(state);
        if owned < before {
            tracing::warn!(
                owned,
                lost = before - owned,
                "other nodes own partitions of this node by now; forgetting them"
            );
        }
        self.request_pass();
    }

    /// Sets what this node owns by the store's answer. A known term began when it was first seen,
    /// even if it could not be renewed for a while. It never begins in the future, even if the
    /// store's clock has gone back.
    fn set(&self, owned: &[Ownership], lease: Duration, good_until: Instant) {
        let lease = signed_millis(lease);
        let mut state = self.state.write();
        let term = |row: &Ownership| {
            // It was taken or renewed just now, so it ends a lease from now.
            let now = row.expires_at.plus_millis(lease.saturating_neg());
            let known = state.terms.get(&row.partition).filter(|known| known.term == row.term);
            TermRecord { term: row.term, since: known.map_or(now, |known| known.since.min(now)) }
        };
        let terms: HashMap<Partition, TermRecord> = owned.iter().map(|row| (row.partition, term(row))).collect();
        let is_same = |(partition, term): &(&Partition, &TermRecord)| {
            !state.is_over && state.terms.get(partition).is_some_and(|known| known.term == term.term)
        };
        let kept = terms.iter().filter(is_same).count();
        let before = if state.is_over { 0 } else { state.terms.len() };
        let (owned, taken, given_up) = (terms.len(), terms.len() - kept, before - kept);
        let changed = state.is_over || taken + given_up > 0;
        state.terms = terms;
        state.good_until = good_until;
        state.is_over = false;
        if changed {
            state.generation += 1;
            drop(state);
            tracing::info!(owned, taken, given_up, "this node owns other partitions than before");
            self.changed.notify_one();
        }
    }
}
