//! The backlogs of lanes: pushed tasks that were due before this node owned their partition. Pure.
//!
//! The push side takes from backlogs last, and only as many tasks as there are tokens. A node that
//! starts or takes over must not flood the targets with everything that has piled up. Tasks that
//! came due since the node owns the lane are claimed as usual: a lane can have both.

use std::sync::Arc;

use punctual_core::lane::{Lane, LaneId};
use punctual_core::time::Timestamp;

use super::{Home, Lanes};

impl Lanes {
    /// The first task of a lane's backlog is due at `due_at`.
    pub fn note_backlog(&mut self, lane: &Arc<Lane>, due_at: Timestamp) {
        if !self.entries.contains_key(&lane.id) {
            self.set_home(lane, Home::Backlog);
        }
        if let Some(entry) = self.entries.get_mut(&lane.id) {
            if let Some(known) = entry.backlog.replace(due_at) {
                self.index.backlog.remove(&entry.lane, known);
            }
            self.index.backlog.insert(&entry.lane, due_at);
        }
        self.assert_one_home(lane.id);
    }

    /// A claim on a lane's backlog was answered with the lane's true head. `since` is when this
    /// node began to own the lane; none if it does not any more.
    pub fn correct_backlog(&mut self, id: LaneId, head: Option<Timestamp>, since: Option<Timestamp>, now: Timestamp) {
        let Some(entry) = self.entries.get(&id).filter(|entry| entry.backlog.is_some()) else { return };
        let lane = Arc::clone(&entry.lane);
        match (head, since) {
            (Some(head), Some(since)) if head < since => self.note_backlog(&lane, head),
            (Some(head), Some(_)) => {
                // The backlog is used up, so this is the head of all that came due since.
                self.place(&lane, head, now);
                self.clear_backlog(id);
            }
            _ => {
                self.clear_backlog(id);
                self.correct(id, head, now);
            }
        }
    }

    /// Forgets the backlog of a lane, and the lane if it has nothing else.
    pub(super) fn clear_backlog(&mut self, id: LaneId) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if let Some(known) = entry.backlog.take() {
            self.index.backlog.remove(&entry.lane, known);
        }
        if entry.home == Home::Backlog {
            self.remove(id);
        }
    }
}
