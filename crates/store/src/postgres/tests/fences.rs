//! Leases and the writes under them: no node takes a lease while its holder writes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use punctual_core::clock::ManualClock;
use punctual_core::coordinator::{Coordinator, LeaderLease};
use punctual_core::ids::NodeId;
use punctual_core::state::{By, Event, State, transition};
use punctual_core::store::{Applied, Store};
use punctual_core::task::Task;
use punctual_core::trail::Actor;
use punctual_testkit::eventually::eventually;
use punctual_testkit::fixtures::{START, TENANT, task};
use punctual_testkit::postgres::connect;

use super::super::PostgresStore;
use super::super::statements::Sql;
use super::{Fixture, insert, open_at};

const TTL: u64 = 10_000;
const SOON: Duration = Duration::from_secs(20);

async fn cancel_as(store: &PostgresStore, lease: &LeaderLease, task: &Task) -> Option<Vec<Applied>> {
    let by = By { now: START, node: NodeId::new(7), actor: Actor::Reaper };
    let change = transition(&task.position, Event::Cancel, &by).unwrap();
    store.apply_as(lease, vec![(task.id, change)]).await.unwrap()
}

#[tokio::test]
async fn no_node_takes_a_lease_while_its_holder_writes() {
    let (fixture, clock) = (Fixture::open().await, Arc::new(ManualClock::new(START)));
    let store = open_at(&fixture.url, NodeId::new(101), &clock).await;
    let [a, b] = [101, 102].map(NodeId::new);
    let lease = store.acquire("leader", a, TTL).await.unwrap().unwrap();
    let writer = connect(&fixture.url).await;
    writer.batch_execute("SET search_path = punctual; BEGIN").await.unwrap();
    let held = writer.query(Sql::LeaseHold.text(), &[&"leader", &101_i64, &1_i64]).await.unwrap();
    assert_eq!(held.len(), 1);

    let begun = Instant::now();
    assert!(store.renew(&lease, TTL).await.unwrap(), "its holder keeps renewing");
    assert_eq!(store.acquire("leader", a, TTL).await.unwrap().as_ref(), Some(&lease), "or asks again");
    clock.advance_millis(20_000);
    assert_eq!(store.acquire("leader", b, TTL).await.unwrap(), None, "its holder writes");
    assert!(store.acquire("other", b, TTL).await.unwrap().is_some());
    assert!(begun.elapsed() < Duration::from_secs(3), "a call waited for the write: {:?}", begun.elapsed());
    writer.batch_execute("COMMIT").await.unwrap();
    let next = store.acquire("leader", b, TTL).await.unwrap().expect("it has run out");
    assert_eq!(next.term, lease.term + 1);
    assert!(cancel_as(&store, &lease, &insert(&store, task()).await).await.is_none());
}

#[tokio::test]
async fn a_leader_sees_the_election_of_the_next_one() {
    let fixture = Fixture::open().await;
    let stored = fixture.insert(task()).await;
    let lease = fixture.store.acquire("leader", NodeId::new(7), TTL).await.unwrap().unwrap();
    let next = connect(&fixture.url).await;
    next.batch_execute("SET search_path = punctual; BEGIN").await.unwrap();
    let later = START.plus_millis(20_000).as_millis();
    let elected = next.query(Sql::LeaseAcquire.text(), &[&"leader", &8_i64, &later, &(later + 10_000)]).await.unwrap();
    assert_eq!(elected[0].get::<_, i64>(0), 2);
    let commit = async {
        eventually("the write waits for the election", SOON, async || {
            let waits =
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%KEY SHARE%'";
            if fixture.number(waits).await == 1 { Ok(()) } else { Err("it does not wait".to_owned()) }
        })
        .await;
        next.batch_execute("COMMIT").await.unwrap();
    };
    let (applied, ()) = tokio::join!(cancel_as(&fixture.store, &lease, &stored), commit);
    assert!(applied.is_none());
    let found = fixture.store.get(TENANT, vec![stored.id]).await.unwrap().remove(0).unwrap();
    assert_eq!(found.state(), State::Pending);
    fixture.assert_counts().await;
}
