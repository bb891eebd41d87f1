//! The lanes of each home, in the order in which they are needed. Pure.
//!
//! [`Lanes`](super::Lanes) keeps it in step with the homes. Invariant: the index has a lane exactly
//! once, so its length is the number of lanes.

use std::collections::BTreeSet;

use punctual_core::lane::{Lane, LaneId};
use punctual_core::time::Timestamp;

use super::Home;
use super::ranks::TenantRanks;
use super::ready::ReadyLanes;
use super::under_breaker::BreakerLanes;

/// The lanes by their homes (see the module).
#[derive(Debug, Default)]
pub(super) struct HomeIndex {
    /// One entry per lane, not per task: a sorted set is fast enough (docs/performance.md).
    waiting: BTreeSet<(Timestamp, LaneId)>,
    pub ready: ReadyLanes,
    /// By the instant at which each is tried again.
    pub limited: BTreeSet<(Timestamp, LaneId)>,
    pub under_breaker: BreakerLanes,
    /// All lanes with a backlog, whatever their homes.
    pub backlog: TenantRanks,
    /// How many lanes have nothing but a backlog.
    backlog_only: usize,
}

impl HomeIndex {
    /// How many lanes have a home.
    pub fn len(&self) -> usize {
        self.waiting.len() + self.ready.len() + self.limited.len() + self.under_breaker.len() + self.backlog_only
    }

    /// When the next lane becomes ready or is tried again.
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        self.waiting.first().into_iter().chain(self.limited.first()).map(|(at, _)| *at).min()
    }

    /// The first waiting lane whose time has come.
    pub fn first_waiting(&self, now: Timestamp) -> Option<LaneId> {
        self.waiting.first().filter(|(ready_at, _)| *ready_at <= now).map(|(_, id)| *id)
    }

    /// Adds a lane to its home.
    pub fn insert(&mut self, lane: &Lane, home: Home) {
        match home {
            Home::Waiting { ready_at, .. } => drop(self.waiting.insert((ready_at, lane.id))),
            Home::Ready { head } => self.ready.insert(lane, head),
            Home::Backlog => self.backlog_only += 1,
            Home::Limited { until, .. } => drop(self.limited.insert((until, lane.id))),
            Home::UnderBreaker { .. } => self.under_breaker.insert(lane),
        }
    }

    /// Takes a lane out of its home.
    pub fn remove(&mut self, lane: &Lane, home: Home) {
        match home {
            Home::Waiting { ready_at, .. } => drop(self.waiting.remove(&(ready_at, lane.id))),
            Home::Ready { head } => self.ready.remove(lane, head),
            Home::Backlog => self.backlog_only -= 1,
            Home::Limited { until, .. } => drop(self.limited.remove(&(until, lane.id))),
            Home::UnderBreaker { .. } => self.under_breaker.remove(lane),
        }
    }

    /// Whether a lane is in the index of this home.
    pub fn contains(&self, lane: &Lane, home: Home) -> bool {
        match home {
            Home::Waiting { ready_at, .. } => self.waiting.contains(&(ready_at, lane.id)),
            Home::Ready { head } => self.ready.contains(lane, head),
            Home::Backlog => self.backlog_only > 0,
            Home::Limited { until, .. } => self.limited.contains(&(until, lane.id)),
            Home::UnderBreaker { .. } => self.under_breaker.contains(lane),
        }
    }
}
