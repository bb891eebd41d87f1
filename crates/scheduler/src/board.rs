//! The board: which lanes have something due, and when the others will.
//!
//! Pure. The dispatcher is its only caller. A lane whose first task is due stands on
//! its shelves, most urgent first; a lane whose first task is due within the prefetch
//! window waits in order of its time; a lane due later is not kept at all, the sweep
//! brings it when its time comes near. So the board is bounded by the lanes that are
//! due soon, not by the tasks.
//!
//! Invariant: a head on the board is never later than the lane's true head, unless a
//! hint or the next sweep is on its way to say so.

use std::collections::btree_set::Range;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;

use punctual_core::lane::{Lane, LaneId, LaneKey, Route};
use punctual_core::time::Timestamp;

use crate::fairness::Band;

/// Where pull workers look for ready lanes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Shelf {
    /// Tasks of a tenant's queue.
    Queue(String, String),
    /// Tasks of a tenant's type.
    Kind(String, String),
}

impl Shelf {
    /// Whose it is.
    pub fn tenant(&self) -> &str {
        let (Shelf::Queue(tenant, _) | Shelf::Kind(tenant, _)) = self;
        tenant
    }

    /// The shelves a lane that is pulled stands on when it is ready.
    pub(crate) fn of(key: &LaneKey) -> [Shelf; 2] {
        [Shelf::Queue(key.tenant.clone(), key.queue.clone()), Shelf::Kind(key.tenant.clone(), key.kind.clone())]
    }
}

/// Lanes in their order.
pub type Ranks = BTreeSet<Rank>;

/// The order on a shelf: most urgent first, then the one that has waited longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    less_urgent: u8,
    /// When its first task is due.
    pub due_at: Timestamp,
    /// The lane.
    pub lane: LaneId,
}

impl Rank {
    /// The rank of a lane whose first task is due then.
    pub fn of(lane: &Lane, due_at: Timestamp) -> Self {
        Self { less_urgent: u8::MAX - lane.key.priority, due_at, lane: lane.id }
    }

    /// The priority of the lane.
    pub fn priority(self) -> u8 {
        u8::MAX - self.less_urgent
    }

    fn first_of(less_urgent: u8) -> Self {
        Self { less_urgent, due_at: Timestamp::from_millis(i64::MIN), lane: LaneId::new(i64::MIN) }
    }

    fn last_of(less_urgent: u8) -> Self {
        Self { less_urgent, due_at: Timestamp::from_millis(i64::MAX), lane: LaneId::new(i64::MAX) }
    }
}

/// Lanes by their priorities, the most urgent first; those of one priority in their order.
pub fn by_priority(ranks: &Ranks) -> impl Iterator<Item = Range<'_, Rank>> {
    let mut next = ranks.first().map(|rank| rank.less_urgent);
    std::iter::from_fn(move || {
        let level = next?;
        let (first, last) = (Rank::first_of(level), Rank::last_of(level));
        next = ranks.range((Excluded(last), Unbounded)).next().map(|rank| rank.less_urgent);
        Some(ranks.range((Included(first), Included(last))))
    })
}

#[derive(Debug)]
struct Known {
    lane: Arc<Lane>,
    head: Timestamp,
    ready: bool,
    /// When it becomes ready, if it waits for that.
    ready_at: Option<Timestamp>,
}

/// See the module.
#[derive(Debug)]
pub struct Board {
    window_millis: i64,
    /// Lanes that are pulled are ready so long before they are due.
    ahead_millis: i64,
    lanes: HashMap<LaneId, Known>,
    /// Lanes that are not ready, by the instants at which they become so: one entry for each.
    waiting_lanes: BTreeSet<(Timestamp, LaneId)>,
    shelves: HashMap<Shelf, Ranks>,
    /// Ready lanes that are pushed, by tenant.
    pushed: BTreeMap<String, Ranks>,
    /// Ready lanes of each band, the one that has waited longest first.
    waiting: [BTreeSet<(Timestamp, LaneId)>; 3],
    /// Shelves that got a ready lane since the dispatcher looked last.
    stirred: Vec<Shelf>,
}

impl Board {
    /// An empty board that keeps lanes due within `window_millis`.
    pub fn new(window_millis: i64) -> Self {
        Self {
            window_millis,
            ahead_millis: 0,
            lanes: HashMap::new(),
            waiting_lanes: BTreeSet::new(),
            shelves: HashMap::new(),
            pushed: BTreeMap::new(),
            waiting: Default::default(),
            stirred: Vec::new(),
        }
    }

    /// The same; lanes that are pulled are ready `ahead_millis` before they are due.
    #[must_use]
    pub fn ahead(self, ahead_millis: i64) -> Self {
        Self { ahead_millis, ..self }
    }

    /// A task of `lane` waits and is due then. Only ever makes a lane earlier.
    pub fn note(&mut self, lane: &Arc<Lane>, due_at: Timestamp, now: Timestamp) {
        match self.lanes.get(&lane.id) {
            Some(known) if known.head <= due_at => {}
            _ => self.place(lane, due_at, now),
        }
    }

    /// The store was asked: this is the lane's true head.
    pub fn correct(&mut self, lane: LaneId, head: Option<Timestamp>, now: Timestamp) {
        let Some(known) = self.lanes.get(&lane) else { return };
        let lane = Arc::clone(&known.lane);
        match head {
            Some(due_at) => self.place(&lane, due_at, now),
            None => self.forget(lane.id),
        }
    }

    /// The store was searched: this is the lane's head. Unlike a hint it may make a lane that is ready later.
    pub fn found(&mut self, lane: &Arc<Lane>, head: Timestamp, now: Timestamp) {
        match self.lanes.get(&lane.id) {
            Some(known) if known.ready && known.head < head => self.place(lane, head, now),
            _ => self.note(lane, head, now),
        }
    }

    /// All of the store was searched, and nothing waits in other lanes than these. Those that are `spared` may have
    /// changed since.
    pub fn found_no_others(&mut self, found: &HashSet<LaneId>, spared: impl Fn(&LaneKey) -> bool) {
        let gone = |known: &&Known| known.ready && !found.contains(&known.lane.id) && !spared(&known.lane.key);
        let gone: Vec<LaneId> = self.lanes.values().filter(gone).map(|known| known.lane.id).collect();
        for lane in gone {
            self.forget(lane);
        }
    }

    /// Keeps the lanes that `concern` this node, and forgets the others.
    pub fn retain(&mut self, concern: impl Fn(&LaneKey) -> bool) {
        let gone: Vec<LaneId> = self
            .lanes
            .values()
            .map(|known| &known.lane)
            .filter(|lane| !concern(&lane.key))
            .map(|lane| lane.id)
            .collect();
        for lane in gone {
            self.forget(lane);
        }
    }

    /// Puts every lane that is due by now on its shelves.
    pub fn advance(&mut self, now: Timestamp) {
        while let Some((_, lane)) = self.waiting_lanes.first().copied().filter(|(ready_at, _)| *ready_at <= now) {
            self.stop_waiting(lane);
            self.make_ready(lane);
        }
    }

    /// The ready lanes on a shelf; none when it is empty.
    pub fn ready(&self, shelf: &Shelf) -> Option<&Ranks> {
        self.shelves.get(shelf)
    }

    /// The tenants with ready lanes that are pushed, and those.
    pub fn pushed(&self) -> &BTreeMap<String, Ranks> {
        &self.pushed
    }

    /// Since when the first task of a band waits, of all lanes that are ready.
    pub fn waits_since(&self, band: Band) -> Option<Timestamp> {
        self.waiting[band as usize].first().map(|(due_at, _)| *due_at)
    }

    /// The lane with this number, if it is on the board.
    pub fn lane(&self, id: LaneId) -> Option<&Arc<Lane>> {
        self.lanes.get(&id).map(|known| &known.lane)
    }

    /// Whether a lane is on the board and ready.
    pub fn is_ready(&self, id: LaneId) -> bool {
        self.lanes.get(&id).is_some_and(|known| known.ready)
    }

    /// Shelves that got a ready lane since the last call.
    pub fn take_stirred(&mut self) -> Vec<Shelf> {
        std::mem::take(&mut self.stirred)
    }

    /// When to call [`Board::advance`] next, at the latest.
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        self.waiting_lanes.first().map(|(ready_at, _)| *ready_at)
    }

    /// How many lanes are kept.
    pub fn len(&self) -> usize {
        self.lanes.len()
    }

    /// Whether no lane is kept.
    pub fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Takes a lane off the board; tells when its first task is due.
    pub fn take_away(&mut self, id: LaneId) -> Option<(Arc<Lane>, Timestamp)> {
        let (lane, head) = self.lanes.get(&id).map(|known| (Arc::clone(&known.lane), known.head))?;
        self.forget(id);
        Some((lane, head))
    }

    /// Takes the lanes off the board that are `wanted`; tells when their first tasks are due.
    pub fn take_if(&mut self, wanted: impl Fn(&LaneKey) -> bool) -> Vec<(Arc<Lane>, Timestamp)> {
        let some = self.lanes.values().filter(|known| wanted(&known.lane.key)).map(|known| known.lane.id);
        let some: Vec<LaneId> = some.collect();
        some.into_iter().filter_map(|lane| self.take_away(lane)).collect()
    }

    fn place(&mut self, lane: &Arc<Lane>, head: Timestamp, now: Timestamp) {
        self.take_off_shelves(lane.id);
        if head > now.plus_millis(self.window_millis) {
            self.forget(lane.id);
            return;
        }
        self.stop_waiting(lane.id);
        let known = Known { lane: Arc::clone(lane), head, ready: false, ready_at: None };
        let known = self.lanes.entry(lane.id).insert_entry(known).into_mut();
        let ready_at = match lane.key.route {
            Route::Pull => head.plus_millis(-self.ahead_millis),
            Route::Push(_) => head,
        };
        if ready_at <= now {
            self.make_ready(lane.id);
        } else {
            known.ready_at = Some(ready_at);
            self.waiting_lanes.insert((ready_at, lane.id));
        }
    }

    fn make_ready(&mut self, id: LaneId) {
        let Some(known) = self.lanes.get_mut(&id) else { return };
        known.ready = true;
        let (rank, key) = (known.rank(), &known.lane.key);
        self.waiting[Band::of(key.priority) as usize].insert((rank.due_at, id));
        match key.route {
            Route::Pull => {
                for shelf in Shelf::of(key) {
                    self.shelves.entry(shelf.clone()).or_default().insert(rank);
                    self.stirred.push(shelf);
                }
            }
            Route::Push(_) => {
                self.pushed.entry(key.tenant.clone()).or_default().insert(rank);
            }
        }
    }

    fn forget(&mut self, id: LaneId) {
        self.take_off_shelves(id);
        self.stop_waiting(id);
        self.lanes.remove(&id);
    }

    fn stop_waiting(&mut self, id: LaneId) {
        if let Some(ready_at) = self.lanes.get_mut(&id).and_then(|known| known.ready_at.take()) {
            self.waiting_lanes.remove(&(ready_at, id));
        }
    }

    fn take_off_shelves(&mut self, id: LaneId) {
        let Some(known) = self.lanes.get_mut(&id).filter(|known| known.ready) else { return };
        known.ready = false;
        let (rank, key) = (known.rank(), &known.lane.key);
        self.waiting[Band::of(key.priority) as usize].remove(&(rank.due_at, id));
        match key.route {
            Route::Pull => {
                for shelf in Shelf::of(key) {
                    if let Some(ranks) = self.shelves.get_mut(&shelf) {
                        ranks.remove(&rank);
                        if ranks.is_empty() {
                            self.shelves.remove(&shelf);
                        }
                    }
                }
            }
            Route::Push(_) => {
                if let Some(ranks) = self.pushed.get_mut(&key.tenant) {
                    ranks.remove(&rank);
                    if ranks.is_empty() {
                        self.pushed.remove(&key.tenant);
                    }
                }
            }
        }
    }
}

impl Known {
    fn rank(&self) -> Rank {
        Rank::of(&self.lane, self.head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn lane(number: i64, priority: u8) -> Arc<Lane> {
        let key = LaneKey { tenant: "t".into(), queue: "q".into(), kind: "k".into(), priority, route: Route::Pull };
        Arc::new(Lane { id: LaneId::new(number), key })
    }

    fn queue() -> Shelf {
        Shelf::Queue("t".into(), "q".into())
    }

    fn ready(board: &Board) -> Vec<i64> {
        board.ready(&queue()).into_iter().flatten().map(|rank| rank.lane.number()).collect()
    }

    #[test]
    fn a_lane_is_ready_from_its_due_instant_on() {
        let mut board = Board::new(1_000);
        board.note(&lane(1, 5), at(500), at(0));
        board.advance(at(499));
        assert!(ready(&board).is_empty());
        board.advance(at(500));
        assert_eq!(ready(&board), [1]);
        assert_eq!(board.take_stirred().len(), 2);
    }

    #[test]
    fn a_lane_that_is_pulled_is_ready_ahead_and_one_that_is_pushed_is_not() {
        let mut board = Board::new(1_000).ahead(20);
        let mut pushed = Lane::clone(&lane(2, 5));
        pushed.key.route = Route::Push("http://a.example:80".into());
        board.note(&lane(1, 5), at(500), at(0));
        board.note(&Arc::new(pushed), at(500), at(0));
        assert_eq!(board.next_wakeup().map(|at| at.as_millis() <= 480), Some(true));
        board.advance(at(479));
        assert!(ready(&board).is_empty());
        board.advance(at(480));
        assert_eq!((ready(&board), board.pushed().len()), (vec![1], 0));
        board.advance(at(500));
        assert_eq!((ready(&board), board.pushed().len()), (vec![1], 1));
        board.correct(LaneId::new(1), Some(at(520)), at(500));
        assert_eq!(ready(&board), [1], "what is due next is nearly due as well");
    }

    #[test]
    fn the_more_urgent_and_then_the_older_comes_first() {
        let mut board = Board::new(1_000);
        for (number, priority, due) in [(1, 5, 10), (2, 9, 90), (3, 5, 5), (4, 0, 0)] {
            board.note(&lane(number, priority), at(due), at(100));
        }
        assert_eq!(ready(&board), [2, 3, 1, 4]);
    }

    #[test]
    fn a_hint_only_makes_a_lane_earlier_and_the_store_corrects_both_ways() {
        let mut board = Board::new(1_000);
        board.note(&lane(1, 5), at(100), at(0));
        board.note(&lane(1, 5), at(200), at(0));
        assert_eq!(board.next_wakeup(), Some(at(100)));
        board.note(&lane(1, 5), at(50), at(0));
        assert_eq!(board.next_wakeup(), Some(at(50)));
        board.advance(at(60));
        board.correct(LaneId::new(1), Some(at(300)), at(60));
        assert!(ready(&board).is_empty());
        board.advance(at(300));
        assert_eq!(ready(&board), [1]);
        board.correct(LaneId::new(1), None, at(300));
        assert!(board.is_empty());
        assert!(board.shelves.is_empty());
    }

    #[test]
    fn lanes_that_are_pushed_stand_with_their_tenant() {
        let mut board = Board::new(1_000);
        let pushed = |number, tenant: &str, priority| {
            let mut lane = Lane::clone(&lane(number, priority));
            lane.key.tenant = tenant.to_owned();
            lane.key.route = Route::Push("http://a.example:80".into());
            Arc::new(lane)
        };
        for lane in [pushed(1, "a", 5), pushed(2, "b", 5), pushed(3, "a", 9), pushed(4, "a", 5)] {
            board.note(&lane, at(0), at(0));
        }
        let levels: Vec<Vec<i64>> =
            by_priority(&board.pushed()["a"]).map(|level| level.map(|rank| rank.lane.number()).collect()).collect();
        assert_eq!(levels, [vec![3], vec![1, 4]]);
        board.correct(LaneId::new(2), None, at(0));
        assert_eq!(board.pushed().keys().collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn it_knows_since_when_each_band_waits() {
        let mut board = Board::new(1_000);
        board.note(&lane(1, 5), at(100), at(0));
        assert_eq!(board.waits_since(Band::Normal), None, "not due yet");
        board.advance(at(200));
        board.note(&lane(2, 6), at(50), at(200));
        board.note(&lane(3, 0), at(150), at(200));
        let since = |board: &Board| Band::ALL.map(|band| board.waits_since(band).map(Timestamp::as_millis));
        assert_eq!(since(&board), [None, Some(50), Some(150)]);
        board.correct(LaneId::new(2), Some(at(300)), at(200));
        board.correct(LaneId::new(3), None, at(200));
        assert_eq!(since(&board), [None, Some(100), None]);
    }

    #[test]
    fn a_search_of_the_store_makes_ready_lanes_later_and_forgets_those_without_tasks() {
        let mut board = Board::new(1_000);
        for number in 1..=4 {
            board.note(&lane(number, 5), at(0), at(0));
        }
        board.found(&lane(1, 5), at(500), at(0));
        board.found(&lane(2, 5), at(0), at(0));
        assert_eq!(ready(&board), [2, 3, 4]);
        board.found_no_others(&HashSet::from([LaneId::new(1), LaneId::new(2)]), |_| true);
        assert_eq!(ready(&board), [2, 3, 4], "they are spared");
        board.found_no_others(&HashSet::from([LaneId::new(1), LaneId::new(2)]), |_| false);
        assert_eq!(ready(&board), [2]);
        board.advance(at(500));
        assert_eq!(ready(&board), [2, 1]);
    }

    #[test]
    fn lanes_that_concern_it_no_more_are_forgotten() {
        let mut board = Board::new(1_000);
        board.note(&lane(1, 5), at(0), at(0));
        board.note(&lane(2, 6), at(0), at(0));
        board.note(&lane(3, 5), at(500), at(0));
        board.retain(|lane| lane.priority == 6);
        board.advance(at(500));
        assert_eq!((ready(&board), board.len()), (vec![2], 1));
    }

    #[test]
    fn what_is_due_beyond_the_window_is_left_to_the_sweep() {
        let mut board = Board::new(1_000);
        board.note(&lane(1, 5), at(1_001), at(0));
        assert!(board.is_empty());
        board.note(&lane(1, 5), at(1_000), at(0));
        assert_eq!(board.len(), 1);
    }
}
