//! Which partitions this node owns, and the loop that keeps them.
//!
//! The dispatcher asks [`Owned`] before it dispatches what is pushed, and names the terms in
//! which it owns to the store, which refuses a claim by an owner of the past. A node that could
//! not renew counts what it owned as lost when two thirds of the time are over, by its own
//! monotonic clock, so that it has stopped before anybody else begins.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::RwLock;
use punctual_core::lane::{LaneKey, Route};
use punctual_core::partitions::{Ownership, Partition};
use punctual_core::time::Timestamp;
use tokio::sync::Notify;
use tokio::time::Instant;

mod owner;
#[cfg(test)]
mod tests;

pub use owner::{Config, Owner, another_count};

/// What this node owns.
#[derive(Debug)]
pub struct Owned {
    count: u16,
    /// Whether somebody else may own what this node does not.
    is_shared: bool,
    state: RwLock<State>,
    changed: Notify,
    asked: Notify,
}

/// How this node owns the partition of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The partition and the term, which the store knows as well; none where nobody else can own anything.
    pub fence: Option<(Partition, u64)>,
    /// When the term began, by the store's clock: what was due before it was found, and not dispatched in time.
    pub since: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct Tenure {
    term: u64,
    since: Timestamp,
}

#[derive(Debug)]
struct State {
    tenures: HashMap<Partition, Tenure>,
    good_until: Instant,
    /// They were not renewed in time, and that was told.
    is_over: bool,
    /// Grows whenever the partitions change, also by running out.
    generation: u64,
}

impl Owned {
    /// Nothing, of `count` partitions.
    pub fn nothing(count: u16) -> Self {
        Self::new(count, true, HashMap::new(), Instant::now())
    }

    /// Everything, for ever: for a node that shares its store with nobody.
    pub fn everything() -> Self {
        let always = Tenure { term: 0, since: Timestamp::from_millis(i64::MIN) };
        let good_until = Instant::now() + Duration::from_hours(100 * 366 * 24);
        Self::new(1, false, HashMap::from([(Partition::new(0), always)]), good_until)
    }

    fn new(count: u16, is_shared: bool, tenures: HashMap<Partition, Tenure>, good_until: Instant) -> Self {
        let state = State { tenures, good_until, is_over: false, generation: 0 };
        Self { count, is_shared, state: RwLock::new(state), changed: Notify::new(), asked: Notify::new() }
    }

    /// The partition of a lane.
    pub fn partition(&self, lane: &LaneKey) -> Partition {
        Partition::of(lane, self.count)
    }

    /// How this node owns the partition of a lane, if it does.
    pub fn held(&self, lane: &LaneKey) -> Option<Held> {
        let partition = self.partition(lane);
        let state = self.state.read();
        let tenure = state.tenures.get(&partition).filter(|_| Instant::now() < state.good_until)?;
        let fence = self.is_shared.then_some((partition, tenure.term));
        Some(Held { fence, since: tenure.since })
    }

    /// Whether tasks of this lane are given out by this node: to whoever asks it, or because it owns them.
    pub fn concerns(&self, lane: &LaneKey) -> bool {
        lane.route == Route::Pull || self.held(lane).is_some()
    }

    /// How many partitions are owned.
    pub fn partitions(&self) -> usize {
        let state = self.state.read();
        if Instant::now() < state.good_until { state.tenures.len() } else { 0 }
    }

    /// A number that grows whenever other lanes concern this node than before.
    pub fn generation(&self) -> u64 {
        let mut state = self.state.write();
        if !state.is_over && !state.tenures.is_empty() && Instant::now() >= state.good_until {
            state.is_over = true;
            state.generation += 1;
            let partitions = state.tenures.len();
            tracing::info!(
                partitions,
                "could not renew the partitions of this node in time: it dispatches none of them"
            );
        }
        state.generation
    }

    /// Returns once other partitions are owned than before.
    pub async fn wait(&self) {
        self.changed.notified().await;
    }

    /// Has the owner take a turn at once: somebody else's partitions may be free, or this node have too many.
    pub fn nudge(&self) {
        self.asked.notify_one();
    }

    /// The store says that these are somebody else's, or nobody's: forgets them, and has the owner take a turn.
    pub fn lost(&self, partitions: &[Partition]) {
        let mut state = self.state.write();
        let before = state.tenures.len();
        for partition in partitions {
            state.tenures.remove(partition);
        }
        state.generation += 1;
        let owned = state.tenures.len();
        drop(state);
        if owned < before {
            tracing::info!(owned, lost = before - owned, "partitions of this node are somebody else's by now");
        }
        self.nudge();
    }

    /// Takes in what the store says is owned. A term that is known began when it was first seen, also after a time in
    /// which it could not be renewed, but never in a time to come, should the store's clock have gone back.
    fn set(&self, owned: &[Ownership], lease: Duration, good_until: Instant) {
        let lease = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
        let mut state = self.state.write();
        let tenure = |row: &Ownership| {
            // It was taken or renewed in this turn, whose instant its end is a lease away from.
            let now = row.expires_at.plus_millis(lease.saturating_neg());
            let known = state.tenures.get(&row.partition).filter(|tenure| tenure.term == row.term);
            Tenure { term: row.term, since: known.map_or(now, |tenure| tenure.since.min(now)) }
        };
        let tenures: HashMap<Partition, Tenure> = owned.iter().map(|row| (row.partition, tenure(row))).collect();
        let is_same = |(partition, tenure): &(&Partition, &Tenure)| {
            !state.is_over && state.tenures.get(partition).is_some_and(|known| known.term == tenure.term)
        };
        let kept = tenures.iter().filter(is_same).count();
        let before = if state.is_over { 0 } else { state.tenures.len() };
        let (owned, taken, given_up) = (tenures.len(), tenures.len() - kept, before - kept);
        let changed = state.is_over || taken + given_up > 0;
        state.tenures = tenures;
        state.good_until = good_until;
        state.is_over = false;
        if changed {
            state.generation += 1;
            drop(state);
            tracing::info!(owned, taken, given_up, "the partitions of this node have changed");
            self.changed.notify_one();
        }
    }
}
