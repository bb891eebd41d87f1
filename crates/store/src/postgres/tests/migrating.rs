//! The schema goes up and down with data in it, and two may migrate at once.

use punctual_core::ids::NodeId;
use punctual_core::partitions::Partitions;
use punctual_core::state::State;
use punctual_core::store::Store;
use punctual_core::time::Timestamp;
use punctual_core::workers::{NodeSighting, Registry};
use punctual_testkit::fixtures::{START, TENANT, at, task};
use punctual_testkit::postgres::Postgres;

use super::{Database, Fixture, complete, ids, insert, lease, open};
use crate::migrations::MigrationError;
use crate::migrations::postgres::STEPS;

#[tokio::test]
async fn a_database_with_data_goes_down_and_up_again() {
    let fixture = Fixture::open().await;
    let first = fixture.insert(task().key("k", 1)).await;
    let running = fixture.lease(&first, 1).await.pop().unwrap();
    assert!(complete(&fixture.store, &running).await);
    let waiting = [fixture.insert(task()).await, fixture.insert(task()).await];
    Store::close(&fixture.store).await.unwrap();

    // The steps above the first make and unmake indexes: the data stays.
    let database = Database::connect(&fixture.url).await.unwrap();
    let versions: Vec<u32> = STEPS.iter().map(|step| step.version).collect();
    let above: Vec<u32> = versions.iter().rev().copied().filter(|version| *version > 1).collect();
    assert_eq!(database.down(1).await.unwrap(), above);
    let applied = database.status().await.unwrap().into_iter().filter(|line| line.applied_at.is_some()).count();
    assert_eq!(applied, 1);
    assert!(database.has_tasks().await);
    assert_eq!(database.up(at(1)).await.unwrap(), versions[1..]);
    let store = open(&fixture.url, NodeId::new(8)).await;
    let again = store.get(TENANT, vec![first.id]).await.unwrap().remove(0).unwrap();
    assert_eq!(again.state(), State::Completed);
    assert_eq!(ids(&lease(&store, &waiting[0], 5).await), ids(&waiting));
    Store::close(&store).await.unwrap();

    // The first step takes everything with it, and can be made again.
    assert_eq!(database.down(0).await.unwrap(), versions.iter().rev().copied().collect::<Vec<_>>());
    assert!(!database.has_tasks().await);
    assert_eq!(fixture.number("SELECT count(*) FROM pg_class WHERE relnamespace = 'punctual'::regnamespace AND relkind IN ('r', 'p') AND relname <> 'schema_migrations'").await, 0);
    assert_eq!(database.up(at(2)).await.unwrap(), versions);
    assert!(database.status().await.unwrap().iter().all(|line| line.applied_at == Some(at(2))));
    let store = open(&fixture.url, NodeId::new(9)).await;
    insert(&store, task()).await;
}

/// Nodes stay known over the step that lets them say more of themselves, and an older binary may go on beside it.
#[tokio::test]
async fn nodes_stay_known_when_they_can_say_more() {
    let fixture = Fixture::open().await;
    let sighting = |id| NodeSighting {
        id,
        name: "a".into(),
        address: "b".into(),
        roles: vec!["api".into()],
        version: "1".into(),
        skew_millis: 3,
        first_seen_at: START,
        last_seen_at: START,
    };
    fixture.store.saw_node(sighting(NodeId::new(7))).await.unwrap();
    assert_eq!(fixture.store.take_turn(NodeId::new(7), 4, 1_000).await.unwrap().len(), 4);
    Store::close(&fixture.store).await.unwrap();
    let database = Database::connect(&fixture.url).await.unwrap();
    database.down(2).await.unwrap();
    assert_eq!(fixture.number("SELECT last_seen_at FROM nodes WHERE id = 7").await, START.as_millis());
    let by_an_older_binary = |id: u32, at: Timestamp| {
        let upsert = "ON CONFLICT (id) DO UPDATE SET last_seen_at = excluded.last_seen_at";
        format!("INSERT INTO nodes (id, last_seen_at) VALUES ({id}, {}) {upsert}", at.as_millis())
    };
    fixture.sql(&by_an_older_binary(8, at(-5))).await;
    database.up(START).await.unwrap();
    fixture.sql(&by_an_older_binary(9, at(-4))).await;
    fixture.sql(&by_an_older_binary(9, at(-3))).await;

    let store = open(&fixture.url, NodeId::new(8)).await;
    let bare = |id: u64, at| NodeSighting {
        name: String::new(),
        address: String::new(),
        roles: vec![],
        version: String::new(),
        skew_millis: 0,
        first_seen_at: at,
        last_seen_at: at,
        ..sighting(NodeId::new(id))
    };
    assert_eq!(store.nodes().await.unwrap(), [bare(8, at(-5)), bare(9, at(-3)), bare(7, START)]);
    store.saw_node(sighting(NodeId::new(9))).await.unwrap();
    let known = NodeSighting { first_seen_at: at(-3), ..sighting(NodeId::new(9)) };
    assert_eq!(store.nodes().await.unwrap()[1], known);
    assert_eq!(store.ownership().await.unwrap(), []);
    assert_eq!(store.take_turn(NodeId::new(8), 4, 1_000).await.unwrap().len(), 4);
}

#[tokio::test]
async fn two_that_migrate_at_once_take_turns() {
    let server = Postgres::start().await;
    let url = server.create_database().await;
    let mut nodes = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let url = url.clone();
        nodes.spawn(async move { Database::connect(&url).await.unwrap().up(START).await.unwrap().len() });
    }
    let mut applied = nodes.join_all().await;
    applied.sort_unstable();
    assert_eq!(applied, [0, 0, 0, STEPS.len()]);
}

#[tokio::test]
async fn there_is_no_way_down_to_a_version_that_never_was() {
    let fixture = Fixture::open().await;
    let database = Database::connect(&fixture.url).await.unwrap();
    assert!(matches!(database.down(99).await, Err(MigrationError::NoSuchVersion(99))));
    fixture.sql("UPDATE schema_migrations SET checksum = 'other' WHERE version = 1").await;
    assert!(matches!(database.up(START).await, Err(MigrationError::Changed { version: 1, .. })));
}
