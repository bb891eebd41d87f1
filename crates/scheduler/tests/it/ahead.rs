//! What pull workers wait for is claimed a little ahead of its time, and given to them when it is due.

use std::time::{Duration, Instant};

use punctual_core::state::State;
use punctual_core::task::Task;
use punctual_scheduler::desk::{DeskError, Wants};
use punctual_scheduler::dispatcher::Report;
use punctual_testkit::fixtures::{START, at, task};
use tokio::task::JoinHandle;

use crate::bench::{Bench, ask};

const AHEAD: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(30);

fn bench() -> Bench {
    Bench::with(|config| config.claim_ahead = AHEAD)
}

/// A worker that waits at the desk.
async fn worker(bench: &Bench, max_tasks: usize) -> JoinHandle<Result<Vec<Task>, DeskError>> {
    let desk = bench.desk.clone();
    let ask = ask(Wants::Queues(vec!["default".into()]), max_tasks, LONG);
    let asked = tokio::spawn(async move { desk.lease(ask).await });
    tokio::task::yield_now().await;
    asked
}

#[tokio::test]
async fn what_is_nearly_due_is_claimed_ahead_and_given_out_when_it_is_due() {
    let mut bench = bench();
    let id = bench.submit(task().due(at(20))).await;
    let asked = worker(&bench, 10).await;
    let before = Instant::now();
    assert_eq!(bench.dispatcher.run_once().await.unwrap().pulled, 1);
    let claimed = bench.task(id).await;
    assert_eq!((claimed.state(), claimed.started_at), (State::Running, Some(at(20))));
    let leased = asked.await.unwrap().unwrap();
    assert!(before.elapsed() >= AHEAD, "it was handed out after {:?}", before.elapsed());
    assert_eq!(leased.iter().map(|task| task.id).collect::<Vec<_>>(), [id]);
}

#[tokio::test]
async fn only_what_is_due_first_is_claimed_ahead_and_nothing_that_is_due_waits_for_it() {
    let mut bench = bench();
    let first = bench.submit(task().due(at(5))).await;
    let second = bench.submit(task().priority(9).due(at(10))).await;
    let asked = worker(&bench, 10).await;
    assert_eq!(bench.dispatcher.run_once().await.unwrap().pulled, 1);
    let leased = asked.await.unwrap().unwrap();
    assert_eq!(leased.iter().map(|task| task.id).collect::<Vec<_>>(), [first]);
    let due = bench.submit(task().due(START)).await;
    bench.spy.claims.lock().unwrap().clear();
    assert_eq!(bench.lease("default", 10).await[0].id, due);
    assert_eq!(bench.spy.claims.lock().unwrap()[0].lanes.len(), 1, "the lane of what is not due is left out");
    assert_eq!(bench.task(second).await.state(), State::Pending);
}

#[tokio::test]
async fn what_is_due_later_is_left_alone() {
    let mut bench = bench();
    let id = bench.submit(task().due(at(21))).await;
    let asked = worker(&bench, 10).await;
    assert_eq!(bench.dispatcher.run_once().await.unwrap(), Report::default());
    assert_eq!(bench.task(id).await.state(), State::Pending);
    bench.clock.advance_millis(1);
    assert_eq!(bench.dispatcher.run_once().await.unwrap().pulled, 1);
    assert_eq!(asked.await.unwrap().unwrap().len(), 1);
}

#[tokio::test]
async fn a_webhook_is_not_published_ahead() {
    let mut bench = bench();
    bench.submit(task().due(at(20)).push("http://a.example:80")).await;
    bench.turns().await;
    assert_eq!(bench.depth().await, 0);
    bench.clock.advance_millis(20);
    bench.turns().await;
    assert_eq!(bench.depth().await, 1);
}

#[tokio::test]
async fn what_was_claimed_ahead_for_a_worker_that_hung_up_is_not_due_before_its_time() {
    let mut bench = bench();
    let id = bench.submit(task().due(at(20))).await;
    let asked = worker(&bench, 1).await;
    assert_eq!(bench.dispatcher.run_once().await.unwrap().pulled, 1);
    asked.abort();
    assert!(asked.await.unwrap_err().is_cancelled());
    bench.turns().await;
    let back = bench.task(id).await;
    assert_eq!((back.state(), back.position.attempts, back.due_at), (State::Pending, 0, at(20)));
    assert_eq!((back.started_at, back.updated_at()), (Some(at(20)), at(20)), "its run ended as it began");
}
