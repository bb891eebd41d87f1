//! `max_depth`: submissions are refused while a queue is full.

use punctual_testkit::eventually::eventually;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{count, get, put};
use crate::it::cluster::Cluster;
use crate::it::world::{Caller, SOON, World, array, shared};

#[tokio::test]
async fn a_full_queue_refuses_with_retry_after() {
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
    let detail = refused.problem_code(429, "queue_full")["detail"].clone();
    assert!(
        detail.as_str().is_some_and(|detail| detail.contains("queue q ") && detail.contains("max_depth of 2 ")),
        "{detail}"
    );
    assert_eq!(refused.header("retry-after"), Some("1"));
    caller.api.post("/v1/tasks", &keyed).await.expect(200);
    let lease = caller.lease_one("q").await;
    caller.api.post("/v1/tasks", &task).await.problem_code(429, "queue_full");
    caller.report("complete", &lease, json!({})).await.expect(200);
    caller.submit(task).await;
}

#[tokio::test]
async fn a_tenant_with_too_many_lanes_is_told_what_to_do() {
    let world = World::start_with(|serve| serve.setting("LIMITS__TENANT_LANES", "2")).await;
    let caller = world.caller();
    let task = |kind: &str| json!({"type": kind, "queue": "q"});
    caller.submit(task("a")).await;
    let tasks = json!([task("b"), task("c"), task("a"), {"type": "a", "queue": "q", "depends_on": [1]}]);
    let answer = caller.api.post("/v1/tasks/batch", &json!({"tasks": tasks})).await.expect(200).clone();
    let summary = |item: &Value| (item["status"].clone(), item["error"]["code"].clone());
    let stored = (json!(201), json!(null));
    let refused = (json!(429), json!("quota_exceeded"));
    assert_eq!(
        array(&answer["items"]).iter().map(summary).collect::<Vec<_>>(),
        [stored.clone(), refused.clone(), stored, refused]
    );
    let refused = caller.api.post("/v1/tasks", &task("c")).await;
    let detail = refused.problem_code(429, "quota_exceeded")["detail"].as_str().unwrap_or_default().to_owned();
    assert!(detail.contains("has 2 combinations") && detail.contains("limits.tenant_lanes"), "{detail}");
    assert_eq!(refused.header("retry-after"), Some("60"));
    caller.submit(task("b")).await;
    caller.of_tenant("other").submit(task("c")).await;
}

/// A retry can succeed for both.
#[tokio::test]
async fn a_child_of_a_member_without_room_gets_429_too() {
    let caller = shared().await;
    put(&caller, "q", json!({"max_depth": 1})).await;
    caller.submit(json!({"type": "t", "queue": "q"})).await;
    let tasks = json!([
        {"type": "t", "queue": "other", "depends_on": [1]},
        {"type": "t", "queue": "other", "depends_on": [2]},
        {"type": "t", "queue": "q"},
        {"type": "t", "queue": "other"},
    ]);
    let answer = caller.api.post("/v1/tasks/batch", &json!({"tasks": tasks})).await.expect(200).clone();
    let items = array(&answer["items"]);
    let summary =
        |item: &Value| (item["status"].clone(), item["error"]["code"].clone(), item["retry_after_seconds"].clone());
    let put_off = (json!(429), json!("queue_full"), json!(1));
    assert_eq!(
        items.iter().map(summary).collect::<Vec<_>>(),
        [put_off.clone(), put_off.clone(), put_off, (json!(201), json!(null), json!(null)),]
    );
    for (child, parent) in [(0, "task 1 of the batch"), (1, "task 2 of the batch")] {
        let detail = items[child]["error"]["detail"].as_str().unwrap_or_default();
        assert!(detail.contains(parent) && detail.contains("try both again"), "{detail}");
    }
    // The same again, once there is room.
    put(&caller, "q", json!({})).await;
    let again = caller.api.post("/v1/tasks/batch", &json!({"tasks": tasks})).await.expect(200).clone();
    assert!(array(&again["items"]).iter().all(|item| item["status"] == 201), "{again:#}");
}

/// Only a refusal by a full queue asks for a retry.
async fn expect_permanent_refusals(caller: &Caller) {
    put(caller, "q", json!({"max_depth": 1})).await;
    caller.submit(json!({"type": "t", "queue": "q"})).await;
    caller.submit(json!({"type": "t", "queue": "other", "idempotency_key": "k"})).await;
    let unknown = format!("task_{}", uuid::Uuid::now_v7());
    let alone = caller.api.post("/v1/tasks", &json!({"type": "t", "queue": "q", "depends_on": [unknown]})).await;
    alone.problem_code(422, "unknown_dependency");
    let tasks = json!([
        {"type": "t", "queue": "other", "depends_on": [1, unknown]},
        {"type": "t", "queue": "q"},
        {"type": "t", "queue": "other", "depends_on": [1, 3]},
        {"type": "t", "queue": "other", "depends_on": [unknown]},
        {"type": "t", "queue": "other", "depends_on": [1, 5]},
        {"type": "another", "queue": "other", "idempotency_key": "k"},
        {"type": "t", "queue": "other", "depends_on": [1, 4]},
        {"type": "t", "queue": "other", "depends_on": [1]},
        {"type": "t", "queue": "q", "depends_on": [unknown]},
        {"type": "t", "queue": "q", "depends_on": [8]},
        {"type": "t", "queue": "q", "depends_on": [1]},
    ]);
    let answer = caller.api.post("/v1/tasks/batch", &json!({"tasks": tasks})).await.expect(200);
    let items = array(&answer["items"]);
    let summary = |item: &Value| (item["status"].clone(), item["error"]["code"].clone());
    let (full, missing) = ((json!(429), json!("queue_full")), (json!(422), json!("unknown_dependency")));
    let reused = (json!(422), json!("idempotency_key_reused"));
    assert_eq!(
        items.iter().map(summary).collect::<Vec<_>>(),
        [
            missing.clone(),
            full.clone(),
            missing.clone(),
            missing.clone(),
            missing.clone(),
            reused,
            missing.clone(),
            full.clone(),
            missing.clone(),
            missing,
            full,
        ],
        "{answer:#}"
    );
    let detail = |place: usize| items[place]["error"]["detail"].as_str().unwrap_or_default().to_owned();
    assert!(detail(0).contains(&unknown), "{}", detail(0));
    assert!(detail(2).contains("task 3 of the batch"), "{}", detail(2));
}

#[tokio::test]
async fn an_unknown_dependency_is_refused_for_good() {
    expect_permanent_refusals(&shared().await).await;
}

#[tokio::test]
async fn an_unknown_dependency_is_refused_for_good_on_postgres() {
    let cluster = Cluster::start(1).await;
    expect_permanent_refusals(&cluster.caller(0)).await;
}

/// Hundreds at once, single and in batches, to every node: the queue ends up exactly full.
async fn submit_all_at_once(callers: Vec<Caller>) {
    const MAX_DEPTH: u64 = 150;
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
    assert_eq!((accepted, count(&get(&callers[0], "q").await, "PENDING")), (MAX_DEPTH, MAX_DEPTH));
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
        cluster.caller(0).report("complete", &lease, json!({})).await.expect(200);
        waiting -= 1;
    }
    put(&cluster.caller(1), "q", json!({"max_depth": 150})).await;
    submit_all_at_once((0..3).map(|node| cluster.caller(node)).collect()).await;
}
