//! The slots of webhooks under way: of each target, each tenant and each band.
//!
//! The dispatcher takes a slot before it publishes a task, and the worker gives it back when the
//! call is over. A target that never answers fills its own slots and no others. A target may take
//! at most a quarter of the free slots, but always a first one. So some are left for healthy
//! targets when many hang at once. Tenants and bands also leave a part of the rest to the others. A
//! tenant of weight n counts as n tenants.
//!
//! Invariant: the slots by target, by tenant and by band each add up to the slots in all.

use std::collections::HashMap;

use parking_lot::Mutex;
use punctual_core::broker::Message;
use tokio::sync::Notify;

use crate::fairness::Band;

/// The slots in use. The dispatcher and the worker of a process share it.
#[derive(Debug)]
pub struct Targets {
    per_target: usize,
    in_all: usize,
    tenant_percent: u8,
    band_percent: u8,
    weights: HashMap<String, u32>,
    taken: Mutex<TakenSlots>,
    given_back: Notify,
}

/// The slot of a webhook under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    target: String,
    tenant: String,
    band: Band,
}

impl Slot {
    /// The slot of a published task.
    pub fn of(message: &Message) -> Self {
        let (target, tenant) = (message.target.clone(), message.tenant.clone());
        Self { target, tenant, band: Band::of(message.priority) }
    }
}

#[derive(Debug, Default)]
struct TakenSlots {
    by_target: HashMap<String, TargetSlots>,
    by_tenant: HashMap<String, usize>,
    by_band: [usize; 3],
    in_all: usize,
}

#[derive(Debug, Default)]
struct TargetSlots {
    in_all: usize,
    by_tenant: HashMap<String, usize>,
}

/// How many slots a tenant has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantSlots {
    /// At one target.
    pub at_target: usize,
    /// Anywhere.
    pub in_all: usize,
}

impl Targets {
    /// Every target has `per_target` slots, and all of them together have `in_all`.
    pub fn new(per_target: usize, in_all: usize) -> Self {
        let (taken, given_back) = (Mutex::default(), Notify::new());
        let weights = HashMap::new();
        Self { per_target, in_all, tenant_percent: 100, band_percent: 100, weights, taken, given_back }
    }

    /// A tenant, and a band, may have this percentage of the slots that no other one has.
    #[must_use]
    pub fn with_pools(self, tenant_percent: u8, band_percent: u8) -> Self {
        Self { tenant_percent, band_percent, ..self }
    }

    /// Sets the weights of tenants that weigh more than one.
    #[must_use]
    pub fn with_weights(self, weights: HashMap<String, u32>) -> Self {
        Self { weights, ..self }
    }

    /// How many slots a tenant has, at a target and in all.
    pub fn slots_of(&self, tenant: &str, target: &str) -> TenantSlots {
        let taken = self.taken.lock();
        let own = |counts: &HashMap<String, usize>| counts.get(tenant).copied().unwrap_or(0);
        let at_target = taken.by_target.get(target).map_or(0, |slots| own(&slots.by_tenant));
        TenantSlots { at_target, in_all: own(&taken.by_tenant) }
    }

    /// How much of its share a tenant with these slots and this weight uses, in slots of a target:
    /// its slots there, or its part of all slots, whichever is more.
    pub fn level(&self, slots: TenantSlots, weight: u32) -> u128 {
        let of_all = slots.in_all as u128 * self.per_target as u128 / (self.in_all as u128).max(1);
        of_all.max(slots.at_target as u128) / u128::from(weight.max(1))
    }

    /// How many slots are free.
    pub fn free_in_all(&self) -> usize {
        self.in_all.saturating_sub(self.taken.lock().in_all)
    }

    /// How many slots are taken at `target`.
    pub fn taken_at(&self, target: &str) -> usize {
        self.taken.lock().by_target.get(target).map_or(0, |slots| slots.in_all)
    }

    /// How many slots `target` may take now.
    pub fn free(&self, target: &str) -> usize {
        self.free_at(self.taken_at(target), self.free_in_all())
    }

    /// How many slots a target with `own` slots may take when `free` are free in all.
    pub fn free_at(&self, own: usize, free: usize) -> usize {
        let first = if own == 0 { free.min(1) } else { 0 };
        self.per_target.saturating_sub(own).min((free / 4).max(first))
    }

    /// How many slots a tenant may take now.
    pub fn free_of_tenant(&self, tenant: &str) -> usize {
        let own = self.taken.lock().by_tenant.get(tenant).copied().unwrap_or(0);
        self.free_for(tenant, own, self.free_in_all())
    }

    /// How many slots a tenant with `own` slots may take when `free` are free in all.
    pub fn free_for(&self, tenant: &str, own: usize, free: usize) -> usize {
        let weight = self.weights.get(tenant).copied().unwrap_or(1).max(1);
        allowance(free, own, self.tenant_percent, weight)
    }

    /// How many slots a band may take now.
    pub fn free_of_band(&self, band: Band) -> usize {
        let taken = self.taken.lock();
        let free = self.in_all.saturating_sub(taken.in_all);
        allowance(free, taken.by_band[band as usize], self.band_percent, 1)
    }

    /// Takes a slot. The caller has checked that one is free; one too many does no harm.
    pub fn take(&self, slot: &Slot) {
        let mut taken = self.taken.lock();
        taken.in_all += 1;
        taken.by_band[slot.band as usize] += 1;
        let at_target = match taken.by_target.get_mut(&slot.target) {
            Some(slots) => slots,
            None => taken.by_target.entry(slot.target.clone()).or_default(),
        };
        at_target.in_all += 1;
        add(&mut at_target.by_tenant, &slot.tenant);
        add(&mut taken.by_tenant, &slot.tenant);
        taken.assert_sums();
    }

    /// Gives a slot back.
    pub fn give_back(&self, slot: &Slot) {
        let mut taken = self.taken.lock();
        if taken.give_back_at_target(slot) {
            remove(&mut taken.by_tenant, &slot.tenant);
            taken.by_band[slot.band as usize] -= 1;
            taken.in_all -= 1;
            taken.assert_sums();
        }
        drop(taken);
        self.given_back.notify_one();
    }

    /// Returns after a slot was given back.
    pub async fn wait_for_slot(&self) {
        self.given_back.notified().await;
    }
}

impl TakenSlots {
    /// Gives a slot back at its target; false if the tenant has none there.
    fn give_back_at_target(&mut self, slot: &Slot) -> bool {
        let Some(slots) = self.by_target.get_mut(&slot.target) else { return false };
        if !remove(&mut slots.by_tenant, &slot.tenant) {
            return false;
        }
        slots.in_all -= 1;
        if slots.in_all == 0 {
            self.by_target.remove(&slot.target);
        }
        true
    }

    fn assert_sums(&self) {
        debug_assert_eq!(self.by_band.iter().sum::<usize>(), self.in_all, "the slots of the bands add up");
        debug_assert!(
            self.by_target.len() <= self.in_all && self.by_tenant.len() <= self.in_all,
            "a target or a tenant without slots has no entry"
        );
    }
}

/// How many more slots a holder of `own` may take: `percent` of its own and the free ones, scaled
/// by its weight. A holder of none may always take a first one, if one is free.
fn allowance(free: usize, own: usize, percent: u8, weight: u32) -> usize {
    let part = u128::from(percent) * u128::from(weight);
    let of = part + u128::from(100_u8.saturating_sub(percent));
    let most = (own as u128 + free as u128) * part / of.max(1);
    let more = usize::try_from(most).unwrap_or(usize::MAX).saturating_sub(own).min(free);
    let more = if own == 0 { more.max(free.min(1)) } else { more };
    debug_assert!(more <= free, "{more} of {free} free slots");
    more
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

    fn slot(target: &str, tenant: &str, priority: u8) -> Slot {
        Slot { target: target.into(), tenant: tenant.into(), band: Band::of(priority) }
    }

    #[test]
    fn a_target_fills_its_own_slots_and_no_others() {
        let targets = Targets::new(2, 100);
        targets.take(&slot("a", "t", 5));
        targets.take(&slot("a", "t", 5));
        assert_eq!((targets.free("a"), targets.free("b")), (0, 2));
        targets.give_back(&slot("a", "t", 5));
        assert_eq!(targets.free("a"), 1);
    }

    #[test]
    fn many_hanging_targets_leave_a_slot_for_a_healthy_one() {
        let targets = Targets::new(64, 512);
        for target in 0..20 {
            let target = target.to_string();
            for _ in 0..targets.free(&target) {
                targets.take(&slot(&target, "t", 5));
            }
        }
        assert!(targets.free("healthy") > 0);
    }

    #[test]
    fn no_first_slot_beyond_all_of_them() {
        let targets = Targets::new(1, 2);
        targets.take(&slot("a", "t", 5));
        assert_eq!(targets.free("b"), 1);
        targets.take(&slot("b", "t", 5));
        assert_eq!(targets.free("c"), 0);
        assert_eq!((targets.free_of_tenant("new"), targets.free_of_band(Band::Low)), (0, 0));
    }

    #[test]
    fn each_tenant_leaves_slots_to_the_next() {
        let targets = Targets::new(512, 512).with_pools(75, 100);
        let fill = |tenant: &str| {
            let mut taken = 0;
            while targets.free_of_tenant(tenant) > 0 {
                targets.take(&slot("a", tenant, 5));
                taken += 1;
            }
            taken
        };
        assert_eq!(["first", "second", "third", "fourth"].map(fill), [384, 96, 24, 6]);
        assert_eq!((fill("fifth"), fill("sixth"), fill("first")), (1, 1, 0), "always a first one");
        assert_eq!(fill("late"), 0);
    }

    #[test]
    fn a_tenant_of_weight_n_counts_as_n_tenants() {
        let targets = Targets::new(512, 512).with_pools(75, 100).with_weights(HashMap::from([("heavy".into(), 4)]));
        assert_eq!((targets.free_of_tenant("heavy"), targets.free_of_tenant("light")), (472, 384));
        (0..384).for_each(|_| targets.take(&slot("a", "heavy", 5)));
        (0..96).for_each(|_| targets.take(&slot("a", "light", 5)));
        // Each has three times its part of the 32 that are free, by its weight.
        assert_eq!((targets.free_of_tenant("heavy"), targets.free_of_tenant("light")), (0, 0));
        targets.give_back(&slot("a", "heavy", 5));
        targets.give_back(&slot("a", "light", 5));
        assert_eq!((targets.free_of_tenant("heavy"), targets.free_of_tenant("light")), (1, 1));
    }

    #[test]
    fn a_tenants_slots_are_known_by_target_and_in_all() {
        let targets = Targets::new(10, 40);
        for target in ["a", "a", "b"] {
            targets.take(&slot(target, "t", 5));
        }
        let slots = targets.slots_of("t", "a");
        assert_eq!(slots, TenantSlots { at_target: 2, in_all: 3 });
        assert_eq!((targets.level(slots, 1), targets.level(slots, 2), targets.level(slots, 3)), (2, 1, 0));
        assert_eq!(
            targets.level(TenantSlots { at_target: 1, in_all: 16 }, 1),
            4,
            "a quarter of forty is worth one in ten"
        );
        targets.give_back(&slot("a", "t", 5));
        targets.give_back(&slot("a", "other", 5));
        assert_eq!(
            targets.slots_of("t", "a"),
            TenantSlots { at_target: 1, in_all: 2 },
            "a tenant cannot give back another's slot"
        );
    }

    #[test]
    fn a_band_leaves_slots_to_the_others() {
        let targets = Targets::new(512, 100).with_pools(100, 90);
        for _ in 0..targets.free_of_band(Band::High) {
            targets.take(&slot("a", "t", 9));
        }
        let free = Band::ALL.map(|band| targets.free_of_band(band));
        assert_eq!(free, [0, 9, 9]);
        targets.give_back(&slot("a", "t", 9));
        assert_eq!(targets.free_of_band(Band::High), 1);
    }
}
