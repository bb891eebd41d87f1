//! What a turn claims for webhooks: which lanes, how many tasks of them, and in which terms. Pure.

use std::collections::{BTreeMap, HashMap};

use punctual_core::lane::{Lane, LaneId, Route};
use punctual_core::partitions::Partition;
use punctual_core::store::{Claim, Taker};
use punctual_core::time::Timestamp;

use crate::ownership::Held;
use crate::targets::Targets;

/// Lanes one turn takes from.
const LANES_PER_TURN: usize = 256;

/// Lanes to take from, as far as there is room and their targets have places. Those of one target share its places,
/// and are claimed from together.
pub(super) struct Plan<'a> {
    targets: &'a Targets,
    room: usize,
    places: HashMap<&'a str, Places>,
    parts: Vec<Part<'a>>,
    part_of: HashMap<(&'a str, Option<Timestamp>), usize>,
    lanes: usize,
}

/// The places of a target, and how many parts of the plan share them.
struct Places {
    free: usize,
    parts: usize,
}

/// Lanes of a target, from which tasks are taken that are due from an instant on.
struct Part<'a> {
    target: &'a str,
    from: Option<Timestamp>,
    lanes: Vec<LaneId>,
    terms: BTreeMap<Partition, u64>,
}

impl<'a> Plan<'a> {
    pub fn new(targets: &'a Targets, room: usize) -> Self {
        Self { targets, room, places: HashMap::new(), parts: Vec::new(), part_of: HashMap::new(), lanes: 0 }
    }

    pub fn is_full(&self) -> bool {
        self.room == 0 || self.lanes >= LANES_PER_TURN
    }

    /// Takes what is due from `from` on of a lane, if its target has places; answers whether it has.
    pub fn add(&mut self, lane: &'a Lane, held: Held, from: Option<Timestamp>) -> bool {
        let Route::Push(target) = &lane.key.route else { return false };
        let free = || Places { free: self.targets.free(target), parts: 0 };
        let places = self.places.entry(target).or_insert_with(free);
        if places.free == 0 || self.room == 0 || self.lanes >= LANES_PER_TURN {
            return false;
        }
        let at = *self.part_of.entry((target, from)).or_insert_with(|| {
            places.parts += 1;
            self.parts.push(Part { target, from, lanes: Vec::new(), terms: BTreeMap::new() });
            self.parts.len() - 1
        });
        self.parts[at].lanes.push(lane.id);
        self.parts[at].terms.extend(held.fence);
        self.lanes += 1;
        true
    }

    /// The claims, in the order in which their first lanes came. What one does not use of its places is offered again
    /// in the next turn.
    pub fn claims(mut self, visibility_millis: u64) -> Vec<Claim> {
        let mut claims = Vec::with_capacity(self.parts.len());
        for part in self.parts {
            let Some(places) = self.places.get_mut(part.target) else { continue };
            let limit = places.free.div_ceil(places.parts.max(1)).min(self.room);
            places.free -= limit;
            places.parts -= 1;
            self.room -= limit;
            if limit > 0 {
                let terms = part.terms.into_iter().collect();
                let taker = Taker::Dispatch { visibility_millis, terms, from: part.from };
                claims.push(Claim { lanes: part.lanes.into_iter().map(|lane| (lane, limit)).collect(), limit, taker });
            }
        }
        claims
    }
}

#[cfg(test)]
mod tests {
    use punctual_core::lane::LaneKey;

    use super::*;

    fn lane(number: i64, target: &str) -> Lane {
        let route = Route::Push(target.to_owned());
        let key = LaneKey { tenant: "t".into(), queue: "q".into(), kind: "k".into(), priority: 5, route };
        Lane { id: LaneId::new(number), key }
    }

    fn held(partition: u16) -> Held {
        Held { fence: Some((Partition::new(partition), 7)), since: Timestamp::from_millis(100) }
    }

    /// Of a claim: its lanes, its limit, its partitions and its bound.
    type Told = (Vec<i64>, usize, Vec<u16>, Option<i64>);

    fn told(claims: &[Claim]) -> Vec<Told> {
        let each = claims.iter().map(|claim| {
            let Taker::Dispatch { terms, from, .. } = &claim.taker else { panic!("{claim:?}") };
            assert!(claim.lanes.iter().all(|(_, most)| *most == claim.limit));
            let lanes = claim.lanes.iter().map(|(lane, _)| lane.number()).collect();
            let partitions = terms.iter().map(|(partition, _)| partition.number()).collect();
            (lanes, claim.limit, partitions, from.map(Timestamp::as_millis))
        });
        each.collect()
    }

    #[test]
    fn lanes_of_a_target_share_its_places_and_others_have_their_own() {
        let targets = Targets::new(10, 1_000);
        let lanes = [lane(1, "a"), lane(2, "b"), lane(3, "a"), lane(4, "a")];
        let mut plan = Plan::new(&targets, 100);
        for (lane, partition) in lanes.iter().zip([5, 6, 5, 4]) {
            assert!(plan.add(lane, held(partition), None));
        }
        let expected = [(vec![1, 3, 4], 10, vec![4, 5], None), (vec![2], 10, vec![6], None)];
        assert_eq!(told(&plan.claims(1)), expected);
    }

    #[test]
    fn what_is_bounded_is_claimed_apart_from_the_same_places() {
        let targets = Targets::new(5, 1_000);
        let lanes = [lane(1, "a"), lane(2, "a"), lane(3, "a")];
        let since = Some(held(0).since);
        let mut plan = Plan::new(&targets, 100);
        for (lane, from) in lanes.iter().zip([None, since, None]) {
            plan.add(lane, held(0), from);
        }
        assert_eq!(told(&plan.claims(1)), [(vec![1, 3], 3, vec![0], None), (vec![2], 2, vec![0], Some(100))]);
    }

    #[test]
    fn no_more_is_claimed_than_there_is_room_and_nothing_of_crowded_targets() {
        let targets = Targets::new(4, 1_000);
        for _ in 0..4 {
            targets.take("crowded");
        }
        let lanes = [lane(1, "crowded"), lane(2, "a"), lane(3, "b"), lane(4, "c")];
        let mut plan = Plan::new(&targets, 6);
        let added: Vec<bool> = lanes.iter().map(|lane| plan.add(lane, held(0), None)).collect();
        assert_eq!(added, [false, true, true, true]);
        let claimed: Vec<_> = told(&plan.claims(1)).into_iter().map(|(lanes, limit, ..)| (lanes, limit)).collect();
        assert_eq!(claimed, [(vec![2], 4), (vec![3], 2)]);
        assert!(!Plan::new(&targets, 0).add(&lanes[1], held(0), None));
    }
}
