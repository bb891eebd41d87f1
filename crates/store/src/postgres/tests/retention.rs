//! Prunes the monthly history, also while other sessions read or lock its tables.

use std::sync::Arc;
use std::time::{Duration, Instant};

use punctual_core::clock::ManualClock;
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::store::Store;
use punctual_core::task::Task;
use punctual_core::time::Timestamp;
use punctual_core::upkeep::{Prunable, Upkeep};
use punctual_testkit::fixtures::{START, TENANT, at, task};
use punctual_testkit::postgres::connect;
use uuid::Uuid;

use super::super::retention::first_id_at;
use super::{Fixture, Options, PostgresStore, complete};
use crate::migrations::postgres::LOCK;

/// 2026-06-01T00:00:00Z, the end of the month in which the test's tasks finish.
const END_OF_MAY: Timestamp = Timestamp::from_millis(1_780_272_000_000);

const MAY: &str = "history_2026_05";

const DAY: i64 = 24 * 3_600_000;

/// Prunes until no step is left.
async fn prune(store: &PostgresStore, before: Timestamp) -> u64 {
    let mut removed = 0;
    loop {
        let pruned = store.prune(Prunable::History, before, 100).await.unwrap();
        removed += pruned.removed;
        if !pruned.more {
            return removed;
        }
    }
}

/// A task that finished at [`START`].
async fn done(fixture: &Fixture) -> Task {
    let stored = fixture.insert(task()).await;
    let running = fixture.lease(&stored, 1).await.pop().unwrap();
    assert!(complete(&fixture.store, &running).await);
    running
}

async fn is_there(fixture: &Fixture, id: TaskId) -> bool {
    fixture.store.get(TENANT, vec![id]).await.unwrap()[0].is_some()
}

async fn in_may() -> Fixture {
    let fixture = Fixture::open().await;
    fixture.store.upkeep(START).await.unwrap();
    assert!(fixture.months().await.contains(&MAY.to_owned()));
    fixture
}

#[tokio::test]
async fn a_month_is_dropped_once_all_of_it_is_past() {
    let fixture = in_may().await;
    let task = done(&fixture).await;
    let clock = Arc::new(ManualClock::new(END_OF_MAY.plus_millis(DAY)));
    let in_june = PostgresStore::connect(&fixture.url, clock, NodeId::new(8), Options::default()).await.unwrap();
    let months = fixture.months().await.len();
    assert_eq!(prune(&in_june, END_OF_MAY.plus_millis(-1)).await, 0);
    assert!(is_there(&fixture, task.id).await, "the end of May is still kept");
    prune(&in_june, END_OF_MAY).await;
    assert!(!is_there(&fixture, task.id).await);
    assert_eq!(fixture.months().await.len(), months - 1);
    fixture.assert_counts().await;
    // The writers keep working with the other tables.
    assert!(is_there(&fixture, done(&fixture).await.id).await);
}

#[tokio::test]
async fn rows_of_the_current_month_go_one_by_one() {
    let fixture = in_may().await;
    let mut ids = Vec::new();
    // Finished days ago; days ago, but the clock of its submitter was ahead; and just now.
    for (number, (days, submitted_at)) in
        [(-5, at(-6 * DAY)), (-5, at(60 * DAY)), (0, at(-6 * DAY))].into_iter().enumerate()
    {
        let task = done(&fixture).await;
        let base = first_id_at(submitted_at.as_millis()).as_u128();
        let id = Uuid::from_u128(base | u128::try_from(number).unwrap());
        let sql = format!(
            "UPDATE history SET id = '{id}', completed_at = completed_at + {days} * {DAY}::bigint WHERE id = '{}'",
            task.id.uuid()
        );
        fixture.sql(&sql).await;
        ids.push(TaskId::from_uuid(id));
    }
    assert_eq!(fixture.number(&format!("SELECT count(*) FROM {MAY}")).await, 3);
    assert_eq!(prune(&fixture.store, at(-DAY)).await, 1);
    assert!(!is_there(&fixture, ids[0]).await);
    assert!(is_there(&fixture, ids[1]).await, "it goes with its month");
    assert!(is_there(&fixture, ids[2]).await);
}

#[tokio::test]
async fn a_month_that_is_being_read_stays() {
    let fixture = in_may().await;
    let task = done(&fixture).await;
    let backup = connect(&fixture.url).await;
    backup.batch_execute(&format!("BEGIN; SELECT count(*) FROM punctual.{MAY}")).await.unwrap();
    let begun = Instant::now();
    prune(&fixture.store, END_OF_MAY).await;
    assert!(is_there(&fixture, task.id).await);
    let other = done(&fixture).await;
    // Far less than the usual lock timeout.
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    backup.batch_execute("COMMIT").await.unwrap();
    prune(&fixture.store, END_OF_MAY).await;
    for task in [task, other] {
        assert!(!is_there(&fixture, task.id).await);
    }
}

#[tokio::test]
async fn tables_are_changed_by_one_session_at_a_time() {
    let fixture = Fixture::open().await;
    let other = connect(&fixture.url).await;
    let lock = format!("SELECT pg_advisory_lock({LOCK})");
    other.batch_execute(&lock).await.unwrap();
    assert_eq!(fixture.store.upkeep(START).await.unwrap(), 0, "another leader or a migrating node has the lock");
    other.batch_execute("SELECT pg_advisory_unlock_all()").await.unwrap();
    assert_eq!(fixture.store.upkeep(START).await.unwrap(), 3);
    other.batch_execute(&lock).await.unwrap();
    prune(&fixture.store, END_OF_MAY).await;
    assert!(fixture.months().await.contains(&MAY.to_owned()));
    other.batch_execute("SELECT pg_advisory_unlock_all()").await.unwrap();
    prune(&fixture.store, END_OF_MAY).await;
    assert!(!fixture.months().await.contains(&MAY.to_owned()));
}

#[tokio::test]
async fn old_rows_of_the_quarantine_are_pruned() {
    let fixture = Fixture::open().await;
    let bad = fixture.insert(task()).await;
    fixture.sql(&format!("UPDATE tasks SET version = -1 WHERE id = '{}'", bad.id.uuid())).await;
    assert!(fixture.lease(&bad, 1).await.is_empty());
    assert_eq!(fixture.number("SELECT count(*) FROM quarantine").await, 1);
    prune(&fixture.store, START).await;
    assert_eq!(fixture.number("SELECT count(*) FROM quarantine").await, 1, "it was found just now");
    assert_eq!(prune(&fixture.store, at(1)).await, 1);
    assert_eq!(fixture.number("SELECT count(*) FROM quarantine").await, 0);
}

/// A key that was taken and is free a moment later is not damage: the submission is retried.
#[tokio::test]
async fn a_key_freed_during_a_submission_is_no_fault() {
    let fixture = Fixture::open().await;
    // The first insert of a key finds it taken, and the next read finds nothing.
    let trigger = "CREATE SEQUENCE inserts;
        CREATE FUNCTION taken_once() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF nextval('punctual.inserts') = 1 THEN RETURN NULL; END IF;
            RETURN NEW;
        END $$;
        CREATE TRIGGER taken_once BEFORE INSERT ON idempotency FOR EACH ROW EXECUTE FUNCTION taken_once()";
    fixture.sql(trigger).await;
    let stored = fixture.insert(task().key("k", 1)).await;
    assert!(is_there(&fixture, stored.id).await);
    assert_eq!(fixture.number("SELECT last_value FROM inserts").await, 2);
}
