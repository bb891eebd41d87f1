//! Where every lane is. No other structure answers that question. Pure.
//!
//! The dispatcher is the only caller. A lane with a task that is due soon has exactly one [`Home`].
//! Lanes that are due after the prefetch window are not kept: the sweep brings them when their time
//! is near. So the size is the number of lanes that are due soon, not the number of tasks.
//!
//! Two things are independent of the homes. A lane may also have a *backlog*: pushed tasks that
//! were due before this node owned the lane's partition. And a lane stays at home while a *claim*
//! ([`LaneClaims`]) is under way at it; hints about it wait for the claim's answer.
//!
//! Invariants: a lane is in the index of its home and in no other. A lane is under a breaker if and
//! only if an open breaker is over it, unless it is limited. A head is never later than the lane's
//! true head, unless a hint or the next sweep is on its way to correct it.

use std::collections::{BTreeMap, HashSet, btree_map};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;

use punctual_core::lane::{Lane, LaneId, LaneKey, Route};
use punctual_core::time::Timestamp;

use crate::breakers::OpenBreakers;
use crate::fairness::Band;

mod backlog;
mod claims;
mod index;
mod limits;
mod ranks;
mod ready;
#[cfg(test)]
mod tests;
mod under_breaker;

pub(crate) use claims::{ClaimScope, LaneClaims};
use index::HomeIndex;
use limits::ChangedLimits;
pub(crate) use ranks::{Rank, Ranks, TenantRanks, by_priority};
pub(crate) use ready::{PollKey, ReadyLanes};

/// Where a lane is. The `head` is the instant at which its first waiting task is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// It waits for its time.
    Waiting {
        /// When its first task is due.
        head: Timestamp,
        /// When it becomes ready.
        ready_at: Timestamp,
    },
    /// Its head is due, or nearly due if it is pulled: tasks may be claimed.
    Ready {
        /// When its first task is due.
        head: Timestamp,
    },
    /// It has nothing but a backlog.
    Backlog,
    /// Its queue is paused or at a limit.
    Limited {
        /// When its first task is due.
        head: Timestamp,
        /// When it is tried again.
        until: Timestamp,
    },
    /// An open breaker is over it.
    UnderBreaker {
        /// When its first task is due.
        head: Timestamp,
    },
}

#[derive(Debug)]
struct LaneEntry {
    lane: Arc<Lane>,
    home: Home,
    /// When the first task of its backlog is due, if it has one.
    backlog: Option<Timestamp>,
}

/// All lanes that are due soon (see the module).
#[derive(Debug)]
pub(crate) struct Lanes {
    window_millis: i64,
    /// How long before they are due pulled lanes become ready.
    ahead_millis: i64,
    entries: BTreeMap<LaneId, LaneEntry>,
    index: HomeIndex,
    breakers: Arc<OpenBreakers>,
    claims: LaneClaims,
    /// Limits that changed while claims were under way: the answers may be older.
    changed_limits: ChangedLimits,
}

impl Lanes {
    /// No lanes yet. Keeps those that are due within `window_millis`. Pulled lanes become ready
    /// `ahead_millis` before they are due.
    pub fn new(window_millis: i64, ahead_millis: i64) -> Self {
        Self {
            window_millis,
            ahead_millis,
            entries: BTreeMap::new(),
            index: HomeIndex::default(),
            breakers: Arc::default(),
            claims: LaneClaims::default(),
            changed_limits: ChangedLimits::default(),
        }
    }

    /// Keeps lanes that are due within `window_millis` from now on.
    pub fn set_window(&mut self, window_millis: i64) {
        self.window_millis = window_millis;
    }

    /// Where a lane is, if it is kept.
    pub fn home(&self, id: LaneId) -> Option<Home> {
        self.entries.get(&id).map(|entry| entry.home)
    }

    /// Whether a lane is ready.
    pub fn is_ready(&self, id: LaneId) -> bool {
        matches!(self.home(id), Some(Home::Ready { .. }))
    }

    /// The lane with this id, if it is kept.
    pub fn lane(&self, id: LaneId) -> Option<&Arc<Lane>> {
        self.entries.get(&id).map(|entry| &entry.lane)
    }

    /// Whether a lane has a backlog.
    pub fn has_backlog(&self, id: LaneId) -> bool {
        self.entries.get(&id).is_some_and(|entry| entry.backlog.is_some())
    }

    /// The lanes that tasks may be claimed from.
    pub fn ready(&self) -> &ReadyLanes {
        &self.index.ready
    }

    /// The lanes with a backlog, in the order of their backlogs.
    pub fn backlog(&self) -> &TenantRanks {
        &self.index.backlog
    }

    /// The claims under way.
    pub fn claims(&self) -> &LaneClaims {
        &self.claims
    }

    /// The open breakers that the lanes are sorted by.
    pub fn breakers(&self) -> &Arc<OpenBreakers> {
        &self.breakers
    }

    /// The keys that got a ready lane since the last call.
    pub fn take_newly_ready(&mut self) -> Vec<PollKey> {
        self.index.ready.take_newly_ready()
    }

    /// When the oldest head of a band was due, of the ready lanes and the backlog.
    pub fn waits_since(&self, band: Band) -> Option<Timestamp> {
        let levels = self.index.backlog.tenants().values().flat_map(by_priority);
        let firsts = levels.filter_map(|mut level| level.next()).filter(|rank| Band::of(rank.priority()) == band);
        self.index.ready.waits_since(band).into_iter().chain(firsts.map(|rank| rank.due_at)).min()
    }

    /// When to call [`Lanes::make_due_ready`] and [`Lanes::release_limited`] next, at the latest.
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        self.index.next_wakeup()
    }

    /// Notes that a task of `lane` is due at `due_at`. Never makes a lane's head later.
    pub fn note(&mut self, lane: &Arc<Lane>, due_at: Timestamp, now: Timestamp) {
        match self.entries.get_mut(&lane.id).map(|entry| &mut entry.home) {
            Some(Home::Limited { head, .. } | Home::UnderBreaker { head }) => *head = due_at.min(*head),
            Some(Home::Waiting { head, .. } | Home::Ready { head }) if *head <= due_at => {}
            Some(_) => self.place(lane, due_at, now),
            None if !self.breakers.is_over(&lane.key) => self.place(lane, due_at, now),
            None if due_at <= now.plus_millis(self.window_millis) => {
                self.set_home(lane, Home::UnderBreaker { head: due_at });
            }
            None => {}
        }
    }

    /// Keeps a hint until the claim at its lane is answered; false if no claim is at the lane.
    pub fn defer(&mut self, lane: &Arc<Lane>, due_at: Timestamp) -> bool {
        self.claims.defer(lane, due_at)
    }

    /// The hints that were kept. The caller defers those again whose lanes still have a claim.
    pub fn take_deferred(&mut self) -> impl Iterator<Item = (Arc<Lane>, Timestamp)> + use<> {
        self.claims.take_deferred()
    }

    /// Notes a head that the sweep has read. Unlike a hint it may make the head of a ready lane
    /// later.
    pub fn note_swept(&mut self, lane: &Arc<Lane>, head: Timestamp, now: Timestamp) {
        match self.home(lane.id) {
            Some(Home::Ready { head: known }) if known < head => self.place(lane, head, now),
            _ => self.note(lane, head, now),
        }
    }

    /// Forgets the ready lanes that a page of the sweep has not `found`: they have no tasks. The
    /// page had all lanes after one and up to another; none means from the first or to the last.
    /// Lanes in a claim stay, since they may have changed meanwhile.
    pub fn forget_unswept(&mut self, after: Option<LaneId>, last: Option<LaneId>, found: &HashSet<LaneId>) {
        let is_gone = |entry: &LaneEntry| {
            matches!(entry.home, Home::Ready { .. })
                && !found.contains(&entry.lane.id)
                && !self.claims.is_at(&entry.lane.key)
        };
        let page = (after.map_or(Unbounded, Excluded), last.map_or(Unbounded, Included));
        let gone = self.entries.range(page).map(|(_, entry)| entry).filter(|entry| is_gone(entry));
        for id in gone.map(|entry| entry.lane.id).collect::<Vec<_>>() {
            self.leave(id);
        }
    }

    /// Corrects a lane by the head in a claim's answer. Changes only lanes that wait or are ready:
    /// the answer may cover only the tasks since some instant, and a lane in another home was moved
    /// there for a newer reason.
    pub fn correct(&mut self, id: LaneId, head: Option<Timestamp>, now: Timestamp) {
        let Some(entry) = self.entries.get(&id) else { return };
        if matches!(entry.home, Home::Waiting { .. } | Home::Ready { .. }) {
            let lane = Arc::clone(&entry.lane);
            match head {
                Some(head) => self.place(&lane, head, now),
                None => self.leave(id),
            }
        }
    }

    /// Corrects a lane by the head in a probe's answer. The breaker may have closed meanwhile.
    pub fn correct_probed(&mut self, id: LaneId, head: Option<Timestamp>, now: Timestamp) {
        match (self.entries.get_mut(&id).map(|entry| &mut entry.home), head) {
            (Some(Home::UnderBreaker { head: known }), Some(head)) => *known = head,
            (Some(Home::UnderBreaker { .. }), None) => drop(self.remove(id)),
            _ => self.correct(id, head, now),
        }
    }

    /// Makes every waiting lane ready whose time has come.
    pub fn make_due_ready(&mut self, now: Timestamp) {
        while let Some(id) = self.index.first_waiting(now) {
            let Some(entry) = self.entries.get(&id) else { break };
            let Home::Waiting { head, .. } = entry.home else { break };
            let lane = Arc::clone(&entry.lane);
            self.set_home(&lane, Home::Ready { head });
        }
    }

    /// Forgets the lanes that do not `concern` this node.
    pub fn retain(&mut self, concern: impl Fn(&LaneKey) -> bool) {
        for id in self.ids(|entry| !concern(&entry.lane.key)) {
            self.remove(id);
        }
    }

    /// Notes that a claim has begun.
    pub fn begin_claim(&mut self, scope: &ClaimScope) {
        self.claims.begin(scope);
    }

    /// Notes that a claim is answered, before its answer is handled.
    pub fn end_claim(&mut self, scope: &ClaimScope) {
        self.claims.end(scope);
    }

    /// Puts a lane where its head belongs: waiting, ready, or, beyond the window, nowhere.
    fn place(&mut self, lane: &Arc<Lane>, head: Timestamp, now: Timestamp) {
        if head > now.plus_millis(self.window_millis) {
            self.leave(lane.id);
            return;
        }
        let ready_at = match lane.key.route {
            Route::Pull => head.plus_millis(-self.ahead_millis),
            Route::Push(_) => head,
        };
        let home = if ready_at <= now { Home::Ready { head } } else { Home::Waiting { head, ready_at } };
        self.set_home(lane, home);
    }

    /// Takes a lane out of its home. A lane with a backlog keeps that.
    fn leave(&mut self, id: LaneId) {
        match self.entries.get(&id).map(|entry| (entry.backlog, Arc::clone(&entry.lane))) {
            Some((Some(_), lane)) => self.set_home(&lane, Home::Backlog),
            _ => drop(self.remove(id)),
        }
    }

    fn set_home(&mut self, lane: &Arc<Lane>, home: Home) {
        match self.entries.entry(lane.id) {
            btree_map::Entry::Occupied(mut occupied) => {
                let entry = occupied.get_mut();
                self.index.remove(&entry.lane, entry.home);
                entry.home = home;
                self.index.insert(&entry.lane, home);
            }
            btree_map::Entry::Vacant(vacant) => {
                self.index.insert(lane, home);
                vacant.insert(LaneEntry { lane: Arc::clone(lane), home, backlog: None });
            }
        }
        self.assert_one_home(lane.id);
    }

    fn remove(&mut self, id: LaneId) -> Option<LaneEntry> {
        let entry = self.entries.remove(&id)?;
        self.index.remove(&entry.lane, entry.home);
        if let Some(due_at) = entry.backlog {
            self.index.backlog.remove(&entry.lane, due_at);
        }
        self.assert_one_home(id);
        Some(entry)
    }

    fn ids(&self, wanted: impl Fn(&LaneEntry) -> bool) -> Vec<LaneId> {
        self.entries.values().filter(|entry| wanted(entry)).map(|entry| entry.lane.id).collect()
    }

    /// Every lane is in the index of its home and in no other.
    fn assert_one_home(&self, id: LaneId) {
        debug_assert_eq!(self.index.len(), self.entries.len(), "every lane has exactly one home");
        debug_assert!(
            self.entries.get(&id).is_none_or(|entry| self.index.contains(&entry.lane, entry.home)),
            "{id:?} is not where it should be"
        );
    }
}

impl Home {
    /// When the first waiting task is due, the backlog apart.
    pub fn head(self) -> Option<Timestamp> {
        match self {
            Home::Waiting { head, .. }
            | Home::Ready { head }
            | Home::Limited { head, .. }
            | Home::UnderBreaker { head } => Some(head),
            Home::Backlog => None,
        }
    }
}
