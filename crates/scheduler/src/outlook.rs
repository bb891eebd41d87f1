//! What this node can tell of the dispatch of a task that is due: for whoever explains it.
//!
//! It decides nothing and waits for nothing. It tells of partitions that this node owns; of the
//! others their owners could.

use std::sync::Arc;

use punctual_core::lane::{LaneKey, Route};
use punctual_core::partitions::Partition;
use punctual_core::time::Timestamp;

use crate::fairness::{Aging, Band};
use crate::ownership::Owned;
use crate::targets::Targets;

/// See the module. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Outlook {
    owned: Arc<Owned>,
    targets: Arc<Targets>,
    backlog_per_second: u32,
    aging: Aging,
    has_breakers: bool,
}

/// How a webhook that is due fares on the node that owns its partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// It was due before the node owned its partition, and is of what the node found.
    pub found: Option<Found>,
    /// Who has no free place for it.
    pub crowded: Vec<Crowded>,
}

/// What a node found overdue when it began to own a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// When that was.
    pub since: Timestamp,
    /// So many of it are dispatched in a second.
    pub per_second: u32,
}

/// Whose places for webhooks are all taken on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crowded {
    /// The target's.
    Target,
    /// The tenant's.
    Tenant,
    /// Those of a band of priorities.
    Band(Band),
}

impl Outlook {
    /// What can be told with these; so many of what was found are dispatched in a second, zero means any number.
    pub fn new(owned: Arc<Owned>, targets: Arc<Targets>, backlog_per_second: u32, aging: Aging) -> Self {
        Self { owned, targets, backlog_per_second, aging, has_breakers: true }
    }

    /// How waiting raises priorities.
    pub fn aging(&self) -> Aging {
        self.aging
    }

    /// Whether this node goes by circuit breakers; it does unless this says otherwise.
    #[must_use]
    pub fn with_breakers(self, has_breakers: bool) -> Self {
        Self { has_breakers, ..self }
    }

    /// Whether this node goes by circuit breakers.
    pub fn has_breakers(&self) -> bool {
        self.has_breakers
    }

    /// The partition of a lane.
    pub fn partition(&self, lane: &LaneKey) -> Partition {
        self.owned.partition(lane)
    }

    /// How a webhook of this lane fares that is due since `due_at`; none when this node does not dispatch it.
    pub fn dispatch(&self, lane: &LaneKey, due_at: Timestamp, now: Timestamp) -> Option<Dispatch> {
        let Route::Push(target) = &lane.route else { return None };
        let held = self.owned.held(lane)?;
        let is_found = self.backlog_per_second > 0 && due_at < held.since;
        let found = is_found.then_some(Found { since: held.since, per_second: self.backlog_per_second });
        let band = Band::of(self.aging.priority(lane.priority, due_at, now));
        let crowded = [
            (self.targets.free(target) == 0).then_some(Crowded::Target),
            (self.targets.free_of_tenant(&lane.tenant) == 0).then_some(Crowded::Tenant),
            (self.targets.free_of_band(band) == 0).then_some(Crowded::Band(band)),
        ];
        Some(Dispatch { found, crowded: crowded.into_iter().flatten().collect() })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use punctual_core::broker::Message;
    use punctual_core::ids::TaskId;

    use super::*;
    use crate::targets::Slot;

    fn lane(route: Route) -> LaneKey {
        LaneKey { tenant: "t".into(), queue: "q".into(), kind: "k".into(), priority: 5, route }
    }

    fn pushed() -> LaneKey {
        lane(Route::Push("http://127.0.0.1:1".into()))
    }

    fn take_a_slot(targets: &Targets, target: &str) {
        let message = Message {
            task_id: TaskId::new(),
            version: 1,
            tenant: "t".into(),
            priority: 5,
            pool: String::new(),
            target: target.into(),
        };
        targets.take(&Slot::of(&message));
    }

    fn outlook(owned: Owned, targets: &Arc<Targets>) -> Outlook {
        Outlook::new(Arc::new(owned), Arc::clone(targets), 7, Aging::new(Duration::ZERO))
    }

    #[test]
    fn only_webhooks_of_partitions_that_it_owns_are_told_of() {
        let (targets, now) = (Arc::new(Targets::new(1, 8)), Timestamp::from_millis(10));
        assert_eq!(outlook(Owned::nothing(4), &targets).dispatch(&pushed(), now, now), None);
        let own = outlook(Owned::everything(), &targets);
        assert_eq!(own.dispatch(&lane(Route::Pull), now, now), None);
        assert_eq!(own.dispatch(&pushed(), now, now), Some(Dispatch { found: None, crowded: Vec::new() }));
    }

    #[test]
    fn whose_places_are_taken_is_told() {
        let (targets, now) = (Arc::new(Targets::new(1, 8).with_pools(25, 100)), Timestamp::from_millis(10));
        let own = outlook(Owned::everything(), &targets);
        let crowded = || own.dispatch(&pushed(), now, now).map(|dispatch| dispatch.crowded);
        take_a_slot(&targets, "http://127.0.0.1:1");
        assert_eq!(crowded(), Some(vec![Crowded::Target]));
        take_a_slot(&targets, "http://127.0.0.1:2");
        assert_eq!(crowded(), Some(vec![Crowded::Target, Crowded::Tenant]));
        for target in 3..9 {
            take_a_slot(&targets, &format!("http://127.0.0.1:{target}"));
        }
        assert_eq!(crowded(), Some(vec![Crowded::Target, Crowded::Tenant, Crowded::Band(Band::Normal)]));
    }
}
