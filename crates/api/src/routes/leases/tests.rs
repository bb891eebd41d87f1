use std::sync::atomic::Ordering;
use std::time::Duration;

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
async fn a_lease_has_all_a_worker_needs() {
    let world = World::new();
    let id = submit(&world, "q").await;
    world.clock.advance_millis(30);
    let leases = lease(&world, "q", 10).await;
    let [lease] = leases.as_slice() else { panic!("{leases:?}") };
    assert_eq!(lease["task"]["status"], "RUNNING");
    assert_eq!(lease["task"]["payload"], json!({"n": 1}));
    assert_eq!((&lease["attempt"], &lease["token"], &lease["checkpoint"]), (&json!(1), &json!(3), &Value::Null));
    assert_eq!(lease["lease_expires_at"], START.plus_millis(60_030).to_string());
    let runs = world.send("GET", &format!("/v1/tasks/{id}/runs"), None).await.json();
    assert_eq!(runs["items"][0]["run_id"], lease["run_id"], "the history names the run alike");
    let metrics = world.api.operations.metrics.prometheus();
    assert!(metrics.contains("punctual_leases_total 1\n"), "{metrics}");
    assert!(metrics.contains("punctual_lateness_seconds_sum 0.03\n"), "{metrics}");
}

#[tokio::test(start_paused = true)]
async fn a_poll_without_work_is_empty_after_its_wait() {
    let world = World::new();
    let began = tokio::time::Instant::now();
    assert!(lease(&world, "empty", 1).await.is_empty());
    assert!(began.elapsed() >= Duration::from_secs(5));
    let at_once = world.send("POST", "/v1/leases", Some(json!({"worker_id": "w1", "types": ["work"]}))).await;
    assert_eq!(at_once.text, r#"{"leases":[]}"#);
}

#[tokio::test]
async fn a_lease_request_is_checked_whole() {
    let world = World::new();
    let answer = world.send("POST", "/v1/leases", Some(json!({"worker_id": "", "queues": [], "max_tasks": 0}))).await;
    assert_eq!(answer.problem(), "invalid_request");
    let pointers: Vec<Value> =
        answer.json()["errors"].as_array().unwrap().iter().map(|e| e["pointer"].clone()).collect();
    assert_eq!(pointers, ["/worker_id", "/queues", "/max_tasks"]);
    let answer = world.send("POST", "/v1/leases", Some(json!({"worker_id": "w", "queues": ["q"], "wait": 5}))).await;
    assert_eq!(
        (answer.status, &answer.json()["errors"][0]["pointer"]),
        (StatusCode::UNPROCESSABLE_ENTITY, &json!("/wait"))
    );
}

#[tokio::test]
async fn a_shutdown_ends_the_waiting_polls() {
    let world = World::new();
    world.shutdown.cancel();
    let answer =
        world.send("POST", "/v1/leases", Some(json!({"worker_id": "w", "queues": ["q"], "wait_seconds": 60}))).await;
    // Either it was waiting already and is sent away with nothing, or it comes too late.
    assert!(answer.status == StatusCode::OK || answer.problem() == "shutting_down", "{}", answer.text);
    let later = world.send("POST", "/v1/leases", Some(json!({"worker_id": "w", "queues": ["q"]}))).await;
    assert_eq!((later.status, later.problem().as_str()), (StatusCode::SERVICE_UNAVAILABLE, "shutting_down"));
}

#[tokio::test]
async fn a_completion_can_be_repeated() {
    let world = World::new();
    let (id, token) = running(&world).await;
    for _ in 0..2 {
        let answer = call(&world, &id, "complete", json!({"token": token, "result": {"ok": true}})).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
        assert_eq!((&answer.json()["status"], &answer.json()["result"]), (&json!("COMPLETED"), &json!({"ok": true})));
    }
    let other = call(&world, &id, "complete", json!({"token": token, "result": {"ok": false}})).await;
    assert_eq!((other.status, other.problem().as_str()), (StatusCode::CONFLICT, "stale_token"));
}

#[tokio::test]
async fn only_a_retryable_failure_is_retried() {
    let world = World::new();
    let (id, token) = running(&world).await;
    let error = json!({"code": "boom", "message": "it broke", "details": {"line": 7}});
    let answer = call(&world, &id, "fail", json!({"token": token, "error": error, "retry_after_seconds": 5})).await;
    assert_eq!(answer.json()["status"], "PENDING");
    assert_eq!(answer.json()["next_attempt_at"], START.plus_millis(5_000).to_string());
    assert_eq!(answer.json()["last_error"]["code"], "boom");
    world.clock.advance_millis(5_000);
    let again = lease(&world, "q", 1).await;
    assert_eq!(again[0]["attempt"], 2);
    let answer = call(&world, &id, "fail", json!({"token": again[0]["token"], "retryable": false})).await;
    assert_eq!(answer.json()["status"], "DEAD_LETTERED");
}

#[tokio::test]
async fn a_heartbeat_extends_and_keeps_what_it_brings() {
    let world = World::new();
    let (id, token) = running(&world).await;
    world.clock.advance_millis(10_000);
    let answer =
        call(&world, &id, "heartbeat", json!({"token": token, "progress": 0.5, "checkpoint": {"at": 7}})).await;
    assert_eq!(answer.json()["lease_expires_at"], START.plus_millis(70_000).to_string());
    assert_eq!((&answer.json()["progress"], &answer.json()["status"]), (&json!(0.5), &json!("RUNNING")));
    let released = call(&world, &id, "release", json!({"token": token})).await;
    assert_eq!((&released.json()["status"], &released.json()["retry_count"]), (&json!("PENDING"), &json!(0)));
    assert_eq!(lease(&world, "q", 1).await[0]["checkpoint"], json!({"at": 7}));
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
async fn a_heartbeat_of_a_cancelled_run_is_answered_410() {
    let world = World::new();
    let (id, token) = running(&world).await;
    // In a flood, too.
    for _ in 0..20 {
        assert_eq!(call(&world, &id, "heartbeat", json!({"token": token})).await.status, StatusCode::OK);
    }
    assert_eq!(world.send("DELETE", &format!("/v1/tasks/{id}"), None).await.status, StatusCode::ACCEPTED);
    let answer = call(&world, &id, "heartbeat", json!({"token": token})).await;
    assert_eq!((answer.status, answer.problem().as_str()), (StatusCode::GONE, "cancelled"));
}

#[tokio::test]
async fn an_invalid_settlement_changes_nothing() {
    let world = World::new();
    let (id, token) = running(&world).await;
    for other in ["task_00000000-0000-7000-8000-000000000000", "nonsense", "run_x"] {
        assert_eq!(call(&world, other, "complete", json!({"token": token})).await.problem(), "not_found", "{other}");
    }
    let large = "x".repeat(64 * 1024);
    assert_eq!(call(&world, &id, "complete", json!({"token": token, "result": large})).await.problem(), "too_large");
    let huge = "x".repeat(1024 * 1024);
    assert_eq!(call(&world, &id, "complete", json!({"token": token, "result": huge})).await.problem(), "too_large");
    let nul = json!({"token": token, "error": {"message": "a\0b"}});
    assert_eq!(call(&world, &id, "fail", nul).await.problem(), "invalid_request");
    assert_eq!(call(&world, &id, "complete", json!({"token": -1})).await.problem(), "invalid_request");
    assert_eq!(
        call(&world, &id, "complete", json!({"token": token, "outcome": "x"})).await.problem(),
        "invalid_request"
    );
    assert_eq!(call(&world, &id, "heartbeat", json!({"token": token})).await.json()["status"], "RUNNING");
}

#[tokio::test]
async fn each_item_of_a_settle_call_is_judged_by_itself() {
    let world = World::new();
    for _ in 0..4 {
        submit(&world, "q").await;
    }
    let leases = lease(&world, "q", 4).await;
    let held = |at: usize| (leases[at]["task"]["task_id"].clone(), leases[at]["token"].clone());
    let ((a, ta), (b, tb), (c, tc), (d, td)) = (held(0), held(1), held(2), held(3));
    let gone = "task_00000000-0000-7000-8000-000000000000";
    let answers = settle(
        &world,
        json!([
            {"task_id": a, "token": ta, "outcome": "completed", "result": 1},
            {"task_id": b, "token": 1, "outcome": "completed"},
            {"task_id": b, "token": tb, "outcome": "failed", "error": {"code": "x"}},
            {"task_id": gone, "token": 3, "outcome": "released"},
            {"task_id": c, "token": tc, "outcome": "heartbeat", "progress": 1},
            {"task_id": d, "token": td, "outcome": "released", "result": 1},
            {"task_id": d, "token": td, "outcome": "released"},
        ]),
    )
    .await;
    let statuses: Vec<u64> = answers.iter().map(|answer| answer["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [200, 409, 200, 404, 200, 422, 200]);
    assert_eq!(answers[0], json!({"status": 200, "task_id": a}));
    assert_eq!(answers[1]["error"]["code"], "stale_token");
    assert!(answers[4]["lease_expires_at"].is_string());
    assert_eq!(answers[5]["error"]["errors"][0]["pointer"], "/result");
    let metrics = world.api.operations.metrics.prometheus();
    for outcome in ["completed", "retried", "given_back"] {
        assert!(metrics.contains(&format!("punctual_tasks_settled_total{{outcome=\"{outcome}\"}} 1\n")), "{metrics}");
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

#[tokio::test]
async fn an_error_of_the_store_shows_no_secrets() {
    let world = World::new();
    let (id, token) = running(&world).await;
    world.store.broken.store(true, Ordering::SeqCst);
    let answer = call(&world, &id, "complete", json!({"token": token})).await;
    assert_eq!((answer.status, answer.problem().as_str()), (StatusCode::SERVICE_UNAVAILABLE, "store_unavailable"));
    assert!(!answer.text.contains("/dev"), "{}", answer.text);
}
