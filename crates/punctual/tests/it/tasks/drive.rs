//! `POST /v1/tasks/{id}/run` and `POST /v1/tasks/{id}/redrive`.

use punctual_testkit::http::Reply;
use serde_json::json;

use crate::it::world::{Caller, boom, every, id_of, quick, shared, unknown_task};

#[track_caller]
fn accepted(answer: &Reply) {
    assert!((200..300).contains(&answer.status()), "{} where a success was expected\n{answer}", answer.status());
}

/// A dead letter of a queue with the payload `"first"`.
async fn dead_letter(caller: &Caller, queue: &str) -> String {
    let task = json!({"type": "t", "queue": queue, "payload": "first", "retry_policy": quick(1)});
    let id = caller.submit_id(task).await;
    for _ in 0..2 {
        let lease = caller.lease_one(queue).await;
        caller.report("fail", &lease, boom()).await.expect(200);
    }
    let task = caller.until(&id, "DEAD_LETTERED").await;
    assert_eq!((&task["last_error"]["code"], &task["payload"]), (&json!("boom"), &json!("first")));
    id
}

#[tokio::test]
async fn a_waiting_task_is_made_due_now() {
    let caller = shared().await;
    let id = caller.submit_id(json!({"type": "t", "queue": "q", "delay_seconds": 3600})).await;
    accepted(&caller.api.call("POST", &format!("/v1/tasks/{id}/run")).send().await);
    assert_eq!(id_of(&caller.lease_one("q").await["task"]), id);
    caller.trail(&id).await;
}

#[tokio::test]
async fn a_task_that_waits_for_its_retry_is_made_due_now() {
    let caller = shared().await;
    let slow = every(3, 3600.0);
    let id = caller.submit_id(json!({"type": "t", "queue": "q", "retry_policy": slow})).await;
    let lease = caller.lease_one("q").await;
    caller.report("fail", &lease, boom()).await.expect(200);
    caller.until(&id, "PENDING").await;
    accepted(&caller.api.call("POST", &format!("/v1/tasks/{id}/run")).send().await);
    let lease = caller.lease_one("q").await;
    assert_eq!((id_of(&lease["task"]), &lease["attempt"]), (id, &json!(2)));
}

#[tokio::test]
async fn a_task_that_has_ended_cannot_run_now() {
    let caller = shared().await;
    let id = caller.submit_id(json!({"type": "t", "delay_seconds": 600})).await;
    caller.api.delete(&format!("/v1/tasks/{id}")).await.expect(200);
    caller.api.call("POST", &format!("/v1/tasks/{id}/run")).send().await.problem(409);
    assert_eq!(caller.task(&id).await["status"], "CANCELLED");
}

#[tokio::test]
async fn a_dead_letter_is_redriven_from_zero() {
    let caller = shared().await;
    let id = dead_letter(&caller, "q").await;
    accepted(&caller.api.call("POST", &format!("/v1/tasks/{id}/redrive")).send().await);
    let lease = caller.lease_one("q").await;
    assert_eq!((id_of(&lease["task"]), &lease["task"]["payload"]), (id.clone(), &json!("first")));
    assert_eq!(lease["task"]["retry_count"], 0, "the retry count begins from zero");
    caller.report("fail", &lease, boom()).await.expect(200);
    let lease = caller.lease_one("q").await;
    caller.report("complete", &lease, json!({"result": "at last"})).await.expect(200);
    let task = caller.until(&id, "COMPLETED").await;
    assert_eq!(task["result"], "at last");
    let trail = caller.trail(&id).await;
    assert!(trail.iter().any(|event| event["from"] == "DEAD_LETTERED" && event["to"] == "PENDING"), "{trail:#?}");
}

#[tokio::test]
async fn a_dead_letter_is_redriven_with_another_payload() {
    let caller = shared().await;
    let id = dead_letter(&caller, "q").await;
    accepted(&caller.api.post(&format!("/v1/tasks/{id}/redrive"), &json!({"payload": {"fixed": true}})).await);
    let lease = caller.lease_one("q").await;
    assert_eq!(lease["task"]["payload"], json!({"fixed": true}));
    assert_eq!(caller.task(&id).await["payload"], json!({"fixed": true}));
    let again = dead_letter(&caller, "q2").await;
    caller.api.post(&format!("/v1/tasks/{again}/redrive"), &json!({"payloads": 1})).await.invalid("/payloads");
    assert_eq!(caller.task(&again).await["status"], "DEAD_LETTERED");
}

#[tokio::test]
async fn only_dead_letters_are_redriven() {
    let caller = shared().await;
    let waiting = caller.submit_id(json!({"type": "t", "delay_seconds": 600})).await;
    let cancelled = caller.submit_id(json!({"type": "t", "delay_seconds": 600})).await;
    caller.api.delete(&format!("/v1/tasks/{cancelled}")).await.expect(200);
    for id in [waiting, cancelled] {
        let before = caller.task(&id).await;
        caller.api.post(&format!("/v1/tasks/{id}/redrive"), &json!({})).await.problem(409);
        assert_eq!(caller.task(&id).await, before, "a refused re-drive has no effect");
    }
    caller.api.post(&format!("/v1/tasks/{}/redrive", unknown_task()), &json!({})).await.problem(404);
}
