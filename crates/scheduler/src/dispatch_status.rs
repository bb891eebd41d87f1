//! What this node knows about the dispatch of a due task, for the explanation of the task.
//!
//! The API calls it. It decides nothing and waits for nothing. It knows only about the partitions
//! that this node owns.

use std::sync::Arc;

use punctual_core::lane::{LaneKey, Route};
use punctual_core::partitions::Partition;
use punctual_core::time::Timestamp;

use crate::fairness::{Aging, Band};
use crate::ownership::OwnedPartitions;
use crate::targets::Targets;

pub use crate::targets::SlotOwner;

/// Reports why webhooks of this node wait (see the module). Cheap to clone.
#[derive(Clone, Debug)]
pub struct DispatchStatus {
    owned: Arc<OwnedPartitions>,
    targets: Arc<Targets>,
    backlog_per_second: u32,
    aging: Aging,
    has_breakers: bool,
}

/// Why a due webhook waits on the node that owns its partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookStatus {
    /// How fast the backlog is dispatched, if the webhook is part of it.
    pub backlog: Option<BacklogPace>,
    /// Which of its slot owners have no free slot.
    pub crowded: Vec<SlotOwner>,
}

/// How fast a node dispatches the tasks that were due before it owned their partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BacklogPace {
    /// When the node began to own the partition.
    pub since: Timestamp,
    /// How many of these tasks are dispatched in a second.
    pub per_second: u32,
}

impl DispatchStatus {
    /// Builds the status from these parts. `backlog_per_second` tasks of the backlog are dispatched
    /// in a second; zero means any number.
    pub fn new(owned: Arc<OwnedPartitions>, targets: Arc<Targets>, backlog_per_second: u32, aging: Aging) -> Self {
        Self { owned, targets, backlog_per_second, aging, has_breakers: true }
    }

    /// How waiting raises priorities.
    pub fn aging(&self) -> Aging {
        self.aging
    }

    /// Sets whether this node uses circuit breakers; it does by default.
    #[must_use]
    pub fn with_breakers(self, has_breakers: bool) -> Self {
        Self { has_breakers, ..self }
    }

    /// Whether this node uses circuit breakers.
    pub fn has_breakers(&self) -> bool {
        self.has_breakers
    }

    /// The partition of a lane.
    pub fn partition(&self, lane: &LaneKey) -> Partition {
        self.owned.partition(lane)
    }

    /// Why a webhook of this lane, due since `due_at`, still waits; none if this node does not
    /// dispatch it.
    pub fn webhook(&self, lane: &LaneKey, due_at: Timestamp) -> Option<WebhookStatus> {
        let Route::Push(target) = &lane.route else { return None };
        let since = self.owned.term_of(lane)?.since;
        let is_backlog = self.backlog_per_second > 0 && due_at < since;
        let backlog = is_backlog.then_some(BacklogPace { since, per_second: self.backlog_per_second });
        let crowded = self.targets.crowded(&lane.tenant, Band::of(lane.priority), target);
        Some(WebhookStatus { backlog, crowded })
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

    fn status(owned: OwnedPartitions, targets: &Arc<Targets>) -> DispatchStatus {
        DispatchStatus::new(Arc::new(owned), Arc::clone(targets), 7, Aging::new(Duration::ZERO))
    }

    #[test]
    fn only_webhooks_of_owned_partitions_have_a_status() {
        let (targets, now) = (Arc::new(Targets::new(1, 8)), Timestamp::from_millis(10));
        assert_eq!(status(OwnedPartitions::nothing(4), &targets).webhook(&pushed(), now), None);
        let own = status(OwnedPartitions::everything(), &targets);
        assert_eq!(own.webhook(&lane(Route::Pull), now), None);
        assert_eq!(own.webhook(&pushed(), now), Some(WebhookStatus { backlog: None, crowded: Vec::new() }));
    }

    #[test]
    fn the_status_names_what_has_no_free_slot() {
        let (targets, now) = (Arc::new(Targets::new(1, 8).with_percents(50, 50)), Timestamp::from_millis(10));
        let own = status(OwnedPartitions::everything(), &targets);
        let crowded = || own.webhook(&pushed(), now).map(|webhook| webhook.crowded);
        take_a_slot(&targets, "http://127.0.0.1:1");
        assert_eq!(crowded(), Some(vec![SlotOwner::Target]));
        for target in 2..8 {
            take_a_slot(&targets, &format!("http://127.0.0.1:{target}"));
        }
        assert_eq!(crowded(), Some(vec![SlotOwner::Target, SlotOwner::Tenant]));
    }
}
