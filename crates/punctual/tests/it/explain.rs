//! `GET /v1/tasks/{id}/explain`: for every reason that can hold a task, the situation and the
//! explanation.

mod dispatch;
mod others;
mod own;
mod queue;

use serde_json::{Value, json};

use super::cluster::Cluster;
use super::world::{Caller, array, boom, merged, shared, worker_id};

/// The explanation of a task.
async fn explained(caller: &Caller, id: &str) -> Value {
    let answer = caller.api.get(&format!("/v1/tasks/{id}/explain")).await.expect(200);
    for reason in array(&answer["reasons"]) {
        assert!(reason["code"].is_string() && reason["message"].is_string(), "{answer:#}");
    }
    answer
}

fn codes(answer: &Value) -> Vec<String> {
    array(&answer["reasons"]).iter().map(|reason| reason["code"].as_str().unwrap_or_default().to_owned()).collect()
}

/// The only reason of the explanation, which must have this code.
#[track_caller]
fn only(answer: &Value, code: &str) -> (Value, Value) {
    assert_eq!(codes(answer), [code], "{answer:#}");
    (answer["reasons"][0].clone(), answer["eta"].clone())
}

#[track_caller]
fn expect_says(reason: &Value, words: &[&str]) {
    let message = reason["message"].as_str().unwrap_or_default();
    for word in words {
        assert!(message.contains(word), "{word:?} is not in {message:?}");
    }
}

async fn put(caller: &Caller, queue: &str, settings: Value) {
    caller.api.call("PUT", &format!("/v1/queues/{queue}")).json(&settings).send().await.expect(200);
}

/// Leases this many tasks of a queue at once.
async fn take(caller: &Caller, queue: &str, count: usize) -> Vec<Value> {
    let wanted = json!({"worker_id": worker_id(), "queues": [queue], "max_tasks": count, "wait_seconds": 20});
    let leases = caller.lease(wanted).await;
    assert_eq!(leases.len(), count, "{leases:#?}");
    leases
}

fn fatal() -> Value {
    merged(boom(), json!({"retryable": false}))
}

/// Every reason that the store decides, caused on one node and explained by another.
#[tokio::test]
async fn every_node_explains_what_the_store_decides() {
    let cluster = Cluster::start(2).await;
    let (acting, asking) = (cluster.caller(0), cluster.caller(1));
    others::blocked(&acting, &asking).await;
    others::held_children(&acting, &asking).await;
    others::turns(&acting, &asking).await;
    others::held_keys(&acting, &asking).await;
    others::chains(&acting, &asking).await;
    others::blocked_with_a_key(&acting, &asking).await;
    queue::paused(&acting, &asking).await;
    queue::full(&acting, &asking).await;
    queue::full_key(&acting, &asking).await;
    queue::slow(&acting, &asking).await;
    own::expired(&acting, &asking).await;
    dispatch::polled_elsewhere(&acting, &asking).await;
    dispatch::broken(&acting.of_tenant("broken"), &asking.of_tenant("broken")).await;
}

#[tokio::test]
async fn another_tenants_task_is_not_explained() {
    let caller = shared().await;
    let id = caller.submit_id(json!({"type": "t"})).await;
    let path = format!("/v1/tasks/{id}/explain");
    caller.stranger().api.get(&path).await.problem_code(404, "not_found");
}
