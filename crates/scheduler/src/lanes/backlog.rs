//! The backlogs of lanes: pushed tasks that were due before this node owned their partition. Pure.
//!
//! The push side claims from backlogs last, and only as many tasks as there are tokens. A node that
//! starts or takes over must not flood the targets with all tasks that have piled up. Tasks that
//! came due since then are claimed as usual: a lane can have both.

use std::sync::Arc;

use punctual_core::lane::{Lane, LaneId};
use punctual_core::time::Timestamp;

use super::{Home, Lanes};

impl Lanes {
    /// Notes that the first task of a lane's backlog is due at `due_at`.
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

    /// Corrects a backlog by the head in a claim's answer. `since` is when this node began to own
    /// the lane; none if it no longer owns it.
    pub fn correct_backlog(&mut self, id: LaneId, head: Option<Timestamp>, since: Option<Timestamp>, now: Timestamp) {
        let Some(entry) = self.entries.get(&id).filter(|entry| entry.backlog.is_some()) else { return };
        let lane = Arc::clone(&entry.lane);
        match (head, since) {
            (Some(head), Some(since)) if head < since => self.note_backlog(&lane, head),
            (Some(head), Some(_)) => {
                // The backlog is used up, so this is the head of the current tasks.
                self.place(&lane, head, now);
                self.clear_backlog(id);
            }
            _ => {
                self.clear_backlog(id);
                self.correct(id, head, now);
            }
        }
    }

    /// Forgets the backlog of a lane, and the lane too if it has nothing else.
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
