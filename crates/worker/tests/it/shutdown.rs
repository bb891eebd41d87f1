//! The end: runs that finish in time are settled, the others are given back.

use std::time::Duration;

use punctual_core::broker::{Broker, WEBHOOK_POOL};
use punctual_core::run_end::RunEnd;
use punctual_core::state::State;
use punctual_core::trail::{Actor, Step};
use punctual_testkit::fixtures;
use punctual_testkit::sink::{Sink, SinkAnswer};
use punctual_worker::Report;

use crate::harness::Harness;
use crate::support::{AMPLE, Gate};

#[tokio::test]
async fn a_call_may_end_during_the_drain() {
    let (harness, gate) = (Harness::open(), Gate::start().await);
    let worker = harness.start();
    let ids = harness.submit(vec![fixtures::task().push(&gate.target()).build()]).await;
    gate.until_called(1).await;
    harness.shutdown.cancel();
    let opened = tokio::spawn(async move {
        gate.open();
        gate
    });
    assert_eq!(harness.stop(worker).await, Report { drained: 1, given_back: 0 });
    assert_eq!(harness.get(ids[0]).await.state(), State::Completed);
    opened.await.unwrap();
}

#[tokio::test]
async fn a_run_that_is_cut_off_is_given_back_uncounted() {
    let (mut harness, sink) = (Harness::open(), Sink::start());
    sink.answer("/hook", SinkAnswer::hang());
    harness.config.drain = Duration::from_millis(50);
    let ids = harness.submit(fixtures::task().push(&sink.url("")).times(7)).await;
    let worker = harness.start();
    sink.wait_for("/hook", 7, AMPLE).await;
    assert_eq!(harness.stop(worker).await, Report { drained: 0, given_back: 7 });
    for id in ids {
        let task = harness.get(id).await;
        assert_eq!((task.state(), task.position.attempts, task.due_at), (State::Pending, 0, harness.now()));
        let last = task.trail.last().unwrap();
        assert_eq!((last.step.clone(), last.actor.clone()), (Step::GivenBack, Actor::Node));
    }
    harness.until_idle(&sink.url("")).await;
    assert_eq!((sink.hits("/hook").len(), harness.deps.stats.ended(RunEnd::GivenBack)), (7, 7));
}

#[tokio::test]
async fn messages_stay_in_the_broker() {
    let (harness, sink) = (Harness::open(), Sink::start());
    harness.shutdown.cancel();
    harness.submit(fixtures::task().push(&sink.url("")).times(3)).await;
    let worker = harness.start();
    assert_eq!(harness.stop(worker).await, Report::default());
    assert_eq!(harness.broker.depth(WEBHOOK_POOL).await.unwrap(), 3);
}

#[tokio::test]
async fn a_closed_broker_ends_the_worker() {
    let (harness, gate) = (Harness::open(), Gate::start().await);
    let worker = harness.start();
    let ids = harness.submit(vec![fixtures::task().push(&gate.target()).build()]).await;
    gate.until_called(1).await;
    harness.broker.close().await;
    gate.open();
    worker.await.unwrap();
    assert_eq!(harness.get(ids[0]).await.state(), State::Completed);
}
