//! Settling many runs by one call: `POST /v1/leases/settle`.

use punctual_testkit::eventually::eventually;
use serde_json::{Value, json};

use crate::it::world::{Caller, SOON, code_of, id_of, quick, settlement, shared, time, unknown_task, worker_id};

/// Submits a task with quick retries to the queue `q`, and leases it.
async fn leased(caller: &Caller) -> Value {
    caller.submit(json!({"type": "t", "queue": "q", "retry_policy": quick(3)})).await;
    caller.lease_one("q").await
}

/// The HTTP status of one item of a batched settlement.
fn status_of(item: &Value) -> u64 {
    item["status"].as_u64().unwrap_or_default()
}

#[tokio::test]
async fn one_call_settles_many_runs_in_order() {
    let caller = shared().await;
    let (completed, released) = (leased(&caller).await, leased(&caller).await);
    let items = caller
        .settle_all(vec![
            settlement(&completed, json!({"outcome": "completed"})),
            json!({"task_id": unknown_task(), "token": 1, "outcome": "completed"}),
            settlement(&released, json!({"outcome": "released"})),
        ])
        .await;
    let statuses: Vec<u64> = items.iter().map(status_of).collect();
    assert_eq!(statuses, [200, 404, 200], "{items:#?}");
    caller.until(&id_of(&completed["task"]), "COMPLETED").await;
    caller.until(&id_of(&released["task"]), "PENDING").await;
}

#[tokio::test]
async fn a_settled_completion_keeps_its_result() {
    let caller = shared().await;
    let lease = leased(&caller).await;
    let item = caller.settle(&lease, json!({"outcome": "completed", "result": {"n": 0}})).await;
    assert_eq!(status_of(&item), 200, "{item:#}");
    assert_eq!(caller.until(&id_of(&lease["task"]), "COMPLETED").await["result"], json!({"n": 0}));
}

#[tokio::test]
async fn a_settlement_with_a_stale_token_changes_nothing() {
    let caller = shared().await;
    let lease = leased(&caller).await;
    let id = id_of(&lease["task"]);
    let mut stale = settlement(&lease, json!({"outcome": "completed", "result": "stale"}));
    stale["token"] = json!(lease["token"].as_u64().expect("a token") - 1);
    let items = caller.settle_all(vec![stale]).await;
    assert_eq!((status_of(&items[0]), code_of(&items[0])), (409, "stale_token"), "{items:#?}");
    let untouched = caller.task(&id).await;
    assert_eq!((&untouched["status"], &untouched["result"]), (&json!("RUNNING"), &Value::Null), "{untouched:#}");
    caller.report("complete", &lease, json!({"result": "fresh"})).await.expect(200);
    assert_eq!(caller.until(&id, "COMPLETED").await["result"], "fresh");
}

#[tokio::test]
async fn a_settlement_of_a_cancelled_run_is_discarded() {
    let caller = shared().await;
    let lease = leased(&caller).await;
    let id = id_of(&lease["task"]);
    caller.api.delete(&format!("/v1/tasks/{id}")).await.expect(202);
    let item = caller.settle(&lease, json!({"outcome": "completed", "result": 2})).await;
    assert_eq!((status_of(&item), code_of(&item)), (410, "cancelled"), "{item:#}");
    assert!(caller.until(&id, "CANCELLED").await["result"].is_null());
}

#[tokio::test]
async fn a_settled_failure_without_retry_is_a_dead_letter() {
    let caller = shared().await;
    let lease = leased(&caller).await;
    let error = json!({"code": "bad", "message": "no", "details": {"line": 3}});
    let item = caller.settle(&lease, json!({"outcome": "failed", "error": error, "retryable": false})).await;
    assert_eq!(status_of(&item), 200, "{item:#}");
    let dead = caller.until(&id_of(&lease["task"]), "DEAD_LETTERED").await;
    assert_eq!((&dead["last_error"]["code"], &dead["last_error"]["message"]), (&json!("bad"), &json!("no")));
    time(&dead["last_error"]["at"]);
}

#[tokio::test]
async fn a_settled_release_hands_the_task_out_again() {
    let caller = shared().await;
    let lease = leased(&caller).await;
    let item = caller.settle(&lease, json!({"outcome": "released"})).await;
    assert_eq!(status_of(&item), 200, "{item:#}");
    assert_eq!(id_of(&caller.lease_one("q").await["task"]), id_of(&lease["task"]));
}

#[tokio::test]
async fn a_settled_heartbeat_keeps_the_progress() {
    let caller = shared().await;
    let lease = leased(&caller).await;
    let item = caller.settle(&lease, json!({"outcome": "heartbeat", "progress": 0.5})).await;
    assert_eq!(status_of(&item), 200, "{item:#}");
    eventually("the progress is kept", SOON, async || {
        let task = caller.task(&id_of(&lease["task"])).await;
        if task["progress"] == 0.5 { Ok(()) } else { Err(task.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn a_thousand_are_settled_in_one_call() {
    let caller = shared().await;
    caller.submit_all((0..1000).map(|n| json!({"type": "t", "queue": "q", "payload": n})).collect()).await;
    let mut leases: Vec<Value> = Vec::new();
    while leases.len() < 1000 {
        let wanted = json!({"worker_id": worker_id(), "queues": ["q"], "max_tasks": 100, "wait_seconds": 20});
        let more = caller.lease(wanted).await;
        assert!(!more.is_empty(), "{} of 1000 were handed out", leases.len());
        leases.extend(more);
    }
    let items = leases
        .iter()
        .map(|lease| settlement(lease, json!({"outcome": "completed", "result": lease["task"]["payload"]})))
        .collect();
    let answers = caller.settle_all(items).await;
    assert_eq!(answers.len(), 1000);
    assert!(
        answers.iter().all(|item| item["status"] == 200),
        "{:#?}",
        answers.iter().find(|item| item["status"] != 200)
    );
    eventually("all are completed", SOON, async || {
        let left = caller.list_ids("&status=RUNNING&status=PENDING&status=QUEUED").await;
        if left.is_empty() { Ok(()) } else { Err(format!("{} are left", left.len())) }
    })
    .await;
}
