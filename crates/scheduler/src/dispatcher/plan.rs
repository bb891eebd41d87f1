//! What a turn claims for webhooks: which lanes, how many tasks of them, and in which terms. Pure.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use punctual_core::lane::{Lane, Route};
use punctual_core::partitions::Partition;
use punctual_core::store::{Claim, Claimant};
use punctual_core::time::Timestamp;

use super::flights::Split;
use super::split::{Bands, Candidate};
use crate::fairness::{Band, Rounds};
use crate::ownership::Held;
use crate::targets::{Has, Targets};

/// Lanes one turn takes from.
pub(super) const LANES_PER_TURN: usize = 256;

/// Lanes to take from, as far as there is room and their tenants and targets have places. Those of one tenant and target
/// are claimed from together. Place by place goes to whoever has fewest for its weight, at the target or of all places;
/// of several, to whoever was served least of late.
pub(super) struct Plan<'a> {
    targets: &'a Targets,
    rounds: &'a Rounds,
    room: usize,
    /// The places that nobody has.
    left: usize,
    free_of_band: [usize; 3],
    parts: Vec<Part<'a>>,
    part_of: HashMap<(&'a str, &'a str, Option<Timestamp>), usize>,
    /// What the targets have, with what is planned …
    taken_at: HashMap<&'a str, usize>,
    /// … what the tenants have there …
    at_target: HashMap<(&'a str, &'a str), usize>,
    /// … and in all, and how much of that is planned.
    in_all: HashMap<&'a str, (usize, usize)>,
    lanes: usize,
}

/// Lanes of a tenant and a target, from which tasks are taken that are due from an instant on.
struct Part<'a> {
    tenant: &'a str,
    target: &'a str,
    from: Option<Timestamp>,
    lanes: Vec<Candidate>,
    terms: BTreeMap<Partition, u64>,
    limit: usize,
}

/// The order in which places are given out: the least is next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    /// How far its tenant is with places.
    level: u128,
    /// What the clock of its tenant shows.
    clock: i64,
    /// What the part has already.
    limit: usize,
    part: usize,
}

impl<'a> Plan<'a> {
    pub fn new(targets: &'a Targets, rounds: &'a Rounds, room: usize) -> Self {
        Self {
            targets,
            rounds,
            room,
            left: targets.left(),
            free_of_band: Band::ALL.map(|band| targets.free_of_band(band)),
            parts: Vec::new(),
            part_of: HashMap::new(),
            taken_at: HashMap::new(),
            at_target: HashMap::new(),
            in_all: HashMap::new(),
            lanes: 0,
        }
    }

    pub fn is_full(&self) -> bool {
        self.room == 0 || self.lanes >= LANES_PER_TURN
    }

    /// Takes what is due from `from` on of a lane, if its tenant, its band and its target have places; answers whether
    /// they have.
    pub fn add(&mut self, lane: &'a Lane, candidate: Candidate, held: Held, from: Option<Timestamp>) -> bool {
        let (Route::Push(target), tenant) = (&lane.key.route, lane.key.tenant.as_str()) else { return false };
        let Has { at_target, in_all } = self.targets.has(tenant, target);
        self.taken_at.entry(target).or_insert_with(|| self.targets.taken_at(target));
        self.at_target.insert((tenant, target), at_target);
        self.in_all.insert(tenant, (in_all, 0));
        let of_band = self.free_of_band[candidate.band() as usize];
        if self.is_full() || of_band == 0 || !self.may_have(tenant, target) {
            return false;
        }
        let at = *self.part_of.entry((tenant, target, from)).or_insert_with(|| {
            self.parts.push(Part { tenant, target, from, lanes: Vec::new(), terms: BTreeMap::new(), limit: 0 });
            self.parts.len() - 1
        });
        self.parts[at].lanes.push(candidate);
        self.parts[at].terms.extend(held.fence);
        self.lanes += 1;
        true
    }

    /// The claims, in the order in which their first lanes came, and how each is split between bands. What one does not
    /// use of its places is offered again in the next turn.
    pub fn claims(mut self, bands: &mut Bands, visibility_millis: u64) -> (Vec<Claim>, Vec<Split>) {
        self.give_out();
        let (mut claims, mut splits) = (Vec::with_capacity(self.parts.len()), Vec::with_capacity(self.parts.len()));
        for mut part in self.parts.into_iter().filter(|part| part.limit > 0) {
            part.lanes.sort_unstable();
            let terms = part.terms.into_iter().collect();
            let claimant = Claimant::Dispatch { visibility_millis, terms, from: part.from };
            let (lanes, split) = bands.split(part.tenant, &part.lanes, part.limit, self.free_of_band);
            claims.push(Claim { lanes, limit: part.limit, claimant });
            splits.push(split);
        }
        (claims, splits)
    }

    /// Gives out places, one by one, as long as there are any that somebody may have.
    fn give_out(&mut self) {
        let mut turns: BinaryHeap<Reverse<Turn>> = (0..self.parts.len()).map(|part| Reverse(self.turn(part))).collect();
        while self.room > 0
            && let Some(Reverse(turn)) = turns.pop()
        {
            let now = self.turn(turn.part);
            if now != turn {
                // Another part of the tenant was given something since.
                turns.push(Reverse(now));
            } else if self.give(turn.part) {
                turns.push(Reverse(self.turn(turn.part)));
            }
        }
    }

    fn turn(&self, at: usize) -> Turn {
        let Part { tenant, target, limit, .. } = self.parts[at];
        let at_target = self.at_target.get(&(tenant, target)).copied().unwrap_or(0);
        let (in_all, planned) = self.in_all.get(tenant).copied().unwrap_or((0, 0));
        let level = self.targets.level(Has { at_target, in_all }, self.rounds.weight(tenant));
        Turn { level, clock: self.rounds.after(tenant, planned), limit, part: at }
    }

    /// Whether a tenant and a target may have another place.
    fn may_have(&self, tenant: &str, target: &str) -> bool {
        let taken_at = self.taken_at.get(target).copied().unwrap_or(0);
        let (in_all, _) = self.in_all.get(tenant).copied().unwrap_or_default();
        self.targets.free_at(taken_at, self.left) > 0 && self.targets.free_for(tenant, in_all, self.left) > 0
    }

    /// Gives a part a place; false if there is none that it may have.
    fn give(&mut self, at: usize) -> bool {
        let Part { tenant, target, .. } = self.parts[at];
        if !self.may_have(tenant, target) {
            return false;
        }
        self.room -= 1;
        self.left -= 1;
        let part = &mut self.parts[at];
        part.limit += 1;
        *self.taken_at.entry(target).or_default() += 1;
        *self.at_target.entry((part.tenant, part.target)).or_default() += 1;
        let (in_all, planned) = self.in_all.entry(part.tenant).or_default();
        *in_all += 1;
        *planned += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use punctual_core::lane::{LaneId, LaneKey};

    use super::*;
    use crate::board::Rank;
    use crate::fairness::Aging;
    use crate::targets::Place;

    fn lane_of(tenant: &str, number: i64, target: &str, priority: u8) -> Lane {
        let route = Route::Push(target.to_owned());
        let key = LaneKey { tenant: tenant.into(), queue: "q".into(), kind: "k".into(), priority, route };
        Lane { id: LaneId::new(number), key }
    }

    fn lane(number: i64, target: &str) -> Lane {
        lane_of("t", number, target, 5)
    }

    fn held(partition: u16) -> Held {
        Held { fence: Some((Partition::new(partition), 7)), since: Timestamp::from_millis(100) }
    }

    fn candidate(lane: &Lane) -> Candidate {
        let due_at = Timestamp::from_millis(lane.id.number());
        Candidate::of(Rank::of(lane, due_at), Aging::new(Duration::ZERO), due_at)
    }

    fn claims(plan: Plan<'_>) -> Vec<Claim> {
        plan.claims(&mut Bands::default(), 1).0
    }

    /// Of a claim: its lanes, its limit, its partitions and its bound.
    type Told = (Vec<i64>, usize, Vec<u16>, Option<i64>);

    fn told(claims: &[Claim]) -> Vec<Told> {
        let each = claims.iter().map(|claim| {
            let Claimant::Dispatch { terms, from, .. } = &claim.claimant else { panic!("{claim:?}") };
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
        let rounds = Rounds::default();
        let mut plan = Plan::new(&targets, &rounds, 100);
        for (lane, partition) in lanes.iter().zip([5, 6, 5, 4]) {
            assert!(plan.add(lane, candidate(lane), held(partition), None));
        }
        let expected = [(vec![1, 3, 4], 10, vec![4, 5], None), (vec![2], 10, vec![6], None)];
        assert_eq!(told(&claims(plan)), expected);
    }

    #[test]
    fn what_is_bounded_is_claimed_apart_from_the_same_places() {
        let targets = Targets::new(5, 1_000);
        let lanes = [lane(1, "a"), lane(2, "a"), lane(3, "a")];
        let since = Some(held(0).since);
        let rounds = Rounds::default();
        let mut plan = Plan::new(&targets, &rounds, 100);
        for (lane, from) in lanes.iter().zip([None, since, None]) {
            plan.add(lane, candidate(lane), held(0), from);
        }
        assert_eq!(told(&claims(plan)), [(vec![1, 3], 3, vec![0], None), (vec![2], 2, vec![0], Some(100))]);
    }

    #[test]
    fn no_more_is_claimed_than_there_is_room_and_nothing_of_crowded_targets() {
        let targets = Targets::new(4, 1_000);
        let message = lane(1, "crowded");
        for _ in 0..4 {
            targets.take(&place(&message));
        }
        let lanes = [lane(1, "crowded"), lane(2, "a"), lane(3, "b"), lane(4, "c")];
        let rounds = Rounds::default();
        let mut full = Plan::new(&targets, &rounds, 6);
        let added: Vec<bool> = lanes.iter().map(|lane| full.add(lane, candidate(lane), held(0), None)).collect();
        assert_eq!(added, [false, true, true, true]);
        let claimed: Vec<_> = told(&claims(full)).into_iter().map(|(lanes, limit, ..)| (lanes, limit)).collect();
        assert_eq!(claimed, [(vec![2], 2), (vec![3], 2), (vec![4], 2)]);
        assert!(!Plan::new(&targets, &rounds, 0).add(&lanes[1], candidate(&lanes[1]), held(0), None));
    }

    /// What each tenant is to get when it wants as much as it can have of one target; what is given is taken.
    fn planned(targets: &Targets, rounds: &mut Rounds, tenants: &[&str]) -> Vec<usize> {
        let lanes: Vec<Lane> =
            tenants.iter().zip(1..).map(|(tenant, number)| lane_of(tenant, number, "a", 5)).collect();
        let mut plan = Plan::new(targets, rounds, 100);
        for lane in &lanes {
            plan.add(lane, candidate(lane), held(0), None);
        }
        let mut got = vec![0; lanes.len()];
        for (lanes, limit, ..) in told(&claims(plan)) {
            got[usize::try_from(lanes[0]).unwrap() - 1] = limit;
        }
        for (lane, got) in lanes.iter().zip(&got) {
            (0..*got).for_each(|_| targets.take(&place(lane)));
        }
        rounds.serve(tenants.iter().copied().zip(got.iter().copied()));
        got
    }

    fn give_back(targets: &Targets, tenant: &str, places: usize) {
        (0..places).for_each(|_| targets.give_back(&place(&lane_of(tenant, 1, "a", 5))));
    }

    #[test]
    fn tenants_share_the_places_of_a_target_by_their_weights() {
        let targets = Targets::new(30, 1_000);
        let mut rounds = Rounds::new(HashMap::from([("heavy".to_owned(), 2)]));
        let tenants = ["a", "b", "heavy"];
        assert_eq!(planned(&targets, &mut rounds, &tenants), [8, 8, 14]);
        // Whoever has less than its part has what becomes free, whoever gave it back.
        give_back(&targets, "heavy", 10);
        give_back(&targets, "a", 2);
        assert_eq!(planned(&targets, &mut rounds, &tenants), [2, 0, 10]);
    }

    #[test]
    fn places_that_become_free_one_by_one_go_round() {
        for (per_target, tenants) in [(4, 8), (1, 3), (20, 3)] {
            let targets = Targets::new(per_target, 1_000);
            let (mut rounds, mut got) = (Rounds::default(), vec![0; tenants]);
            let names: Vec<String> = (0..tenants).map(|number| number.to_string()).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let mut under_way = std::collections::VecDeque::new();
            for _ in 0..tenants * 100 {
                for (at, planned) in planned(&targets, &mut rounds, &names).into_iter().enumerate() {
                    got[at] += planned;
                    under_way.extend((0..planned).map(|_| at));
                }
                give_back(&targets, names[under_way.pop_front().unwrap()], 1);
            }
            let (least, most) = (got.iter().min().unwrap(), got.iter().max().unwrap());
            assert!(most * 100 <= least * 107, "{got:?}");
        }
    }

    #[test]
    fn where_all_places_are_few_they_are_shared_by_weight_although_targets_are_not() {
        let weights = HashMap::from([("heavy".to_owned(), 4)]);
        let targets = Targets::new(20, 20).with_pools(75, 100).with_weights(weights.clone());
        let mut rounds = Rounds::new(weights);
        let lanes = [lane_of("heavy", 1, "a", 5), lane_of("light", 2, "b", 5)];
        let (mut got, mut under_way) = ([0, 0], std::collections::VecDeque::new());
        for _ in 0..1_000 {
            let mut plan = Plan::new(&targets, &rounds, 100);
            for lane in &lanes {
                plan.add(lane, candidate(lane), held(0), None);
            }
            for (numbers, limit, ..) in told(&claims(plan)) {
                let at = usize::try_from(numbers[0]).unwrap() - 1;
                (0..limit).for_each(|_| targets.take(&place(&lanes[at])));
                rounds.serve([(lanes[at].key.tenant.as_str(), limit)]);
                under_way.extend((0..limit).map(|_| at));
                got[at] += limit;
            }
            targets.give_back(&place(&lanes[under_way.pop_front().unwrap()]));
        }
        assert!((got[1] * 36..=got[1] * 44).contains(&(got[0] * 10)), "{got:?}");
    }

    #[test]
    fn one_place_is_shared_by_weight_in_time() {
        let targets = Targets::new(1, 1_000);
        let mut rounds = Rounds::new(HashMap::from([("heavy".to_owned(), 10)]));
        let (tenants, mut got) = (["heavy", "light"], [0, 0]);
        for _ in 0..1_100 {
            let planned = planned(&targets, &mut rounds, &tenants);
            let at = planned.iter().position(|planned| *planned == 1).unwrap();
            got[at] += 1;
            give_back(&targets, tenants[at], 1);
        }
        assert_eq!(got, [1_000, 100]);
    }

    #[test]
    fn who_has_no_place_has_the_next_one() {
        let targets = Targets::new(10, 1_000);
        let mut rounds = Rounds::default();
        planned(&targets, &mut rounds, &["a", "b"]);
        give_back(&targets, "a", 1);
        assert_eq!(planned(&targets, &mut rounds, &["a", "b", "quiet"]), [0, 0, 1]);
    }

    #[test]
    fn a_tenant_that_has_its_places_and_a_band_that_has_them_get_no_more() {
        let targets = Targets::new(100, 100).with_pools(50, 80);
        for _ in 0..50 {
            targets.take(&place(&lane_of("greedy", 1, "a", 5)));
        }
        let lanes = [lane_of("greedy", 1, "a", 5), lane_of("other", 2, "a", 5)];
        let rounds = Rounds::default();
        let mut tenants = Plan::new(&targets, &rounds, 100);
        let added: Vec<bool> = lanes.iter().map(|lane| tenants.add(lane, candidate(lane), held(0), None)).collect();
        assert_eq!(added, [false, true]);
        for tenant in ["b", "c", "d", "e"] {
            for _ in 0..targets.free_of_band(Band::Normal) {
                targets.take(&place(&lane_of(tenant, 1, "a", 5)));
            }
        }
        let lanes = [lane_of("new", 1, "b", 5), lane_of("new", 2, "b", 2)];
        let mut bands = Plan::new(&targets, &rounds, 100);
        let added: Vec<bool> = lanes.iter().map(|lane| bands.add(lane, candidate(lane), held(0), None)).collect();
        assert_eq!(added, [false, true]);
    }

    fn place(lane: &Lane) -> Place {
        let Route::Push(target) = &lane.key.route else { panic!("{lane:?}") };
        Place::of(&punctual_core::broker::Message {
            task_id: punctual_core::ids::TaskId::new(),
            version: 1,
            tenant: lane.key.tenant.clone(),
            priority: lane.key.priority,
            pool: String::new(),
            target: target.clone(),
        })
    }
}
