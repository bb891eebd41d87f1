//! The forecast on PostgreSQL: what its table holds, who writes to it, and how it is read.

use punctual_core::forecast::Minute;
use punctual_core::ids::NodeId;
use punctual_core::insight::Insight;
use punctual_core::state::{By, Event, transition};
use punctual_core::store::{Filter, Store};
use punctual_core::task::Task;
use punctual_core::trail::Actor;
use punctual_testkit::fixtures::{START, TENANT, at, task};

use super::super::PostgresStore;
use super::{Fixture, Migrator, insert, open};

const MINUTE: i64 = 60_000;

/// Minutes after [`START`] and how many tasks are due in them.
async fn waiting(store: &PostgresStore) -> Vec<(i64, u64)> {
    let start = Minute::of(START);
    let found = store.waiting(TENANT, start.plus(1), start.plus(10_000)).await.unwrap();
    found.into_iter().map(|(minute, tasks)| (minute.number() - start.number(), tasks)).collect()
}

async fn cancel(store: &PostgresStore, task: &Task) {
    let by = By { now: START, node: NodeId::new(7), actor: Actor::Client };
    store.apply(vec![(task.id, transition(&task.position, Event::Cancel, &by).unwrap())]).await.unwrap();
}

#[tokio::test]
async fn only_tasks_due_later_make_rows_one_for_each_minute() {
    let fixture = Fixture::open().await;
    fixture.store.insert(task().times(1_000)).await.unwrap();
    let due = fixture.insert(task()).await;
    assert_eq!(fixture.lease(&due, 100).await.len(), 100);
    assert_eq!(fixture.number("SELECT count(*) FROM forecast").await, 0);
    let wish = |number: i64| task().queue(&format!("q{}", number % 5)).due(at(MINUTE + number * 3_600)).build();
    fixture.store.insert((0..1_000).map(wish).collect()).await.unwrap();
    assert_eq!(fixture.number("SELECT count(*) FROM forecast").await, 60);
    assert_eq!(fixture.number("SELECT sum(tasks)::bigint FROM forecast").await, 1_000);
}

#[tokio::test]
async fn tasks_older_than_the_table_are_counted() {
    let fixture = Fixture::open().await;
    let first = fixture.insert(task().due(at(5 * MINUTE))).await;
    fixture.insert(task().queue("other").due(at(5 * MINUTE + 1))).await;
    fixture.insert(task().due(at(7 * MINUTE))).await;
    fixture.insert(task().tenant("other").due(at(7 * MINUTE))).await;
    fixture.insert(task().depends_on(&[first.id]).due(at(8 * MINUTE))).await;
    let running = fixture.insert(task().queue("running")).await;
    assert_eq!(fixture.lease(&running, 1).await.len(), 1);
    Store::close(&fixture.store).await.unwrap();
    let database = Migrator::connect(&fixture.url).await.unwrap();
    assert_eq!(database.down(9).await.unwrap().last(), Some(&10));
    assert_eq!(database.up(START).await.unwrap().first(), Some(&10));
    let store = open(&fixture.url, NodeId::new(8)).await;
    assert_eq!(waiting(&store).await, [(5, 2), (7, 1)]);
    cancel(&store, &first).await;
    assert_eq!(waiting(&store).await, [(5, 1), (7, 1)]);
}

#[tokio::test]
async fn a_node_may_subtract_what_another_added() {
    let fixture = Fixture::open().await;
    let other = open(&fixture.url, NodeId::new(8)).await;
    let mut tasks = Vec::new();
    for number in 0..10 {
        let store = if number % 2 == 0 { &fixture.store } else { &other };
        tasks.push(insert(store, task().due(at(5 * MINUTE))).await);
    }
    for store in [&fixture.store, &other] {
        assert_eq!(waiting(store).await, [(5, 10)]);
    }
    for task in &tasks[1..] {
        cancel(&fixture.store, task).await;
    }
    assert_eq!(waiting(&other).await, [(5, 1)]);
    cancel(&other, &tasks[0]).await;
    assert_eq!(waiting(&other).await, []);
}

/// An old node that runs beside new ones counts nothing.
#[tokio::test]
async fn tasks_that_were_never_counted_make_no_count_negative() {
    let fixture = Fixture::open().await;
    let uncounted = fixture.insert(task().due(at(5 * MINUTE))).await;
    fixture.insert(task().due(at(6 * MINUTE))).await;
    fixture.sql(&format!("DELETE FROM forecast WHERE minute = {}", Minute::of(at(5 * MINUTE)).number())).await;
    cancel(&fixture.store, &uncounted).await;
    assert_eq!(fixture.number("SELECT min(tasks) FROM forecast").await, -1);
    assert_eq!(waiting(&fixture.store).await, [(6, 1)]);
}

#[tokio::test]
async fn a_task_in_quarantine_is_not_counted() {
    let fixture = Fixture::open().await;
    let bad = fixture.insert(task().due(at(5 * MINUTE))).await;
    fixture.insert(task().due(at(5 * MINUTE))).await;
    fixture.sql(&format!("UPDATE tasks SET metadata = '[1]' WHERE id = '{}'", bad.id.uuid())).await;
    let filter = Filter { tenant: TENANT.into(), ..Filter::default() };
    assert_eq!(fixture.store.list(filter, None, 10).await.unwrap().tasks.len(), 1);
    assert_eq!(fixture.number("SELECT count(*) FROM quarantine").await, 1);
    assert_eq!(waiting(&fixture.store).await, [(5, 1)]);
}
