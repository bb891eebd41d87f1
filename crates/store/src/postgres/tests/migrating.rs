//! Migrations up and down with data in the tables, and concurrent migrations.

use std::time::Duration;

use punctual_core::coordinator::Coordinator;
use punctual_core::ids::NodeId;
use punctual_core::registry::{NodePresence, NodeSession, Registry};
use punctual_core::state::State;
use punctual_core::store::Store;
use punctual_core::time::Timestamp;
use punctual_testkit::eventually::eventually;
use punctual_testkit::fixtures::{START, TENANT, at, task};
use punctual_testkit::postgres::{Postgres, connect, execute};

use super::super::ConnectError;
use super::{Fixture, Migrator, complete, ids, insert, lease, open};
use crate::migrations::MigrationError;
use crate::migrations::postgres::STEPS;

const WITHIN: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_database_with_data_goes_down_and_up_again() {
    let fixture = Fixture::open().await;
    let first = fixture.insert(task().key("k", 1)).await;
    let running = fixture.lease(&first, 1).await.pop().unwrap();
    assert!(complete(&fixture.store, &running).await);
    let waiting = [fixture.insert(task()).await, fixture.insert(task()).await];
    Store::close(&fixture.store).await.unwrap();

    // The steps above the first leave the tasks alone.
    let database = Migrator::connect(&fixture.url).await.unwrap();
    let versions: Vec<u32> = STEPS.iter().map(|step| step.version).collect();
    let above: Vec<u32> = versions.iter().rev().copied().filter(|version| *version > 1).collect();
    assert_eq!(database.down(1).await.unwrap(), above);
    let applied = database.status().await.unwrap().steps.into_iter().filter(|line| line.applied_at.is_some()).count();
    assert_eq!(applied, 1);
    assert!(database.has_tasks().await);
    assert_eq!(database.up(at(1)).await.unwrap(), versions[1..]);
    let store = open(&fixture.url, NodeId::new(8)).await;
    let again = store.get(TENANT, vec![first.id]).await.unwrap().remove(0).unwrap();
    assert_eq!(again.state(), State::Completed);
    assert_eq!(ids(&lease(&store, &waiting[0], 5).await), ids(&waiting));
    Store::close(&store).await.unwrap();

    // Reverting the first step drops everything. It can be applied again.
    assert_eq!(database.down(0).await.unwrap(), versions.iter().rev().copied().collect::<Vec<_>>());
    assert!(!database.has_tasks().await);
    assert_eq!(fixture.number("SELECT count(*) FROM pg_class WHERE relnamespace = 'punctual'::regnamespace AND relkind IN ('r', 'p') AND relname <> 'schema_migrations'").await, 0);
    assert_eq!(database.up(at(2)).await.unwrap(), versions);
    assert!(database.status().await.unwrap().steps.iter().all(|line| line.applied_at == Some(at(2))));
    let store = open(&fixture.url, NodeId::new(9)).await;
    insert(&store, task()).await;
}

/// Nodes stay known over the step that adds columns to their table, and an older binary keeps
/// working.
#[tokio::test]
async fn nodes_stay_known_when_they_can_say_more() {
    let fixture = Fixture::open().await;
    let sighting = |id| NodePresence {
        id,
        name: "a".into(),
        address: "b".into(),
        roles: vec!["api".into()],
        version: "1".into(),
        skew_millis: 3,
        lease: Some(Duration::from_secs(30)),
        first_seen_at: START,
        last_seen_at: START,
        session: NodeSession::Unknown,
        gone_at: None,
    };
    fixture.store.record_node(sighting(NodeId::new(7))).await.unwrap();
    assert_eq!(fixture.store.take_share(NodeId::new(7), 4, 1_000).await.unwrap().owned.len(), 4);
    Store::close(&fixture.store).await.unwrap();
    let database = Migrator::connect(&fixture.url).await.unwrap();
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

    let store = open(&fixture.url, NodeId::new(10)).await;
    let bare = |id: u64, at| NodePresence {
        name: String::new(),
        address: String::new(),
        roles: vec![],
        version: String::new(),
        skew_millis: 0,
        lease: None,
        first_seen_at: at,
        last_seen_at: at,
        ..sighting(NodeId::new(id))
    };
    assert_eq!(store.nodes().await.unwrap(), [bare(8, at(-5)), bare(9, at(-3)), bare(7, START)]);
    store.record_node(sighting(NodeId::new(9))).await.unwrap();
    let known = NodePresence { first_seen_at: at(-3), ..sighting(NodeId::new(9)) };
    assert_eq!(store.nodes().await.unwrap()[1], known);
    assert_eq!(store.ownership().await.unwrap(), []);
    assert_eq!(store.take_share(NodeId::new(8), 4, 1_000).await.unwrap().owned.len(), 4);
}

#[tokio::test]
async fn concurrent_migrations_wait_for_each_other() {
    let server = Postgres::start().await;
    let url = server.create_database().await;
    let mut nodes = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let url = url.clone();
        nodes.spawn(async move { Migrator::connect(&url).await.unwrap().up(START).await.unwrap().len() });
    }
    let mut applied = nodes.join_all().await;
    applied.sort_unstable();
    assert_eq!(applied, [0, 0, 0, STEPS.len()]);
}

#[tokio::test]
async fn unknown_versions_and_changed_steps_are_refused() {
    let fixture = Fixture::open().await;
    let database = Migrator::connect(&fixture.url).await.unwrap();
    assert!(matches!(database.down(99).await, Err(MigrationError::NoSuchVersion(99))));
    fixture.sql("UPDATE schema_migrations SET checksum = 'other' WHERE version = 1").await;
    assert!(matches!(database.up(START).await, Err(MigrationError::Changed { version: 1, .. })));
}

/// The step runs once it gets its lock.
#[tokio::test]
async fn a_step_that_waits_for_a_lock_lets_others_pass() {
    let fixture = Fixture::open().await;
    Store::close(&fixture.store).await.unwrap();
    let database = Migrator::connect(&fixture.url).await.unwrap();
    database.down(5).await.unwrap();
    let holder = connect(&fixture.url).await;
    holder.batch_execute("BEGIN; LOCK TABLE punctual.ledger IN ACCESS SHARE MODE").await.unwrap();
    let other = async {
        let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'punctual.ledger'::regclass";
        eventually("the step waits", WITHIN, async || {
            let waiting = fixture.number(waits).await;
            if waiting > 0 { Ok(()) } else { Err("no session waits".to_owned()) }
        })
        .await;
        // It queues behind the step, which queues behind the holder.
        execute(&fixture.url, "SET lock_timeout = '5s'; SELECT count(*) FROM punctual.ledger").await;
        holder.batch_execute("COMMIT").await.unwrap();
    };
    let (reverted, ()) = tokio::join!(database.down(4), other);
    assert_eq!(reverted.unwrap(), [5]);
}

#[tokio::test]
async fn a_step_without_its_lock_is_named_with_advice() {
    let fixture = Fixture::open().await;
    Store::close(&fixture.store).await.unwrap();
    let mut database = Migrator::connect(&fixture.url).await.unwrap();
    database.patience = Duration::ZERO;
    database.down(5).await.unwrap();
    let holder = connect(&fixture.url).await;
    holder.batch_execute("BEGIN; LOCK TABLE punctual.inbox IN ACCESS SHARE MODE").await.unwrap();
    let error = database.down(3).await.unwrap_err().to_string();
    assert!(error.starts_with("migration 4 (enqueue) did not get a lock that another session holds: "), "{error}");
    assert!(error.contains("pg_locks") && error.contains("pg_stat_activity"), "{error}");
    assert!(error.ends_with(" (taken back before that: 0005)"), "{error}");
    holder.batch_execute("COMMIT").await.unwrap();
    assert_eq!(database.down(3).await.unwrap(), [4]);
}

/// A role that is given the schema needs no right to create one.
#[tokio::test]
async fn a_missing_right_is_named() {
    let server = Postgres::start().await;
    let url = server.create_database().await;
    let name = url.rsplit('/').next().unwrap();
    execute(&url, "CREATE ROLE modest LOGIN").await;
    let modest = format!("postgres://modest@127.0.0.1:{}/{name}", server.port());
    let refusal = async || {
        let fault = Migrator::connect(&modest).await.unwrap().up(START).await.unwrap_err();
        assert!(matches!(fault, MigrationError::Denied { .. }), "{fault}");
        fault.to_string()
    };
    let missing = refusal().await;
    assert!(missing.starts_with("making the schema punctual needs a right"), "{missing}");
    assert!(missing.contains("lacks, CREATE on the database ("), "{missing}");
    execute(&url, "CREATE SCHEMA punctual").await;
    let missing = refusal().await;
    assert!(missing.starts_with("reading the version of the schema needs a right"), "{missing}");
    assert!(missing.contains("lacks, USAGE on the schema punctual"), "{missing}");
    execute(&url, "GRANT USAGE ON SCHEMA punctual TO modest").await;
    let missing = refusal().await;
    assert!(missing.starts_with("making the table schema_migrations needs a right"), "{missing}");
    assert!(missing.contains("lacks, CREATE on the schema punctual"), "{missing}");
    execute(&url, "GRANT CREATE ON SCHEMA punctual TO modest").await;
    assert_eq!(Migrator::connect(&modest).await.unwrap().up(START).await.unwrap().len(), STEPS.len());
    let database = Migrator::connect(&modest).await.unwrap();
    database.down(5).await.unwrap();
    execute(&url, "REVOKE CREATE ON SCHEMA punctual FROM modest").await;
    database.down(4).await.unwrap();
    let missing = refusal().await;
    assert!(missing.starts_with("migration 5 (ledger) needs a right"), "{missing}");
    assert!(missing.contains("lacks, CREATE on the schema punctual"), "{missing}");
}

#[tokio::test]
async fn a_database_of_a_newer_binary_is_shown() {
    let fixture = Fixture::open().await;
    fixture.sql("INSERT INTO schema_migrations VALUES (9999, 'of the future', '', 0)").await;
    let database = Migrator::connect(&fixture.url).await.unwrap();
    let status = database.status().await.unwrap();
    assert_eq!((status.version, status.is_newer()), (9999, true));
    assert!(status.steps.len() == STEPS.len() && status.steps.iter().all(|step| step.applied_at.is_some()));
    assert!(matches!(database.up(START).await, Err(MigrationError::Newer { found: 9999, .. })));
    assert!(matches!(database.down(1).await, Err(MigrationError::Newer { found: 9999, .. })));
    // Nodes of this binary keep running.
    assert!(fixture.store.missing_migrations().await.unwrap().is_none());
}

/// By a store that is open.
#[tokio::test]
async fn reverted_steps_are_noticed() {
    let fixture = Fixture::open().await;
    assert!(fixture.store.missing_migrations().await.unwrap().is_none());
    let database = Migrator::connect(&fixture.url).await.unwrap();
    database.down(4).await.unwrap();
    let (missing, known) = (fixture.store.missing_migrations().await.unwrap().unwrap(), STEPS.len());
    assert_eq!(missing.to_string(), ConnectError::Older { found: 4, known }.to_string());
    database.up(START).await.unwrap();
    assert!(fixture.store.missing_migrations().await.unwrap().is_none());
}

#[tokio::test]
async fn a_standby_and_a_database_without_utf8_are_refused() {
    let server = Postgres::start().await;
    let standby = server.standby().await;
    let fault = Migrator::connect(&standby.url("postgres")).await.unwrap().up(START).await.unwrap_err();
    assert_eq!(fault.to_string(), "the server is a standby, which is read-only: name the primary");
    server.execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0").await;
    let fault = Migrator::connect(&server.url("latin")).await.unwrap().up(START).await.unwrap_err();
    let sentence = "the database must be encoded in UTF8, this one is LATIN1: create one with ENCODING 'UTF8'";
    assert_eq!(fault.to_string(), sentence);
}
