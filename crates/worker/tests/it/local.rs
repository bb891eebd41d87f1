//! Runs that the dispatcher of the same process hands over.

use std::sync::Arc;
use std::time::Duration;

use punctual_core::run_end::RunEnd;
use punctual_core::state::State;
use punctual_scheduler::targets::Targets;
use punctual_scheduler::webhook_path::CallTurn;
use punctual_testkit::eventually::eventually;
use punctual_testkit::fixtures;
use punctual_testkit::sink::{Sink, SinkAnswer};
use punctual_worker::Report;

use crate::harness::Harness;
use crate::support::{AMPLE, Gate};

#[tokio::test]
async fn a_run_that_is_handed_over_is_called_and_settled() {
    let (harness, sink) = (Harness::open(), Sink::start());
    let (worker, handle) = harness.start_local();
    let ids = harness.insert(fixtures::task().push(&sink.url("")).times(20)).await;
    let started = harness.claim_started(&*handle).await;
    assert!(started.iter().all(|task| task.state() == State::Running));
    handle.run(started, CallTurn::InOrder).expect("the worker runs");
    for id in ids {
        let task = harness.until(id, State::Completed).await;
        assert_eq!((task.position.attempts, task.worker.as_deref()), (1, Some("webhook-1")));
    }
    harness.until_idle(&sink.url("")).await;
    assert_eq!(harness.stop(worker).await, Report::default());
    assert_eq!(harness.deps.stats.ended(RunEnd::Completed), 20);
}

#[tokio::test]
async fn a_worker_has_room_while_it_has_call_slots() {
    let (mut harness, gate) = (Harness::open(), Gate::start().await);
    harness.config.concurrency = 3;
    let (worker, handle) = harness.start_local();
    assert_eq!(handle.room(), 3);
    harness.insert(fixtures::task().push(&gate.target()).times(3)).await;
    handle.run(harness.claim_started(&*handle).await, CallTurn::InOrder).expect("the worker runs");
    assert_eq!(handle.room(), 0);
    gate.until_called(3).await;
    let waiting = tokio::spawn({
        let handle = handle.clone();
        async move { handle.wait_for_room().await }
    });
    assert!(!waiting.is_finished());
    gate.open();
    waiting.await.unwrap();
    eventually("all slots free", AMPLE, async || match handle.room() {
        3 => Ok(()),
        room => Err(room.to_string()),
    })
    .await;
    harness.stop(worker).await;
}

#[tokio::test]
async fn a_run_that_is_cut_off_is_given_back() {
    let (mut harness, sink) = (Harness::open(), Sink::start());
    sink.answer("/hook", SinkAnswer::hang());
    harness.config.drain = Duration::from_millis(50);
    let (worker, handle) = harness.start_local();
    let ids = harness.insert(fixtures::task().push(&sink.url("")).times(4)).await;
    handle.run(harness.claim_started(&*handle).await, CallTurn::InOrder).expect("the worker runs");
    sink.wait_for("/hook", 4, AMPLE).await;
    assert_eq!(harness.stop(worker).await, Report { drained: 0, given_back: 4 });
    for id in ids {
        let task = harness.get(id).await;
        assert_eq!((task.state(), task.position.attempts), (State::Pending, 0));
    }
    harness.until_idle(&sink.url("")).await;
}

#[tokio::test]
async fn a_worker_that_has_ended_returns_the_runs() {
    let (harness, sink) = (Harness::open(), Sink::start());
    let (worker, handle) = harness.start_local();
    harness.insert(fixtures::task().push(&sink.url("")).times(2)).await;
    let started = harness.claim_started(&*handle).await;
    harness.stop(worker).await;
    let returned = handle.run(started, CallTurn::InOrder).expect_err("the worker has ended");
    assert_eq!((returned.len(), sink.hits("/hook").len()), (2, 0));
}

/// A worker whose target has four slots.
fn with_four_slots() -> Harness {
    let mut harness = Harness::open();
    harness.deps.targets = Arc::new(Targets::new(4, usize::MAX));
    harness
}

#[tokio::test]
async fn runs_without_a_slot_wait_until_calls_at_their_target_end() {
    let (harness, gate) = (with_four_slots(), Gate::start().await);
    let (worker, handle) = harness.start_local();
    let ids = harness.insert(fixtures::task().push(&gate.target()).times(10)).await;
    handle.run(harness.claim_started(&*handle).await, CallTurn::InOrder).expect("the worker runs");
    gate.until_called(4).await;
    assert_eq!(gate.calls(), 4);
    gate.open();
    for id in ids {
        assert_eq!(harness.until(id, State::Completed).await.position.attempts, 1);
    }
    harness.until_idle(&gate.target()).await;
    harness.stop(worker).await;
}

#[tokio::test]
async fn a_probe_does_not_wait_for_a_slot() {
    let (harness, gate) = (with_four_slots(), Gate::start().await);
    let (worker, handle) = harness.start_local();
    harness.insert(fixtures::task().push(&gate.target()).times(4)).await;
    handle.run(harness.claim_started(&*handle).await, CallTurn::InOrder).expect("the worker runs");
    harness.insert(fixtures::task().push(&gate.target()).times(1)).await;
    handle.run(harness.claim_started(&*handle).await, CallTurn::AtOnce).expect("the worker runs");
    gate.until_called(5).await;
    gate.open();
    harness.stop(worker).await;
}

#[tokio::test]
async fn runs_that_wait_for_a_slot_are_given_back_at_the_shutdown() {
    let (mut harness, gate) = (with_four_slots(), Gate::start().await);
    harness.config.drain = Duration::from_millis(50);
    let (worker, handle) = harness.start_local();
    let ids = harness.insert(fixtures::task().push(&gate.target()).times(6)).await;
    handle.run(harness.claim_started(&*handle).await, CallTurn::InOrder).expect("the worker runs");
    gate.until_called(4).await;
    assert_eq!(harness.stop(worker).await, Report { drained: 0, given_back: 6 });
    for id in ids {
        let task = harness.get(id).await;
        assert_eq!((task.state(), task.position.attempts), (State::Pending, 0));
    }
    assert_eq!(gate.calls(), 4);
}

#[tokio::test]
async fn runs_do_not_wait_long_for_a_target_that_hangs() {
    let (mut harness, gate) = (with_four_slots(), Gate::start().await);
    harness.config.grace = Duration::from_millis(200);
    let (worker, handle) = harness.start_local();
    harness.insert(fixtures::task().push(&gate.target()).times(6)).await;
    handle.run(harness.claim_started(&*handle).await, CallTurn::InOrder).expect("the worker runs");
    eventually("two runs given back", AMPLE, async || match harness.deps.stats.ended(RunEnd::GivenBack) {
        2 => Ok(()),
        given_back => Err(given_back.to_string()),
    })
    .await;
    assert_eq!(gate.calls(), 4);
    gate.open();
    harness.until_idle(&gate.target()).await;
    harness.stop(worker).await;
}
