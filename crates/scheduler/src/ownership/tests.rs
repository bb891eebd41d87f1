use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use punctual_core::clock::{Clock, ManualClock};
use punctual_core::coordinator::{Coordinator, CurrentLease, LeaderLease};
use punctual_core::ids::NodeId;
use punctual_core::partitions::{PartitionShare, rebalance};
use punctual_core::store::StoreError;
use tokio_util::sync::CancellationToken;

use super::ownership_loop::{another_count, beyond};
use super::*;

const START: Timestamp = Timestamp::from_millis(1_779_472_800_000);
const CONFIG: Config = Config { count: 64, lease: Duration::from_secs(3), renewal: Duration::from_secs(1) };

/// Partitions in memory.
struct Table {
    clock: Arc<ManualClock>,
    rows: Mutex<Vec<Ownership>>,
    /// With the ends of their memberships.
    members: Mutex<HashMap<NodeId, Timestamp>>,
    broken: Mutex<bool>,
    turns: Mutex<usize>,
}

impl Table {
    fn new() -> Arc<Self> {
        let clock = Arc::new(ManualClock::new(START));
        let (rows, members) = (Mutex::default(), Mutex::default());
        Arc::new(Self { clock, rows, members, broken: Mutex::default(), turns: Mutex::default() })
    }
}

impl Table {
    /// Lets time pass for the store and for the loops, in small steps.
    async fn let_pass(&self, time: Duration) {
        let millis = Duration::from_millis(1);
        for _ in 0..time.as_millis() {
            self.clock.advance_millis(1);
            tokio::time::advance(millis).await;
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
        }
    }
}

#[async_trait]
impl Coordinator for Table {
    async fn take_share(&self, node: NodeId, count: u16, ttl_millis: u64) -> Result<PartitionShare, StoreError> {
        *self.turns.lock() += 1;
        if *self.broken.lock() {
            return Err(StoreError::Unavailable("broken".into()));
        }
        let (mut rows, mut members) = (self.rows.lock(), self.members.lock());
        let now = self.clock.now();
        for number in u16::try_from(rows.len()).unwrap()..count {
            rows.push(Ownership { partition: Partition::new(number), owner: None, term: 0, expires_at: now });
        }
        let until = now.plus_millis(i64::try_from(ttl_millis).unwrap());
        members.insert(node, until);
        members.retain(|_, until| *until > now);
        let present: Vec<NodeId> = members.keys().copied().collect();
        for change in rebalance(node, &rows, &present, now, until) {
            rows[usize::from(change.partition.number())] = change;
        }
        let owned = rows.iter().filter(|row| row.owner == Some(node)).copied().collect();
        let others = members.iter().filter(|(member, _)| **member != node);
        Ok(PartitionShare { owned, look_again_at: others.map(|(_, until)| *until).min() })
    }

    async fn leave(&self, node: NodeId) -> Result<(), StoreError> {
        self.members.lock().remove(&node);
        for row in self.rows.lock().iter_mut().filter(|row| row.owner == Some(node)) {
            row.owner = None;
        }
        Ok(())
    }

    async fn declare_gone(&self, _: NodeId) -> Result<bool, StoreError> {
        unreachable!("the owner of partitions declares no node gone")
    }

    async fn ownership(&self) -> Result<Vec<Ownership>, StoreError> {
        Ok(self.rows.lock().clone())
    }

    async fn acquire(&self, _: &str, _: NodeId, _: u64) -> Result<Option<LeaderLease>, StoreError> {
        unreachable!("the owner of partitions needs no lease")
    }

    async fn renew(&self, _: &LeaderLease, _: u64) -> Result<bool, StoreError> {
        unreachable!("the owner of partitions needs no lease")
    }

    async fn holder(&self, _: &str) -> Result<Option<CurrentLease>, StoreError> {
        unreachable!("the owner of partitions needs no lease")
    }

    async fn release(&self, _: &LeaderLease) -> Result<(), StoreError> {
        unreachable!("the owner of partitions needs no lease")
    }
}

fn owner(table: &Arc<Table>, number: u64) -> (OwnershipLoop, Arc<OwnedPartitions>) {
    let owned = Arc::new(OwnedPartitions::nothing(CONFIG.count));
    let clock = Arc::clone(&table.clock) as _;
    (OwnershipLoop::new(Arc::clone(table) as _, Arc::clone(&owned), clock, NodeId::new(number), CONFIG), owned)
}

fn lane(queue: usize, route: Route) -> LaneKey {
    LaneKey { tenant: "t".into(), queue: format!("q{queue}"), kind: "k".into(), priority: 5, route }
}

fn pushed(queue: usize) -> LaneKey {
    lane(queue, Route::Push("http://127.0.0.1:1".into()))
}

#[tokio::test(start_paused = true)]
async fn a_pushed_lane_concerns_one_node_and_a_pulled_one_all() {
    let table = Table::new();
    let ((first, a), (second, b)) = (owner(&table, 1), owner(&table, 2));
    first.run_once().await.unwrap();
    assert!((0..100).all(|queue| a.concerns(&pushed(queue)) && !b.concerns(&pushed(queue))));
    for _ in 0..2 {
        first.run_once().await.unwrap();
        second.run_once().await.unwrap();
    }
    assert!((0..100).all(|queue| a.concerns(&pushed(queue)) != b.concerns(&pushed(queue))));
    assert!((0..100).all(|queue| [&a, &b].iter().all(|owned| owned.concerns(&lane(queue, Route::Pull)))));
    assert_eq!((a.partitions(), b.partitions()), (32, 32));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_renew_stops_before_its_lease_ends() {
    let table = Table::new();
    let (owner, owned) = owner(&table, 1);
    owner.run_once().await.unwrap();
    let before = owned.generation();
    *table.broken.lock() = true;
    tokio::time::advance(CONFIG.lease.mul_f64(0.6)).await;
    assert!(owner.run_once().await.is_err());
    assert!(owned.concerns(&pushed(1)));
    tokio::time::advance(CONFIG.lease.mul_f64(0.1)).await;
    assert!(!owned.concerns(&pushed(1)));
    assert_eq!(owned.partitions(), 0);
    let over = owned.generation();
    assert!(over > before, "the dispatcher must notice");
    assert_eq!(owned.generation(), over, "once");
    *table.broken.lock() = false;
    owner.run_once().await.unwrap();
    assert!(owned.concerns(&pushed(1)) && owned.generation() > over);
}

#[tokio::test(start_paused = true)]
async fn a_term_begins_when_the_partition_is_taken() {
    let table = Table::new();
    let (owner, owned) = owner(&table, 1);
    owner.run_once().await.unwrap();
    let first = owned.term_of(&pushed(1)).unwrap();
    assert_eq!((first.fence.map(|(_, term)| term), first.since), (Some(1), START));
    table.clock.advance_millis(1_000);
    owner.run_once().await.unwrap();
    assert_eq!(owned.term_of(&pushed(1)), Some(first));
    // It was not renewed for a while, but no other node had it.
    tokio::time::advance(CONFIG.lease).await;
    assert_eq!(owned.term_of(&pushed(1)), None);
    table.clock.advance_millis(1_000);
    owner.run_once().await.unwrap();
    assert_eq!(owned.term_of(&pushed(1)), Some(first));
    // It ran out in the store as well: another term.
    table.clock.advance_millis(3_000);
    owner.run_once().await.unwrap();
    let second = owned.term_of(&pushed(1)).unwrap();
    assert_eq!((second.fence.map(|(_, term)| term), second.since), (Some(2), START.plus_millis(5_000)));
}

#[tokio::test(start_paused = true)]
async fn no_term_begins_in_the_future() {
    let table = Table::new();
    let (owner, owned) = owner(&table, 1);
    owner.run_once().await.unwrap();
    table.clock.advance_millis(-60_000);
    owner.run_once().await.unwrap();
    let held = owned.term_of(&pushed(1)).unwrap();
    assert_eq!((held.fence.map(|(_, term)| term), held.since), (Some(1), START.plus_millis(-60_000)));
}

#[tokio::test(start_paused = true)]
async fn a_lost_partition_is_forgotten_and_asked_for_at_once() {
    let table = Table::new();
    let (owner, owned) = owner(&table, 1);
    let stop = CancellationToken::new();
    let running = tokio::spawn(owner.run(stop.clone()));
    owned.wait().await;
    let (generation, asked) = (owned.generation(), *table.turns.lock());
    let (partition, _) = owned.term_of(&pushed(1)).unwrap().fence.unwrap();
    owned.forget(&[partition]);
    assert!(!owned.concerns(&pushed(1)) && owned.generation() > generation);
    assert_eq!(owned.partitions(), 63);
    let before = Instant::now();
    owned.wait().await;
    assert!(owned.concerns(&pushed(1)) && *table.turns.lock() == asked + 1);
    assert!(before.elapsed() < Duration::from_millis(100), "not a renewal later");
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_requested_pass_takes_the_partitions_of_a_leaving_node() {
    let table = Table::new();
    let ((first, a), (second, b)) = (owner(&table, 1), owner(&table, 2));
    first.run_once().await.unwrap();
    second.run_once().await.unwrap();
    let (stop_first, stop) = (CancellationToken::new(), CancellationToken::new());
    let leaving = tokio::spawn(first.run(stop_first.clone()));
    let staying = tokio::spawn(second.run(stop.clone()));
    while b.partitions() < 32 {
        b.wait().await;
    }
    stop_first.cancel();
    leaving.await.unwrap();
    assert_eq!(a.partitions(), 0);
    let before = Instant::now();
    b.request_pass();
    b.wait().await;
    assert_eq!(b.partitions(), 64);
    assert!(before.elapsed() < Duration::from_millis(100), "not a renewal later");
    stop.cancel();
    staying.await.unwrap();
}

/// Whether the node died just before its renewal or just after it, and whenever the survivor
/// renews.
#[tokio::test(start_paused = true)]
async fn partitions_of_a_silent_node_are_taken_when_they_end() {
    for phase in 0..10 {
        let table = Table::new();
        let ((dead, _), (survivor, owned)) = (owner(&table, 1), owner(&table, 2));
        dead.run_once().await.unwrap();
        let stop = CancellationToken::new();
        let running = tokio::spawn(survivor.run(stop.clone()));
        table.let_pass(Duration::from_millis(phase * 100)).await;
        dead.run_once().await.unwrap();
        assert!(owned.partitions() < 64);
        table.let_pass(CONFIG.lease.saturating_sub(Duration::from_millis(1))).await;
        assert!(owned.partitions() < 64, "before the lease has ended");
        table.let_pass(Duration::from_millis(110)).await;
        assert_eq!(owned.partitions(), 64, "in phase {phase}");
        let passes = *table.turns.lock();
        assert!(passes < 12, "{passes} passes in little more than a lease");
        stop.cancel();
        running.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopped_node_leaves() {
    let table = Table::new();
    let (owner, owned) = owner(&table, 1);
    let stop = CancellationToken::new();
    let running = tokio::spawn(owner.run(stop.clone()));
    owned.wait().await;
    stop.cancel();
    running.await.unwrap();
    assert!(!owned.concerns(&pushed(1)));
    assert!(table.ownership().await.unwrap().iter().all(|row| row.owner.is_none()));
}

#[test]
fn a_node_that_counts_fewer_partitions_notices() {
    let row = |number, owner, seconds: i64| Ownership {
        partition: Partition::new(number),
        owner,
        term: 1,
        expires_at: START.plus_millis(seconds * 1_000),
    };
    let other = Some(NodeId::new(2));
    let rows = [row(0, other, 3), row(1, None, 3), row(2, other, 0), row(3, None, 3), row(4, other, 1)];
    assert_eq!(beyond(&rows, 2, START).map(|row| row.partition.number()), Some(4), "not those of the past");
    assert_eq!(beyond(&rows, 5, START), None);
    assert_eq!(beyond(&rows[..4], 2, START), None);
}

#[test]
fn a_newcomer_notices_that_the_others_count_differently() {
    let row = |number, seconds: i64| Ownership {
        partition: Partition::new(number),
        owner: Some(NodeId::new(2)),
        term: 1,
        expires_at: START.plus_millis(seconds * 1_000),
    };
    let rows: Vec<Ownership> = (0..8).map(|number| row(number, 3)).collect();
    let noticed: Vec<_> = [4, 8, 16].map(|count| another_count(&rows, count, START)).into();
    assert_eq!(noticed, [Some(8), None, Some(8)]);
    // Of a time when there were more, or fewer.
    let past: Vec<Ownership> = (0..8).map(|number| row(number, if number < 4 { 3 } else { 0 })).collect();
    assert_eq!([4, 8].map(|count| another_count(&past, count, START)), [None, None]);
    let silent: Vec<Ownership> = (0..8).map(|number| row(number, 0)).collect();
    assert_eq!([4, 16].map(|count| another_count(&silent, count, START)), [None, None]);
    assert_eq!(another_count(&[], 4, START), None);
}

#[test]
fn a_node_alone_owns_everything_without_a_term() {
    let owned = OwnedPartitions::everything();
    let fences: HashSet<_> = (0..100).map(|queue| owned.term_of(&pushed(queue)).unwrap().fence).collect();
    assert_eq!(fences, HashSet::from([None]));
}
