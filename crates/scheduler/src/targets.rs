//! The slots of webhooks under way.
//!
//! The dispatcher takes a slot before it publishes a task, and the worker gives it back when the
//! call is over. [`SlotsInUse`] decides who may take one. Probes of breakers take theirs without
//! asking, so there may be a few slots too many.

use std::collections::HashMap;

use parking_lot::Mutex;
use punctual_core::breakers::target_of;
use punctual_core::broker::Message;
use punctual_core::lane::LaneKey;
use tokio::sync::Notify;

use crate::fairness::Band;

mod counts;

use counts::SlotLimits;
pub use counts::SlotOwner;
pub(crate) use counts::{SlotHolder, SlotsInUse, TenantSlots};

/// The slots in use. The dispatcher and the worker of a process share it.
#[derive(Debug)]
pub struct Targets {
    limits: SlotLimits,
    taken: Mutex<SlotsInUse>,
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

    /// The slot of a task in this lane.
    pub fn of_lane(lane: &LaneKey) -> Self {
        Self { target: target_of(lane).to_owned(), tenant: lane.tenant.clone(), band: Band::of(lane.priority) }
    }

    fn holder(&self) -> SlotHolder<'_> {
        SlotHolder { tenant: &self.tenant, band: self.band, target: &self.target }
    }
}

impl Targets {
    /// Every target has `per_target` slots, and all of them together have `in_all`.
    pub fn new(per_target: usize, in_all: usize) -> Self {
        let limits = SlotLimits { per_target, in_all, tenant_percent: 100, band_percent: 100, weights: HashMap::new() };
        let taken = Mutex::new(SlotsInUse::new(&limits));
        Self { limits, taken, given_back: Notify::new() }
    }

    /// Limits a tenant to `tenant_percent` of the common slots that other tenants leave, and each
    /// of its bands to `band_percent` of those.
    #[must_use]
    pub fn with_percents(mut self, tenant_percent: u8, band_percent: u8) -> Self {
        (self.limits.tenant_percent, self.limits.band_percent) = (tenant_percent, band_percent);
        self
    }

    /// Sets the weights of tenants that weigh more than one.
    #[must_use]
    pub fn with_weights(mut self, weights: HashMap<String, u32>) -> Self {
        self.limits.weights = weights;
        self
    }

    /// A copy of the counts, for a plan.
    pub(crate) fn counts(&self) -> SlotsInUse {
        self.taken.lock().clone()
    }

    /// Whether a holder may take a slot by these counts.
    pub(crate) fn may_take(&self, counts: &SlotsInUse, holder: SlotHolder<'_>) -> bool {
        counts.may_take(&self.limits, holder)
    }

    /// Whether a holder may take a slot by these counts without the reserves.
    pub(crate) fn may_take_common(&self, counts: &SlotsInUse, holder: SlotHolder<'_>) -> bool {
        counts.may_take_common(&self.limits, holder)
    }

    /// Which owners have no free slot for a webhook; none if it may take one.
    pub fn crowded(&self, tenant: &str, band: Band, target: &str) -> Vec<SlotOwner> {
        self.taken.lock().crowded(&self.limits, SlotHolder { tenant, band, target })
    }

    /// The tenant's usage relative to its share: the larger of its slots at the target and its
    /// scaled slots in all.
    pub(crate) fn level(&self, slots: TenantSlots, weight: u32) -> u128 {
        let SlotLimits { per_target, in_all, .. } = self.limits;
        let of_all = slots.in_all as u128 * per_target as u128 / (in_all as u128).max(1);
        of_all.max(slots.at_target as u128) / u128::from(weight.max(1))
    }

    /// How many slots are taken at `target`.
    pub fn taken_at(&self, target: &str) -> usize {
        self.taken.lock().taken_at(target)
    }

    /// Takes a slot. The caller has checked that one is free; one too many does no harm.
    pub fn take(&self, slot: &Slot) {
        let mut taken = self.taken.lock();
        taken.take(slot.holder());
        taken.assert_sums();
    }

    /// Takes a slot for a task in each of these lanes.
    pub(crate) fn take_for<'a>(&self, lanes: impl Iterator<Item = &'a LaneKey>) {
        let mut taken = self.taken.lock();
        for lane in lanes {
            taken.take(SlotHolder { tenant: &lane.tenant, band: Band::of(lane.priority), target: target_of(lane) });
        }
        taken.assert_sums();
    }

    /// Gives a slot back.
    pub fn give_back(&self, slot: &Slot) {
        let mut taken = self.taken.lock();
        if taken.give_back(slot.holder()) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_is_the_larger_part_of_a_tenants_share() {
        let targets = Targets::new(10, 40);
        let slots = TenantSlots { at_target: 2, in_all: 3 };
        assert_eq!([1, 2, 3].map(|weight| targets.level(slots, weight)), [2, 1, 0]);
        let everywhere = TenantSlots { at_target: 1, in_all: 16 };
        assert_eq!(targets.level(everywhere, 1), 4, "sixteen of forty are worth four of ten");
    }
}
