//! The found backlog: lanes with tasks that were due before this node owned their partition.
//!
//! Pure. The dispatcher is its only caller: it takes from these lanes last, and only as many
//! tasks as there are tokens, so that a node that starts or takes over does not flood the
//! targets with everything that has piled up. What such a lane has besides, due since the node
//! owns it, stands on the board like everything else.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use punctual_core::lane::{Lane, LaneId, LaneKey};
use punctual_core::time::Timestamp;
use tokio::time::Instant;

use crate::backlog_rate::BacklogRate;
use crate::board::{Rank, Ranks, by_priority};
use crate::fairness::Band;

/// See the module.
#[derive(Debug)]
pub(crate) struct Backlog {
    rate: BacklogRate,
    lanes: HashMap<LaneId, (Rank, Arc<Lane>)>,
    by_tenant: BTreeMap<String, Ranks>,
}

impl Backlog {
    /// Nothing found yet; so many tasks a second may be taken from what will be, zero means any number.
    pub fn new(per_second: u32, now: Instant) -> Self {
        Self { rate: BacklogRate::new(per_second, now), lanes: HashMap::new(), by_tenant: BTreeMap::new() }
    }

    /// Whether what is found may be taken like everything else.
    pub fn is_unlimited(&self) -> bool {
        self.rate.is_unlimited()
    }

    /// The first task that was found in this lane is due then.
    pub fn note(&mut self, lane: &Arc<Lane>, due_at: Timestamp) {
        self.forget(lane.id);
        let rank = Rank::of(lane, due_at);
        self.by_tenant.entry(lane.key.tenant.clone()).or_default().insert(rank);
        self.lanes.insert(lane.id, (rank, Arc::clone(lane)));
    }

    /// Nothing is left of what was found in this lane.
    pub fn forget(&mut self, lane: LaneId) {
        let Some((rank, lane)) = self.lanes.remove(&lane) else { return };
        if let Some(ranks) = self.by_tenant.get_mut(&lane.key.tenant) {
            ranks.remove(&rank);
            if ranks.is_empty() {
                self.by_tenant.remove(&lane.key.tenant);
            }
        }
    }

    /// Takes a lane out; tells when its first task that was found is due.
    pub fn take_away(&mut self, lane: LaneId) -> Option<(Arc<Lane>, Timestamp)> {
        let (rank, known) = self.lanes.get(&lane).map(|(rank, known)| (*rank, Arc::clone(known)))?;
        self.forget(lane);
        Some((known, rank.due_at))
    }

    /// Takes the lanes out that are `wanted`; tells when their first tasks that were found are due.
    pub fn take_if(&mut self, wanted: impl Fn(&LaneKey) -> bool) -> Vec<(Arc<Lane>, Timestamp)> {
        let some = self.lanes.values().filter(|(_, lane)| wanted(&lane.key)).map(|(_, lane)| lane.id);
        some.collect::<Vec<_>>().into_iter().filter_map(|lane| self.take_away(lane)).collect()
    }

    /// Keeps the lanes that `concern` this node, and forgets the others.
    pub fn retain(&mut self, concern: impl Fn(&LaneKey) -> bool) {
        let gone = self.lanes.values().filter(|(_, lane)| !concern(&lane.key)).map(|(_, lane)| lane.id);
        for lane in gone.collect::<Vec<_>>() {
            self.forget(lane);
        }
    }

    /// The lane, if something was found in it.
    pub fn lane(&self, lane: LaneId) -> Option<&Arc<Lane>> {
        self.lanes.get(&lane).map(|(_, lane)| lane)
    }

    /// The tenants of the lanes, and those.
    pub fn by_tenant(&self) -> &BTreeMap<String, Ranks> {
        &self.by_tenant
    }

    /// Since when the first task of a band waits, of all that were found.
    pub fn waits_since(&self, band: Band) -> Option<Timestamp> {
        let firsts = self.by_tenant.values().flat_map(by_priority).filter_map(|mut level| level.next());
        firsts.filter(|rank| Band::of(rank.priority()) == band).map(|rank| rank.due_at).min()
    }

    /// How many tasks may be taken now; none when nothing was found.
    pub fn allowance(&self, now: Instant) -> usize {
        if self.lanes.is_empty() { 0 } else { self.rate.allowance(now) }
    }

    /// So many tasks were taken.
    pub fn taken(&mut self, tasks: usize, now: Instant) {
        self.rate.take(tasks, now);
    }

    /// How long until tasks may be taken again; none when they may be now, or when nothing is left.
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        (!self.lanes.is_empty()).then(|| self.rate.wait(now)).filter(|wait| !wait.is_zero())
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
        backlog.by_tenant().values().flatten().map(|rank| rank.lane.number()).collect()
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
        assert_eq!(
            [Band::High, Band::Normal, Band::Low].map(|band| backlog.waits_since(band)),
            [Some(at(30)), Some(at(20)), None]
        );
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
