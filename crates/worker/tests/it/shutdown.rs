//! The end: runs that finish in time are settled, the others are given back.

use std::time::Duration;

use punctual_core::broker::WEBHOOK_POOL;
use punctual_core::run_end::RunEnd;
use punctual_core::state::State;
use punctual_core::trail::{Actor, Step};
use punctual_testkit::fixtures;
use punctual_testkit::sink::{Sink, SinkAnswer};
use punctual_worker::Report;

use crate::bench::Bench;
use crate::support::{AMPLE, Gate};

#[tokio::test]
async fn a_call_may_end_during_the_drain() {
    let (bench, gate) = (Bench::open(), Gate::start().await);
    let worker = bench.start();
    let ids = bench.submit(vec![fixtures::task().push(&gate.target()).build()]).await;
    gate.until_called(1).await;
    bench.shutdown.cancel();
    let opened = tokio::spawn(async move {
        gate.open();
        gate
    });
    assert_eq!(bench.stop(worker).await, Report { drained: 1, given_back: 0 });
    assert_eq!(bench.get(ids[0]).await.state(), State::Completed);
    opened.await.unwrap();
}

#[tokio::test]
async fn a_run_that_is_cut_off_is_given_back_uncounted() {
    let (mut bench, sink) = (Bench::open(), Sink::start());
    sink.answer("/hook", SinkAnswer::hang());
    bench.config.concurrency = 2;
    bench.config.batch = 2;
    bench.config.drain = Duration::from_millis(50);
    let ids = bench.submit(fixtures::task().push(&sink.url("")).times(7)).await;
    let worker = bench.start();
    sink.wait_for("/hook", 2, AMPLE).await;
    assert_eq!(bench.stop(worker).await, Report { drained: 0, given_back: 7 });
    for id in ids {
        let task = bench.get(id).await;
        assert_eq!((task.state(), task.position.attempts, task.due_at), (State::Pending, 0, bench.now()));
        let last = task.trail.last().unwrap();
        assert_eq!((last.step.clone(), last.actor.clone()), (Step::GivenBack, Actor::Node));
    }
    bench.until_idle(&sink.url("")).await;
    assert_eq!(bench.deps.broker.depth(WEBHOOK_POOL).await.unwrap(), 0);
    assert_eq!((sink.hits("/hook").len(), bench.deps.stats.ended(RunEnd::GivenBack)), (2, 2));
}

#[tokio::test]
async fn messages_stay_in_a_broker_that_outlives_the_node() {
    let (mut bench, sink) = (Bench::open(), Sink::start());
    bench.config.broker_ends_with_us = false;
    bench.shutdown.cancel();
    bench.submit(fixtures::task().push(&sink.url("")).times(3)).await;
    let worker = bench.start();
    assert_eq!(bench.stop(worker).await, Report::default());
    assert_eq!(bench.deps.broker.depth(WEBHOOK_POOL).await.unwrap(), 3);
}

#[tokio::test]
async fn a_closed_broker_ends_the_worker() {
    let (bench, gate) = (Bench::open(), Gate::start().await);
    let worker = bench.start();
    let ids = bench.submit(vec![fixtures::task().push(&gate.target()).build()]).await;
    gate.until_called(1).await;
    bench.deps.broker.close().await;
    gate.open();
    worker.await.unwrap();
    assert_eq!(bench.get(ids[0]).await.state(), State::Completed);
}
