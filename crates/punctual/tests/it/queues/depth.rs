//! `max_depth`: submissions are refused while a queue is full.

use punctual_testkit::eventually::eventually;
use serde_json::json;
use tokio::task::JoinSet;

use super::{count, get, put};
use crate::it::cluster::Cluster;
use crate::it::world::{Caller, SOON, array, shared};

#[tokio::test]
async fn a_full_queue_refuses_and_says_when_to_come_again() {
    let caller = shared().await;
    put(&caller, "q", json!({"max_depth": 2})).await;
    let task = json!({"type": "t", "queue": "q"});
    let keyed = json!({"type": "t", "queue": "q", "idempotency_key": "k"});
    caller.submit(keyed.clone()).await;
    let items =
        caller.api.post("/v1/tasks/batch", &json!({"tasks": [task, task, {"type": "t", "queue": "other"}]})).await;
    let statuses: Vec<_> = array(&items.expect(200)["items"]).iter().map(|item| item["status"].clone()).collect();
    assert_eq!(statuses, [201, 429, 201]);
    assert_eq!(items.expect(200)["items"][1]["error"]["code"], "queue_full");
    let refused = caller.api.post("/v1/tasks", &task).await;
    refused.problem_code(429, "queue_full");
    assert_eq!(refused.header("retry-after"), Some("1"));
    caller.api.post("/v1/tasks", &keyed).await.expect(200);
    let lease = caller.lease_one("q").await;
    caller.api.post("/v1/tasks", &task).await.problem_code(429, "queue_full");
    caller.tell("complete", &lease, json!({})).await.expect(200);
    caller.submit(task).await;
}

/// Hundreds at once, single and in batches, to every node: not one too many, and not one too few.
async fn submit_all_at_once(callers: Vec<Caller>) {
    const MOST: u64 = 150;
    let mut submitters = JoinSet::new();
    for (number, caller) in callers.iter().cycle().take(300).enumerate() {
        let caller = caller.clone();
        submitters.spawn(async move {
            let task = json!({"type": "t", "queue": "q"});
            if number % 3 > 0 {
                let answer = caller.api.post("/v1/tasks", &task).await;
                assert!([201, 429].contains(&answer.status()), "{answer}");
                return u64::from(answer.status() == 201);
            }
            let answer = caller.api.post("/v1/tasks/batch", &json!({"tasks": [task, task, task]})).await;
            let items = array(&answer.expect(200)["items"]);
            assert!(items.iter().all(|item| item["status"] == 201 || item["status"] == 429), "{answer}");
            items.iter().filter(|item| item["status"] == 201).count() as u64
        });
    }
    let mut accepted = 0;
    while let Some(done) = submitters.join_next().await {
        accepted += done.expect("every submission is answered");
    }
    assert_eq!((accepted, count(&get(&callers[0], "q").await, "PENDING")), (MOST, MOST));
}

#[tokio::test]
async fn hundreds_of_submissions_at_once_fill_a_queue_exactly() {
    let caller = shared().await;
    put(&caller, "q", json!({"max_depth": 150})).await;
    submit_all_at_once(vec![caller]).await;
}

#[tokio::test]
async fn hundreds_of_submissions_to_three_nodes_fill_a_queue_exactly() {
    let cluster = Cluster::start(3).await;
    put(&cluster.caller(0), "q", json!({"max_depth": 1})).await;
    cluster.caller(0).submit(json!({"type": "t", "queue": "q"})).await;
    for node in 0..3 {
        eventually("the node knows", SOON, async || {
            let answer = cluster.caller(node).api.post("/v1/tasks", &json!({"type": "t", "queue": "q"})).await;
            match answer.status() {
                429 => Ok(()),
                _ => Err(answer.to_string()),
            }
        })
        .await;
    }
    let lane = get(&cluster.caller(0), "q").await;
    let mut waiting = count(&lane, "PENDING");
    while waiting > 0 {
        let lease = cluster.caller(0).lease_one("q").await;
        cluster.caller(0).tell("complete", &lease, json!({})).await.expect(200);
        waiting -= 1;
    }
    put(&cluster.caller(1), "q", json!({"max_depth": 150})).await;
    submit_all_at_once((0..3).map(|node| cluster.caller(node)).collect()).await;
}
