//! The ready lanes: those whose head is due. Pure.
//!
//! Only [`Lanes`](super::Lanes) changes them. Pull workers find lanes by [`PollKey`], the push side
//! finds them by tenant.
//!
//! Invariant: every ready lane is in one of the sets in `by_age`, so their sizes add up to the
//! number of ready lanes.

use std::collections::{BTreeSet, HashMap};

use punctual_core::lane::{Lane, LaneId, LaneKey, Route};
use punctual_core::time::Timestamp;

use super::ranks::{Rank, Ranks, TenantRanks};
use crate::fairness::Band;

/// What a pull worker polls: a queue or a type of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PollKey {
    /// Tasks of a tenant's queue.
    Queue(String, String),
    /// Tasks of a tenant's type.
    Kind(String, String),
}

impl PollKey {
    /// The tenant.
    pub fn tenant(&self) -> &str {
        let (PollKey::Queue(tenant, _) | PollKey::Kind(tenant, _)) = self;
        tenant
    }

    /// The keys under which workers find a lane that is pulled.
    pub fn of(key: &LaneKey) -> [PollKey; 2] {
        [PollKey::Queue(key.tenant.clone(), key.queue.clone()), PollKey::Kind(key.tenant.clone(), key.kind.clone())]
    }
}

/// The ready lanes, by claimant (see the module).
#[derive(Debug, Default)]
pub(crate) struct ReadyLanes {
    by_poll_key: HashMap<PollKey, Ranks>,
    pushed: TenantRanks,
    /// The lanes of each band, the one that has waited longest first.
    by_age: [BTreeSet<(Timestamp, LaneId)>; 3],
    /// Keys that got a ready lane since the dispatcher last asked.
    newly_ready: Vec<PollKey>,
}

impl ReadyLanes {
    /// The lanes that a worker with this key may claim from, if there are any.
    pub fn pulled(&self, key: &PollKey) -> Option<&Ranks> {
        self.by_poll_key.get(key)
    }

    /// The lanes whose tasks are pushed.
    pub fn pushed(&self) -> &TenantRanks {
        &self.pushed
    }

    /// When the oldest head of a band was due.
    pub fn waits_since(&self, band: Band) -> Option<Timestamp> {
        self.by_age[band as usize].first().map(|(due_at, _)| *due_at)
    }

    pub(super) fn take_newly_ready(&mut self) -> Vec<PollKey> {
        std::mem::take(&mut self.newly_ready)
    }

    pub(super) fn len(&self) -> usize {
        self.by_age.iter().map(BTreeSet::len).sum()
    }

    pub(super) fn contains(&self, lane: &Lane, head: Timestamp) -> bool {
        self.by_age[Band::of(lane.key.priority) as usize].contains(&(head, lane.id))
    }

    pub(super) fn insert(&mut self, lane: &Lane, head: Timestamp) {
        self.by_age[Band::of(lane.key.priority) as usize].insert((head, lane.id));
        match lane.key.route {
            Route::Pull => {
                for key in PollKey::of(&lane.key) {
                    self.by_poll_key.entry(key.clone()).or_default().insert(Rank::of(lane, head));
                    self.newly_ready.push(key);
                }
            }
            Route::Push(_) => self.pushed.insert(lane, head),
        }
    }

    pub(super) fn remove(&mut self, lane: &Lane, head: Timestamp) {
        self.by_age[Band::of(lane.key.priority) as usize].remove(&(head, lane.id));
        match lane.key.route {
            Route::Pull => {
                for key in PollKey::of(&lane.key) {
                    if let Some(ranks) = self.by_poll_key.get_mut(&key) {
                        ranks.remove(&Rank::of(lane, head));
                        if ranks.is_empty() {
                            self.by_poll_key.remove(&key);
                        }
                    }
                }
            }
            Route::Push(_) => self.pushed.remove(lane, head),
        }
    }
}
