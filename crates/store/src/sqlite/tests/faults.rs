//! Jobs that fail, disks that are full, and disks that break.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use punctual_core::store::{Store, StoreError};
use punctual_testkit::eventually::eventually;
use punctual_testkit::fixtures::{TENANT, task};
use rusqlite::ffi;
use tokio::sync::oneshot;

use super::super::fault::Fault;
use super::super::insert;
use super::super::session::Session;
use super::Fixture;

fn broken_disk() -> Fault {
    let error = ffi::Error::new(ffi::SQLITE_IOERR_FSYNC);
    Fault::Sqlite(rusqlite::Error::SqliteFailure(error, Some("as if the disk had failed".to_owned())))
}

/// Runs five jobs in one batch. The second, third and fourth fail, each in its own way. Returns the
/// five answers.
async fn batch_with_failures(fixture: &Arc<Fixture>) -> Vec<Result<(), StoreError>> {
    // The writer waits in a first job until the others are queued: they become one batch.
    let (go, wait) = mpsc::channel::<()>();
    let (begun, begins) = oneshot::channel();
    let first = {
        let fixture = Arc::clone(fixture);
        let block = move |_: &mut Session<'_>| Ok(begun.send(()).is_ok() && wait.recv().is_ok());
        tokio::spawn(async move { fixture.write(block).await })
    };
    begins.await.unwrap();
    let call = |job: usize| {
        let fixture = Arc::clone(fixture);
        tokio::spawn(async move {
            let batch = task().queue(&format!("queue {job}")).times(3);
            fixture
                .write(move |session| {
                    insert::insert(session, batch)?;
                    match job {
                        1 => Err(Fault::Corrupt("as if it were corrupt".to_owned())),
                        2 => panic!("as if we had a bug"),
                        3 => Ok(session.connection.execute_batch("SELECT no_such_function()")?),
                        _ => Ok(()),
                    }
                })
                .await
        })
    };
    let mut calls = Vec::new();
    for job in 0..5 {
        calls.push(call(job));
        // Each is queued before the next: the order is fixed.
        while fixture.store.writer().waiting() < calls.len() {
            tokio::task::yield_now().await;
        }
    }
    go.send(()).unwrap();
    assert!(first.await.unwrap().unwrap());
    let mut answers = Vec::new();
    for call in calls {
        answers.push(call.await.unwrap());
    }
    assert!(matches!(answers[1], Err(StoreError::Corrupt(_))), "{answers:?}");
    assert!(matches!(answers[2], Err(StoreError::Unavailable(_))), "{answers:?}");
    assert!(matches!(answers[3], Err(StoreError::Unavailable(_))), "{answers:?}");
    answers
}

async fn assert_stored(fixture: &Fixture, tasks: i64, lanes: i64) {
    for table in ["SELECT count(*) FROM tasks", "SELECT count(*) FROM bodies", "SELECT count(*) FROM ids"] {
        assert_eq!(fixture.number(table).await, tasks, "{table}");
    }
    assert_eq!(fixture.number("SELECT count(*) FROM lanes").await, lanes, "a lane outlived its job");
    fixture.assert_counts().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_failed_job_savepoints_guard_the_other_jobs() {
    let fixture = Arc::new(Fixture::open());
    let answers = batch_with_failures(&fixture).await;
    let Err(companion) = &answers[0] else { panic!("it was in the transaction that was lost") };
    assert!(companion.is_retryable() && companion.to_string().contains("nothing was changed"), "{companion}");
    assert!(answers[4].is_ok(), "it ran after the failures: {answers:?}");
    assert_stored(&fixture, 3, 1).await;

    let answers = batch_with_failures(&fixture).await;
    assert!(answers[0].is_ok() && answers[4].is_ok(), "savepoints guard them now: {answers:?}");
    assert_stored(&fixture, 9, 2).await;

    // Rolled back lanes are made again, with the right keys.
    for job in 0..5 {
        let queue = format!("queue {job}");
        let stored = fixture.insert(task().queue(&queue)).await;
        let read = fixture.store.get(TENANT, vec![stored.id]).await.unwrap().pop().unwrap().unwrap();
        assert_eq!(read.lane.key.queue, queue);
    }
    fixture.assert_counts().await;
}

#[tokio::test]
async fn a_failed_job_leaves_nothing_behind() {
    let fixture = Fixture::open();
    let batch = task().times(3);
    let failed = fixture
        .write(move |session| {
            insert::insert(session, batch)?;
            Err::<(), _>(Fault::Corrupt("as if it were corrupt".to_owned()))
        })
        .await;
    assert!(matches!(failed, Err(StoreError::Corrupt(_))));
    assert_eq!(fixture.number("SELECT count(*) FROM tasks").await, 0);
    assert_eq!(fixture.number("SELECT count(*) FROM lanes").await, 0);
    fixture.insert(task()).await;
    fixture.assert_counts().await;
}

#[tokio::test]
async fn a_full_store_takes_writes_again_once_there_is_room() {
    let fixture = Fixture::open();
    let before = fixture.insert(task()).await;
    fixture.sql("PRAGMA max_page_count = 1").await; // SQLite raises this to the current size
    let large = format!("\"{}\"", "x".repeat(100_000));
    for _ in 0..3 {
        let refused = fixture.store.insert(vec![task().payload(&large).build()]).await;
        assert!(matches!(refused, Err(StoreError::Full(_))), "{refused:?}");
    }
    assert!(fixture.store.get(TENANT, vec![before.id]).await.unwrap()[0].is_some(), "reads still work");
    fixture.sql("PRAGMA max_page_count = 1000000").await;
    fixture.insert(task().payload(&large)).await;
    assert_eq!(fixture.number("SELECT count(*) FROM tasks").await, 2);
    fixture.assert_counts().await;
}

#[tokio::test]
async fn after_a_disk_failure_the_database_is_reopened() {
    let fixture = Fixture::open();
    let before = fixture.insert(task()).await;
    let batch = task().queue("lost").times(10);
    let lost = fixture
        .write(move |session| {
            insert::insert(session, batch)?;
            Err::<(), _>(broken_disk())
        })
        .await;
    assert!(matches!(&lost, Err(StoreError::Unavailable(_))), "{lost:?}");
    let after = fixture.insert(task()).await;
    assert_eq!(fixture.number("SELECT count(*) FROM tasks").await, 2);
    assert_eq!(after.lane, before.lane);
    for stored in [&before, &after] {
        assert!(fixture.store.get(TENANT, vec![stored.id]).await.unwrap()[0].is_some());
    }
    fixture.assert_counts().await;
}

#[tokio::test]
async fn a_failed_reader_is_reopened() {
    let fixture = Fixture::open();
    let stored = fixture.insert(task()).await;
    for _ in 0..10 {
        let failed = fixture.store.readers().call(|_| Err::<(), _>(broken_disk())).await;
        assert!(failed.is_err());
        let panicked = fixture.store.readers().call(|_| -> Result<(), Fault> { panic!("as if we had a bug") }).await;
        assert!(panicked.is_err());
        assert!(fixture.store.get(TENANT, vec![stored.id]).await.unwrap()[0].is_some());
    }
}

#[tokio::test]
async fn a_reader_cannot_write() {
    let fixture = Fixture::open();
    let refused =
        fixture.store.readers().call(|session| Ok(session.connection.execute_batch("DELETE FROM tasks")?)).await;
    assert!(refused.is_err());
}

#[tokio::test]
async fn a_file_that_passes_its_check_is_trusted_again() {
    let fixture = Fixture::open();
    let malformed = || Fault::Sqlite(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CORRUPT), None));
    let failed = fixture.write(move |_| Err::<(), _>(malformed())).await;
    assert!(matches!(failed, Err(StoreError::Unavailable(_))), "it may be the disk: {failed:?}");
    eventually("the file was read and found whole", Duration::from_secs(20), async || {
        fixture.store.check().await.map_err(|error| error.to_string())
    })
    .await;
    fixture.insert(task()).await;
}

/// A check that does not end in time fails, too (`api/src/readiness.rs`).
#[tokio::test]
async fn a_lock_of_another_process_passes_no_check() {
    let fixture = Fixture::open();
    fixture.store.check().await.unwrap();
    let other = rusqlite::Connection::open(fixture.directory.path().join("punctual.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let checked = tokio::time::timeout(Duration::from_secs(2), fixture.store.check()).await;
    assert!(!matches!(checked, Ok(Ok(()))), "{checked:?}");
    other.execute_batch("ROLLBACK").unwrap();
    fixture.store.check().await.unwrap();
}
