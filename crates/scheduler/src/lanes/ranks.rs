//! The order of lanes that compete: by priority, then by the age of their heads. Pure.
//!
//! The ready lanes and the backlog keep their lanes in this order, and the dispatcher reads them
//! priority by priority.

use std::collections::btree_set::Range;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Included, Unbounded};

use punctual_core::lane::{Lane, LaneId};
use punctual_core::time::Timestamp;

/// Lanes in their order.
pub(crate) type Ranks = BTreeSet<Rank>;

/// A lane's position in the order: most urgent first, then the one that has waited longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    less_urgent: u8,
    /// When its head is due.
    pub due_at: Timestamp,
    /// The lane.
    pub lane: LaneId,
}

impl Rank {
    /// The rank of a lane whose head is due at `due_at`.
    pub fn of(lane: &Lane, due_at: Timestamp) -> Self {
        Self { less_urgent: u8::MAX - lane.key.priority, due_at, lane: lane.id }
    }

    /// The priority of the lane.
    pub fn priority(self) -> u8 {
        u8::MAX - self.less_urgent
    }

    fn first_of(less_urgent: u8) -> Self {
        Self { less_urgent, due_at: Timestamp::from_millis(i64::MIN), lane: LaneId::new(i64::MIN) }
    }

    fn last_of(less_urgent: u8) -> Self {
        Self { less_urgent, due_at: Timestamp::from_millis(i64::MAX), lane: LaneId::new(i64::MAX) }
    }
}

/// The lanes of each priority, the most urgent priority first.
pub(crate) fn by_priority(ranks: &Ranks) -> impl Iterator<Item = Range<'_, Rank>> {
    let mut next = ranks.first().map(|rank| rank.less_urgent);
    std::iter::from_fn(move || {
        let level = next?;
        let (first, last) = (Rank::first_of(level), Rank::last_of(level));
        next = ranks.range((Excluded(last), Unbounded)).next().map(|rank| rank.less_urgent);
        Some(ranks.range((Included(first), Included(last))))
    })
}

/// The lanes of each tenant in their order. A tenant without lanes has no entry.
#[derive(Debug, Default)]
pub(crate) struct TenantRanks(BTreeMap<String, Ranks>);

impl TenantRanks {
    /// The tenants and their lanes.
    pub fn tenants(&self) -> &BTreeMap<String, Ranks> {
        &self.0
    }

    /// Whether no tenant has a lane here.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn insert(&mut self, lane: &Lane, due_at: Timestamp) {
        self.0.entry(lane.key.tenant.clone()).or_default().insert(Rank::of(lane, due_at));
    }

    pub(super) fn remove(&mut self, lane: &Lane, due_at: Timestamp) {
        if let Some(ranks) = self.0.get_mut(&lane.key.tenant) {
            ranks.remove(&Rank::of(lane, due_at));
            if ranks.is_empty() {
                self.0.remove(&lane.key.tenant);
            }
        }
    }
}
