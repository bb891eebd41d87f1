//! Calls that wait for a lock too long: their callers hear of it in time, and nothing is stored.

use std::sync::Arc;
use std::time::{Duration, Instant};

use punctual_core::clock::ManualClock;
use punctual_core::ids::NodeId;
use punctual_core::store::{Inserted, Store, StoreError};
use punctual_core::task::NewTask;
use punctual_testkit::eventually::eventually;
use punctual_testkit::fixtures::{START, task};
use punctual_testkit::postgres::connect;
use tokio::task::JoinHandle;

use super::super::{Options, PostgresStore};
use super::Fixture;

/// About how long a call waits for a writer and a lock in all; a tenth of it comes on top.
const PATIENCE: Duration = Duration::from_secs(5);

/// Each caller comes at another time: what is left of its patience bounds the wait of its batch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_behind_a_lock_are_refused_in_time() {
    let fixture = Fixture::open().await;
    fixture.insert(task()).await;
    let lock = connect(&fixture.url).await;
    lock.batch_execute("BEGIN; LOCK TABLE punctual.tasks").await.unwrap();
    let calls: Vec<_> = (0..60_u64)
        .map(|number| {
            let store = fixture.store.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(number * 50)).await;
                let begun = Instant::now();
                (store.insert(vec![task().build()]).await, begun.elapsed())
            })
        })
        .collect();
    for call in calls {
        let (refused, waited) = call.await.unwrap();
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
        assert!(waited < PATIENCE + Duration::from_secs(2), "it waited for {waited:?}");
    }
    lock.batch_execute("ROLLBACK").await.unwrap();
    fixture.insert(task()).await;
    assert_eq!(fixture.number("SELECT count(*) FROM tasks").await, 2, "a refused call was stored");
    fixture.assert_counts().await;
}

/// Their group fails at the lock, and none of its calls is tried again.
#[tokio::test]
async fn nothing_is_stored_for_callers_that_left_at_a_lock() {
    let fixture = Fixture::open().await;
    // Of three writers, one takes small submissions.
    let options = Options { writers: 3, ..Options::default() };
    let clock = Arc::new(ManualClock::new(START));
    let store = PostgresStore::connect(&fixture.url, clock, NodeId::new(8), options).await.unwrap();
    let keyed = task().key("k", 1).build();
    store.insert(vec![keyed.clone()]).await.unwrap();
    let (keys, tasks) = (connect(&fixture.url).await, connect(&fixture.url).await);
    keys.batch_execute("BEGIN; LOCK TABLE punctual.idempotency").await.unwrap();
    tasks.batch_execute("BEGIN; LOCK TABLE punctual.tasks IN SHARE MODE").await.unwrap();
    // A replay keeps the writer, so that the calls behind it become a group.
    let replay = spawn_insert(&store, keyed);
    until_waiting_for(&fixture, "idempotency").await;
    let callers: Vec<_> = (0..20).map(|_| spawn_insert(&store, task().build())).collect();
    tokio::task::yield_now().await;
    keys.batch_execute("ROLLBACK").await.unwrap();
    assert!(matches!(replay.await.unwrap().unwrap()[..], [Inserted::Replayed(_)]));
    until_waiting_for(&fixture, "tasks").await;
    for caller in callers {
        caller.abort();
    }
    // It waits for as long as the group, and longer.
    let refused = store.insert(vec![task().build()]).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    tasks.batch_execute("ROLLBACK").await.unwrap();
    Store::close(&store).await.unwrap();
    assert_eq!(fixture.number("SELECT count(*) FROM tasks").await, 1, "it was stored for nobody");
}

fn spawn_insert(store: &PostgresStore, task: NewTask) -> JoinHandle<Result<Vec<Inserted>, StoreError>> {
    let store = store.clone();
    tokio::spawn(async move { store.insert(vec![task]).await })
}

/// Returns once a session waits for a lock on a table.
async fn until_waiting_for(fixture: &Fixture, table: &str) {
    let sql = format!("SELECT count(*) FROM pg_locks WHERE relation = '{table}'::regclass AND NOT granted");
    eventually("a session waits for the lock", PATIENCE, async || match fixture.number(&sql).await {
        0 => Err(format!("none waits for {table}")),
        _ => Ok(()),
    })
    .await;
}
