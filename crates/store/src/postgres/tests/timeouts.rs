//! Calls that wait for a lock too long: their callers hear of it in time, and nothing is stored.

use std::time::{Duration, Instant};

use punctual_core::store::{Store, StoreError};
use punctual_testkit::fixtures::task;
use punctual_testkit::postgres::connect;

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

/// Their batch fails at the lock, and is not tried again for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_stored_for_callers_that_left_at_a_lock() {
    let fixture = Fixture::open().await;
    fixture.insert(task()).await;
    let lock = connect(&fixture.url).await;
    lock.batch_execute("BEGIN; LOCK TABLE punctual.tasks").await.unwrap();
    let callers: Vec<_> = (0..20)
        .map(|_| {
            let store = fixture.store.clone();
            tokio::spawn(tokio::time::timeout(PATIENCE.mul_f64(0.9), async move {
                store.insert(vec![task().build()]).await
            }))
        })
        .collect();
    for caller in callers {
        assert!(caller.await.unwrap().is_err(), "every caller leaves before it is answered");
    }
    // All writers that insert are at the lock, so this call is refused once they are done.
    let refused = fixture.store.insert(vec![task().build()]).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    lock.batch_execute("ROLLBACK").await.unwrap();
    fixture.insert(task()).await;
    assert_eq!(fixture.number("SELECT count(*) FROM tasks").await, 2, "it was stored for nobody");
}
