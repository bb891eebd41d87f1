//! Runs from the broker to the history.

use std::sync::atomic::Ordering;
use std::time::Duration;

use punctual_core::failure::FailureCause;
use punctual_core::run_end::RunEnd;
use punctual_core::state::{Event, Failure, State};
use punctual_core::trail::{RunEnded, RunError};
use punctual_scheduler::dispatcher::{self, Dispatcher};
use punctual_scheduler::webhook_path::WebhookPath;
use punctual_testkit::eventually::eventually;
use punctual_testkit::fixtures::{self, json, retry_policy};
use punctual_testkit::sink::{Sink, SinkAnswer};

use crate::harness::{Harness, LATE};
use crate::support::{AMPLE, Gate};

#[tokio::test]
async fn a_task_is_called_and_completed() {
    let (harness, sink) = (Harness::open(), Sink::start());
    sink.answer("/hook", SinkAnswer::status(201).body(r#"{"done": true}"#));
    let worker = harness.start();
    let ids = harness.submit(vec![fixtures::task().push(&sink.url("")).build()]).await;
    let task = harness.until(ids[0], State::Completed).await;
    assert_eq!(task.result, Some(json(r#"{"done": true}"#)));
    let hits = sink.hits("/hook");
    assert_eq!((hits.len(), hits[0].header("punctual-attempt"), hits[0].header("x-test")), (1, "1", "1"));
    let runs = task.trail.runs(task.id);
    let end = runs[0].end.as_ref().unwrap();
    assert_eq!((runs.len(), runs[0].worker.as_ref()), (1, "webhook-1"));
    assert_eq!(hits[0].header("punctual-fencing-token"), runs[0].token.to_string());
    assert_eq!((end.outcome, end.http_status), (RunEnded::Completed, Some(201)));
    harness.until_idle(&sink.url("")).await;
    harness.stop(worker).await;
    assert_eq!(harness.deps.stats.ended(RunEnd::Completed), 1);
    assert_eq!(harness.lateness.load(Ordering::Relaxed), u64::try_from(LATE).unwrap());
}

#[tokio::test]
async fn a_failure_is_retried_or_dead_lettered() {
    let (harness, sink) = (Harness::open(), Sink::start());
    let worker = harness.start();
    for (answer, state, code, wait) in [
        (SinkAnswer::status(404), State::DeadLettered, "http_404", None),
        (SinkAnswer::status(500), State::Pending, "http_500", Some(1_000)),
        (SinkAnswer::status(503).header("retry-after", "7"), State::Pending, "http_503", Some(7_000)),
        (SinkAnswer::status(503).header("retry-after", "0"), State::Pending, "http_503", Some(1_000)),
        (SinkAnswer::status(503).header("retry-after", "-1"), State::Pending, "http_503", Some(1_000)),
        (SinkAnswer::status(307), State::DeadLettered, "redirected", None),
        (SinkAnswer::reset(), State::Pending, "connection_failed", Some(1_000)),
    ] {
        sink.answer("/hook", answer);
        let ids = harness.submit(vec![fixtures::task().push(&sink.url("")).build()]).await;
        let task = harness.until(ids[0], state).await;
        assert_eq!(task.trail.last_error().unwrap().1.code, code);
        assert_eq!(task.position.attempts, 1, "{code}");
        if let Some(millis) = wait {
            assert_eq!(task.due_at, harness.now().plus_millis(millis), "{code}");
        }
    }
    harness.until_idle(&sink.url("")).await;
    harness.stop(worker).await;
    assert_eq!((harness.deps.stats.ended(RunEnd::Retried), harness.deps.stats.ended(RunEnd::DeadLettered)), (5, 2));
}

#[tokio::test]
async fn concurrent_calls_are_bounded() {
    let (mut harness, sink) = (Harness::open(), Sink::start());
    harness.config.concurrency = 8;
    sink.answer("/hook", SinkAnswer::status(200).after(Duration::from_millis(5)));
    harness.submit(fixtures::task().push(&sink.url("")).times(200)).await;
    let worker = harness.start();
    all_completed(&harness, 200).await;
    assert!(sink.most_at_once() <= 8, "{} at once", sink.most_at_once());
    assert_eq!(sink.hits("/hook").len(), 200);
    harness.until_idle(&sink.url("")).await;
    harness.stop(worker).await;
}

#[tokio::test]
async fn an_accepted_run_frees_its_slot() {
    let (mut harness, sink) = (Harness::open(), Sink::start());
    harness.config.concurrency = 1;
    let going_on = SinkAnswer::status(202).header("punctual-completion", "async");
    sink.script("/hook", [going_on, SinkAnswer::status(200)]);
    let worker = harness.start();
    let first = harness.submit(vec![fixtures::task().push(&sink.url("")).build()]).await[0];
    sink.wait_for("/hook", 1, AMPLE).await;
    let second = harness.submit(vec![fixtures::task().push(&sink.url("")).build()]).await[0];
    harness.until(second, State::Completed).await;
    harness.until_idle(&sink.url("")).await;
    harness.stop(worker).await;
    assert_eq!(harness.get(first).await.state(), State::Running);
    assert_eq!(harness.deps.stats.ended(RunEnd::Accepted), 1);
}

#[tokio::test]
async fn a_second_delivery_makes_no_call() {
    let (harness, sink) = (Harness::open(), Sink::start());
    let ids = harness.insert(vec![fixtures::task().push(&sink.url("")).build()]).await;
    let messages = harness.dispatch().await;
    harness.publish(messages.clone()).await;
    let worker = harness.start();
    harness.until(ids[0], State::Completed).await;
    harness.publish(messages).await;
    harness.until_idle(&sink.url("")).await;
    harness.stop(worker).await;
    assert_eq!(sink.hits("/hook").len(), 1);
}

#[tokio::test]
async fn a_task_cancelled_while_it_runs_ends_cancelled() {
    let (harness, gate) = (Harness::open(), Gate::start().await);
    let worker = harness.start();
    let ids = harness.submit(vec![fixtures::task().push(&gate.target()).build()]).await;
    gate.until_called(1).await;
    harness.change(ids[0], Event::Cancel).await;
    gate.open();
    let task = harness.until(ids[0], State::Cancelled).await;
    assert_eq!(task.result, None, "its outcome is discarded");
    harness.stop(worker).await;
    assert_eq!(harness.deps.stats.ended(RunEnd::Cancelled), 1);
}

#[tokio::test]
async fn a_stale_outcome_changes_nothing() {
    let (harness, gate) = (Harness::open(), Gate::start().await);
    let worker = harness.start();
    let ids = harness.submit(vec![fixtures::task().push(&gate.target()).build()]).await;
    gate.until_called(1).await;
    let failure = Failure {
        cause: FailureCause::Lost,
        error: RunError { code: "worker_lost".into(), message: "taken back".into(), details: None },
        http_status: None,
        retryable: true,
        retry_after_millis: None,
        policy: retry_policy(),
        poison_after: 0,
        is_under_breaker: false,
        random: 0,
    };
    harness.change(ids[0], Event::Fail(failure)).await;
    let before = harness.get(ids[0]).await;
    gate.open();
    harness.stop(worker).await;
    let after = harness.get(ids[0]).await;
    assert_eq!((after.position, after.due_at), (before.position, before.due_at));
    assert_eq!(harness.deps.stats.ended(RunEnd::Stale), 1);
}

#[tokio::test]
async fn a_dead_target_does_not_delay_others() {
    let (mut harness, dead, healthy) = (Harness::open(), Sink::start(), Sink::start());
    dead.answer("/hook", SinkAnswer::hang());
    harness.config.concurrency = 100;
    harness.config.drain = Duration::ZERO;
    harness.deps.targets = std::sync::Arc::new(punctual_scheduler::targets::Targets::new(4, usize::MAX));
    let mut tasks = fixtures::task().push(&dead.url("")).priority(9).times(100);
    tasks.extend(fixtures::task().push(&healthy.url("")).times(100));
    harness.insert(tasks).await;
    let deps = dispatcher::Deps {
        store: harness.deps.store.clone(),
        webhooks: WebhookPath::Broker(harness.broker.clone()),
        clock: harness.deps.clock.clone(),
        hints: std::sync::Arc::default(),
        targets: harness.deps.targets.clone(),
        owned: std::sync::Arc::new(punctual_scheduler::ownership::OwnedPartitions::everything()),
        circuits: std::sync::Arc::default(),
        waits: std::sync::Arc::default(),
        node: harness.deps.node,
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
    let (stop_dispatching, worker) = (harness.shutdown.child_token(), harness.start());
    let dispatching = tokio::spawn(dispatcher.run(stop_dispatching.clone()));
    all_completed(&harness, 100).await;
    eventually("the dead target's slots are full", AMPLE, async || match dead.waiting() {
        4 => Ok(()),
        waiting => Err(waiting.to_string()),
    })
    .await;
    assert_eq!(dead.most_at_once(), 4);
    assert!(healthy.most_at_once() <= 4);
    stop_dispatching.cancel();
    dispatching.await.unwrap();
    let report = harness.stop(worker).await;
    assert_eq!((report.drained, report.given_back), (0, 4));
}

async fn all_completed(harness: &Harness, all: u64) {
    eventually("all completed", AMPLE, async || match harness.deps.stats.ended(RunEnd::Completed) {
        completed if completed == all => Ok(()),
        completed => Err(completed.to_string()),
    })
    .await;
}
