//! The slots of webhooks under way.
//!
//! The dispatcher takes a slot before it sends a task on its way, and the worker gives it back when
//! the call is over. [`SlotsInUse`] decides who may take one. Claims run ahead of the slots of fast
//! targets ([`Pace`]); such runs wait at the [`Gate`] until a call ends. Probes of breakers take
//! their slots without asking, so there may be a few too many.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use punctual_core::breakers::target_of;
use punctual_core::broker::Message;
use punctual_core::lane::LaneKey;
use tokio::sync::{Notify, oneshot};

use crate::fairness::Band;

mod counts;
mod gate;
mod pace;

use counts::SlotLimits;
pub use counts::SlotOwner;
pub(crate) use counts::{SlotHolder, SlotsInUse, TenantSlots};
use gate::Gate;
use pace::Pace;

/// The slots in use. The dispatcher and the worker of a process share it.
#[derive(Debug)]
pub struct Targets {
    limits: SlotLimits,
    slots: Mutex<Slots>,
    given_back: Notify,
}

#[derive(Debug)]
struct Slots {
    /// Those of all claimed webhooks, also of those that wait at the gate.
    taken: SlotsInUse,
    gate: Gate,
    pace: Pace,
}

impl Slots {
    /// How many more webhooks than it has slots may be claimed for each target.
    fn ahead(&self) -> HashMap<String, usize> {
        let short = self.gate.targets().filter(|(target, _)| !self.has_enough(target));
        short.map(|(target, calls)| (target.to_owned(), self.pace.ahead(target, calls))).collect()
    }

    /// Whether enough runs wait for calls at a target to end, so that the next claim can be a large
    /// one.
    fn has_enough(&self, target: &str) -> bool {
        let waiting = self.gate.waiting_for(target);
        waiting > 0 && waiting > self.pace.ahead(target, self.gate.calls_at(target)) / 2
    }

    fn give_back(&mut self, slot: &Slot) {
        if self.taken.give_back(slot.holder()) {
            self.taken.assert_sums();
        }
    }
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
        let (taken, gate) = (SlotsInUse::new(&limits), Gate::new(&limits));
        Self { limits, slots: Mutex::new(Slots { taken, gate, pace: Pace::default() }), given_back: Notify::new() }
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
        let slots = self.slots.lock();
        slots.taken.clone().with_ahead(slots.ahead())
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
        self.slots.lock().taken.crowded(&self.limits, SlotHolder { tenant, band, target })
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
        self.slots.lock().taken.taken_at(target)
    }

    /// Takes a slot. The caller has checked that one is free; one too many does no harm.
    pub fn take(&self, slot: &Slot) {
        let taken = &mut self.slots.lock().taken;
        taken.take(slot.holder());
        taken.assert_sums();
    }

    /// Takes a slot for a task in each of these lanes.
    pub(crate) fn take_for<'a>(&self, lanes: impl Iterator<Item = &'a LaneKey>) {
        let taken = &mut self.slots.lock().taken;
        for lane in lanes {
            taken.take(SlotHolder { tenant: &lane.tenant, band: Band::of(lane.priority), target: target_of(lane) });
        }
        taken.assert_sums();
    }

    /// Begins the call of a webhook that has a slot, or returns what says when it is its turn. The
    /// call has begun then.
    pub fn enter(&self, slot: &Slot) -> Option<oneshot::Receiver<()>> {
        self.slots.lock().gate.enter(&self.limits, slot.holder())
    }

    /// Begins a call that does not wait for its turn.
    pub fn enter_at_once(&self, slot: &Slot) {
        self.slots.lock().gate.enter_at_once(slot.holder());
    }

    /// Ends a call that took this long, and gives its slot back.
    pub fn leave(&self, slot: &Slot, took: Duration) {
        let mut slots = self.slots.lock();
        slots.pace.end_call(&slot.target, took);
        slots.gate.leave(&self.limits, slot.holder());
        slots.give_back(slot);
        let has_enough = slots.has_enough(&slot.target);
        drop(slots);
        if !has_enough {
            self.given_back.notify_one();
        }
    }

    /// Gives back the slot of a webhook that was not called.
    pub fn give_back(&self, slot: &Slot) {
        self.slots.lock().give_back(slot);
        self.given_back.notify_one();
    }

    /// Returns after a slot was given back of which a claim can make use.
    pub async fn wait_for_slot(&self) {
        self.given_back.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_claimed_ahead_once_half_of_the_last_ones_are_called() {
        let targets = Targets::new(4, 1_000);
        let slot = Slot { target: "a".to_owned(), tenant: "t".to_owned(), band: Band::Normal };
        let may_claim = || {
            let counts = targets.counts();
            targets.may_take(&counts, slot.holder())
        };
        let claim = || {
            targets.take(&slot);
            targets.enter(&slot)
        };
        let calls: Vec<_> = (0..4).map(|_| claim()).collect();
        assert!(calls.iter().all(Option::is_none) && !may_claim(), "nothing is known of the target yet");
        targets.leave(&slot, Duration::from_millis(8));
        assert!(claim().is_none());
        // Four calls of 8 ms each are followed by ten others within 20 ms.
        let ahead = std::iter::from_fn(|| may_claim().then(claim)).take(100).count();
        assert_eq!(ahead, 6, "more than half of them");
        targets.leave(&slot, Duration::from_millis(8));
        assert!(may_claim());
    }

    #[test]
    fn the_level_is_the_larger_part_of_a_tenants_share() {
        let targets = Targets::new(10, 40);
        let slots = TenantSlots { at_target: 2, in_all: 3 };
        assert_eq!([1, 2, 3].map(|weight| targets.level(slots, weight)), [2, 1, 0]);
        let everywhere = TenantSlots { at_target: 1, in_all: 16 };
        assert_eq!(targets.level(everywhere, 1), 4, "sixteen of forty are worth four of ten");
    }
}
