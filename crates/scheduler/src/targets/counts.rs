//! How many webhook slots every tenant, band and target has, and which may take another. Pure.
//!
//! [`Targets`](super::Targets) counts the calls under way with it, and a plan counts what it gives
//! out. A call may hang for as long as its timeout, so sharing must hold for slots that never come
//! back. The slots in all, and those of each target, therefore have two parts:
//!
//! - A quarter is the *reserve*. It serves first slots: that of a tenant and band at a target where
//!   they have none. One band of a tenant may use only part of the global reserve.
//! - The rest is *common*. A tenant leaves a part of it to the other tenants, and a band of the
//!   tenant leaves a part of that to the tenant's other bands.
//!
//! So a tenant, band and target without a slot gets one at once, whatever hangs, until the reserve
//! is used up. docs/operations.md states the numbers.
//!
//! Invariant: as long as every slot is taken by a holder that may take it, there are never more
//! than the limits say, in all or at a target.

use std::collections::HashMap;

use crate::fairness::Band;

/// The part of the reserve of all slots that a band of a tenant may have: one slot in this many, so
/// that the three bands of eight tenants fit.
const FIRSTS_PART: usize = 24;

/// The part of the slots that is the reserve: one in this many.
const RESERVE_PART: usize = 4;

/// How many slots there are, and which part of them one tenant or band may have.
#[derive(Clone, Debug)]
pub(crate) struct SlotLimits {
    pub per_target: usize,
    pub in_all: usize,
    pub tenant_percent: u8,
    pub band_percent: u8,
    pub weights: HashMap<String, u32>,
}

/// Who has a slot, or wants one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotHolder<'a> {
    pub tenant: &'a str,
    pub band: Band,
    pub target: &'a str,
}

/// What keeps a webhook from getting a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotOwner {
    /// Its target.
    Target,
    /// Its tenant.
    Tenant,
    /// Its band.
    Band(Band),
}

/// How many slots a tenant has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TenantSlots {
    /// At one target.
    pub at_target: usize,
    /// Anywhere.
    pub in_all: usize,
}

/// The slots in use (see the module).
#[derive(Clone, Debug)]
pub(crate) struct SlotsInUse {
    /// How many first slots of a band of a tenant may be in the reserve.
    firsts_max: usize,
    in_all: usize,
    /// How many of them are first slots, as far as they may be in the reserve.
    firsts: usize,
    tenants: HashMap<String, TenantCounts>,
    targets: HashMap<String, TargetCounts>,
    /// How many slots a plan may give out at targets beyond theirs, because they will be free soon.
    ahead: HashMap<String, usize>,
}

#[derive(Clone, Debug, Default)]
struct TenantCounts {
    slots: usize,
    bands: [BandCounts; 3],
}

#[derive(Clone, Copy, Debug, Default)]
struct BandCounts {
    slots: usize,
    /// At how many targets it has slots.
    targets: usize,
}

#[derive(Clone, Debug, Default)]
struct TargetCounts {
    slots: usize,
    /// How many bands of tenants have slots here.
    firsts: usize,
    by_tenant: HashMap<String, [usize; 3]>,
}

impl SlotsInUse {
    /// No slot is taken.
    pub fn new(limits: &SlotLimits) -> Self {
        let firsts_max = (reserve(limits.in_all) / FIRSTS_PART).max(1);
        let (tenants, targets, ahead) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { firsts_max, in_all: 0, firsts: 0, tenants, targets, ahead }
    }

    /// Lets plans give out so many slots more at these targets. They are common ones.
    #[must_use]
    pub fn with_ahead(mut self, ahead: HashMap<String, usize>) -> Self {
        self.ahead = ahead;
        self
    }

    /// How many slots a tenant has, at a target and in all.
    pub fn slots_of(&self, tenant: &str, target: &str) -> TenantSlots {
        let at_target = self.targets.get(target).and_then(|counts| counts.by_tenant.get(tenant));
        TenantSlots {
            at_target: at_target.map_or(0, |bands| bands.iter().sum()),
            in_all: self.tenants.get(tenant).map_or(0, |counts| counts.slots),
        }
    }

    /// How many slots are taken at a target.
    pub fn taken_at(&self, target: &str) -> usize {
        self.targets.get(target).map_or(0, |counts| counts.slots)
    }

    /// The targets with slots in use, and how many each has.
    pub fn targets(&self) -> impl Iterator<Item = (&str, usize)> {
        self.targets.iter().map(|(target, counts)| (target.as_str(), counts.slots))
    }

    /// Whether a holder may take another slot.
    pub fn may_take(&self, limits: &SlotLimits, holder: SlotHolder<'_>) -> bool {
        self.is_free_in_all(limits, holder) && self.is_free_at_target(limits, holder)
    }

    /// Whether a holder may take another slot without the reserves.
    pub fn may_take_common(&self, limits: &SlotLimits, holder: SlotHolder<'_>) -> bool {
        self.common_of_band(limits, holder) > 0 && self.common_at(limits, holder.target) > 0
    }

    /// Which owners have no free slot for a holder; none if it may take one.
    pub fn crowded(&self, limits: &SlotLimits, holder: SlotHolder<'_>) -> Vec<SlotOwner> {
        let at_target = (!self.is_free_at_target(limits, holder)).then_some(SlotOwner::Target);
        let in_all = (!self.is_free_in_all(limits, holder)).then(|| {
            let of_tenant = self.common_of_tenant(limits, holder.tenant);
            if of_tenant == 0 { SlotOwner::Tenant } else { SlotOwner::Band(holder.band) }
        });
        at_target.into_iter().chain(in_all).collect()
    }

    /// Takes a slot.
    pub fn take(&mut self, holder: SlotHolder<'_>) {
        let band = holder.band as usize;
        let target = entry(&mut self.targets, holder.target);
        let at_target = &mut entry(&mut target.by_tenant, holder.tenant)[band];
        let is_first = *at_target == 0;
        *at_target += 1;
        target.slots += 1;
        target.firsts += usize::from(is_first);
        let tenant = entry(&mut self.tenants, holder.tenant);
        let before = tenant.firsts(self.firsts_max);
        tenant.slots += 1;
        tenant.bands[band].slots += 1;
        tenant.bands[band].targets += usize::from(is_first);
        self.firsts += tenant.firsts(self.firsts_max) - before;
        self.in_all += 1;
    }

    /// Counts a slot that any of these bands of a tenant may use, as if each of them did. It is
    /// never counted as a first slot. Only for plans: it cannot be given back.
    pub fn plan_for_bands(&mut self, tenant: &str, target: &str, bands: &[Band]) {
        let at_target = entry(&mut self.targets, target);
        let of_tenant = entry(&mut self.tenants, tenant);
        let by_band = entry(&mut at_target.by_tenant, tenant);
        for band in bands {
            by_band[*band as usize] += 1;
            of_tenant.bands[*band as usize].slots += 1;
        }
        at_target.slots += 1;
        of_tenant.slots += 1;
        self.in_all += 1;
    }

    /// Gives a slot back; false if the holder has none.
    pub fn give_back(&mut self, holder: SlotHolder<'_>) -> bool {
        let band = holder.band as usize;
        let Some(target) = self.targets.get_mut(holder.target) else { return false };
        let Some(by_band) = target.by_tenant.get_mut(holder.tenant).filter(|bands| bands[band] > 0) else {
            return false;
        };
        by_band[band] -= 1;
        let was_last = by_band[band] == 0;
        if by_band.iter().all(|slots| *slots == 0) {
            target.by_tenant.remove(holder.tenant);
        }
        target.slots -= 1;
        target.firsts -= usize::from(was_last);
        if target.slots == 0 {
            self.targets.remove(holder.target);
        }
        let tenant = entry(&mut self.tenants, holder.tenant);
        let before = tenant.firsts(self.firsts_max);
        tenant.slots -= 1;
        tenant.bands[band].slots -= 1;
        tenant.bands[band].targets -= usize::from(was_last);
        self.firsts -= before - tenant.firsts(self.firsts_max);
        if tenant.slots == 0 {
            self.tenants.remove(holder.tenant);
        }
        self.in_all -= 1;
        true
    }

    /// Whether a holder has no slot yet.
    fn is_new(&self, holder: SlotHolder<'_>) -> bool {
        let by_band = self.targets.get(holder.target).and_then(|counts| counts.by_tenant.get(holder.tenant));
        by_band.is_none_or(|bands| bands[holder.band as usize] == 0)
    }

    fn is_free_in_all(&self, limits: &SlotLimits, holder: SlotHolder<'_>) -> bool {
        let targets = self.tenants.get(holder.tenant).map_or(0, |counts| counts.bands[holder.band as usize].targets);
        let has_reserve = self.firsts < reserve(limits.in_all) && targets < self.firsts_max;
        has_reserve && self.is_new(holder) || self.common_of_band(limits, holder) > 0
    }

    /// Whether a holder may take another slot at its target, however many there are in all.
    pub fn is_free_at_target(&self, limits: &SlotLimits, holder: SlotHolder<'_>) -> bool {
        let firsts = self.targets.get(holder.target).map_or(0, |counts| counts.firsts);
        firsts < reserve(limits.per_target) && self.is_new(holder) || self.common_at(limits, holder.target) > 0
    }

    /// How many common slots of a target are free.
    fn common_at(&self, limits: &SlotLimits, target: &str) -> usize {
        let (slots, firsts) = self.targets.get(target).map_or((0, 0), |counts| (counts.slots, counts.firsts));
        common(limits.per_target, slots, firsts, self.ahead.get(target).copied().unwrap_or(0))
    }

    /// How many common slots a tenant may take.
    fn common_of_tenant(&self, limits: &SlotLimits, tenant: &str) -> usize {
        let own =
            self.tenants.get(tenant).map_or(0, |counts| counts.slots.saturating_sub(counts.firsts(self.firsts_max)));
        let weight = limits.weights.get(tenant).copied().unwrap_or(1).max(1);
        allowance(common(limits.in_all, self.in_all, self.firsts, 0), own, limits.tenant_percent, weight)
    }

    /// How many common slots a band of a tenant may take.
    fn common_of_band(&self, limits: &SlotLimits, holder: SlotHolder<'_>) -> usize {
        let band = self
            .tenants
            .get(holder.tenant)
            .map_or_else(BandCounts::default, |counts| counts.bands[holder.band as usize]);
        let own = band.slots.saturating_sub(band.firsts(self.firsts_max));
        allowance(self.common_of_tenant(limits, holder.tenant), own, limits.band_percent, 1)
    }

    /// Checks the sums; for counts without planned slots.
    pub fn assert_sums(&self) {
        debug_assert_eq!(self.tenants.values().map(|counts| counts.slots).sum::<usize>(), self.in_all);
        debug_assert_eq!(self.targets.values().map(|counts| counts.slots).sum::<usize>(), self.in_all);
        debug_assert_eq!(
            self.tenants.values().map(|counts| counts.firsts(self.firsts_max)).sum::<usize>(),
            self.firsts
        );
    }
}

impl TenantCounts {
    fn firsts(&self, most: usize) -> usize {
        self.bands.iter().map(|band| band.firsts(most)).sum()
    }
}

impl BandCounts {
    /// How many of its slots are first slots; at most so many count.
    fn firsts(self, most: usize) -> usize {
        self.targets.min(most)
    }
}

/// How many of so many slots are the reserve.
fn reserve(slots: usize) -> usize {
    slots / RESERVE_PART
}

/// The free common slots out of `slots`, and of `ahead` more. First slots that the reserve has no
/// room for are common ones.
fn common(slots: usize, taken: usize, firsts: usize, ahead: usize) -> usize {
    let reserve = reserve(slots);
    (slots - reserve).saturating_add(ahead).saturating_sub(taken.saturating_sub(firsts.min(reserve)))
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

fn entry<'a, T: Default>(counts: &'a mut HashMap<String, T>, name: &str) -> &'a mut T {
    if !counts.contains_key(name) {
        counts.insert(name.to_owned(), T::default());
    }
    counts.get_mut(name).expect("invariant: the name was inserted")
}

#[cfg(test)]
mod tests;
