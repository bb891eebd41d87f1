//! The plan of a pass for webhooks: which lanes, how many tasks of each, and in which terms. Pure.
//!
//! The push side is the only caller. The plan gives out slots one by one. The next slot goes to the
//! tenant that has the fewest for its weight, at the target or of all slots; among several, to the
//! tenant whose clock is behind. While there are common slots, any lane of the part may use them; a
//! first slot from the reserve is for the lanes of one band.
//!
//! Invariant: a plan never exceeds the room at the workers, nor what targets, tenants and bands may
//! have.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};

use punctual_core::lane::{Lane, Route};
use punctual_core::partitions::Partition;
use punctual_core::store::{Claim, Claimant, DispatchTo};
use punctual_core::time::Timestamp;

use super::bands::{BandShares, BandSplit, LaneCandidate};
use crate::fairness::{Band, TenantClocks};
use crate::ownership::OwnershipTerm;
use crate::targets::{SlotHolder, SlotsInUse, Targets};

/// The maximum number of lanes that a pass claims from.
pub(super) const PLAN_LANES_MAX: usize = 256;

/// The lanes to claim from, as far as there is room and their tenants and targets have slots. Lanes
/// of one tenant and target share a claim.
pub(super) struct PushPlan<'a> {
    targets: &'a Targets,
    clocks: &'a TenantClocks,
    room: usize,
    /// The slots in use, with those planned here.
    counts: SlotsInUse,
    parts: Vec<PlanPart<'a>>,
    part_of: HashMap<(&'a str, &'a str, Option<Timestamp>), usize>,
    /// How many slots are planned here for each tenant.
    planned: HashMap<&'a str, usize>,
    lanes: usize,
}

/// The lanes of a tenant and a target, and the lower bound of `due_at` for their claim.
struct PlanPart<'a> {
    tenant: &'a str,
    target: &'a str,
    from: Option<Timestamp>,
    lanes: Vec<LaneCandidate>,
    /// The slot bands of its lanes.
    bands: BTreeSet<Band>,
    terms: BTreeMap<Partition, u64>,
    /// How many slots it has been given.
    limit: usize,
    /// How many of them each band may use.
    band_max: [usize; 3],
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
            counts: targets.counts(),
            parts: Vec::new(),
            part_of: HashMap::new(),
            planned: HashMap::new(),
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
        let holder = SlotHolder { tenant, band: candidate.slot_band, target };
        if self.is_full() || !self.targets.may_take(&self.counts, holder) {
            return false;
        }
        let at = *self.part_of.entry((tenant, target, from)).or_insert_with(|| {
            self.parts.push(PlanPart::new(tenant, target, from));
            self.parts.len() - 1
        });
        self.parts[at].lanes.push(candidate);
        self.parts[at].bands.insert(candidate.slot_band);
        self.parts[at].terms.extend(term.fence);
        self.lanes += 1;
        true
    }

    /// The claims, in the order in which their first lanes were added, and how each is split
    /// between bands. Slots that a claim does not use are offered again in the next pass.
    pub fn claims(mut self, bands: &mut BandShares, to: &DispatchTo) -> (Vec<Claim>, Vec<BandSplit>) {
        self.give_out();
        let (mut claims, mut splits) = (Vec::with_capacity(self.parts.len()), Vec::with_capacity(self.parts.len()));
        for mut part in self.parts.into_iter().filter(|part| part.limit > 0) {
            part.lanes.sort_unstable();
            let terms = part.terms.into_iter().collect();
            let claimant = Claimant::Dispatch { to: to.clone(), terms, from: part.from };
            let (lanes, split) = bands.split(part.tenant, &part.lanes, part.limit, part.band_max);
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
        let level = self.targets.level(self.counts.slots_of(tenant, target), self.clocks.weight(tenant));
        let planned = self.planned.get(tenant).copied().unwrap_or(0);
        SlotOrder { level, clock: self.clocks.after(tenant, planned), limit, part: at }
    }

    /// Gives a part a slot; false if there is none that it may have. A band that may use no common
    /// slot gets a first slot of its own.
    fn give(&mut self, at: usize) -> bool {
        let PlanPart { tenant, target, .. } = self.parts[at];
        let holder = |band: Band| SlotHolder { tenant, band, target };
        let (common, reserved): (Vec<Band>, Vec<Band>) =
            self.parts[at].bands.iter().partition(|band| self.targets.may_take_common(&self.counts, holder(**band)));
        let first = reserved.into_iter().find(|band| self.targets.may_take(&self.counts, holder(*band)));
        let usable_by = match first {
            Some(band) => {
                self.counts.take(holder(band));
                vec![band]
            }
            None if common.is_empty() => return false,
            None => {
                self.counts.plan_for_bands(tenant, target, &common);
                common
            }
        };
        debug_assert!(self.room > 0, "a slot is given that is not there");
        self.room -= 1;
        *self.planned.entry(tenant).or_default() += 1;
        let part = &mut self.parts[at];
        part.limit += 1;
        for band in usable_by {
            part.band_max[band as usize] += 1;
        }
        true
    }
}

impl<'a> PlanPart<'a> {
    fn new(tenant: &'a str, target: &'a str, from: Option<Timestamp>) -> Self {
        let (lanes, bands, terms) = (Vec::new(), BTreeSet::new(), BTreeMap::new());
        Self { tenant, target, from, lanes, bands, terms, limit: 0, band_max: [0; 3] }
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
        plan.claims(&mut BandShares::default(), &DispatchTo::Broker { visibility_millis: 1 }).0
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
        // Two of ten slots are the reserve.
        let expected = [(vec![1, 3, 4], 8, vec![4, 5], None), (vec![2], 8, vec![6], None)];
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
        assert_eq!(summaries(&claims(plan)), [(vec![1, 3], 2, vec![0], None), (vec![2], 2, vec![0], Some(100))]);
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
        assert_eq!(planned(&targets, &mut clocks, &tenants), [6, 6, 11]);
        // A tenant with less than its part gets what becomes free, whichever tenant gave it back.
        give_back(&targets, "heavy", 10);
        give_back(&targets, "a", 2);
        assert_eq!(planned(&targets, &mut clocks, &tenants), [3, 1, 11]);
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
        let targets = Targets::new(20, 20).with_percents(75, 100).with_weights(weights.clone());
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
        assert_eq!(planned(&targets, &mut clocks, &["a", "b", "quiet"]), [0, 0, 3]);
    }

    #[test]
    fn a_new_band_gets_a_first_slot_beside_a_hanging_one() {
        let targets = Targets::new(8, 100);
        let low = lane_of("t", 1, "a", 1);
        (0..7).for_each(|_| targets.take(&slot(&low)));
        let lanes = [low, lane_of("t", 2, "a", 9), lane_of("t", 3, "a", 9), lane_of("u", 4, "a", 5)];
        let clocks = TenantClocks::default();
        let mut plan = PushPlan::new(&targets, &clocks, 100);
        let added: Vec<bool> = lanes.iter().map(|lane| plan.add(lane, candidate(lane), term(0), None)).collect();
        assert_eq!(added, [false, true, true, true]);
        let mut claimed: Vec<_> = claims(plan).into_iter().map(|claim| (claim.lanes, claim.limit)).collect();
        claimed.sort_unstable();
        // Seven slots are taken, one of them from the reserve of two: one first slot is left.
        assert_eq!(claimed, [(vec![(LaneId::new(4), 1)], 1)]);
    }

    #[test]
    fn lanes_of_a_band_do_not_take_the_first_slot_of_another() {
        let targets = Targets::new(200, 200).with_percents(100, 50);
        // Half of the 150 common slots, and a first one.
        (0..76).for_each(|_| targets.take(&slot(&lane_of("t", 9, "b", 1))));
        let lanes = [lane_of("t", 1, "a", 5), lane_of("t", 2, "a", 5), lane_of("t", 3, "a", 1)];
        let clocks = TenantClocks::default();
        let mut plan = PushPlan::new(&targets, &clocks, 100);
        for lane in &lanes {
            assert!(plan.add(lane, candidate(lane), term(0), None));
        }
        let claim = &claims(plan)[0];
        let most = |numbers: &[i64]| -> usize {
            let lanes = claim.lanes.iter().filter(|(lane, _)| numbers.contains(&lane.number()));
            lanes.map(|(_, most)| most).sum()
        };
        assert_eq!((claim.limit, most(&[1, 2]), most(&[3])), (38, 37, 1));
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
