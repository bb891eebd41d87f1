//! How many webhooks are on their way: to each target, for each tenant and of each band.
//!
//! The dispatcher takes places before it publishes, the worker gives them back when a
//! run has ended. A target that answers nobody fills its own places and no others. And
//! when many targets hang at once, a target may take at most a quarter of the places that
//! are left (but always a first one), so that the last places are not for the crowd. The
//! same for tenants and bands: whatever one of them has, it leaves a part of the rest to
//! those that come later, so that calls that never end hold nobody else's places. A tenant
//! that weighs more counts as so many tenants.

use std::collections::HashMap;

use parking_lot::Mutex;
use punctual_core::broker::Message;
use tokio::sync::Notify;

use crate::fairness::Band;

/// The places of every target; shared by the dispatcher and the worker of one process.
#[derive(Debug)]
pub struct Targets {
    per_target: usize,
    in_all: usize,
    tenant_percent: u8,
    band_percent: u8,
    weights: HashMap<String, u32>,
    taken: Mutex<Taken>,
    given_back: Notify,
}

/// What a webhook on its way takes up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    target: String,
    tenant: String,
    band: Band,
}

impl Place {
    /// The place of a published task.
    pub fn of(message: &Message) -> Self {
        let (target, tenant) = (message.target.clone(), message.tenant.clone());
        Self { target, tenant, band: Band::of(message.priority) }
    }
}

#[derive(Debug, Default)]
struct Taken {
    by_target: HashMap<String, OfTarget>,
    by_tenant: HashMap<String, usize>,
    by_band: [usize; 3],
    in_all: usize,
}

#[derive(Debug, Default)]
struct OfTarget {
    in_all: usize,
    by_tenant: HashMap<String, usize>,
}

/// How many places a tenant has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Has {
    /// At one target.
    pub at_target: usize,
    /// Anywhere.
    pub in_all: usize,
}

impl Targets {
    /// Every target has `per_target` places, and all of them together `in_all`.
    pub fn new(per_target: usize, in_all: usize) -> Self {
        let (taken, given_back) = (Mutex::default(), Notify::new());
        let weights = HashMap::new();
        Self { per_target, in_all, tenant_percent: 100, band_percent: 100, weights, taken, given_back }
    }

    /// A tenant, and a band, may have this many percent of the places that nobody else has.
    #[must_use]
    pub fn with_pools(self, tenant_percent: u8, band_percent: u8) -> Self {
        Self { tenant_percent, band_percent, ..self }
    }

    /// Tenants that weigh more than one.
    #[must_use]
    pub fn with_weights(self, weights: HashMap<String, u32>) -> Self {
        Self { weights, ..self }
    }

    /// How many places a tenant has.
    pub fn has(&self, tenant: &str, target: &str) -> Has {
        let taken = self.taken.lock();
        let own = |counts: &HashMap<String, usize>| counts.get(tenant).copied().unwrap_or(0);
        let at_target = taken.by_target.get(target).map_or(0, |places| own(&places.by_tenant));
        Has { at_target, in_all: own(&taken.by_tenant) }
    }

    /// How far somebody is that has so many places and weighs so much, in places of a target: by what it has there, or by
    /// its part of all places, whichever is more.
    pub fn level(&self, has: Has, weight: u32) -> u128 {
        let of_all = has.in_all as u128 * self.per_target as u128 / (self.in_all as u128).max(1);
        of_all.max(has.at_target as u128) / u128::from(weight.max(1))
    }

    /// How many places nobody has.
    pub fn left(&self) -> usize {
        self.in_all.saturating_sub(self.taken.lock().in_all)
    }

    /// How many places `target` has.
    pub fn taken_at(&self, target: &str) -> usize {
        self.taken.lock().by_target.get(target).map_or(0, |places| places.in_all)
    }

    /// How many places `target` may take now.
    pub fn free(&self, target: &str) -> usize {
        self.free_at(self.taken_at(target), self.left())
    }

    /// How many places a target may take that has so many, when so many are left.
    pub fn free_at(&self, own: usize, left: usize) -> usize {
        let first = if own == 0 { left.min(1) } else { 0 };
        self.per_target.saturating_sub(own).min((left / 4).max(first))
    }

    /// How many places a tenant may take now.
    pub fn free_of_tenant(&self, tenant: &str) -> usize {
        let own = self.taken.lock().by_tenant.get(tenant).copied().unwrap_or(0);
        self.free_for(tenant, own, self.left())
    }

    /// How many places a tenant may take that has so many, when so many are left.
    pub fn free_for(&self, tenant: &str, own: usize, left: usize) -> usize {
        let weight = self.weights.get(tenant).copied().unwrap_or(1).max(1);
        part_of(left, own, self.tenant_percent, weight)
    }

    /// How many places a band may take now.
    pub fn free_of_band(&self, band: Band) -> usize {
        let taken = self.taken.lock();
        let left = self.in_all.saturating_sub(taken.in_all);
        part_of(left, taken.by_band[band as usize], self.band_percent, 1)
    }

    /// Takes a place. The caller has looked at what is free; one too many does no harm.
    pub fn take(&self, place: &Place) {
        let mut taken = self.taken.lock();
        taken.in_all += 1;
        taken.by_band[place.band as usize] += 1;
        let at_target = match taken.by_target.get_mut(&place.target) {
            Some(places) => places,
            None => taken.by_target.entry(place.target.clone()).or_default(),
        };
        at_target.in_all += 1;
        add(&mut at_target.by_tenant, &place.tenant);
        add(&mut taken.by_tenant, &place.tenant);
    }

    /// Gives a place back.
    pub fn give_back(&self, place: &Place) {
        let mut taken = self.taken.lock();
        if taken.give_back_at_target(place) {
            remove(&mut taken.by_tenant, &place.tenant);
            taken.by_band[place.band as usize] -= 1;
            taken.in_all -= 1;
        }
        drop(taken);
        self.given_back.notify_one();
    }

    /// Returns after a place was given back.
    pub async fn wait_for_place(&self) {
        self.given_back.notified().await;
    }
}

impl Taken {
    fn give_back_at_target(&mut self, place: &Place) -> bool {
        let Some(places) = self.by_target.get_mut(&place.target) else { return false };
        if !remove(&mut places.by_tenant, &place.tenant) {
            return false;
        }
        places.in_all -= 1;
        if places.in_all == 0 {
            self.by_target.remove(&place.target);
        }
        true
    }
}

/// How many more may be taken by whom `own` places belong, when it may have so many percent of its own and those that
/// are left, and as much as so many others that weigh one; always a first one.
fn part_of(left: usize, own: usize, percent: u8, weight: u32) -> usize {
    let part = u128::from(percent) * u128::from(weight);
    let of = part + u128::from(100_u8.saturating_sub(percent));
    let most = (own as u128 + left as u128) * part / of.max(1);
    let more = usize::try_from(most).unwrap_or(usize::MAX).saturating_sub(own).min(left);
    if own == 0 { more.max(left.min(1)) } else { more }
}

fn add(counts: &mut HashMap<String, usize>, name: &str) {
    match counts.get_mut(name) {
        Some(count) => *count += 1,
        None => drop(counts.insert(name.to_owned(), 1)),
    }
}

fn remove(counts: &mut HashMap<String, usize>, name: &str) -> bool {
    let Some(count) = counts.get_mut(name) else { return false };
    *count -= 1;
    if *count == 0 {
        counts.remove(name);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(target: &str, tenant: &str, priority: u8) -> Place {
        Place { target: target.into(), tenant: tenant.into(), band: Band::of(priority) }
    }

    #[test]
    fn a_target_fills_its_own_places_and_no_others() {
        let targets = Targets::new(2, 100);
        targets.take(&place("a", "t", 5));
        targets.take(&place("a", "t", 5));
        assert_eq!((targets.free("a"), targets.free("b")), (0, 2));
        targets.give_back(&place("a", "t", 5));
        assert_eq!(targets.free("a"), 1);
    }

    #[test]
    fn many_that_hang_leave_a_place_for_one_that_does_not() {
        let targets = Targets::new(64, 512);
        for target in 0..20 {
            let target = target.to_string();
            for _ in 0..targets.free(&target) {
                targets.take(&place(&target, "t", 5));
            }
        }
        assert!(targets.free("healthy") > 0);
    }

    #[test]
    fn not_even_a_first_place_beyond_all_of_them() {
        let targets = Targets::new(1, 2);
        targets.take(&place("a", "t", 5));
        assert_eq!(targets.free("b"), 1);
        targets.take(&place("b", "t", 5));
        assert_eq!(targets.free("c"), 0);
        assert_eq!((targets.free_of_tenant("new"), targets.free_of_band(Band::Low)), (0, 0));
    }

    #[test]
    fn a_tenant_whose_calls_never_end_leaves_places_to_the_next_and_that_to_its_next() {
        let targets = Targets::new(512, 512).with_pools(75, 100);
        let fill = |tenant: &str| {
            let mut taken = 0;
            while targets.free_of_tenant(tenant) > 0 {
                targets.take(&place("a", tenant, 5));
                taken += 1;
            }
            taken
        };
        assert_eq!(["first", "second", "third", "fourth"].map(fill), [384, 96, 24, 6]);
        assert_eq!((fill("fifth"), fill("sixth"), fill("first")), (1, 1, 0), "always a first one");
        assert_eq!(fill("late"), 0);
    }

    #[test]
    fn a_tenant_that_weighs_more_may_have_as_much_as_so_many_tenants() {
        let targets = Targets::new(512, 512).with_pools(75, 100).with_weights(HashMap::from([("heavy".into(), 4)]));
        assert_eq!((targets.free_of_tenant("heavy"), targets.free_of_tenant("light")), (472, 384));
        (0..384).for_each(|_| targets.take(&place("a", "heavy", 5)));
        (0..96).for_each(|_| targets.take(&place("a", "light", 5)));
        // Of the 32 that are left to others each has three times as much, for what it weighs.
        assert_eq!((targets.free_of_tenant("heavy"), targets.free_of_tenant("light")), (0, 0));
        targets.give_back(&place("a", "heavy", 5));
        targets.give_back(&place("a", "light", 5));
        assert_eq!((targets.free_of_tenant("heavy"), targets.free_of_tenant("light")), (1, 1));
    }

    #[test]
    fn what_a_tenant_has_is_known_for_each_target_and_in_all() {
        let targets = Targets::new(10, 40);
        for target in ["a", "a", "b"] {
            targets.take(&place(target, "t", 5));
        }
        let has = targets.has("t", "a");
        assert_eq!(has, Has { at_target: 2, in_all: 3 });
        assert_eq!((targets.level(has, 1), targets.level(has, 2), targets.level(has, 3)), (2, 1, 0));
        assert_eq!(targets.level(Has { at_target: 1, in_all: 16 }, 1), 4, "a quarter of forty is worth one in ten");
        targets.give_back(&place("a", "t", 5));
        targets.give_back(&place("a", "other", 5));
        assert_eq!(targets.has("t", "a"), Has { at_target: 1, in_all: 2 }, "nobody gives back what is another's");
    }

    #[test]
    fn a_band_leaves_places_to_the_others() {
        let targets = Targets::new(512, 100).with_pools(100, 90);
        for _ in 0..targets.free_of_band(Band::High) {
            targets.take(&place("a", "t", 9));
        }
        let free = Band::ALL.map(|band| targets.free_of_band(band));
        assert_eq!(free, [0, 9, 9]);
        targets.give_back(&place("a", "t", 9));
        assert_eq!(targets.free_of_band(Band::High), 1);
    }
}
