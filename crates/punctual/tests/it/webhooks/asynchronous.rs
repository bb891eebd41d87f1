//! 202 with `Punctual-Completion: async`: the target reports the outcome later.

use punctual_testkit::eventually::eventually;
use punctual_testkit::sink::{Hit, Sink, SinkAnswer};
use serde_json::{Value, json};

use super::hook;
use crate::it::world::{Caller, SOON, boom, quick, shared};

fn later() -> SinkAnswer {
    SinkAnswer::status(202).header("Punctual-Completion", "async")
}

/// A hit as a lease: its task and its token.
fn lease_of(hit: &Hit) -> Value {
    let token: u64 = hit.header("Punctual-Fencing-Token").parse().expect("a token");
    json!({"task": {"task_id": hit.header("Punctual-Task-Id")}, "token": token})
}

/// Submits a task whose target accepts it for later; returns its id and lease once the server knows
/// that.
async fn accepted(caller: &Caller, sink: &Sink, path: &str, fields: Value) -> (String, Value) {
    let id = caller.submit_id(hook(sink, path, fields)).await;
    let lease = lease_of(&sink.wait_for(path, 1, SOON).await[0]);
    eventually("the answer was given", SOON, async || match sink.waiting() {
        0 => Ok(()),
        waiting => Err(format!("{waiting} waiting")),
    })
    .await;
    assert_eq!(caller.task(&id).await["status"], "RUNNING");
    (id, lease)
}

#[tokio::test]
async fn an_accepted_run_lasts_until_it_is_completed() {
    let caller = shared().await;
    let sink = Sink::start();
    sink.answer("/later", later());
    let (id, lease) = accepted(&caller, &sink, "/later", json!({})).await;
    let mut wrong = lease.clone();
    wrong["token"] = json!(lease["token"].as_u64().expect("a token") - 1);
    caller.report("complete", &wrong, json!({"result": "wrong"})).await.problem_code(409, "stale_token");
    assert_eq!(caller.task(&id).await["status"], "RUNNING");
    caller.report("complete", &lease, json!({"result": {"later": true}})).await.expect(200);
    assert_eq!(caller.until(&id, "COMPLETED").await["result"], json!({"later": true}));
    caller.report("complete", &lease, json!({"result": {"later": true}})).await.expect(200);
    assert_eq!(sink.hits("/later").len(), 1);
    caller.trail(&id).await;
}

#[tokio::test]
async fn a_failure_reported_later_is_retried() {
    let caller = shared().await;
    let sink = Sink::start();
    sink.script("/later", [later(), SinkAnswer::json(&json!("at once"))]);
    let (id, lease) = accepted(&caller, &sink, "/later", json!({})).await;
    caller.report("fail", &lease, boom()).await.expect(200);
    assert_eq!(caller.until(&id, "COMPLETED").await["result"], "at once");
    assert_eq!(sink.hits("/later")[1].header("Punctual-Attempt"), "2");
    caller.report("complete", &lease, json!({"result": "late"})).await.problem(409);
}

#[tokio::test]
async fn a_completion_that_never_comes_is_a_timeout() {
    let caller = shared().await;
    let sink = Sink::start();
    sink.script("/later", [later(), SinkAnswer::status(200)]);
    let (id, lease) = accepted(&caller, &sink, "/later", json!({"timeout_seconds": 2})).await;
    caller.until(&id, "COMPLETED").await;
    assert_eq!(sink.hits("/later").len(), 2);
    caller.report("complete", &lease, json!({"result": "late"})).await.problem_code(409, "timed_out");

    sink.answer("/never", later());
    let (id, _) = accepted(&caller, &sink, "/never", json!({"timeout_seconds": 2, "retry_policy": quick(0)})).await;
    let task = caller.until(&id, "DEAD_LETTERED").await;
    assert_eq!(task["last_error"]["code"], "timeout", "{task:#}");
}

#[tokio::test]
async fn a_plain_202_completes() {
    let caller = shared().await;
    let sink = Sink::start();
    sink.answer("/plain", SinkAnswer::status(202));
    let id = caller.submit_id(hook(&sink, "/plain", json!({}))).await;
    caller.until(&id, "COMPLETED").await;
}

#[tokio::test]
async fn a_late_report_of_a_cancelled_run_gets_410() {
    let caller = shared().await;
    let sink = Sink::start();
    sink.answer("/later", later());
    let (id, lease) = accepted(&caller, &sink, "/later", json!({})).await;
    caller.api.delete(&format!("/v1/tasks/{id}")).await.expect(202);
    caller.report("complete", &lease, json!({"result": "late"})).await.problem_code(410, "cancelled");
    assert!(caller.until(&id, "CANCELLED").await["result"].is_null());
}
