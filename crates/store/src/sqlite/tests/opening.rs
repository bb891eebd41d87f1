//! Opening and closing a store, and the lock of its directory.

use std::collections::BTreeMap;
use std::fs::{DirEntry, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use punctual_core::clock::ManualClock;
use punctual_core::coordinator::Coordinator;
use punctual_core::ids::NodeId;
use punctual_core::registry::{NodePresence, NodeSession, Registry};
use punctual_core::store::{Claim, Claimant, DispatchTo, Store};
use punctual_testkit::fixtures::{START, at, task};
use rusqlite::Connection;
use tempfile::TempDir;

use super::super::{Migrator, OpenError, Options, SqliteStore};
use super::{Fixture, open};
use crate::migrations::MigrationError;
use crate::migrations::sqlite::STEPS;

#[tokio::test]
async fn a_second_store_in_the_same_directory_is_refused() {
    let fixture = Fixture::open();
    let path = fixture.directory.path();
    let clock = || Arc::new(ManualClock::new(START));
    let refused = SqliteStore::open(path, clock(), NodeId::new(8), Options::default()).err().unwrap();
    assert!(matches!(refused, OpenError::InUse { .. }));
    assert_eq!(
        refused.to_string(),
        format!("the data directory {} is in use by another punctual process", path.display())
    );
    assert!(
        matches!(Migrator::open(path, &Options::default()), Err(OpenError::InUse { .. })),
        "migrations are refused too"
    );
    fixture.store.close().await.unwrap();
    open(path);
}

#[tokio::test]
async fn a_closed_store_is_one_file() {
    let fixture = Fixture::open();
    fixture.insert(task()).await;
    fixture.store.close().await.unwrap();
    let mut names: Vec<_> = std::fs::read_dir(fixture.directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["punctual.db", "punctual.lock"]);
}

/// The modes of the files in a directory, by name.
fn modes(directory: &Path) -> BTreeMap<String, u32> {
    let mode = |entry: DirEntry| entry.metadata().unwrap().permissions().mode() & 0o777;
    let entries = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
    entries.map(|entry| (entry.file_name().into_string().unwrap(), mode(entry))).collect()
}

#[tokio::test]
async fn files_are_private_in_any_directory() {
    let directory = TempDir::new().unwrap();
    set_mode(directory.path(), 0o777);
    let store = open(directory.path());
    let private = |name: &str| (name.to_owned(), 0o600);
    let expected = ["punctual.db", "punctual.db-shm", "punctual.db-wal", "punctual.lock"].map(private);
    assert_eq!(modes(directory.path()), BTreeMap::from(expected));
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_directory_that_is_made_is_private() {
    let parent = TempDir::new().unwrap();
    let store = open(&parent.path().join("data"));
    assert_eq!(modes(parent.path()), BTreeMap::from([("data".to_owned(), 0o700)]));
    store.close().await.unwrap();
}

#[tokio::test]
async fn files_that_others_could_read_are_tightened() {
    let directory = TempDir::new().unwrap();
    // As a store that was killed leaves them: with a log.
    let killed = rusqlite::Connection::open(directory.path().join("punctual.db")).unwrap();
    killed.execute_batch("PRAGMA journal_mode = wal; CREATE TABLE t (a)").unwrap();
    std::mem::forget(killed);
    std::fs::write(directory.path().join("punctual.lock"), "").unwrap();
    for name in modes(directory.path()).keys() {
        set_mode(&directory.path().join(name), 0o664);
    }
    Migrator::open(directory.path(), &Options::default()).unwrap();
    let modes = modes(directory.path());
    assert!(modes.len() >= 4 && modes.values().all(|mode| *mode == 0o600), "{modes:?}");
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn a_database_of_a_newer_binary_is_refused() {
    let fixture = Fixture::open();
    let path = fixture.directory.path();
    fixture.sql("INSERT INTO schema_migrations VALUES (9999, 'of the future', '', 0)").await;
    fixture.store.close().await.unwrap();
    let refused =
        SqliteStore::open(path, Arc::new(ManualClock::new(START)), NodeId::new(7), Options::default()).err().unwrap();
    assert!(matches!(refused, OpenError::Schema { reason: MigrationError::Newer { found: 9999, .. }, .. }));
    let known = STEPS.len();
    assert_eq!(
        refused.to_string(),
        format!(
            "the database in {} cannot be used: the database has schema version 9999, but this binary knows versions up \
             to {known}: use a newer binary",
            path.display()
        )
    );
}

#[test]
fn a_file_that_is_no_database_is_refused() {
    let directory = TempDir::new().unwrap();
    std::fs::write(
        directory.path().join("punctual.db"),
        "not a database, but long enough to have a header".repeat(100),
    )
    .unwrap();
    let refused = Migrator::open(directory.path(), &Options::default()).err().unwrap();
    assert!(matches!(refused, OpenError::Database { .. }), "{refused}");
}

#[test]
fn migrations_go_down_and_up_again() {
    let directory = TempDir::new().unwrap();
    let mut database = Migrator::open(directory.path(), &Options::default()).unwrap();
    assert!(database.status().unwrap().steps.iter().all(|line| line.applied_at.is_none()));
    let versions = database.up(START).unwrap();
    assert_eq!(versions.len(), STEPS.len());
    assert!(database.status().unwrap().steps.iter().all(|line| line.applied_at == Some(START)));
    assert_eq!(database.down(0).unwrap().len(), STEPS.len());
    drop(database);
    open(directory.path());
}

#[tokio::test]
async fn the_writer_uses_a_synced_write_ahead_log() {
    let fixture = Fixture::open();
    assert_eq!(fixture.number("SELECT synchronous FROM pragma_synchronous").await, 2, "FULL");
    assert_eq!(fixture.number("SELECT journal_mode = 'wal' FROM pragma_journal_mode").await, 1);
    assert_eq!(fixture.number("SELECT foreign_keys FROM pragma_foreign_keys").await, 0);
}

/// An open read keeps the log from being emptied, but only until it ends. The log also grows while
/// the checkpointer waits for a processor: on a loaded machine the bound may hold only after some
/// more writes.
#[tokio::test]
async fn the_log_is_bounded() {
    let directory = TempDir::new().unwrap();
    let options = Options { checkpoint_pages: 50, log_limit_bytes: 1 << 20, ..Options::default() };
    let store =
        SqliteStore::open(directory.path(), Arc::new(ManualClock::new(START)), NodeId::new(7), options).unwrap();
    let log = directory.path().join("punctual.db-wal");
    let length = || std::fs::metadata(&log).unwrap().len();
    let reader = Connection::open(directory.path().join("punctual.db")).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM tasks").unwrap();
    for _ in 0..20 {
        store.insert(task().times(200)).await.unwrap();
    }
    let grown = length();
    reader.execute_batch("COMMIT").unwrap();
    for _ in 0..200 {
        store.insert(task().times(200)).await.unwrap();
    }
    let written = std::time::Instant::now();
    while length() > grown.max(4 << 20) {
        assert!(written.elapsed().as_secs() < 30, "the log grew from {grown} to {} bytes", length());
        store.insert(task().times(200)).await.unwrap();
    }
    store.close().await.unwrap();
}

#[tokio::test]
async fn nodes_that_held_tasks_before_the_open_are_dead() {
    let fixture = Fixture::open();
    let stored = fixture.insert(task().push("http://a.test:80")).await;
    let claimant =
        Claimant::Dispatch { to: DispatchTo::Broker { visibility_millis: 1_000 }, terms: Vec::new(), from: None };
    let claim = Claim { lanes: vec![(stored.lane.id, 1)], limit: 1, claimant };
    assert_eq!(fixture.store.claim(vec![claim]).await.unwrap()[0].tasks.len(), 1);
    fixture.store.close().await.unwrap();

    let path = fixture.directory.path();
    let reopened = open(path);
    assert_eq!(dead(&reopened).await, [], "the same process is not dead");
    reopened.close().await.unwrap();
    let next = SqliteStore::open(path, Arc::new(ManualClock::new(START)), NodeId::new(8), Options::default()).unwrap();
    assert_eq!(dead(&next).await, [NodeId::new(7)]);
    next.remove_node(NodeId::new(7)).await.unwrap();
    assert_eq!(dead(&next).await, [NodeId::new(7)], "it still holds a task");
}

/// The nodes that were last seen long ago.
async fn dead(store: &SqliteStore) -> Vec<NodeId> {
    let nodes = store.nodes().await.unwrap();
    nodes.iter().filter(|node| node.last_seen_at < at(-1_000_000)).map(|node| node.id).collect()
}

/// No earlier process is alive: its partitions need not expire first.
#[tokio::test]
async fn partitions_are_free_after_the_open() {
    let fixture = Fixture::open();
    let ours = fixture.store.take_share(NodeId::new(7), 8, u64::MAX).await.unwrap().owned;
    assert_eq!(ours.len(), 8);
    fixture.store.take_share(NodeId::new(6), 8, u64::MAX).await.unwrap();
    fixture.store.close().await.unwrap();
    let clock = Arc::new(ManualClock::new(START));
    let next = SqliteStore::open(fixture.directory.path(), clock, NodeId::new(8), Options::default()).unwrap();
    assert!(next.ownership().await.unwrap().iter().all(|row| row.owner.is_none() && row.term == 1));
    let owned = next.take_share(NodeId::new(8), 8, 1_000).await.unwrap().owned;
    assert_eq!(owned.iter().map(|row| row.term).collect::<Vec<_>>(), [2; 8], "all of them at once");
}

#[tokio::test]
async fn nodes_survive_the_migration_that_adds_columns() {
    let directory = TempDir::new().unwrap();
    let mut database = Migrator::open(directory.path(), &Options::default()).unwrap();
    database.up(START).unwrap();
    database.down(2).unwrap();
    drop(database);
    let connection = Connection::open(directory.path().join("punctual.db")).unwrap();
    connection.execute("INSERT INTO nodes (id, last_seen_at) VALUES (7, ?1)", [at(-5).as_millis()]).unwrap();
    drop(connection);
    let store = open(directory.path());
    let known = NodePresence {
        id: NodeId::new(7),
        name: String::new(),
        address: String::new(),
        roles: vec![],
        version: String::new(),
        skew_millis: 0,
        lease: None,
        first_seen_at: at(-5),
        last_seen_at: at(-5),
        session: NodeSession::Unknown,
        gone_at: None,
    };
    assert_eq!(store.nodes().await.unwrap(), std::slice::from_ref(&known));
    let named = NodePresence { name: "a".into(), ..known };
    store.record_node(named.clone()).await.unwrap();
    assert_eq!(store.nodes().await.unwrap(), [NodePresence { last_seen_at: START, ..named }]);
    store.close().await.unwrap();
    let mut database = Migrator::open(directory.path(), &Options::default()).unwrap();
    database.down(2).unwrap();
    drop(database);
    let connection = Connection::open(directory.path().join("punctual.db")).unwrap();
    let seen: i64 = connection.query_row("SELECT last_seen_at FROM nodes WHERE id = 7", [], |row| row.get(0)).unwrap();
    assert_eq!(seen, START.as_millis());
}

#[tokio::test]
async fn only_its_owner_may_use_a_new_directory() {
    use std::os::unix::fs::PermissionsExt;

    let home = TempDir::new().unwrap();
    let path = home.path().join("data");
    let store = open(&path);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o700, "{mode:o}");
    store.close().await.unwrap();
}
