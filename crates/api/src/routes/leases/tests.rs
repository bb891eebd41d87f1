use std::sync::atomic::Ordering;

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::testing::{Answer, START, World};

async fn submit(world: &World, queue: &str) -> String {
    let answer =
        world.send("POST", "/v1/tasks", Some(json!({"type": "work", "queue": queue, "payload": {"n": 1}}))).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text);
    answer.json()["task_id"].as_str().unwrap().to_owned()
}

async fn lease(world: &World, queue: &str, max_tasks: usize) -> Vec<Value> {
    let asking = json!({"worker_id": "w1", "queues": [queue], "max_tasks": max_tasks, "wait_seconds": 5});
    let answer = world.send("POST", "/v1/leases", Some(asking)).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    answer.json()["leases"].as_array().unwrap().clone()
}

/// A task that is with a worker: its id and the token.
async fn running(world: &World) -> (String, u64) {
    let id = submit(world, "q").await;
    let leases = lease(world, "q", 1).await;
    assert_eq!(leases[0]["task"]["task_id"], id.as_str());
    (id, leases[0]["token"].as_u64().unwrap())
}

async fn settle(world: &World, items: Value) -> Vec<Value> {
    let answer = world.send("POST", "/v1/leases/settle", Some(json!({"items": items}))).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    answer.json()["items"].as_array().unwrap().clone()
}

async fn call(world: &World, id: &str, verb: &str, body: Value) -> Answer {
    world.send("POST", &format!("/v1/tasks/{id}/{verb}"), Some(body)).await
}

#[tokio::test]
async fn a_lease_is_counted_with_its_lateness() {
    let world = World::new();
    submit(&world, "q").await;
    world.clock.advance_millis(30);
    assert_eq!(lease(&world, "q", 10).await[0]["lease_expires_at"], START.plus_millis(60_030).to_string());
    let metrics = world.api.operations.metrics.prometheus();
    assert!(metrics.contains("punctual_leases_total 1\n"), "{metrics}");
    assert!(metrics.contains("punctual_lateness_seconds_sum 0.03\n"), "{metrics}");
}

#[tokio::test]
async fn a_shutdown_ends_the_waiting_polls() {
    let world = World::new();
    world.shutdown.cancel();
    let answer =
        world.send("POST", "/v1/leases", Some(json!({"worker_id": "w", "queues": ["q"], "wait_seconds": 60}))).await;
    // Either it waited already and gets nothing, or it came too late.
    assert!(answer.status == StatusCode::OK || answer.problem() == "shutting_down", "{}", answer.text);
    let later = world.send("POST", "/v1/leases", Some(json!({"worker_id": "w", "queues": ["q"]}))).await;
    assert_eq!((later.status, later.problem().as_str()), (StatusCode::SERVICE_UNAVAILABLE, "shutting_down"));
}

#[tokio::test]
async fn a_flood_of_heartbeats_is_not_written() {
    let world = World::new();
    let (id, token) = running(&world).await;
    for _ in 0..200 {
        assert_eq!(call(&world, &id, "heartbeat", json!({"token": token})).await.status, StatusCode::OK);
    }
    // Ten a second; the loop may last longer than one on a busy machine.
    let written = world.store.extended.load(Ordering::SeqCst);
    assert!(written < 200, "{written}");
    assert_eq!(call(&world, &id, "complete", json!({"token": token})).await.status, StatusCode::OK);
    assert_eq!(call(&world, &id, "heartbeat", json!({"token": token})).await.problem(), "stale_token");
}

#[tokio::test]
async fn a_cancellation_is_noticed_in_a_flood_of_heartbeats() {
    let world = World::new();
    let (id, token) = running(&world).await;
    for _ in 0..20 {
        assert_eq!(call(&world, &id, "heartbeat", json!({"token": token})).await.status, StatusCode::OK);
    }
    assert_eq!(world.send("DELETE", &format!("/v1/tasks/{id}"), None).await.status, StatusCode::ACCEPTED);
    let answer = call(&world, &id, "heartbeat", json!({"token": token})).await;
    assert_eq!((answer.status, answer.problem().as_str()), (StatusCode::GONE, "cancelled"));
}

/// Settles one leased task and returns its answer.
async fn settled(world: &World, fields: Value) -> Value {
    let (id, token) = running(world).await;
    let mut item = json!({"task_id": id, "token": token});
    item.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    settle(world, json!([item])).await.remove(0)
}

#[tokio::test]
async fn a_settlement_answers_only_its_status() {
    let answer = settled(&World::new(), json!({"outcome": "completed", "result": 1})).await;
    assert_eq!(answer, json!({"status": 200, "task_id": answer["task_id"]}));
}

#[tokio::test]
async fn a_settled_heartbeat_answers_the_end_of_its_lease() {
    let answer = settled(&World::new(), json!({"outcome": "heartbeat", "progress": 1})).await;
    assert_eq!(answer["lease_expires_at"], START.plus_millis(60_000).to_string());
}

#[tokio::test]
async fn a_bad_item_does_not_touch_the_others() {
    let world = World::new();
    let (id, token) = running(&world).await;
    let answers = settle(
        &world,
        json!([
            {"task_id": id, "token": 1, "outcome": "completed"},
            {"task_id": "task_00000000-0000-7000-8000-000000000000", "token": 3, "outcome": "released"},
            {"task_id": id, "token": token, "outcome": "released", "result": 1},
            {"task_id": id, "token": token, "outcome": "released"},
        ]),
    )
    .await;
    let statuses: Vec<u64> = answers.iter().map(|answer| answer["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [409, 404, 422, 200]);
    assert_eq!(answers[0]["error"]["code"], "stale_token");
    assert_eq!(answers[2]["error"]["errors"][0]["pointer"], "/result");
}

#[tokio::test]
async fn settled_runs_are_counted_by_outcome() {
    for (outcome, label) in [("completed", "completed"), ("failed", "retried"), ("released", "given_back")] {
        let world = World::new();
        settled(&world, json!({"outcome": outcome})).await;
        let metrics = world.api.operations.metrics.prometheus();
        assert!(metrics.contains(&format!("punctual_tasks_settled_total{{outcome=\"{label}\"}} 1\n")), "{metrics}");
    }
}

#[tokio::test]
async fn a_settle_call_is_bounded() {
    let world = World::new();
    assert!(settle(&world, json!([])).await.is_empty());
    let item = json!({"task_id": "task_00000000-0000-7000-8000-000000000000", "token": 1, "outcome": "released"});
    let answer = world.send("POST", "/v1/leases/settle", Some(json!({"items": vec![item.clone(); 1_001]}))).await;
    assert_eq!(
        (answer.problem().as_str(), &answer.json()["errors"][0]["pointer"]),
        ("invalid_request", &json!("/items"))
    );
    assert_eq!(settle(&world, json!(vec![item; 1_000])).await.len(), 1_000);
}
