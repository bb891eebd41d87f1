//! The slot that a dispatched message takes at its target, freed on drop.
//!
//! The dispatcher takes the slot when it publishes a message. Invariant: every received delivery is
//! a [`TargetSlot`] until its call is over, so the worker cannot forget to free it.

use std::sync::Arc;

use punctual_core::broker::Message;
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
}

impl Drop for TargetSlot {
    fn drop(&mut self) {
        self.targets.give_back(&self.slot);
    }
}
