//! The forecast in the embedded database: the content of its table.

use punctual_core::forecast::Minute;
use punctual_core::insight::Insight;
use punctual_core::store::{Filter, Store};
use punctual_testkit::fixtures::{START, TENANT, at, task};

use super::super::{Migrator, Options, SqliteStore};
use super::{Fixture, open};

const MINUTE: i64 = 60_000;

/// Minutes after [`START`] and how many tasks are due in them.
async fn waiting(store: &SqliteStore) -> Vec<(i64, u64)> {
    let start = Minute::of(START);
    let found = store.waiting(TENANT, start.plus(1), start.plus(10_000)).await.unwrap();
    found.into_iter().map(|(minute, tasks)| (minute.number() - start.number(), tasks)).collect()
}

#[tokio::test]
async fn only_later_minutes_have_rows() {
    let fixture = Fixture::open();
    fixture.store.insert(task().times(1_000)).await.unwrap();
    let due = fixture.insert(task()).await;
    assert_eq!(fixture.lease(&due, 100).await.len(), 100);
    assert_eq!(fixture.number("SELECT count(*) FROM forecast").await, 0);
    let later = |number: i64| task().queue(&format!("q{}", number % 5)).due(at(MINUTE + number * 3_600)).build();
    fixture.store.insert((0..1_000).map(later).collect()).await.unwrap();
    assert_eq!(fixture.number("SELECT count(*) FROM forecast").await, 60);
    assert_eq!(fixture.number("SELECT sum(tasks) FROM forecast").await, 1_000);
}

#[tokio::test]
async fn the_migration_counts_existing_tasks() {
    let fixture = Fixture::open();
    let first = fixture.insert(task().due(at(5 * MINUTE))).await;
    fixture.insert(task().queue("other").due(at(5 * MINUTE + 1))).await;
    fixture.insert(task().due(at(7 * MINUTE))).await;
    fixture.insert(task().tenant("other").due(at(7 * MINUTE))).await;
    fixture.insert(task().depends_on(&[first.id]).due(at(8 * MINUTE))).await;
    let running = fixture.insert(task().queue("running")).await;
    assert_eq!(fixture.lease(&running, 1).await.len(), 1);
    Store::close(&fixture.store).await.unwrap();
    let mut database = Migrator::open(fixture.directory.path(), &Options::default()).unwrap();
    assert_eq!(database.down(7).unwrap().last(), Some(&8));
    drop(database);
    assert_eq!(waiting(&open(fixture.directory.path())).await, [(5, 2), (7, 1)]);
}

#[tokio::test]
async fn a_task_in_quarantine_is_not_counted() {
    let fixture = Fixture::open();
    fixture.insert(task().due(at(5 * MINUTE))).await;
    fixture.insert(task().due(at(5 * MINUTE))).await;
    fixture.sql("UPDATE bodies SET metadata = '[1]' WHERE seq = 2").await;
    let filter = Filter { tenant: TENANT.into(), ..Filter::default() };
    assert_eq!(fixture.store.list(filter, None, 10).await.unwrap().tasks.len(), 1);
    assert_eq!(fixture.number("SELECT count(*) FROM quarantine").await, 1);
    assert_eq!(waiting(&fixture.store).await, [(5, 1)]);
}
