//! What a turn claims for webhooks: which lanes, how many tasks of them, and in which terms. Pure.

use std::collections::{BTreeMap, HashMap};

use punctual_core::lane::{Lane, Route};
use punctual_core::partitions::Partition;
use punctual_core::store::{Claim, Taker};
use punctual_core::time::Timestamp;

use super::flights::Split;
use super::split::{Bands, Candidate};
use crate::fairness::Band;
use crate::ownership::Held;
use crate::targets::Targets;

/// Lanes one turn takes from.
const LANES_PER_TURN: usize = 256;

/// Lanes to take from, as far as there is room, their tenants have a share and their targets have places. Those of one
/// tenant and target are claimed from together; the tenants of a target share its places as they share everything else.
pub(super) struct Plan<'a> {
    targets: &'a Targets,
    room: usize,
    places: HashMap<&'a str, Places>,
    shares: HashMap<&'a str, Share>,
    free_of_band: [usize; 3],
    parts: Vec<Part<'a>>,
    part_of: HashMap<(&'a str, &'a str, Option<Timestamp>), usize>,
    lanes: usize,
}

/// What a tenant may take, and how many parts of the plan share it.
struct Share {
    free: usize,
    parts: usize,
}

impl Share {
    /// What each of its parts may have.
    fn of_each(&self) -> usize {
        self.free.div_ceil(self.parts.max(1))
    }
}

/// The places of a target, and how many those parts of the plan want that have not had theirs.
struct Places {
    free: usize,
    wanted: usize,
}

impl Places {
    /// Takes of the places what is the part of somebody that wants so many, and may take no more than `most`.
    fn take(&mut self, wants: usize, most: usize) -> usize {
        let part = self.free.saturating_mul(wants) / self.wanted.max(1);
        let taken = part.max(1).min(wants).min(most).min(self.free);
        self.free -= taken;
        self.wanted -= wants;
        taken
    }
}

/// Lanes of a tenant and a target, from which tasks are taken that are due from an instant on.
struct Part<'a> {
    tenant: &'a str,
    target: &'a str,
    from: Option<Timestamp>,
    lanes: Vec<Candidate>,
    terms: BTreeMap<Partition, u64>,
}

impl<'a> Plan<'a> {
    pub fn new(targets: &'a Targets, room: usize) -> Self {
        Self {
            targets,
            room,
            places: HashMap::new(),
            shares: HashMap::new(),
            free_of_band: Band::ALL.map(|band| targets.free_of_band(band)),
            parts: Vec::new(),
            part_of: HashMap::new(),
            lanes: 0,
        }
    }

    pub fn is_full(&self) -> bool {
        self.room == 0 || self.lanes >= LANES_PER_TURN
    }

    /// A tenant may take so many tasks, and no more than it may have places.
    pub fn grant(&mut self, tenant: &'a str, tasks: usize) {
        let free = tasks.min(self.targets.free_of_tenant(tenant));
        self.shares.insert(tenant, Share { free, parts: 0 });
    }

    /// Takes what is due from `from` on of a lane, if its tenant, its band and its target have places; answers whether
    /// they have.
    pub fn add(&mut self, lane: &'a Lane, candidate: Candidate, held: Held, from: Option<Timestamp>) -> bool {
        let (Route::Push(target), tenant) = (&lane.key.route, lane.key.tenant.as_str()) else { return false };
        let free = || Places { free: self.targets.free(target), wanted: 0 };
        let places = self.places.entry(target).or_insert_with(free);
        let Some(share) = self.shares.get_mut(tenant).filter(|share| share.free > 0) else { return false };
        let is_full = self.room == 0 || self.lanes >= LANES_PER_TURN;
        if is_full || places.free == 0 || self.free_of_band[candidate.band() as usize] == 0 {
            return false;
        }
        let at = *self.part_of.entry((tenant, target, from)).or_insert_with(|| {
            share.parts += 1;
            self.parts.push(Part { tenant, target, from, lanes: Vec::new(), terms: BTreeMap::new() });
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
        let (mut claims, mut splits) = (Vec::with_capacity(self.parts.len()), Vec::with_capacity(self.parts.len()));
        let wants: Vec<usize> =
            self.parts.iter().map(|part| self.shares.get(part.tenant).map_or(0, Share::of_each)).collect();
        for (part, wants) in self.parts.iter().zip(&wants) {
            self.places.entry(part.target).and_modify(|places| places.wanted += wants);
        }
        for (mut part, wants) in self.parts.into_iter().zip(wants) {
            let places = self.places.get_mut(part.target);
            let (Some(places), Some(share)) = (places, self.shares.get_mut(part.tenant)) else { continue };
            let limit = places.take(wants, share.free.min(self.room));
            share.free -= limit;
            self.room -= limit;
            if limit > 0 {
                part.lanes.sort_unstable();
                let terms = part.terms.into_iter().collect();
                let taker = Taker::Dispatch { visibility_millis, terms, from: part.from };
                let (lanes, split) = bands.split(part.tenant, &part.lanes, limit, self.free_of_band);
                claims.push(Claim { lanes, limit, taker });
                splits.push(split);
            }
        }
        (claims, splits)
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

    fn plan<'a>(targets: &'a Targets, room: usize, grants: &[(&'a str, usize)]) -> Plan<'a> {
        let mut plan = Plan::new(targets, room);
        for (tenant, tasks) in grants {
            plan.grant(tenant, *tasks);
        }
        plan
    }

    fn claims(plan: Plan<'_>) -> Vec<Claim> {
        plan.claims(&mut Bands::default(), 1).0
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
        let mut plan = plan(&targets, 100, &[("t", 100)]);
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
        let mut plan = plan(&targets, 100, &[("t", 100)]);
        for (lane, from) in lanes.iter().zip([None, since, None]) {
            plan.add(lane, candidate(lane), held(0), from);
        }
        assert_eq!(told(&claims(plan)), [(vec![1, 3], 2, vec![0], None), (vec![2], 3, vec![0], Some(100))]);
    }

    #[test]
    fn no_more_is_claimed_than_there_is_room_and_nothing_of_crowded_targets() {
        let targets = Targets::new(4, 1_000);
        let message = lane(1, "crowded");
        for _ in 0..4 {
            targets.take(&place(&message));
        }
        let lanes = [lane(1, "crowded"), lane(2, "a"), lane(3, "b"), lane(4, "c")];
        let mut full = plan(&targets, 6, &[("t", 100)]);
        let added: Vec<bool> = lanes.iter().map(|lane| full.add(lane, candidate(lane), held(0), None)).collect();
        assert_eq!(added, [false, true, true, true]);
        let claimed: Vec<_> = told(&claims(full)).into_iter().map(|(lanes, limit, ..)| (lanes, limit)).collect();
        assert_eq!(claimed, [(vec![2], 4), (vec![3], 2)]);
        assert!(!plan(&targets, 0, &[("t", 100)]).add(&lanes[1], candidate(&lanes[1]), held(0), None));
    }

    #[test]
    fn a_tenant_takes_its_share_and_tenants_share_a_target() {
        let targets = Targets::new(30, 1_000);
        let lanes = [lane_of("big", 1, "a", 5), lane_of("small", 2, "a", 5), lane_of("none", 3, "b", 5)];
        let mut plan = plan(&targets, 100, &[("big", 50), ("small", 2), ("none", 0)]);
        let added: Vec<bool> = lanes.iter().map(|lane| plan.add(lane, candidate(lane), held(0), None)).collect();
        assert_eq!(added, [true, true, false]);
        let claimed: Vec<_> = told(&claims(plan)).into_iter().map(|(lanes, limit, ..)| (lanes, limit)).collect();
        assert_eq!(claimed, [(vec![1], 28), (vec![2], 2)]);
    }

    #[test]
    fn a_tenant_that_has_its_places_and_a_band_that_has_them_get_no_more() {
        let targets = Targets::new(100, 100).with_pools(50, 80);
        for _ in 0..50 {
            targets.take(&place(&lane_of("greedy", 1, "a", 5)));
        }
        let lanes = [lane_of("greedy", 1, "a", 5), lane_of("other", 2, "a", 5)];
        let mut tenants = plan(&targets, 100, &[("greedy", 100), ("other", 100)]);
        let added: Vec<bool> = lanes.iter().map(|lane| tenants.add(lane, candidate(lane), held(0), None)).collect();
        assert_eq!(added, [false, true]);
        for tenant in ["b", "c", "d", "e"] {
            for _ in 0..targets.free_of_band(Band::Normal) {
                targets.take(&place(&lane_of(tenant, 1, "a", 5)));
            }
        }
        let lanes = [lane_of("new", 1, "b", 5), lane_of("new", 2, "b", 2)];
        let mut bands = plan(&targets, 100, &[("new", 100)]);
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
