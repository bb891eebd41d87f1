//! Tasks for waiting polls are claimed a little ahead of their time and granted when they are due.

use std::time::{Duration, Instant};

use punctual_core::state::State;
use punctual_core::task::Task;
use punctual_scheduler::dispatcher::Report;
use punctual_scheduler::polls::{PollError, PollFilter};
use punctual_testkit::fixtures::{START, at, task};
use tokio::task::JoinHandle;

use crate::harness::{Harness, request};

const AHEAD: Duration = Duration::from_millis(20);
const WAIT_MAX: Duration = Duration::from_secs(30);

fn harness() -> Harness {
    Harness::with(|config| config.claim_ahead = AHEAD)
}

/// A worker that waits for tasks.
async fn worker(harness: &Harness, max_tasks: usize) -> JoinHandle<Result<Vec<Task>, PollError>> {
    let polls = harness.polls.clone();
    let request = request(PollFilter::Queues(vec!["default".into()]), max_tasks, WAIT_MAX);
    let polled = tokio::spawn(async move { polls.poll(request).await });
    tokio::task::yield_now().await;
    polled
}

#[tokio::test]
async fn a_task_claimed_ahead_is_granted_when_it_is_due() {
    let mut harness = harness();
    let id = harness.submit(task().due(at(20))).await;
    let polled = worker(&harness, 10).await;
    let before = Instant::now();
    assert_eq!(harness.dispatcher.run_once().await.unwrap().pulled, 1);
    let claimed = harness.task(id).await;
    assert_eq!((claimed.state(), claimed.started_at), (State::Running, Some(at(20))));
    let leased = polled.await.unwrap().unwrap();
    assert!(before.elapsed() >= AHEAD, "it was granted after {:?}", before.elapsed());
    assert_eq!(leased.iter().map(|task| task.id).collect::<Vec<_>>(), [id]);
}

#[tokio::test]
async fn only_the_earliest_tasks_are_claimed_ahead() {
    let mut harness = harness();
    let first = harness.submit(task().due(at(5))).await;
    let second = harness.submit(task().priority(9).due(at(10))).await;
    let polled = worker(&harness, 10).await;
    assert_eq!(harness.dispatcher.run_once().await.unwrap().pulled, 1);
    let leased = polled.await.unwrap().unwrap();
    assert_eq!(leased.iter().map(|task| task.id).collect::<Vec<_>>(), [first]);
    let due = harness.submit(task().due(START)).await;
    harness.spy.claims.lock().unwrap().clear();
    assert_eq!(harness.lease("default", 10).await[0].id, due);
    assert_eq!(harness.spy.claims.lock().unwrap()[0].lanes.len(), 1, "the lane of what is not due is left out");
    assert_eq!(harness.task(second).await.state(), State::Pending);
}

#[tokio::test]
async fn a_task_due_later_is_not_claimed_ahead() {
    let mut harness = harness();
    let id = harness.submit(task().due(at(21))).await;
    let polled = worker(&harness, 10).await;
    assert_eq!(harness.dispatcher.run_once().await.unwrap(), Report::default());
    assert_eq!(harness.task(id).await.state(), State::Pending);
    harness.clock.advance_millis(1);
    assert_eq!(harness.dispatcher.run_once().await.unwrap().pulled, 1);
    assert_eq!(polled.await.unwrap().unwrap().len(), 1);
}

#[tokio::test]
async fn a_webhook_is_not_published_ahead() {
    let mut harness = harness();
    harness.submit(task().due(at(20)).push("http://a.example:80")).await;
    harness.passes().await;
    assert_eq!(harness.depth().await, 0);
    harness.clock.advance_millis(20);
    harness.passes().await;
    assert_eq!(harness.depth().await, 1);
}

#[tokio::test]
async fn a_task_claimed_ahead_in_vain_keeps_its_due_instant() {
    let mut harness = harness();
    let id = harness.submit(task().due(at(20))).await;
    let polled = worker(&harness, 1).await;
    assert_eq!(harness.dispatcher.run_once().await.unwrap().pulled, 1);
    polled.abort();
    assert!(polled.await.unwrap_err().is_cancelled());
    harness.passes().await;
    let back = harness.task(id).await;
    assert_eq!((back.state(), back.position.attempts, back.due_at), (State::Pending, 0, at(20)));
    assert_eq!((back.started_at, back.updated_at()), (Some(at(20)), at(20)), "its run ended as it began");
}
