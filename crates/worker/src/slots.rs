//! The slot that a dispatched task takes at its target, freed on drop.
//!
//! The dispatcher takes the slot when it sends a task. Invariant: every received task is a
//! [`TargetSlot`] until its call is over, so the worker cannot forget to free it.

use std::sync::Arc;

use punctual_core::broker::Message;
use punctual_core::lane::LaneKey;
use punctual_scheduler::targets::{Slot, Targets};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// A slot at a target; it is free when this is dropped.
pub(crate) struct TargetSlot {
    targets: Arc<Targets>,
    slot: Slot,
    use_of: SlotUse,
}

/// What the run of a slot does.
enum SlotUse {
    /// It came from a broker, for which nothing is claimed ahead: it need not wait.
    Received,
    /// Nothing yet.
    Claimed,
    /// It waits until a call at the target ends.
    Waiting(oneshot::Receiver<()>),
    /// It has called the target since then.
    Calling(Instant),
}

impl TargetSlot {
    /// The slot that was taken for this message.
    pub(crate) fn of(message: &Message, targets: &Arc<Targets>) -> Self {
        Self { targets: Arc::clone(targets), slot: Slot::of(message), use_of: SlotUse::Received }
    }

    /// The slot that was taken for a task of this lane.
    pub(crate) fn of_lane(lane: &LaneKey, targets: &Arc<Targets>) -> Self {
        Self { targets: Arc::clone(targets), slot: Slot::of_lane(lane), use_of: SlotUse::Claimed }
    }

    /// The same, for a call that does not wait for others.
    pub(crate) fn entered_at_once(mut self) -> Self {
        self.targets.enter_at_once(&self.slot);
        self.use_of = SlotUse::Calling(Instant::now());
        self
    }

    /// Begins the call if it is its turn; returns whether it is.
    pub(crate) fn try_enter(&mut self) -> bool {
        if let SlotUse::Claimed = self.use_of {
            self.use_of =
                self.targets.enter(&self.slot).map_or_else(|| SlotUse::Calling(Instant::now()), SlotUse::Waiting);
        }
        matches!(self.use_of, SlotUse::Received | SlotUse::Calling(_))
    }

    /// Waits until it is the call's turn, which begins it. Dropping the future loses nothing.
    pub(crate) async fn enter(&mut self) {
        if !self.try_enter()
            && let SlotUse::Waiting(turn) = &mut self.use_of
            // The other end is kept by the targets, which this keeps.
            && turn.await.is_ok()
        {
            self.use_of = SlotUse::Calling(Instant::now());
        }
    }
}

impl Drop for TargetSlot {
    fn drop(&mut self) {
        let called_at = match &mut self.use_of {
            SlotUse::Received | SlotUse::Claimed => None,
            SlotUse::Waiting(turn) => {
                // Its turn may have come in this moment.
                turn.close();
                turn.try_recv().is_ok().then(Instant::now)
            }
            SlotUse::Calling(since) => Some(*since),
        };
        match called_at {
            Some(since) => self.targets.leave(&self.slot, since.elapsed()),
            None => self.targets.give_back(&self.slot),
        }
    }
}
