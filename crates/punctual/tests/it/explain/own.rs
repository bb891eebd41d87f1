//! Reasons of the task itself: its time, its retry, its expiry, its last error.

use punctual_testkit::eventually::eventually;
use serde_json::{Value, json};

use super::{codes, expect_says, explained, fatal, only, put, take};
use crate::it::world::{Caller, SOON, boom, every, in_seconds, merged, shared, time, written};

#[tokio::test]
async fn a_future_time_or_a_retry_is_a_reason() {
    let caller = shared().await;
    let due = in_seconds(3_600.0);
    let future = caller.submit_id(json!({"type": "t", "queue": "q", "execute_at": written(due)})).await;
    let (reason, eta) = only(&explained(&caller, &future).await, "not_due_yet");
    assert_eq!((time(&eta), time(&reason["until"])), (due, due));
    expect_says(&reason, &[&written(due)]);

    let failing = caller.submit_id(json!({"type": "t", "queue": "q", "retry_policy": every(3, 600.0)})).await;
    let lease = caller.lease_one("q").await;
    let (reason, eta) = only(&explained(&caller, &failing).await, "running");
    assert_eq!((&reason["worker_id"], &eta), (&lease["task"]["worker_id"], &Value::Null));
    assert!(time(&reason["since"]) < time(&reason["until"]), "{reason:#}");
    caller.report("fail", &lease, boom()).await.expect(200);
    let (reason, eta) = only(&explained(&caller, &failing).await, "waiting_for_retry");
    assert_eq!(eta, caller.task(&failing).await["next_attempt_at"]);
    expect_says(&reason, &["attempt 1", "boom"]);
    caller.api.delete(&format!("/v1/tasks/{failing}")).await.expect(200);
    let (reason, _) = only(&explained(&caller, &failing).await, "final");
    assert_eq!(reason["error_code"], "boom");
}

#[tokio::test]
async fn a_finished_task_shows_its_last_error() {
    let caller = shared().await;
    let id = caller.submit_id(json!({"type": "t", "queue": "q"})).await;
    caller.report("fail", &caller.lease_one("q").await, fatal()).await.expect(200);
    let (reason, eta) = only(&explained(&caller, &id).await, "final");
    let task = caller.task(&id).await;
    assert_eq!((&reason["error_code"], &reason["since"]), (&json!("boom"), &task["completed_at"]));
    assert_eq!((&reason["reason"], &eta), (&task["last_error"]["message"], &Value::Null));
    expect_says(&reason, &["DEAD_LETTERED", "its last error is boom"]);
    let id = caller.submit_id(json!({"type": "t", "queue": "q"})).await;
    caller.report("complete", &caller.lease_one("q").await, json!({})).await.expect(200);
    let (reason, _) = only(&explained(&caller, &id).await, "final");
    assert_eq!(reason.get("error_code"), None);
}

#[tokio::test]
async fn an_expiry_before_the_next_run_is_a_reason() {
    let caller = shared().await;
    let (expires_at, until) = (written(in_seconds(600.0)), written(in_seconds(3_600.0)));
    let id = caller.submit_id(json!({"type": "t", "queue": "q", "expires_at": expires_at})).await;
    let answer = explained(&caller, &id).await;
    only(&answer, "no_worker_polling");
    assert_eq!(answer["expires_at"], expires_at.as_str(), "it may expire before that");
    caller.api.post("/v1/queues/q/pause", &json!({"until": until})).await.expect(200);
    let answer = explained(&caller, &id).await;
    assert_eq!(codes(&answer), ["expires_first", "queue_paused", "no_worker_polling"]);
    assert_eq!((&answer["eta"], &answer["expires_at"]), (&Value::Null, &json!(expires_at)));
    expect_says(&answer["reasons"][0], &[&expires_at, &until, "FAILED", "expired"]);
    let change = json!({"expires_at": written(in_seconds(7_200.0))});
    caller.api.call("PATCH", &format!("/v1/tasks/{id}")).json(&change).send().await.expect(200);
    assert_eq!(codes(&explained(&caller, &id).await), ["queue_paused", "no_worker_polling"]);
}

/// A task that has run and expires before its retry shows its last error too; one that has not run
/// does not.
pub async fn expired(acting: &Caller, asking: &Caller) {
    let expires_at = written(in_seconds(8.0));
    let task = json!({"type": "t", "queue": "expiring", "expires_at": expires_at, "retry_policy": every(3, 600.0)});
    let failing = acting.submit_id(task.clone()).await;
    let idle = acting.submit_id(merged(task, json!({"queue": "nobody"}))).await;
    acting.report("fail", &take(acting, "expiring", 1).await[0], boom()).await.expect(200);
    let answer = explained(asking, &failing).await;
    assert_eq!(codes(&answer), ["expires_first", "waiting_for_retry"], "{answer:#}");
    expect_says(&answer["reasons"][0], &[&expires_at, "it cannot run again before"]);
    expect_says(&answer["reasons"][1], &["attempt 1 failed (boom)"]);

    let task = acting.until(&failing, "FAILED").await;
    let message = "the task ran, but did not succeed by its expires_at; its last error was boom: it broke";
    assert_eq!((&task["last_error"]["code"], &task["last_error"]["message"]), (&json!("expired"), &json!(message)));
    assert_eq!(acting.runs(&failing).await[0]["error"]["code"], "boom");
    let (reason, _) = only(&explained(asking, &failing).await, "final");
    assert_eq!((&reason["error_code"], &reason["reason"]), (&json!("expired"), &json!(message)));
    expect_says(&reason, &["FAILED", "it expired, and its last error before that was boom"]);

    let task = acting.until(&idle, "FAILED").await;
    let message = "the task was not started by its expires_at";
    assert_eq!((&task["last_error"]["code"], &task["last_error"]["message"]), (&json!("expired"), &json!(message)));
    let (reason, _) = only(&explained(asking, &idle).await, "final");
    expect_says(&reason, &["FAILED", "its last error is expired"]);
}

#[tokio::test]
async fn an_expired_task_shows_the_error_before() {
    let caller = shared().await;
    expired(&caller, &caller).await;
}

#[tokio::test]
async fn a_jitter_that_postpones_a_task_is_named() {
    let caller = shared().await;
    put(&caller, "herd", json!({"dispatch_jitter_seconds": 3600})).await;
    let at = written(in_seconds(3_600.0));
    let id = caller.submit_id(json!({"type": "t", "queue": "herd", "execute_at": at})).await;
    let (reason, eta) = only(&explained(&caller, &id).await, "not_due_yet");
    assert_eq!(eta, caller.task(&id).await["next_attempt_at"]);
    expect_says(&reason, &[&at, "queue herd spreads its tasks over 3600 s (dispatch_jitter_seconds)"]);

    let schedule =
        json!({"name": "s", "interval_seconds": 1, "jitter_seconds": 86_400, "task": {"type": "t", "queue": "q"}});
    let schedule = caller.api.post("/v1/schedules", &schedule).await.expect(201).clone();
    let query = format!("&schedule_id={}", schedule["schedule_id"].as_str().unwrap_or_default());
    let made = eventually("it fires", SOON, async || {
        caller.list_ids(&query).await.first().cloned().ok_or_else(|| "no task".to_owned())
    })
    .await;
    let (reason, _) = only(&explained(&caller, &made).await, "not_due_yet");
    expect_says(&reason, &["its schedule spreads its tasks (jitter_seconds)"]);
}
