//! Runs from the broker to the history.

use std::sync::atomic::Ordering;
use std::time::Duration;

use punctual_core::run_end::RunEnd;
use punctual_core::state::{Event, Failure, State};
use punctual_core::trail::{FailedHow, RunError};
use punctual_scheduler::dispatcher::{self, Dispatcher};
use punctual_testkit::eventually::eventually;
use punctual_testkit::fixtures::{self, json, retry_policy};
use punctual_testkit::sink::{Sink, SinkAnswer};

use crate::bench::{Bench, LATE};
use crate::support::{AMPLE, Gate};

#[tokio::test]
async fn a_task_is_called_and_completed() {
    let (bench, sink) = (Bench::open(), Sink::start());
    sink.answer("/hook", SinkAnswer::status(201).body(r#"{"done": true}"#));
    let worker = bench.start();
    let ids = bench.submit(vec![fixtures::task().push(&sink.url("")).build()]).await;
    let task = bench.until(ids[0], State::Completed).await;
    assert_eq!(task.result, Some(json(r#"{"done": true}"#)));
    let hits = sink.hits("/hook");
    assert_eq!((hits.len(), hits[0].header("punctual-attempt"), hits[0].header("x-test")), (1, "1", "1"));
    let runs = task.trail.runs(task.id);
    let end = runs[0].end.as_ref().unwrap();
    assert_eq!((runs.len(), runs[0].worker.as_ref()), (1, "webhook-1"));
    assert_eq!(hits[0].header("punctual-fencing-token"), runs[0].token.to_string());
    assert_eq!((end.outcome, end.http_status), ("completed", Some(201)));
    bench.until_idle(&sink.url("")).await;
    bench.stop(worker).await;
    assert_eq!(bench.deps.stats.ended(RunEnd::Completed), 1);
    assert_eq!(bench.lateness.load(Ordering::Relaxed), u64::try_from(LATE).unwrap());
}

#[tokio::test]
async fn a_failure_is_retried_or_dead_lettered() {
    let (bench, sink) = (Bench::open(), Sink::start());
    let worker = bench.start();
    for (answer, state, code, wait) in [
        (SinkAnswer::status(404), State::DeadLettered, "http_404", None),
        (SinkAnswer::status(500), State::Pending, "http_500", Some(1_000)),
        (SinkAnswer::status(503).header("retry-after", "7"), State::Pending, "http_503", Some(7_000)),
        (SinkAnswer::status(307), State::Pending, "redirected", Some(1_000)),
        (SinkAnswer::reset(), State::Pending, "connection_failed", Some(1_000)),
    ] {
        sink.answer("/hook", answer);
        let ids = bench.submit(vec![fixtures::task().push(&sink.url("")).build()]).await;
        let task = bench.until(ids[0], state).await;
        assert_eq!(task.trail.last_error().unwrap().1.code, code);
        assert_eq!(task.position.attempts, 1, "{code}");
        if let Some(millis) = wait {
            assert_eq!(task.due_at, bench.now().plus_millis(millis), "{code}");
        }
    }
    bench.until_idle(&sink.url("")).await;
    bench.stop(worker).await;
    assert_eq!((bench.deps.stats.ended(RunEnd::Retried), bench.deps.stats.ended(RunEnd::DeadLettered)), (4, 1));
}

#[tokio::test]
async fn concurrent_calls_are_bounded() {
    let (mut bench, sink) = (Bench::open(), Sink::start());
    bench.config.concurrency = 8;
    sink.answer("/hook", SinkAnswer::status(200).after(Duration::from_millis(5)));
    bench.submit(fixtures::task().push(&sink.url("")).times(200)).await;
    let worker = bench.start();
    all_completed(&bench, 200).await;
    assert!(sink.most_at_once() <= 8, "{} at once", sink.most_at_once());
    assert_eq!(sink.hits("/hook").len(), 200);
    bench.until_idle(&sink.url("")).await;
    bench.stop(worker).await;
}

#[tokio::test]
async fn an_accepted_run_frees_its_slot() {
    let (mut bench, sink) = (Bench::open(), Sink::start());
    bench.config.concurrency = 1;
    let going_on = SinkAnswer::status(202).header("punctual-completion", "async");
    sink.script("/hook", [going_on, SinkAnswer::status(200)]);
    let worker = bench.start();
    let first = bench.submit(vec![fixtures::task().push(&sink.url("")).build()]).await[0];
    sink.wait_for("/hook", 1, AMPLE).await;
    let second = bench.submit(vec![fixtures::task().push(&sink.url("")).build()]).await[0];
    bench.until(second, State::Completed).await;
    bench.until_idle(&sink.url("")).await;
    bench.stop(worker).await;
    assert_eq!(bench.get(first).await.state(), State::Running);
    assert_eq!(bench.deps.stats.ended(RunEnd::Accepted), 1);
}

#[tokio::test]
async fn a_second_delivery_makes_no_call() {
    let (bench, sink) = (Bench::open(), Sink::start());
    let ids = bench.insert(vec![fixtures::task().push(&sink.url("")).build()]).await;
    let messages = bench.dispatch().await;
    bench.publish(messages.clone()).await;
    let worker = bench.start();
    bench.until(ids[0], State::Completed).await;
    bench.publish(messages).await;
    bench.until_idle(&sink.url("")).await;
    bench.stop(worker).await;
    assert_eq!(sink.hits("/hook").len(), 1);
}

#[tokio::test]
async fn a_task_cancelled_while_it_runs_ends_cancelled() {
    let (bench, gate) = (Bench::open(), Gate::start().await);
    let worker = bench.start();
    let ids = bench.submit(vec![fixtures::task().push(&gate.target()).build()]).await;
    gate.until_called(1).await;
    bench.change(ids[0], Event::Cancel).await;
    gate.open();
    let task = bench.until(ids[0], State::Cancelled).await;
    assert_eq!(task.result, None, "its outcome is discarded");
    bench.stop(worker).await;
    assert_eq!(bench.deps.stats.ended(RunEnd::Cancelled), 1);
}

#[tokio::test]
async fn a_stale_outcome_changes_nothing() {
    let (bench, gate) = (Bench::open(), Gate::start().await);
    let worker = bench.start();
    let ids = bench.submit(vec![fixtures::task().push(&gate.target()).build()]).await;
    gate.until_called(1).await;
    let failure = Failure {
        how: FailedHow::Lost,
        error: RunError { code: "worker_lost".into(), message: "taken back".into(), details: None },
        http_status: None,
        retryable: true,
        retry_after_millis: None,
        policy: retry_policy(),
        poison_after: 0,
        is_under_breaker: false,
        random: 0,
    };
    bench.change(ids[0], Event::Fail(failure)).await;
    let before = bench.get(ids[0]).await;
    gate.open();
    bench.stop(worker).await;
    let after = bench.get(ids[0]).await;
    assert_eq!((after.position, after.due_at), (before.position, before.due_at));
    assert_eq!(bench.deps.stats.ended(RunEnd::Stale), 1);
}

#[tokio::test]
async fn a_dead_target_does_not_delay_others() {
    let (mut bench, dead, healthy) = (Bench::open(), Sink::start(), Sink::start());
    dead.answer("/hook", SinkAnswer::hang());
    bench.config.concurrency = 100;
    bench.config.drain = Duration::ZERO;
    bench.deps.targets = std::sync::Arc::new(punctual_scheduler::targets::Targets::new(4, usize::MAX));
    let mut tasks = fixtures::task().push(&dead.url("")).priority(9).times(100);
    tasks.extend(fixtures::task().push(&healthy.url("")).times(100));
    bench.insert(tasks).await;
    let deps = dispatcher::Deps {
        store: bench.deps.store.clone(),
        broker: bench.deps.broker.clone(),
        clock: bench.deps.clock.clone(),
        hints: std::sync::Arc::default(),
        targets: bench.deps.targets.clone(),
        owned: std::sync::Arc::new(punctual_scheduler::ownership::OwnedPartitions::everything()),
        circuits: std::sync::Arc::default(),
        waits: std::sync::Arc::default(),
        node: bench.deps.node,
    };
    let config = dispatcher::Config {
        prefetch_window: Duration::from_secs(10),
        sweep_interval: Duration::from_secs(1),
        claim_ahead: Duration::ZERO,
        claim_batch: 1_000,
        visibility: Duration::from_mins(1),
        waiting_workers: 1,
        backlog_per_second: 0,
        fairness: punctual_scheduler::fairness::Config::default(),
    };
    let (dispatcher, _polls) = Dispatcher::new(deps, config);
    let (stop_dispatching, worker) = (bench.shutdown.child_token(), bench.start());
    let dispatching = tokio::spawn(dispatcher.run(stop_dispatching.clone()));
    all_completed(&bench, 100).await;
    eventually("the dead target's slots are full", AMPLE, async || match dead.waiting() {
        4 => Ok(()),
        waiting => Err(waiting.to_string()),
    })
    .await;
    assert_eq!(dead.most_at_once(), 4);
    assert!(healthy.most_at_once() <= 4);
    stop_dispatching.cancel();
    dispatching.await.unwrap();
    let report = bench.stop(worker).await;
    assert_eq!((report.drained, report.given_back), (0, 4));
}

async fn all_completed(bench: &Bench, all: u64) {
    eventually("all completed", AMPLE, async || match bench.deps.stats.ended(RunEnd::Completed) {
        completed if completed == all => Ok(()),
        completed => Err(completed.to_string()),
    })
    .await;
}
