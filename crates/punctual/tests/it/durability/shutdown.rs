//! SIGTERM and SIGINT: drain, give back, exit 0.

use std::time::{Duration, Instant};

use punctual_testkit::sink::{Sink, SinkAnswer};
use serde_json::{Value, json};

use crate::it::world::{SOON, World, id_of, quick, worker_id};

#[tokio::test]
async fn an_idle_server_ends_at_once_with_code_0() {
    for signal in ["TERM", "INT"] {
        let mut world = World::start().await;
        world.server.process().signal(signal);
        let asked = Instant::now();
        let exit = world.server.exit(SOON).await;
        assert_eq!(exit.code, Some(0), "after SIG{signal}: {exit}");
        assert!(asked.elapsed() < Duration::from_secs(10), "after SIG{signal} it took {:?}", asked.elapsed());
    }
}

#[tokio::test]
async fn a_shutdown_waits_for_a_webhook_in_flight() {
    let mut world = World::start_with(|serve| serve.setting("SHUTDOWN__DRAIN_SECONDS", "15")).await;
    let sink = Sink::start();
    sink.answer("/hook", SinkAnswer::json(&json!("in time")).after(Duration::from_secs(2)));
    let id = world.caller().submit_id(json!({"type": "t", "callback_url": sink.url("/hook")})).await;
    sink.wait_for("/hook", 1, SOON).await;
    let asked = Instant::now();
    world.server.terminate();
    let exit = world.server.exit(Duration::from_secs(30)).await;
    assert_eq!(exit.code, Some(0), "{exit}");
    assert!(asked.elapsed() < Duration::from_secs(14), "it did not end when the work had: {:?}", asked.elapsed());
    world.restart().await;
    let task = world.caller().until(&id, "COMPLETED").await;
    assert_eq!((&task["result"], &task["retry_count"]), (&json!("in time"), &json!(0)));
    assert_eq!(sink.hits("/hook").len(), 1);
}

#[tokio::test]
async fn an_unfinished_run_is_given_back_uncounted_at_the_deadline() {
    let mut world = World::start_with(|serve| serve.setting("SHUTDOWN__DRAIN_SECONDS", "1")).await;
    let sink = Sink::start();
    sink.script("/hook", [SinkAnswer::hang(), SinkAnswer::json(&json!("second"))]);
    let task =
        json!({"type": "t", "callback_url": sink.url("/hook"), "timeout_seconds": 300, "retry_policy": quick(1)});
    let id = world.caller().submit_id(task).await;
    sink.wait_for("/hook", 1, SOON).await;
    let asked = Instant::now();
    world.server.terminate();
    let exit = world.server.exit(SOON).await;
    assert_eq!(exit.code, Some(0), "{exit}");
    assert!(asked.elapsed() < Duration::from_secs(10), "the deadline of one second took {:?}", asked.elapsed());
    world.restart().await;
    let caller = world.caller();
    let task = caller.until(&id, "COMPLETED").await;
    assert_eq!((&task["result"], &task["retry_count"]), (&json!("second"), &json!(0)));
    assert_eq!(sink.hits("/hook").len(), 2);
    caller.trail(&id).await;
}

#[tokio::test]
async fn a_call_without_retries_is_not_made_again_after_sigterm() {
    let mut world = World::start_with(|serve| serve.setting("SHUTDOWN__DRAIN_SECONDS", "1")).await;
    let sink = Sink::start();
    sink.answer("/hook", SinkAnswer::hang());
    let task =
        json!({"type": "t", "callback_url": sink.url("/hook"), "timeout_seconds": 300, "retry_policy": quick(0)});
    let id = world.caller().submit_id(task).await;
    sink.wait_for("/hook", 1, SOON).await;
    world.server.terminate();
    assert_eq!(world.server.exit(SOON).await.code, Some(0));
    world.restart().await;
    let task = world.caller().until(&id, "DEAD_LETTERED").await;
    assert_eq!(task["last_error"]["code"], "worker_lost", "{task:#}");
    assert_eq!(sink.hits("/hook").len(), 1, "called twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_workers_do_not_hold_up_the_end() {
    let mut world = World::start().await;
    let caller = world.caller();
    let polls: Vec<_> = (0..20)
        .map(|_| {
            let caller = caller.clone();
            let wanted = json!({"worker_id": worker_id(), "queues": ["q"], "max_tasks": 1, "wait_seconds": 60});
            tokio::spawn(async move { caller.api.call("POST", "/v1/leases").json(&wanted).try_send().await })
        })
        .collect();
    world.until_waiting(20).await;
    let asked = Instant::now();
    world.server.terminate();
    let exit = world.server.exit(SOON).await;
    assert_eq!(exit.code, Some(0), "{exit}");
    assert!(asked.elapsed() < Duration::from_secs(10), "it took {:?}", asked.elapsed());
    for poll in polls {
        // Empty, refused as unavailable, or cut off; but it never grants a lease.
        if let Ok(answer) = poll.await.expect("a poll ends") {
            assert!([200, 503].contains(&answer.status()), "{answer}");
            assert!(answer.status() == 503 || answer.value()["leases"] == json!([]), "{answer}");
        }
    }
}

#[tokio::test]
async fn a_pull_workers_lease_survives_the_shutdown() {
    let mut world = World::start_with(|serve| serve.setting("SHUTDOWN__DRAIN_SECONDS", "1")).await;
    let id = world.caller().submit_id(json!({"type": "t", "queue": "q", "retry_policy": quick(0)})).await;
    let lease = world.caller().lease_for("q", 120).await;
    world.server.terminate();
    let exit = world.server.exit(SOON).await;
    assert_eq!(exit.code, Some(0), "{exit}");
    world.restart().await;
    let caller = world.caller();
    caller.report("complete", &lease, json!({"result": "held"})).await.expect(200);
    assert_eq!(caller.until(&id, "COMPLETED").await["result"], "held");
}

#[tokio::test]
async fn waiting_tasks_run_after_the_restart() {
    let mut world = World::start().await;
    let sink = Sink::start();
    let caller = world.caller();
    let tasks =
        (0..50).map(|n| json!({"type": "t", "payload": n, "delay_seconds": 2, "callback_url": sink.url("/hook")}));
    let tasks = caller.submit_all(tasks.collect()).await;
    world.server.terminate();
    assert_eq!(world.server.exit(SOON).await.code, Some(0));
    world.restart().await;
    let caller = world.caller();
    for task in &tasks {
        caller.until(&id_of(task), "COMPLETED").await;
    }
    let mut seen: Vec<Value> =
        sink.all_hits().iter().map(|hit| serde_json::from_slice(&hit.body).expect("JSON")).collect();
    seen.sort_by_key(Value::as_u64);
    assert_eq!(seen, (0..50).map(|n| json!(n)).collect::<Vec<_>>(), "each was delivered once");
}
