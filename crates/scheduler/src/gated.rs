//! Lanes that have something due and may not give it: their queues are paused, or have reached a limit.
//!
//! Pure. The dispatcher is its only caller: it takes such lanes off its board, so that they hold
//! up nobody and nobody asks the store about them over and over, and puts them back when it is
//! worth to try again: when the store said so, when somebody tells that something has changed,
//! and after a second in any case, since what is told may be lost.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use punctual_core::lane::{Lane, LaneId, LaneKey};
use punctual_core::time::Timestamp;

/// No lane is left alone for longer than this: what is told of queues may be lost.
pub(crate) const LONGEST_MILLIS: i64 = 1_000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Gated {
    lanes: HashMap<LaneId, Held>,
    order: BTreeSet<(Timestamp, LaneId)>,
}

#[derive(Debug)]
struct Held {
    lane: Arc<Lane>,
    head: Timestamp,
    until: Timestamp,
}

impl Gated {
    /// A lane whose first task is due at `head` gives nothing before `until`, or before somebody says otherwise.
    pub fn hold(&mut self, lane: Arc<Lane>, head: Timestamp, until: Option<Timestamp>, now: Timestamp) {
        let latest = now.plus_millis(LONGEST_MILLIS);
        let until = until.unwrap_or(latest).min(latest);
        let known = self.remove(lane.id);
        let head = known.map_or(head, |known| known.head.min(head));
        self.order.insert((until, lane.id));
        self.lanes.insert(lane.id, Held { lane, head, until });
    }

    /// A task of a lane waits and is due then; whether the lane is here.
    pub fn note(&mut self, lane: LaneId, due_at: Timestamp) -> bool {
        let held = self.lanes.get_mut(&lane);
        held.map(|held| held.head = held.head.min(due_at)).is_some()
    }

    /// The lanes that are to be tried again, and when their first tasks are due.
    pub fn take_due(&mut self, now: Timestamp) -> Vec<(Arc<Lane>, Timestamp)> {
        let due: Vec<LaneId> =
            self.order.iter().take_while(|(until, _)| *until <= now).map(|(_, lane)| *lane).collect();
        self.take(&due)
    }

    /// The lanes of one queue, likewise.
    pub fn take_queue(&mut self, tenant: &str, queue: &str) -> Vec<(Arc<Lane>, Timestamp)> {
        self.take_if(|lane| lane.tenant == tenant && lane.queue == queue)
    }

    /// All lanes, likewise.
    pub fn take_all(&mut self) -> Vec<(Arc<Lane>, Timestamp)> {
        self.take_if(|_| true)
    }

    /// Keeps the lanes that `concern` this node, and forgets the others.
    pub fn retain(&mut self, concern: impl Fn(&LaneKey) -> bool) {
        self.take_if(|lane| !concern(lane));
    }

    /// When a lane is to be tried next.
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        self.order.first().map(|(until, _)| *until)
    }

    fn take_if(&mut self, wanted: impl Fn(&LaneKey) -> bool) -> Vec<(Arc<Lane>, Timestamp)> {
        let some: Vec<LaneId> =
            self.lanes.values().filter(|held| wanted(&held.lane.key)).map(|held| held.lane.id).collect();
        self.take(&some)
    }

    fn take(&mut self, lanes: &[LaneId]) -> Vec<(Arc<Lane>, Timestamp)> {
        lanes.iter().filter_map(|lane| self.remove(*lane)).map(|held| (held.lane, held.head)).collect()
    }

    fn remove(&mut self, lane: LaneId) -> Option<Held> {
        let held = self.lanes.remove(&lane)?;
        self.order.remove(&(held.until, lane));
        Some(held)
    }
}

#[cfg(test)]
mod tests {
    use punctual_core::lane::Route;

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn lane(number: i64, queue: &str) -> Arc<Lane> {
        let key =
            LaneKey { tenant: "t".into(), queue: queue.into(), kind: "k".into(), priority: 5, route: Route::Pull };
        Arc::new(Lane { id: LaneId::new(number), key })
    }

    fn told(lanes: &[(Arc<Lane>, Timestamp)]) -> Vec<(i64, i64)> {
        let mut told: Vec<_> = lanes.iter().map(|(lane, head)| (lane.id.number(), head.as_millis())).collect();
        told.sort_unstable();
        told
    }

    #[test]
    fn a_lane_is_tried_again_when_the_store_said_so_and_after_a_second_at_the_latest() {
        let mut gated = Gated::default();
        gated.hold(lane(1, "a"), at(5), Some(at(130)), at(100));
        gated.hold(lane(2, "b"), at(6), None, at(100));
        gated.hold(lane(3, "c"), at(7), Some(at(99_000)), at(100));
        assert_eq!(gated.next_wakeup(), Some(at(130)));
        assert_eq!(told(&gated.take_due(at(129))), []);
        assert_eq!(told(&gated.take_due(at(130))), [(1, 5)]);
        assert_eq!(gated.next_wakeup(), Some(at(1_100)));
        assert_eq!(told(&gated.take_due(at(1_100))), [(2, 6), (3, 7)]);
        assert_eq!(gated.next_wakeup(), None);
    }

    #[test]
    fn a_queue_is_let_go_by_itself() {
        let mut gated = Gated::default();
        for (number, queue) in [(1, "a"), (2, "b"), (3, "a")] {
            gated.hold(lane(number, queue), at(50), None, at(100));
        }
        assert!(gated.note(LaneId::new(3), at(20)));
        assert!(gated.note(LaneId::new(3), at(30)));
        assert!(!gated.note(LaneId::new(9), at(20)));
        assert_eq!(told(&gated.take_queue("t", "a")), [(1, 50), (3, 20)]);
        assert_eq!(told(&gated.take_queue("other", "b")), []);
        gated.retain(|lane| lane.queue != "b");
        assert_eq!(told(&gated.take_all()), []);
    }

    #[test]
    fn a_lane_that_is_held_again_is_here_once() {
        let mut gated = Gated::default();
        gated.hold(lane(1, "a"), at(50), Some(at(200)), at(100));
        gated.hold(lane(1, "a"), at(60), Some(at(300)), at(100));
        assert_eq!(told(&gated.take_due(at(200))), []);
        assert_eq!(told(&gated.take_due(at(300))), [(1, 50)]);
    }
}
