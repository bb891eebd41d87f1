//! Lanes that are removed while other nodes know them.

use std::sync::Arc;
use std::time::Duration;

use punctual_core::clock::ManualClock;
use punctual_core::ids::NodeId;
use punctual_core::store::{Inserted, Store};
use punctual_core::upkeep::{Prunable, Pruned, Upkeep};
use punctual_testkit::eventually::eventually;
use punctual_testkit::fixtures::{START, at, task};
use punctual_testkit::postgres::connect;

use super::{Fixture, Options, PostgresStore, complete, insert, lease, open};

/// More than any of the rounds here needs.
const LIMIT: usize = 100;

const SOON: Duration = Duration::from_secs(20);

/// One round of a few lanes.
async fn prune(store: &PostgresStore) -> u64 {
    let Pruned { removed, more } = store.prune(Prunable::Lanes, START, LIMIT).await.unwrap();
    assert!(!more, "a round of a few lanes is one step");
    removed
}

impl Fixture {
    /// Removes the history, and then all lanes that are empty.
    async fn remove_lanes(&self) -> u64 {
        while self.store.prune(Prunable::History, at(1_000_000_000), LIMIT).await.unwrap().more {}
        prune(&self.store).await;
        prune(&self.store).await
    }

    async fn assert_lanes(&self) {
        let missing = "SELECT count(*) FROM tasks WHERE lane NOT IN (SELECT id FROM lanes)";
        assert_eq!(self.number(missing).await, 0, "tasks without a lane");
        let wrong = "SELECT count(*) FROM (SELECT tenant, count(*) AS lanes FROM lanes GROUP BY tenant) AS found
            FULL JOIN (SELECT * FROM lane_counts WHERE lanes <> 0) AS kept USING (tenant, lanes)
            WHERE found IS NULL OR kept IS NULL";
        assert_eq!(self.number(wrong).await, 0, "the counts of lanes are wrong");
        self.assert_counts().await;
    }
}

/// Every way to put a task into a lane, each from a node that has cached the lane.
#[tokio::test]
async fn a_node_makes_a_lane_again_that_another_removed() {
    let fixture = Fixture::open().await;
    let other = open(&fixture.url, NodeId::new(8)).await;
    let parent = fixture.insert(task().queue("parent").due(at(1_000))).await;
    let ways = [
        vec![task().build()],
        vec![task().key("k", 1).build()],
        vec![task().depends_on(&[parent.id]).build()],
        vec![task().due(at(600_000)).build()],
    ];
    for way in ways {
        let before = insert(&other, task()).await;
        let running = lease(&other, &before, 1).await.pop().unwrap();
        assert!(complete(&other, &running).await);
        fixture.sql("DELETE FROM tasks WHERE lane IN (SELECT id FROM lanes WHERE queue = 'default')").await;
        fixture.sql("DELETE FROM counts WHERE lane IN (SELECT id FROM lanes WHERE queue = 'default')").await;
        fixture.sql("DELETE FROM queue_counts WHERE queue IN ('default')").await;
        assert_eq!(fixture.remove_lanes().await, 1);
        let Some(Inserted::Created(again)) = other.insert(way).await.unwrap().pop() else { panic!("not created") };
        assert_ne!(again.lane.id, before.lane.id);
        assert_eq!(again.lane.key, before.lane.key);
        fixture.assert_lanes().await;
    }
}

/// A transaction that puts tasks into lanes keeps them, and nobody waits for it.
#[tokio::test]
async fn no_lane_is_removed_while_tasks_come() {
    let fixture = Fixture::open().await;
    let stored = fixture.insert(task()).await;
    let running = fixture.lease(&stored, 1).await.pop().unwrap();
    assert!(complete(&fixture.store, &running).await);
    while fixture.store.prune(Prunable::History, at(1_000_000_000), LIMIT).await.unwrap().more {}
    prune(&fixture.store).await;
    let client = connect(&fixture.url).await;
    client.batch_execute("SET search_path = punctual; BEGIN; LOCK TABLE lanes IN ROW SHARE MODE").await.unwrap();
    let lane = stored.lane.id.number();
    let counted = format!("INSERT INTO counts (lane, state, slot, tasks) VALUES ({lane}, 1, 99, 0)");
    client.batch_execute(&counted).await.unwrap();
    assert_eq!(prune(&fixture.store).await, 0, "it cannot be had");
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(prune(&fixture.store).await, 0, "it was used meanwhile");
    assert_eq!(prune(&fixture.store).await, 1);
    fixture.assert_lanes().await;
}

/// Without its lock an insert would see the lane that is about to go.
#[tokio::test]
async fn an_insert_waits_for_a_removal_under_way() {
    let fixture = Fixture::open().await;
    let before = fixture.insert(task()).await;
    let running = fixture.lease(&before, 1).await.pop().unwrap();
    assert!(complete(&fixture.store, &running).await);
    let client = connect(&fixture.url).await;
    client.batch_execute("SET search_path = punctual; BEGIN; LOCK TABLE lanes IN EXCLUSIVE MODE").await.unwrap();
    client.batch_execute("DELETE FROM counts; DELETE FROM lanes").await.unwrap();
    let store = fixture.store.clone();
    let inserting = tokio::spawn(async move { insert(&store, task()).await });
    eventually("the insert waits", SOON, async || {
        let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'lanes'::regclass";
        if fixture.number(waiting).await == 1 { Ok(()) } else { Err("nobody waits".to_owned()) }
    })
    .await;
    client.batch_execute("COMMIT").await.unwrap();
    assert_ne!(inserting.await.unwrap().lane.id, before.lane.id);
    fixture.assert_lanes().await;
}

/// Tasks in a month name their lanes until the month is dropped.
#[tokio::test]
async fn a_lane_stays_as_long_as_its_month() {
    let fixture = Fixture::open().await;
    fixture.store.upkeep(START).await.unwrap();
    let stored = fixture.insert(task()).await;
    let running = fixture.lease(&stored, 1).await.pop().unwrap();
    assert!(complete(&fixture.store, &running).await);
    for _ in 0..3 {
        assert_eq!(prune(&fixture.store).await, 0);
    }
    let end_of_may = START.plus_millis(20 * 24 * 3_600_000);
    let clock = Arc::new(ManualClock::new(end_of_may));
    let in_june = PostgresStore::connect(&fixture.url, clock, NodeId::new(8), Options::default()).await.unwrap();
    while in_june.prune(Prunable::History, end_of_may, LIMIT).await.unwrap().more {}
    assert_eq!(prune(&fixture.store).await, 1);
}
