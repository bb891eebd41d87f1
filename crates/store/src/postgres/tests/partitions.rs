//! The partitions of several nodes on one database: concurrent rounds, claims during a round, and
//! notifications.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use punctual_core::clock::ManualClock;
use punctual_core::coordinator::Coordinator;
use punctual_core::ids::NodeId;
use punctual_core::lane::LaneId;
use punctual_core::partitions::Partition;
use punctual_core::state::State;
use punctual_core::store::{Claim, Claimant, Claimed, DispatchTo, Store};
use punctual_testkit::eventually::eventually;
use punctual_testkit::fixtures::{START, task};
use tokio::sync::{Barrier, watch};
use tokio::task::JoinSet;

use super::super::statements::Sql;
use super::super::{PostgresStore, Wake, Wakes};
use super::{Fixture, insert, open, open_at};

const TTL: u64 = 10_000;
const TTL_MILLIS: i64 = 10_000;

/// Longer than the interval at which a busy lane is audited.
const SOON: Duration = Duration::from_secs(20);

/// Makes a round for the store's own node. Returns its partitions and terms.
async fn take_round(store: &PostgresStore, count: u16) -> Vec<(Partition, u64)> {
    let owned = store.take_share(store.node(), count, TTL).await.unwrap().owned;
    owned.iter().map(|row| (row.partition, row.term)).collect()
}

async fn dispatch(store: &PostgresStore, lane: LaneId, limit: usize, terms: Vec<(Partition, u64)>) -> Claimed {
    let claimant = Claimant::Dispatch { to: DispatchTo::Broker { visibility_millis: 60_000 }, terms, from: None };
    let claim = Claim { lanes: vec![(lane, limit)], limit, claimant };
    store.claim(vec![claim]).await.unwrap().pop().unwrap()
}

async fn waiting(store: &PostgresStore) -> u64 {
    let counts = store.counts().await.unwrap();
    counts.iter().filter(|count| count.state == State::Pending).map(|count| count.tasks).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_rounds_never_share_a_partition() {
    let fixture = Fixture::open().await;
    let clock = Arc::new(ManualClock::new(START));
    let (together, mut nodes) = (Arc::new(Barrier::new(3)), JoinSet::new());
    for number in 0..3_u64 {
        let store = open_at(&fixture.url, NodeId::new(100 + number), &clock).await;
        let (together, clock) = (Arc::clone(&together), Arc::clone(&clock));
        nodes.spawn(async move {
            let mut owned = Vec::new();
            for round in 0..150_u64 {
                together.wait().await;
                match (round + 5 * number) % 16 {
                    7 => store.leave(store.node()).await.unwrap(),
                    9 => clock.advance_millis(TTL_MILLIS),
                    _ => owned.push(take_round(&store, 16).await),
                }
            }
            (store.node(), owned)
        });
    }
    let (mut owner, mut longest): (BTreeMap<(Partition, u64), NodeId>, usize) = (BTreeMap::new(), 0);
    for (node, owned) in nodes.join_all().await {
        longest = longest.max(owned.iter().map(Vec::len).max().unwrap());
        for of in owned.concat() {
            let other = owner.insert(of, node).filter(|other| *other != node);
            assert_eq!(other, None, "{of:?} belongs to {node:?} too");
        }
    }
    assert_eq!(longest, 16, "no node was ever alone");
    assert!(owner.len() > 100, "hardly any partition changed hands: {}", owner.len());
}

/// One node keeps claiming while another takes over its partitions. Once the other is the owner,
/// the first one claims nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_claim_in_an_old_term_takes_nothing() {
    const ROUNDS_MAX: usize = 200;
    let (fixture, clock) = (Fixture::open().await, Arc::new(ManualClock::new(START)));
    let mut stores = Vec::new();
    for number in [101, 102] {
        stores.push(Arc::new(open_at(&fixture.url, NodeId::new(number), &clock).await));
    }
    let first = insert(&stores[0], task().push("http://a.test:80")).await;
    let lane = first.lane.id;
    assert_eq!(dispatch(&stores[0], lane, 1, vec![]).await.tasks.len(), 1);
    let mut terms = take_round(&stores[0], 2).await;
    let (began, mut rounds, mut taken_before) = (Instant::now(), 0, 0);
    while rounds < ROUNDS_MAX && began.elapsed() < Duration::from_secs(6) {
        let (old, new) = (Arc::clone(&stores[rounds % 2]), Arc::clone(&stores[(rounds + 1) % 2]));
        new.insert(task().push("http://a.test:80").times(60)).await.unwrap();
        let (report, mut reported) = watch::channel(0);
        let named = terms.clone();
        let claimer = tokio::spawn(async move {
            let mut taken = 0;
            for calls in 1.. {
                report.send_replace(calls);
                let claimed = dispatch(&old, lane, 1, named.clone()).await;
                if !claimed.not_owned.is_empty() {
                    assert!(claimed.tasks.is_empty() && claimed.next_due.is_empty());
                    break;
                }
                taken += claimed.tasks.len() as u64;
                tokio::task::yield_now().await;
            }
            (old, taken)
        });
        reported.wait_for(|calls| *calls > rounds % 4).await.unwrap();
        clock.advance_millis(TTL_MILLIS);
        let mut theirs = Vec::new();
        while theirs.len() < 2 {
            theirs = take_round(&new, 2).await;
        }
        let left = waiting(&new).await;
        let (old, taken) = claimer.await.unwrap();
        assert_eq!(waiting(&new).await, left, "a claim in an old term took something in round {rounds}");
        assert_eq!(left + taken, 60);
        assert_eq!(dispatch(&old, lane, 60, terms).await.not_owned.len(), 2);
        let rest = dispatch(&new, lane, 60, theirs.clone()).await;
        assert_eq!(rest.tasks.len() as u64, left, "the new owner takes the rest");
        taken_before += taken;
        terms = theirs;
        rounds += 1;
    }
    assert!(rounds >= 20 && taken_before > 0, "{rounds} rounds, {taken_before} tasks");
    fixture.assert_counts().await;
}

/// A round skips a partition with a claim under way and takes the others without waiting.
#[tokio::test]
async fn a_claim_under_way_keeps_its_partition() {
    let (fixture, clock) = (Fixture::open().await, Arc::new(ManualClock::new(START)));
    let old = open_at(&fixture.url, NodeId::new(101), &clock).await;
    let new = open_at(&fixture.url, NodeId::new(102), &clock).await;
    let terms = take_round(&old, 4).await;
    let frozen = punctual_testkit::postgres::connect(&fixture.url).await;
    frozen.batch_execute("SET search_path = punctual; BEGIN").await.unwrap();
    let held = frozen.query(Sql::PartitionHold.text(), &[&vec![2_i32], &vec![1_i64], &101_i64]).await.unwrap();
    assert_eq!(held.len(), 1);

    assert_eq!(take_round(&old, 4).await, terms, "its owner keeps renewing");
    clock.advance_millis(TTL_MILLIS);
    let numbers = |terms: Vec<(Partition, u64)>| terms.iter().map(|(at, _)| at.number()).collect::<Vec<_>>();
    let begun = Instant::now();
    assert_eq!(numbers(take_round(&new, 4).await), [0, 1, 3]);
    assert_eq!(numbers(take_round(&new, 4).await), [0, 1, 3]);
    assert!(begun.elapsed() < Duration::from_secs(3), "it waited for {:?}", begun.elapsed());
    frozen.batch_execute("COMMIT").await.unwrap();
    assert_eq!(numbers(take_round(&new, 4).await), [0, 1, 2, 3]);
}

/// A claim waits while another node takes its partition, and then sees the new owner.
#[tokio::test]
async fn a_claim_sees_an_owner_that_is_being_written() {
    let fixture = Fixture::open().await;
    let stored = fixture.insert(task().push("http://a.test:80")).await;
    let terms = take_round(&fixture.store, 2).await;
    let other = punctual_testkit::postgres::connect(&fixture.url).await;
    other.batch_execute("SET search_path = punctual; BEGIN").await.unwrap();
    other.query(Sql::PartitionTake.text(), &[&vec![1_i32]]).await.unwrap();
    let sql = "UPDATE partitions SET owner = 8, term = term + 1 WHERE number = 1";
    other.batch_execute(sql).await.unwrap();
    let claim = dispatch(&fixture.store, stored.lane.id, 1, terms.clone());
    let commit = async {
        eventually("the claim waits for the lock", SOON, async || {
            let waits =
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%KEY SHARE%'";
            if fixture.number(waits).await == 1 { Ok(()) } else { Err("it does not wait".to_owned()) }
        })
        .await;
        other.batch_execute("COMMIT").await.unwrap();
    };
    let (claimed, ()) = tokio::join!(claim, commit);
    assert_eq!((claimed.not_owned, claimed.tasks.len()), (vec![terms[1].0], 0));
    assert_eq!(waiting(&fixture.store).await, 1);
}

/// All other nodes would wait for a node that froze in its round, so the server ends its session.
#[tokio::test]
async fn the_server_ends_a_frozen_round() {
    let fixture = Fixture::open().await;
    let other = open(&fixture.url, NodeId::new(8)).await;
    take_round(&fixture.store, 4).await;
    let (locked, is_locked) = tokio::sync::oneshot::channel();
    let frozen = fixture.store.rounds().transact(async |session| {
        session.run(super::super::partitions::BEGIN).await?;
        session.query(Sql::PartitionLock, &[]).await?;
        locked.send(()).unwrap();
        // Until the server ends the idle transaction.
        eventually("the session is ended", SOON, async || {
            if session.is_closed() { Ok(()) } else { Err("it is open".to_owned()) }
        })
        .await;
        session.run("COMMIT").await
    });
    let round_of_other = async {
        is_locked.await.unwrap();
        let begun = Instant::now();
        let taken = other.take_share(NodeId::new(8), 4, TTL).await;
        (taken, begun.elapsed())
    };
    let (frozen, (taken, took)) = tokio::join!(frozen, round_of_other);
    assert!(frozen.is_err(), "its round was not ended");
    assert_eq!(taken.unwrap().owned, []);
    assert!(took < Duration::from_secs(2), "the other waited for {took:?}");
    assert_eq!(take_round(&fixture.store, 4).await.len(), 2, "the node recovers");
}

#[tokio::test]
async fn a_dropped_round_leaves_nothing_behind() {
    let fixture = Fixture::open().await;
    let other = open(&fixture.url, NodeId::new(8)).await;
    for patience in 0..40 {
        let dropped = tokio::time::timeout(Duration::from_micros(patience * 100), take_round(&fixture.store, 8)).await;
        drop(dropped);
        let owned = take_round(&other, 8).await;
        assert!(owned.len() <= 8);
    }
    for _ in 0..2 {
        take_round(&other, 8).await;
        take_round(&fixture.store, 8).await;
    }
    assert_eq!((take_round(&other, 8).await.len(), take_round(&fixture.store, 8).await.len()), (4, 4));
}

#[tokio::test]
async fn other_nodes_are_notified_of_free_partitions() {
    let fixture = Fixture::open().await;
    let other = open(&fixture.url, NodeId::new(8)).await;
    let (mut own, mut theirs) = (fixture.store.wakes(), other.wakes());
    take_round(&fixture.store, 8).await;
    take_round(&other, 8).await;
    // The other node may not listen yet: each attempt gives partitions up and takes them again.
    eventually("the other node is notified", SOON, async || {
        assert_eq!(take_round(&fixture.store, 8).await.len(), 4, "it gives up the excess over its share");
        let heard = hear_partitions(&mut theirs).await;
        other.leave(other.node()).await.unwrap();
        take_round(&fixture.store, 8).await;
        take_round(&other, 8).await;
        heard
    })
    .await;
    eventually("this node is notified of the leave", SOON, async || {
        other.leave(other.node()).await.unwrap();
        hear_partitions(&mut own).await
    })
    .await;
    // A node is not notified of its own leave: nothing like it comes between these two.
    let mut wakes_until = async |queue: &str| {
        let stored = fixture.insert(task().queue(queue)).await;
        let mut others = Vec::new();
        loop {
            match tokio::time::timeout(SOON, theirs.next()).await.unwrap().unwrap() {
                Wake::Lane(lane, _) if lane == stored.lane => return others,
                wake => others.push(wake),
            }
        }
    };
    wakes_until("before").await;
    other.leave(other.node()).await.unwrap();
    let heard = wakes_until("after").await;
    assert!(!heard.contains(&Wake::Partitions), "it was notified of its own leave");
}

/// Waits for a notification of free partitions.
async fn hear_partitions(wakes: &mut Wakes) -> Result<(), String> {
    loop {
        match tokio::time::timeout(Duration::from_millis(500), wakes.next()).await {
            Ok(Some(Wake::Partitions)) => return Ok(()),
            Ok(Some(_)) => {}
            Ok(None) => panic!("the store is closed"),
            Err(_) => return Err("no notification".to_owned()),
        }
    }
}

/// A late claim has locked tasks for a moment, and the new owner may have skipped them, so it is
/// notified.
#[tokio::test]
async fn the_new_owner_is_notified_of_skipped_tasks() {
    let fixture = Fixture::open().await;
    let other = open(&fixture.url, NodeId::new(8)).await;
    let mut wakes = other.wakes();
    // A node is not notified of its own inserts.
    let stored = insert(&other, task().push("http://a.test:80")).await;
    eventually("it is notified of the lane", SOON, async || {
        let late = dispatch(&fixture.store, stored.lane.id, 1, vec![(Partition::new(0), 7)]).await;
        assert_eq!((late.tasks.len(), late.not_owned.len()), (0, 1));
        loop {
            match tokio::time::timeout(Duration::from_millis(500), wakes.next()).await {
                Ok(Some(Wake::Lane(lane, due_at))) => {
                    assert_eq!((lane.id, due_at), (stored.lane.id, START));
                    return Ok(());
                }
                Ok(Some(_)) => {}
                _ => return Err("no notification".to_owned()),
            }
        }
    })
    .await;
}
