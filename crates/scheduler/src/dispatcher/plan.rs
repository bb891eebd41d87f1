//! The plan of a pass for webhooks: which lanes, how many tasks of each, and in which terms. Pure.
//!
//! The push side is the only caller. The plan gives out slots one by one. The next slot goes to the
//! tenant that has the fewest for its weight, at the target or of all slots; among several, to the
//! tenant whose clock is behind.
//!
//! Invariant: a plan never exceeds the broker's room, nor what targets, tenants and bands may have.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use punctual_core::lane::{Lane, Route};
use punctual_core::partitions::Partition;
use punctual_core::store::{Claim, Claimant};
use punctual_core::time::Timestamp;

use super::bands::{BandShares, BandSplit, LaneCandidate};
use crate::fairness::{Band, TenantClocks};
use crate::ownership::OwnershipTerm;
use crate::targets::{Targets, TenantSlots};

/// The maximum number of lanes that a pass claims from.
pub(super) const PLAN_LANES_MAX: usize = 256;

/// The lanes to claim from, as far as there is room and their tenants and targets have slots. Lanes
/// of one tenant and target share a claim.
pub(super) struct PushPlan<'a> {
    targets: &'a Targets,
    clocks: &'a TenantClocks,
    room: usize,
    /// How many slots are free.
    free: usize,
    free_of_band: [usize; 3],
    parts: Vec<PlanPart<'a>>,
    part_of: HashMap<(&'a str, &'a str, Option<Timestamp>), usize>,
    /// The slots of each target, with those planned here.
    taken_at: HashMap<&'a str, usize>,
    /// The slots of each tenant at each target, with those planned here.
    at_target: HashMap<(&'a str, &'a str), usize>,
    /// The slots of each tenant in all, with those planned here, and how many are planned here.
    in_all: HashMap<&'a str, (usize, usize)>,
    lanes: usize,
}

/// The lanes of a tenant and a target, and the lower bound of `due_at` for their claim.
struct PlanPart<'a> {
    tenant: &'a str,
    target: &'a str,
    from: Option<Timestamp>,
    lanes: Vec<LaneCandidate>,
    terms: BTreeMap<Partition, u64>,
    limit: usize,
}

/// The order in which slots are given out: the least is next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SlotOrder {
    /// How many slots its tenant has, for its weight.
    level: u128,
    /// The clock of its tenant.
    clock: i64,
    /// How many slots the part has been given.
    limit: usize,
    part: usize,
}

impl<'a> PushPlan<'a> {
    pub fn new(targets: &'a Targets, clocks: &'a TenantClocks, room: usize) -> Self {
        Self {
            targets,
            clocks,
            room,
            free: targets.free_in_all(),
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
        self.room == 0 || self.lanes >= PLAN_LANES_MAX
    }

    /// Adds the tasks of a lane that are due from `from` on. False if its tenant, its band or its
    /// target has no slot.
    pub fn add(
        &mut self,
        lane: &'a Lane,
        candidate: LaneCandidate,
        term: OwnershipTerm,
        from: Option<Timestamp>,
    ) -> bool {
        let (Route::Push(target), tenant) = (&lane.key.route, lane.key.tenant.as_str()) else { return false };
        let TenantSlots { at_target, in_all } = self.targets.slots_of(tenant, target);
        self.taken_at.entry(target).or_insert_with(|| self.targets.taken_at(target));
        self.at_target.insert((tenant, target), at_target);
        self.in_all.insert(tenant, (in_all, 0));
        let of_band = self.free_of_band[candidate.band() as usize];
        if self.is_full() || of_band == 0 || !self.may_have(tenant, target) {
            return false;
        }
        let at = *self.part_of.entry((tenant, target, from)).or_insert_with(|| {
            self.parts.push(PlanPart { tenant, target, from, lanes: Vec::new(), terms: BTreeMap::new(), limit: 0 });
            self.parts.len() - 1
        });
        self.parts[at].lanes.push(candidate);
        self.parts[at].terms.extend(term.fence);
        self.lanes += 1;
        true
    }

    /// The claims, in the order in which their first lanes were added, and how each is split
    /// between bands. Slots that a claim does not use are offered again in the next pass.
    pub fn claims(mut self, bands: &mut BandShares, visibility_millis: u64) -> (Vec<Claim>, Vec<BandSplit>) {
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

    /// Gives out slots, one by one, as long as a part may have another.
    fn give_out(&mut self) {
        let mut queue: BinaryHeap<Reverse<SlotOrder>> =
            (0..self.parts.len()).map(|part| Reverse(self.order(part))).collect();
        while self.room > 0
            && let Some(Reverse(next)) = queue.pop()
        {
            let now = self.order(next.part);
            if now != next {
                // Another part of the tenant was given a slot since.
                queue.push(Reverse(now));
            } else if self.give(next.part) {
                queue.push(Reverse(self.order(next.part)));
            }
        }
    }

    fn order(&self, at: usize) -> SlotOrder {
        let PlanPart { tenant, target, limit, .. } = self.parts[at];
        let at_target = self.at_target.get(&(tenant, target)).copied().unwrap_or(0);
        let (in_all, planned) = self.in_all.get(tenant).copied().unwrap_or((0, 0));
        let level = self.targets.level(TenantSlots { at_target, in_all }, self.clocks.weight(tenant));
        SlotOrder { level, clock: self.clocks.after(tenant, planned), limit, part: at }
    }

    /// Whether a tenant and a target may have another slot.
    fn may_have(&self, tenant: &str, target: &str) -> bool {
        let taken_at = self.taken_at.get(target).copied().unwrap_or(0);
        let (in_all, _) = self.in_all.get(tenant).copied().unwrap_or_default();
        self.targets.free_at(taken_at, self.free) > 0 && self.targets.free_for(tenant, in_all, self.free) > 0
    }

    /// Gives a part a slot; false if there is none that it may have.
    fn give(&mut self, at: usize) -> bool {
        let PlanPart { tenant, target, .. } = self.parts[at];
        if !self.may_have(tenant, target) {
            return false;
        }
        debug_assert!(self.room > 0 && self.free > 0, "a slot is given that is not there");
        self.room -= 1;
        self.free -= 1;
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
    use crate::fairness::Aging;
    use crate::lanes::Rank;
    use crate::targets::Slot;

    fn lane_of(tenant: &str, number: i64, target: &str, priority: u8) -> Lane {
        let route = Route::Push(target.to_owned());
        let key = LaneKey { tenant: tenant.into(), queue: "q".into(), kind: "k".into(), priority, route };
        Lane { id: LaneId::new(number), key }
    }

    fn lane(number: i64, target: &str) -> Lane {
        lane_of("t", number, target, 5)
    }

    fn term(partition: u16) -> OwnershipTerm {
        OwnershipTerm { fence: Some((Partition::new(partition), 7)), since: Timestamp::from_millis(100) }
    }

    fn candidate(lane: &Lane) -> LaneCandidate {
        let due_at = Timestamp::from_millis(lane.id.number());
        LaneCandidate::of(Rank::of(lane, due_at), Aging::new(Duration::ZERO), due_at)
    }

    fn claims(plan: PushPlan<'_>) -> Vec<Claim> {
        plan.claims(&mut BandShares::default(), 1).0
    }

    /// The lanes, the limit, the partitions and the lower bound of a claim.
    type ClaimSummary = (Vec<i64>, usize, Vec<u16>, Option<i64>);

    fn summaries(claims: &[Claim]) -> Vec<ClaimSummary> {
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
    fn lanes_of_a_target_share_its_slots() {
        let targets = Targets::new(10, 1_000);
        let lanes = [lane(1, "a"), lane(2, "b"), lane(3, "a"), lane(4, "a")];
        let clocks = TenantClocks::default();
        let mut plan = PushPlan::new(&targets, &clocks, 100);
        for (lane, partition) in lanes.iter().zip([5, 6, 5, 4]) {
            assert!(plan.add(lane, candidate(lane), term(partition), None));
        }
        let expected = [(vec![1, 3, 4], 10, vec![4, 5], None), (vec![2], 10, vec![6], None)];
        assert_eq!(summaries(&claims(plan)), expected);
    }

    #[test]
    fn bounded_lanes_have_a_claim_of_their_own() {
        let targets = Targets::new(5, 1_000);
        let lanes = [lane(1, "a"), lane(2, "a"), lane(3, "a")];
        let since = Some(term(0).since);
        let clocks = TenantClocks::default();
        let mut plan = PushPlan::new(&targets, &clocks, 100);
        for (lane, from) in lanes.iter().zip([None, since, None]) {
            plan.add(lane, candidate(lane), term(0), from);
        }
        assert_eq!(summaries(&claims(plan)), [(vec![1, 3], 3, vec![0], None), (vec![2], 2, vec![0], Some(100))]);
    }

    #[test]
    fn a_plan_keeps_to_the_room_and_avoids_crowded_targets() {
        let targets = Targets::new(4, 1_000);
        let message = lane(1, "crowded");
        for _ in 0..4 {
            targets.take(&slot(&message));
        }
        let lanes = [lane(1, "crowded"), lane(2, "a"), lane(3, "b"), lane(4, "c")];
        let clocks = TenantClocks::default();
        let mut full = PushPlan::new(&targets, &clocks, 6);
        let added: Vec<bool> = lanes.iter().map(|lane| full.add(lane, candidate(lane), term(0), None)).collect();
        assert_eq!(added, [false, true, true, true]);
        let claimed: Vec<_> = summaries(&claims(full)).into_iter().map(|(lanes, limit, ..)| (lanes, limit)).collect();
        assert_eq!(claimed, [(vec![2], 2), (vec![3], 2), (vec![4], 2)]);
        assert!(!PushPlan::new(&targets, &clocks, 0).add(&lanes[1], candidate(&lanes[1]), term(0), None));
    }

    /// What each tenant gets when all want as much as they can have of one target. Takes the slots.
    fn planned(targets: &Targets, clocks: &mut TenantClocks, tenants: &[&str]) -> Vec<usize> {
        let lanes: Vec<Lane> =
            tenants.iter().zip(1..).map(|(tenant, number)| lane_of(tenant, number, "a", 5)).collect();
        let mut plan = PushPlan::new(targets, clocks, 100);
        for lane in &lanes {
            plan.add(lane, candidate(lane), term(0), None);
        }
        let mut got = vec![0; lanes.len()];
        for (lanes, limit, ..) in summaries(&claims(plan)) {
            got[usize::try_from(lanes[0]).unwrap() - 1] = limit;
        }
        for (lane, got) in lanes.iter().zip(&got) {
            (0..*got).for_each(|_| targets.take(&slot(lane)));
        }
        clocks.serve(tenants.iter().copied().zip(got.iter().copied()));
        got
    }

    fn give_back(targets: &Targets, tenant: &str, slots: usize) {
        (0..slots).for_each(|_| targets.give_back(&slot(&lane_of(tenant, 1, "a", 5))));
    }

    #[test]
    fn tenants_share_the_slots_of_a_target_by_weight() {
        let targets = Targets::new(30, 1_000);
        let mut clocks = TenantClocks::new(HashMap::from([("heavy".to_owned(), 2)]));
        let tenants = ["a", "b", "heavy"];
        assert_eq!(planned(&targets, &mut clocks, &tenants), [8, 8, 14]);
        // A tenant with less than its part gets what becomes free, whichever tenant gave it back.
        give_back(&targets, "heavy", 10);
        give_back(&targets, "a", 2);
        assert_eq!(planned(&targets, &mut clocks, &tenants), [2, 0, 10]);
    }

    #[test]
    fn slots_that_become_free_one_by_one_go_round() {
        for (per_target, tenants) in [(4, 8), (1, 3), (20, 3)] {
            let targets = Targets::new(per_target, 1_000);
            let (mut clocks, mut got) = (TenantClocks::default(), vec![0; tenants]);
            let names: Vec<String> = (0..tenants).map(|number| number.to_string()).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let mut under_way = std::collections::VecDeque::new();
            for _ in 0..tenants * 100 {
                for (at, planned) in planned(&targets, &mut clocks, &names).into_iter().enumerate() {
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
    fn scarce_slots_are_shared_by_weight_across_targets() {
        let weights = HashMap::from([("heavy".to_owned(), 4)]);
        let targets = Targets::new(20, 20).with_pools(75, 100).with_weights(weights.clone());
        let mut clocks = TenantClocks::new(weights);
        let lanes = [lane_of("heavy", 1, "a", 5), lane_of("light", 2, "b", 5)];
        let (mut got, mut under_way) = ([0, 0], std::collections::VecDeque::new());
        for _ in 0..1_000 {
            let mut plan = PushPlan::new(&targets, &clocks, 100);
            for lane in &lanes {
                plan.add(lane, candidate(lane), term(0), None);
            }
            for (numbers, limit, ..) in summaries(&claims(plan)) {
                let at = usize::try_from(numbers[0]).unwrap() - 1;
                (0..limit).for_each(|_| targets.take(&slot(&lanes[at])));
                clocks.serve([(lanes[at].key.tenant.as_str(), limit)]);
                under_way.extend((0..limit).map(|_| at));
                got[at] += limit;
            }
            targets.give_back(&slot(&lanes[under_way.pop_front().unwrap()]));
        }
        assert!((got[1] * 36..=got[1] * 44).contains(&(got[0] * 10)), "{got:?}");
    }

    #[test]
    fn one_slot_is_shared_by_weight_over_time() {
        let targets = Targets::new(1, 1_000);
        let mut clocks = TenantClocks::new(HashMap::from([("heavy".to_owned(), 10)]));
        let (tenants, mut got) = (["heavy", "light"], [0, 0]);
        for _ in 0..1_100 {
            let planned = planned(&targets, &mut clocks, &tenants);
            let at = planned.iter().position(|planned| *planned == 1).unwrap();
            got[at] += 1;
            give_back(&targets, tenants[at], 1);
        }
        assert_eq!(got, [1_000, 100]);
    }

    #[test]
    fn a_tenant_without_a_slot_gets_the_next_one() {
        let targets = Targets::new(10, 1_000);
        let mut clocks = TenantClocks::default();
        planned(&targets, &mut clocks, &["a", "b"]);
        give_back(&targets, "a", 1);
        assert_eq!(planned(&targets, &mut clocks, &["a", "b", "quiet"]), [0, 0, 1]);
    }

    #[test]
    fn tenants_and_bands_get_no_more_than_their_slots() {
        let targets = Targets::new(100, 100).with_pools(50, 80);
        for _ in 0..50 {
            targets.take(&slot(&lane_of("greedy", 1, "a", 5)));
        }
        let lanes = [lane_of("greedy", 1, "a", 5), lane_of("other", 2, "a", 5)];
        let clocks = TenantClocks::default();
        let mut tenants = PushPlan::new(&targets, &clocks, 100);
        let added: Vec<bool> = lanes.iter().map(|lane| tenants.add(lane, candidate(lane), term(0), None)).collect();
        assert_eq!(added, [false, true]);
        for tenant in ["b", "c", "d", "e"] {
            for _ in 0..targets.free_of_band(Band::Normal) {
                targets.take(&slot(&lane_of(tenant, 1, "a", 5)));
            }
        }
        let lanes = [lane_of("new", 1, "b", 5), lane_of("new", 2, "b", 2)];
        let mut bands = PushPlan::new(&targets, &clocks, 100);
        let added: Vec<bool> = lanes.iter().map(|lane| bands.add(lane, candidate(lane), term(0), None)).collect();
        assert_eq!(added, [false, true]);
    }

    fn slot(lane: &Lane) -> Slot {
        let Route::Push(target) = &lane.key.route else { panic!("{lane:?}") };
        Slot::of(&punctual_core::broker::Message {
            task_id: punctual_core::ids::TaskId::new(),
            version: 1,
            tenant: lane.key.tenant.clone(),
            priority: lane.key.priority,
            pool: String::new(),
            target: target.clone(),
        })
    }
}
