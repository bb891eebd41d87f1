//! Due tasks and their claimants meet.

use std::sync::Arc;
use std::time::{Duration, Instant};

use punctual_core::broker::{Broker, Message, WEBHOOK_POOL};
use punctual_core::ids::TaskId;
use punctual_core::state::State;
use punctual_scheduler::dispatcher::Report;
use punctual_scheduler::polls::{PollError, PollFilter};
use punctual_scheduler::targets::Slot;
use punctual_testkit::fixtures::{TENANT, at, task};
use tokio_util::sync::CancellationToken;

use crate::harness::{Harness, poll_once, request};

const WAIT_MAX: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_worker_that_waits_gets_a_fresh_task_at_once() {
    let harness = Harness::new();
    let (polls, store, stop) = (harness.polls.clone(), harness.store.clone(), CancellationToken::new());
    let dispatcher = tokio::spawn(harness.dispatcher.run(stop.clone()));
    let polled =
        tokio::spawn(
            async move { polls.poll(request(PollFilter::Queues(vec!["default".into()]), 10, WAIT_MAX)).await },
        );
    tokio::task::yield_now().await;
    store.insert(vec![task().build()]).await.unwrap();
    let leased = tokio::time::timeout(Duration::from_secs(5), polled).await.unwrap().unwrap().unwrap();
    assert_eq!(leased.len(), 1);
    assert_eq!((leased[0].state(), leased[0].position.version, leased[0].position.attempts), (State::Running, 3, 1));
    stop.cancel();
    dispatcher.await.unwrap();
}

#[tokio::test]
async fn no_task_is_granted_before_its_time() {
    let mut harness = Harness::new();
    harness.submit(task().due(at(10_000))).await;
    assert!(harness.lease("default", 10).await.is_empty());
    harness.clock.advance_millis(9_999);
    assert!(harness.lease("default", 10).await.is_empty());
    harness.clock.advance_millis(1);
    assert_eq!(harness.lease("default", 10).await.len(), 1);
}

#[tokio::test]
async fn the_sweep_finds_tasks_without_a_hint() {
    let mut harness = Harness::with(|config| config.sweep_interval = Duration::ZERO);
    // Beyond the prefetch window, so the hint is dropped.
    harness.submit(task().due(at(120_000))).await;
    harness.passes().await;
    harness.clock.advance_millis(120_000);
    assert_eq!(harness.lease("default", 10).await.len(), 1);
}

#[tokio::test]
async fn the_more_urgent_goes_first_and_then_the_older() {
    let mut harness = Harness::new();
    let low = harness.submit(task().priority(1).due(at(-5_000))).await;
    let old = harness.submit(task().due(at(-3_000))).await;
    let new = harness.submit(task().due(at(-1_000))).await;
    let urgent = harness.submit(task().priority(9)).await;
    let leased: Vec<_> = harness.lease("default", 3).await.iter().map(|task| task.id).collect();
    assert_eq!(leased, [urgent, old, new]);
    assert_eq!(harness.lease("default", 3).await[0].id, low);
}

#[tokio::test]
async fn a_poll_by_type_is_served_from_all_queues_of_its_tenant() {
    let mut harness = Harness::new();
    harness.submit(task().queue("a").kind("mail")).await;
    harness.submit(task().queue("b").kind("mail")).await;
    harness.submit(task().queue("b").kind("other")).await;
    harness.submit(task().queue("b").kind("mail").tenant("another")).await;
    let polls = harness.polls.clone();
    let polled =
        tokio::spawn(async move { polls.poll(request(PollFilter::Kinds(vec!["mail".into()]), 10, WAIT_MAX)).await });
    while !polled.is_finished() {
        harness.dispatcher.run_once().await.unwrap();
        tokio::task::yield_now().await;
    }
    let leased = polled.await.unwrap().unwrap();
    assert_eq!(leased.len(), 2);
    assert!(leased.iter().all(|task| task.lane.key.kind == "mail"));
}

#[tokio::test]
async fn many_single_polls_never_share_a_task() {
    let harness = Harness::new();
    for _ in 0..50 {
        harness.submit(task()).await;
    }
    let (polls, stop) = (harness.polls.clone(), CancellationToken::new());
    let dispatcher = tokio::spawn(harness.dispatcher.run(stop.clone()));
    let mut polled = Vec::new();
    for _ in 0..50 {
        let polls = polls.clone();
        polled.push(tokio::spawn(async move {
            polls.poll(request(PollFilter::Queues(vec!["default".into()]), 1, WAIT_MAX)).await
        }));
    }
    let mut leased = std::collections::HashSet::new();
    for polled in polled {
        for task in polled.await.unwrap().unwrap() {
            assert!(leased.insert(task.id), "{} was leased twice", task.id);
        }
    }
    assert_eq!(leased.len(), 50);
    stop.cancel();
    dispatcher.await.unwrap();
}

#[tokio::test]
async fn tasks_of_a_disconnected_worker_are_given_back_uncounted() {
    let mut harness = Harness::new();
    let id = harness.submit(task()).await;
    let polls = harness.polls.clone();
    let mut polled =
        Box::pin(async move { polls.poll(request(PollFilter::Queues(vec!["default".into()]), 1, WAIT_MAX)).await });
    // Polled once, so that the worker waits; the dispatcher claims for it; then it disconnects.
    assert!(poll_once(&mut polled).is_none());
    assert_eq!(harness.dispatcher.run_once().await.unwrap(), Report { pulled: 1, pushed: 0, more: true });
    assert_eq!(harness.task(id).await.state(), State::Running);
    drop(polled);
    harness.passes().await;
    let task = harness.task(id).await;
    assert_eq!((task.state(), task.position.attempts), (State::Pending, 0));
    assert_eq!(harness.lease("default", 1).await[0].id, id);
}

/// It may hang up after its poll was answered, before its tasks have reached it.
#[tokio::test]
async fn an_unconfirmed_hand_over_is_given_on() {
    let mut harness = Harness::new();
    let id = harness.submit(task()).await;
    let polls = harness.polls.clone();
    let wanted = request(PollFilter::Queues(vec!["default".into()]), 1, WAIT_MAX);
    let mut polled = Box::pin(async move { polls.poll_unconfirmed(wanted).await });
    assert!(poll_once(&mut polled).is_none());
    assert_eq!(harness.dispatcher.run_once().await.unwrap(), Report { pulled: 1, pushed: 0, more: true });
    let (tasks, hand_over) = polled.await.unwrap();
    assert_eq!((tasks.len(), harness.task(id).await.state()), (1, State::Running));
    drop(hand_over);
    harness.passes().await;
    assert_eq!(harness.task(id).await.position.attempts, 0);
    assert_eq!(harness.lease("default", 1).await[0].id, id);
}

#[tokio::test]
async fn more_workers_than_may_wait_are_turned_away() {
    let mut harness = Harness::with(|config| config.waiting_workers = 2);
    let mut polled = Vec::new();
    for _ in 0..3 {
        let polls = harness.polls.clone();
        polled.push(tokio::spawn(async move {
            polls.poll(request(PollFilter::Queues(vec!["default".into()]), 1, WAIT_MAX)).await
        }));
        tokio::task::yield_now().await;
        harness.passes().await;
    }
    let refused = polled.pop().unwrap().await.unwrap();
    assert!(matches!(refused, Err(PollError::Crowded)), "{refused:?}");
}

#[tokio::test]
async fn a_stopping_dispatcher_answers_every_waiting_poll() {
    let harness = Harness::new();
    let (polls, stop) = (harness.polls.clone(), CancellationToken::new());
    let dispatcher = tokio::spawn(harness.dispatcher.run(stop.clone()));
    let waiting = polls.clone();
    let polled =
        tokio::spawn(
            async move { waiting.poll(request(PollFilter::Queues(vec!["default".into()]), 1, WAIT_MAX)).await },
        );
    tokio::task::yield_now().await;
    stop.cancel();
    dispatcher.await.unwrap();
    assert!(polled.await.unwrap().is_ok_and(|tasks| tasks.is_empty()));
    let late = polls.poll(request(PollFilter::Queues(vec!["default".into()]), 1, WAIT_MAX)).await;
    assert!(matches!(late, Err(PollError::Closed)));
}

#[tokio::test]
async fn a_crowded_target_does_not_hold_the_others() {
    let mut harness = Harness::new();
    for _ in 0..10 {
        harness.submit(task().push("http://dead.example:80").due(at(-1_000))).await;
    }
    harness.submit(task().push("http://live.example:80")).await;
    harness.passes().await;
    // Two slots for each target.
    assert_eq!(harness.broker.depth(WEBHOOK_POOL).await.unwrap(), 3);
    harness.targets.give_back(&slot("http://dead.example:80"));
    harness.passes().await;
    assert_eq!(harness.broker.depth(WEBHOOK_POOL).await.unwrap(), 4);
}

#[tokio::test]
async fn tasks_that_cannot_be_published_are_given_back_uncounted() {
    let mut harness = Harness::new();
    let id = harness.submit(task().push("http://live.example:80")).await;
    harness.passes().await;
    let queued = harness.task(id).await;
    assert_eq!((queued.state(), queued.position.attempts), (State::Queued, 1));
    let second = harness.submit(task().push("http://live.example:80")).await;
    harness.broker.close().await;
    harness.passes().await;
    let task = harness.task(second).await;
    assert_eq!((task.state(), task.position.attempts), (State::Pending, 0));
}

/// The slot of a published task of the target.
fn slot(target: &str) -> Slot {
    let (tenant, pool) = (TENANT.to_owned(), WEBHOOK_POOL.to_owned());
    Slot::of(&Message { task_id: TaskId::new(), version: 2, tenant, priority: 5, pool, target: target.to_owned() })
}

/// A claim takes nothing of tasks that other nodes have in hand, or that became due meanwhile. The
/// next one must not wait for a second.
#[tokio::test]
async fn a_claim_that_took_nothing_is_retried_soon() {
    const TIMES: usize = 6;
    let harness = Harness::new();
    harness.submit(task()).await;
    harness.spy.claim_in_vain(TIMES);
    let (polls, stop, spy) = (harness.polls.clone(), CancellationToken::new(), Arc::clone(&harness.spy));
    let dispatcher = tokio::spawn(harness.dispatcher.run(stop.clone()));
    let begun = Instant::now();
    let leased =
        polls.poll(request(PollFilter::Queues(vec!["default".to_owned()]), 1, Duration::from_secs(30))).await.unwrap();
    assert_eq!(leased.len(), 1);
    assert!(begun.elapsed() < Duration::from_secs(TIMES as u64) / 2, "{:?}", begun.elapsed());
    let claims = spy.claims.lock().unwrap().len();
    assert_eq!(claims, TIMES + 1, "nor is it tried without a pause");
    stop.cancel();
    dispatcher.await.unwrap();
}
