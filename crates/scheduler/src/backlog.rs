//! The found backlog: lanes with tasks that were due before this node owned their partition.
//!
//! Pure. The dispatcher is its only caller: it takes from these lanes last, and only as many
//! tasks as there are tokens, so that a node that starts or takes over does not flood the
//! targets with everything that has piled up. What such a lane has besides, due since the node
//! owns it, stands on the board like everything else.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use punctual_core::lane::{Lane, LaneId, LaneKey};
use punctual_core::time::Timestamp;
use tokio::time::Instant;

use crate::board::Rank;
use crate::bucket::Bucket;

/// See the module.
#[derive(Debug)]
pub(crate) struct Backlog {
    bucket: Bucket,
    lanes: HashMap<LaneId, (Rank, Arc<Lane>)>,
    order: BTreeSet<Rank>,
}

impl Backlog {
    /// Nothing found yet; so many tasks a second may be taken from what will be, zero means any number.
    pub fn new(per_second: u32, now: Instant) -> Self {
        Self { bucket: Bucket::new(per_second, now), lanes: HashMap::new(), order: BTreeSet::new() }
    }

    /// Whether what is found may be taken like everything else.
    pub fn is_unlimited(&self) -> bool {
        self.bucket.is_endless()
    }

    /// The first task that was found in this lane is due then.
    pub fn note(&mut self, lane: &Arc<Lane>, due_at: Timestamp) {
        self.forget(lane.id);
        let rank = Rank::of(lane, due_at);
        self.order.insert(rank);
        self.lanes.insert(lane.id, (rank, Arc::clone(lane)));
    }

    /// Nothing is left of what was found in this lane.
    pub fn forget(&mut self, lane: LaneId) {
        if let Some((rank, _)) = self.lanes.remove(&lane) {
            self.order.remove(&rank);
        }
    }

    /// Keeps the lanes that `concern` this node, and forgets the others.
    pub fn retain(&mut self, concern: impl Fn(&LaneKey) -> bool) {
        self.lanes.retain(|_, (_, lane)| concern(&lane.key));
        self.order.retain(|rank| self.lanes.contains_key(&rank.lane));
    }

    /// The lane, if something was found in it.
    pub fn lane(&self, lane: LaneId) -> Option<&Arc<Lane>> {
        self.lanes.get(&lane).map(|(_, lane)| lane)
    }

    /// The lanes: most urgent first, then the one that has waited longest.
    pub fn lanes(&self) -> impl Iterator<Item = &Arc<Lane>> {
        self.order.iter().filter_map(|rank| self.lane(rank.lane))
    }

    /// How many tasks may be taken now; none when nothing was found.
    pub fn allowance(&self, now: Instant) -> usize {
        if self.lanes.is_empty() { 0 } else { self.bucket.tokens(now) }
    }

    /// So many tasks were taken.
    pub fn taken(&mut self, tasks: usize, now: Instant) {
        self.bucket.take(tasks, now);
    }

    /// How long until tasks may be taken again; none when they may be now, or when nothing is left.
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        (!self.lanes.is_empty()).then(|| self.bucket.wait(now)).filter(|wait| !wait.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use punctual_core::lane::Route;

    use super::*;

    fn lane(number: i64, priority: u8) -> Arc<Lane> {
        let route = Route::Push("http://127.0.0.1:1".into());
        let key = LaneKey { tenant: "t".into(), queue: "q".into(), kind: "k".into(), priority, route };
        Arc::new(Lane { id: LaneId::new(number), key })
    }

    fn order(backlog: &Backlog) -> Vec<i64> {
        backlog.lanes().map(|lane| lane.id.number()).collect()
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[tokio::test(start_paused = true)]
    async fn the_most_urgent_and_then_the_oldest_comes_first() {
        let mut backlog = Backlog::new(100, Instant::now());
        backlog.note(&lane(1, 5), at(10));
        backlog.note(&lane(2, 5), at(20));
        backlog.note(&lane(3, 9), at(30));
        assert_eq!(order(&backlog), [3, 1, 2]);
        backlog.note(&lane(1, 5), at(25));
        assert_eq!(order(&backlog), [3, 2, 1], "the others of its rank have their turn");
        backlog.forget(LaneId::new(2));
        backlog.retain(|lane| lane.priority == 5);
        assert_eq!(order(&backlog), [1]);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_tokens_while_nothing_is_left() {
        let mut backlog = Backlog::new(100, Instant::now());
        assert_eq!((backlog.allowance(Instant::now()), backlog.wait(Instant::now())), (0, None));
        backlog.note(&lane(1, 5), at(10));
        assert_eq!((backlog.allowance(Instant::now()), backlog.wait(Instant::now())), (100, None));
        backlog.taken(100, Instant::now());
        let wait = backlog.wait(Instant::now()).unwrap();
        assert_eq!((backlog.allowance(Instant::now()), wait), (0, Duration::from_millis(50)));
        tokio::time::advance(wait).await;
        assert_eq!((backlog.allowance(Instant::now()), backlog.wait(Instant::now())), (5, None));
        backlog.forget(LaneId::new(1));
        assert_eq!((backlog.allowance(Instant::now()), backlog.wait(Instant::now())), (0, None));
    }
}
