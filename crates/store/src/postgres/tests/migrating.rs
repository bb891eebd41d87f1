//! The schema goes up and down with data in it, and two may migrate at once.

use punctual_core::ids::NodeId;
use punctual_core::state::State;
use punctual_core::store::Store;
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
