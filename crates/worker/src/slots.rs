//! The slot that a dispatched task takes at its target, freed on drop.
//!
//! The dispatcher takes the slot when it sends a task. Invariant: every received task is a
//! [`TargetSlot`] until its call is over, so the worker cannot forget to free it.

use std::sync::Arc;

use punctual_core::broker::Message;
use punctual_core::lane::LaneKey;
use punctual_scheduler::targets::{Slot, Targets};

/// A slot at a target; it is free when this is dropped.
pub(crate) struct TargetSlot {
    targets: Arc<Targets>,
    slot: Slot,
}

impl TargetSlot {
    /// The slot that was taken for this message.
    pub(crate) fn of(message: &Message, targets: &Arc<Targets>) -> Self {
        Self { targets: Arc::clone(targets), slot: Slot::of(message) }
    }

    /// The slot that was taken for a task of this lane.
    pub(crate) fn of_lane(lane: &LaneKey, targets: &Arc<Targets>) -> Self {
        Self { targets: Arc::clone(targets), slot: Slot::of_lane(lane) }
    }
}

impl Drop for TargetSlot {
    fn drop(&mut self) {
        self.targets.give_back(&self.slot);
    }
}
