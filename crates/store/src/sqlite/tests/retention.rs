//! Pruning removes every row of a task, in steps that other writes do not wait for.

use std::time::Instant;

use punctual_core::ids::NodeId;
use punctual_core::state::{By, Event, transition};
use punctual_core::store::Store;
use punctual_core::task::Task;
use punctual_core::time::Timestamp;
use punctual_core::trail::Actor;
use punctual_core::upkeep::{Prunable, Upkeep};
use punctual_testkit::fixtures::{START, at, task};

use super::Fixture;

impl Fixture {
    async fn done(&self, tasks: Vec<Task>) {
        let by = By { now: START, node: NodeId::new(7), actor: Actor::Client };
        let event = || Event::Complete { result: None, http_status: None, dropped: None };
        let change = |task: Task| (task.id, transition(&task.position, event(), &by).unwrap());
        self.store.apply(tasks.into_iter().map(change).collect()).await.unwrap();
    }

    async fn prune(&self, before: Timestamp) {
        while self.store.prune(Prunable::History, before, 100).await.unwrap().more {}
    }
}

#[tokio::test]
async fn pruning_removes_every_row_of_a_task() {
    let fixture = Fixture::open();
    let bad = fixture.insert(task().queue("bad")).await;
    fixture.sql("UPDATE tasks SET version = -1").await;
    assert!(fixture.lease(&bad, 1).await.is_empty());
    assert_eq!(fixture.number("SELECT count(*) FROM quarantine").await, 1);
    let good = fixture.insert(task().key("k", 1)).await;
    let running = fixture.lease(&good, 1).await;
    fixture.done(running).await;
    let waiting = fixture.insert(task().queue("waiting")).await;
    fixture.prune(START).await;
    assert_eq!(fixture.number("SELECT count(*) FROM quarantine").await, 1, "it was quarantined just now");
    fixture.prune(at(1)).await;
    let left = "SELECT (SELECT count(*) FROM history) + (SELECT count(*) FROM quarantine)";
    assert_eq!(fixture.number(left).await, 0);
    let left = "SELECT (SELECT count(*) FROM bodies) + (SELECT count(*) FROM ids) + (SELECT count(*) FROM tasks)";
    assert_eq!(fixture.number(left).await, 3, "the rows of the waiting task");
    fixture.assert_counts().await;
    assert_eq!(fixture.lease(&waiting, 5).await.len(), 1);
}

/// A step over large payloads is cut short: other writes wait for at most one step.
#[tokio::test]
async fn a_step_is_bounded_in_bytes() {
    let fixture = Fixture::open();
    let large = format!("\"{}\"", "x".repeat(250_000));
    let first = fixture.insert(task().payload(&large)).await;
    for _ in 1..20 {
        fixture.insert(task().payload(&large)).await;
    }
    let mut running = Vec::new();
    while running.len() < 20 {
        running.extend(fixture.lease(&first, 20).await);
    }
    fixture.done(running).await;
    let mut steps = Vec::new();
    loop {
        let begun = Instant::now();
        let step = fixture.store.prune(Prunable::History, at(1), 100).await.unwrap();
        steps.push((step.removed, begun.elapsed()));
        if !step.more {
            break;
        }
    }
    assert_eq!(steps.iter().map(|(removed, _)| removed).sum::<u64>(), 20);
    assert!(steps.iter().all(|(removed, _)| *removed <= 3), "{steps:?}");
}

#[tokio::test]
async fn a_step_without_old_rows_writes_nothing() {
    let fixture = Fixture::open();
    let good = fixture.insert(task().key("k", 1)).await;
    let running = fixture.lease(&good, 1).await;
    fixture.done(running).await;
    let changes = async || fixture.write(|session| Ok(session.connection.total_changes())).await.unwrap();
    let before = changes().await;
    for _ in 0..3 {
        fixture.store.prune(Prunable::History, START, 100).await.unwrap();
        fixture.store.prune(Prunable::Keys, START, 100).await.unwrap();
    }
    assert_eq!(changes().await, before);
}
