//! Lanes under open breakers.
//!
//! Pure. The dispatcher is its only caller: it takes such lanes off its board, so that nothing is
//! claimed from them, and puts them back when their breakers have closed. A probe takes one task of
//! one of them, but not of a queue that lets nothing through: those are left alone as they are beside
//! breakers (`gated`), or one full queue would keep its breaker from being probed at the others.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use punctual_core::breakers::{Key, target_of};
use punctual_core::lane::{Lane, LaneId, LaneKey};
use punctual_core::time::Timestamp;

use crate::gated::LONGEST_MILLIS;

/// Lanes under one breaker that are looked at for a probe.
const MOST_LOOKED_AT: usize = 1_000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Broken {
    lanes: HashMap<LaneId, (Arc<Lane>, Timestamp)>,
    /// By tenant and target; those that are pulled have none.
    by_target: BTreeMap<Key, BTreeSet<LaneId>>,
    /// Until when queues let nothing through, by tenant and name.
    shut: HashMap<String, HashMap<String, Timestamp>>,
}

impl Broken {
    /// A task of a lane under an open breaker waits and is due then.
    pub fn note(&mut self, lane: &Arc<Lane>, due_at: Timestamp) {
        if let Some((_, head)) = self.lanes.get_mut(&lane.id) {
            *head = due_at.min(*head);
            return;
        }
        self.by_target.entry(place(&lane.key)).or_default().insert(lane.id);
        self.lanes.insert(lane.id, (Arc::clone(lane), due_at));
    }

    /// Whether a lane is here.
    pub fn has(&self, lane: LaneId) -> bool {
        self.lanes.contains_key(&lane)
    }

    /// The store was asked: this is the lane's head.
    pub fn correct(&mut self, lane: LaneId, head: Option<Timestamp>) {
        match head {
            Some(due_at) => drop(self.lanes.get_mut(&lane).map(|(_, head)| *head = due_at)),
            None => drop(self.remove(lane)),
        }
    }

    /// The queue of a lane gives nothing before `until`, or before somebody says otherwise.
    pub fn shut(&mut self, lane: &LaneKey, until: Option<Timestamp>, now: Timestamp) {
        // Those that are over go, so that there are never more than were tried of late.
        self.shut.retain(|_, queues| {
            queues.retain(|_, until| *until > now);
            !queues.is_empty()
        });
        let latest = now.plus_millis(LONGEST_MILLIS);
        let until = until.unwrap_or(latest).min(latest);
        self.shut.entry(lane.tenant.clone()).or_default().insert(lane.queue.clone(), until);
    }

    /// A queue may let something through again; whether it was shut.
    pub fn free(&mut self, tenant: &str, queue: &str) -> bool {
        self.shut.get_mut(tenant).is_some_and(|queues| queues.remove(queue).is_some())
    }

    /// Any queue may; whether one was shut.
    pub fn free_all(&mut self) -> bool {
        !std::mem::take(&mut self.shut).is_empty()
    }

    fn is_shut(&self, lane: &LaneKey, now: Timestamp) -> bool {
        let until = self.shut.get(&lane.tenant).and_then(|queues| queues.get(&lane.queue));
        until.is_some_and(|until| *until > now)
    }

    /// Takes the lanes out that are `wanted`, and tells when their first tasks are due.
    pub fn take_if(&mut self, wanted: impl Fn(&LaneKey) -> bool) -> Vec<(Arc<Lane>, Timestamp)> {
        let some: Vec<LaneId> =
            self.lanes.values().filter(|(lane, _)| wanted(&lane.key)).map(|(lane, _)| lane.id).collect();
        some.into_iter().filter_map(|lane| self.remove(lane)).collect()
    }

    /// The lanes under a breaker that have something due and may give it.
    pub fn due_under(&self, key: &Key, now: Timestamp) -> Vec<Arc<Lane>> {
        let places = self.by_target.range(key.clone()..);
        let places = places.take_while(|(place, _)| place.tenant == key.tenant);
        let places = places.filter(|(place, _)| key.is_of_tenant() || *place == key).take(MOST_LOOKED_AT);
        let lanes = places.flat_map(|(_, lanes)| lanes).filter_map(|lane| self.lanes.get(lane));
        let due = lanes.take(MOST_LOOKED_AT).filter(|(_, head)| *head <= now);
        due.map(|(lane, _)| lane).filter(|lane| !self.is_shut(&lane.key, now)).cloned().collect()
    }

    fn remove(&mut self, lane: LaneId) -> Option<(Arc<Lane>, Timestamp)> {
        let removed = self.lanes.remove(&lane)?;
        let place = place(&removed.0.key);
        if let Some(lanes) = self.by_target.get_mut(&place) {
            lanes.remove(&lane);
            if lanes.is_empty() {
                self.by_target.remove(&place);
            }
        }
        Some(removed)
    }
}

fn place(lane: &LaneKey) -> Key {
    Key::new(&lane.tenant, target_of(lane))
}

#[cfg(test)]
mod tests {
    use punctual_core::lane::Route;

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn lane(number: i64, tenant: &str, target: &str) -> Arc<Lane> {
        let route = if target.is_empty() { Route::Pull } else { Route::Push(target.to_owned()) };
        let key = LaneKey { tenant: tenant.into(), queue: "q".into(), kind: "k".into(), priority: 5, route };
        Arc::new(Lane { id: LaneId::new(number), key })
    }

    fn numbers(lanes: impl IntoIterator<Item = Arc<Lane>>) -> Vec<i64> {
        let mut numbers: Vec<i64> = lanes.into_iter().map(|lane| lane.id.number()).collect();
        numbers.sort_unstable();
        numbers
    }

    fn some() -> Broken {
        let mut broken = Broken::default();
        for (number, tenant, target) in [(1, "t", ""), (2, "t", "a"), (3, "t", "a"), (4, "t", "b"), (5, "u", "a")] {
            broken.note(&lane(number, tenant, target), at(number * 10));
        }
        broken
    }

    #[test]
    fn a_tenants_breaker_is_over_all_its_lanes_and_a_targets_over_its_own() {
        let broken = some();
        assert_eq!(numbers(broken.due_under(&Key::of_tenant("t"), at(100))), [1, 2, 3, 4]);
        assert_eq!(numbers(broken.due_under(&Key::of_tenant("t"), at(25))), [1, 2]);
        assert_eq!(numbers(broken.due_under(&Key::new("t", "a"), at(100))), [2, 3]);
        assert_eq!(numbers(broken.due_under(&Key::new("u", "b"), at(100))), [] as [i64; 0]);
    }

    #[test]
    fn a_head_is_the_earliest_that_was_heard_of_until_the_store_says_otherwise() {
        let mut broken = some();
        let own = lane(3, "t", "a");
        broken.note(&own, at(5));
        broken.note(&own, at(50));
        assert_eq!(numbers(broken.due_under(&Key::new("t", "a"), at(5))), [3]);
        broken.correct(LaneId::new(3), Some(at(40)));
        assert_eq!(numbers(broken.due_under(&Key::new("t", "a"), at(39))), [2]);
        broken.correct(LaneId::new(3), None);
        assert!(!broken.has(LaneId::new(3)));
        broken.correct(LaneId::new(9), Some(at(1)));
        assert!(!broken.has(LaneId::new(9)));
    }

    #[test]
    fn a_queue_that_lets_nothing_through_is_left_alone_for_a_while() {
        let mut broken = some();
        let of_tenant = |broken: &Broken, now: i64| numbers(broken.due_under(&Key::of_tenant("t"), at(now)));
        let (shut, other) =
            (lane(1, "t", "").key.clone(), LaneKey { queue: "r".into(), ..lane(6, "t", "").key.clone() });
        broken.note(&Arc::new(Lane { id: LaneId::new(6), key: other }), at(60));
        broken.shut(&shut, Some(at(130)), at(100));
        assert_eq!(of_tenant(&broken, 129), [6]);
        assert_eq!(of_tenant(&broken, 130), [1, 2, 3, 4, 6]);
        broken.shut(&shut, None, at(100));
        assert_eq!((of_tenant(&broken, 1_099), of_tenant(&broken, 1_100).len()), (vec![6], 5));
        assert!(!broken.free("t", "r") && !broken.free("u", "q") && broken.free("t", "q"));
        assert_eq!(of_tenant(&broken, 100).len(), 5);
        broken.shut(&shut, Some(at(99_000)), at(100));
        assert!(broken.free_all() && !broken.free_all());
        broken.shut(&shut, None, at(100));
        broken.shut(&lane(5, "u", "a").key, None, at(2_000));
        assert!(!broken.free("t", "q"), "what is over is forgotten");
    }

    #[test]
    fn lanes_are_taken_out_with_their_heads() {
        let mut broken = some();
        let taken = broken.take_if(|lane| lane.tenant == "u");
        assert_eq!(
            taken.iter().map(|(lane, head)| (lane.id.number(), head.as_millis())).collect::<Vec<_>>(),
            [(5, 50)]
        );
        assert_eq!(broken.take_if(|_| true).len(), 4);
        assert!(broken.by_target.is_empty());
    }
}
