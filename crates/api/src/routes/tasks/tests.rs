use axum::body::Body;
use axum::http::{Request, header};
use serde_json::{Value, json};

use crate::readiness::Probes;
use crate::state::ApiConfig;
use crate::testing::{Answer, World};

async fn batch(world: &World, path: &str, media_type: &str, body: &str) -> Answer {
    let request = Request::post(path).header(header::CONTENT_TYPE, media_type);
    world.call(request.body(Body::from(body.to_owned())).unwrap()).await
}

/// A task in the dead letters.
async fn dead_letter(world: &World) -> String {
    world.submit(json!({"type": "t", "retry_policy": {"max_retries": 0}})).await;
    let lease = world.lease("w1", "default").await;
    let error = json!({"code": "boom", "message": "it broke", "details": {"line": 7}});
    world.report(&lease, "fail", json!({"error": error})).await.expect(200);
    lease.id
}

#[tokio::test]
async fn a_submitted_task_is_at_its_location() {
    let world = World::new();
    let answer = world.send("POST", "/v1/tasks", Some(json!({"type": "t", "payload": {"a": 1}}))).await;
    let task = answer.json();
    let path = format!("/v1/tasks/{}", task["task_id"].as_str().unwrap());
    assert_eq!(answer.headers[header::LOCATION], path.as_str());
    assert_eq!(world.send("GET", &path, None).await.json(), task);
    let wire: punctual_client::Task = serde_json::from_value(task.clone()).unwrap();
    assert_eq!(serde_json::to_value(wire).unwrap(), task, "the wire type reads what we write");
}

#[tokio::test]
async fn a_fault_in_a_batch_is_pointed_at() {
    let world = World::new();
    let body = r#"{"tasks": [{"type":"a"}, {"type":"b","priority":11}, {"type":"c","payload":{"k":1,"k":1}}]}"#;
    let items = batch(&world, "/v1/tasks/batch", "application/json", body).await.expect(200)["items"].take();
    assert_eq!(items[1]["error"]["errors"][0]["pointer"], "/tasks/1/priority");
    assert_eq!(items[2]["error"]["code"], "invalid_json");
}

#[tokio::test]
async fn a_batch_has_no_more_tasks_than_are_set() {
    let world = World::with(ApiConfig { batch_tasks: 2, ..ApiConfig::default() }, Probes::default());
    for (media_type, body) in [("application/json", r#"{"tasks":[1,2,3]}"#), ("application/x-ndjson", "1\n2\n3")] {
        let answer = batch(&world, "/v1/tasks/batch", media_type, body).await;
        assert_eq!(answer.pointers(), ["/tasks"], "{media_type}");
    }
}

#[tokio::test]
async fn a_batch_takes_one_parameter_and_no_key() {
    let world = World::new();
    let empty = batch(&world, "/v1/tasks/batch", "application/x-ndjson", "\n").await;
    assert_eq!(empty.json(), json!({"items": []}));
    let typo = batch(&world, "/v1/tasks/batch?retrun=ids", "application/json", r#"{"tasks":[]}"#).await;
    assert_eq!(typo.pointers(), ["?retrun"]);
    let keyed = world.send_with("POST", "/v1/tasks/batch", ("idempotency-key", "k")).await;
    assert_eq!((keyed.status.as_u16(), keyed.problem().as_str()), (400, "invalid_idempotency_key"));
}

#[tokio::test]
async fn an_edit_keeps_what_it_does_not_name() {
    let world = World::new();
    let policy = json!({"max_retries": 7, "backoff": "fixed"});
    let id = world.submit(json!({"type": "t", "delay_seconds": 60, "retry_policy": policy})).await;
    let path = format!("/v1/tasks/{id}");
    let task = world.send("PATCH", &path, Some(json!({"retry_policy": {"backoff_seconds": 1}}))).await.json();
    let policy = &task["retry_policy"];
    assert_eq!((&policy["max_retries"], &policy["backoff_seconds"]), (&json!(7), &json!(1)));
    let nothing = world.send("PATCH", &path, Some(json!({}))).await;
    assert_eq!((nothing.status.as_u16(), &nothing.json()["version"]), (200, &json!(2)));
}

#[tokio::test]
async fn an_edit_must_leave_a_valid_task() {
    let world = World::new();
    let id = world.submit(json!({"type": "t", "delay_seconds": 60, "expires_at": "2026-05-23T00:00:00Z"})).await;
    let path = format!("/v1/tasks/{id}");
    for (patch, pointer) in [
        (json!({"execute_at": "2026-05-24T00:00:00Z"}), "/execute_at"),
        (json!({"expires_at": "2026-05-22T18:00:59Z"}), "/expires_at"),
        (json!({"execute_at": null}), "/execute_at"),
        (json!({"priority": null}), "/priority"),
        (json!({"metadata": null}), "/metadata"),
        (json!({"execute_at": "2026-05-22T20:00:00Z", "delay_seconds": 1}), "/delay_seconds"),
    ] {
        let answer = world.send("PATCH", &path, Some(patch.clone())).await;
        assert_eq!(answer.pointers(), [pointer], "{patch}");
    }
    let unlimited = world.send("PATCH", &path, Some(json!({"expires_at": null}))).await;
    assert_eq!(unlimited.json()["expires_at"], Value::Null);
}

#[tokio::test]
async fn a_cancellation_can_be_repeated() {
    let world = World::new();
    let id = world.submit(json!({"type": "t"})).await;
    let lease = world.lease("w1", "default").await;
    let path = format!("/v1/tasks/{id}");
    for _ in 0..2 {
        let asked = world.send("DELETE", &path, None).await;
        assert_eq!((asked.status.as_u16(), &asked.json()["status"]), (202, &json!("RUNNING")));
    }
    world.report(&lease, "complete", json!({})).await;
    let done = world.send("DELETE", &path, None).await;
    assert_eq!((done.status.as_u16(), &done.json()["status"]), (200, &json!("CANCELLED")));
}

#[tokio::test]
async fn a_due_task_keeps_its_place_when_it_is_run() {
    let world = World::new();
    let id = world.submit(json!({"type": "t", "delay_seconds": 3600})).await;
    let path = format!("/v1/tasks/{id}/run");
    let due = world.send("POST", &path, None).await;
    assert_eq!((due.status.as_u16(), &due.json()["next_attempt_at"]), (200, &json!("2026-05-22T18:00:00.000Z")));
    let again = world.send("POST", &path, None).await;
    assert_eq!((again.status.as_u16(), &again.json()["version"]), (200, &json!(2)));
    world.lease("w1", "default").await;
    assert_eq!(world.send("POST", &path, None).await.problem(), "not_waiting");
}

#[tokio::test]
async fn dead_letters_are_listed_with_their_error() {
    let world = World::new();
    let id = dead_letter(&world).await;
    world.submit(json!({"type": "t"})).await;
    let listed = world.get("/v1/dead-letters?type=t").await["items"].take();
    let [letter] = listed.as_array().unwrap().as_slice() else { panic!("{listed}") };
    assert_eq!((&letter["task_id"], &letter["last_error"]["code"]), (&json!(id), &json!("boom")));
    assert_eq!(world.send("GET", "/v1/dead-letters?status=PENDING", None).await.status, 422);
}

#[tokio::test]
async fn events_name_the_step_and_its_actor() {
    let world = World::new();
    let id = dead_letter(&world).await;
    world.send("POST", &format!("/v1/tasks/{id}/redrive"), None).await.expect(200);
    let lease = world.lease("w1", "default").await;
    world.report(&lease, "complete", json!({})).await.expect(200);

    let all = world.get(&format!("/v1/tasks/{id}/events")).await["items"].take();
    let all = all.as_array().unwrap();
    let text = |event: &Value, member: &str| event[member].as_str().unwrap().to_owned();
    let steps: Vec<_> = all.iter().map(|event| ["to", "actor", "reason"].map(|member| text(event, member))).collect();
    assert_eq!(
        steps,
        [
            ["PENDING", "client", "submitted"],
            ["QUEUED", "worker:w1", "claimed"],
            ["RUNNING", "worker:w1", "started"],
            ["DEAD_LETTERED", "worker:w1", "boom"],
            ["PENDING", "client", "redriven"],
            ["QUEUED", "worker:w1", "claimed"],
            ["RUNNING", "worker:w1", "started"],
            ["COMPLETED", "worker:w1", "completed"],
        ]
    );
    assert_eq!(all[0]["from"], Value::Null);
    assert!(all.windows(2).all(|pair| pair[1]["from"] == pair[0]["to"]));
}

#[tokio::test]
async fn a_run_keeps_the_details_of_its_error() {
    let world = World::new();
    let id = dead_letter(&world).await;
    let run = world.get(&format!("/v1/tasks/{id}/runs")).await["items"][0].take();
    assert_eq!(run["error"], json!({"code": "boom", "message": "it broke", "details": {"line": 7}}));
}

#[tokio::test]
async fn an_error_of_the_store_shows_no_secrets() {
    let world = World::new();
    let id = world.submit(json!({"type": "t"})).await;
    world.store.broken.store(true, std::sync::atomic::Ordering::SeqCst);
    for (method, path, body) in [
        ("POST", "/v1/tasks".to_owned(), Some(json!({"type": "t"}))),
        ("GET", format!("/v1/tasks/{id}"), None),
        ("DELETE", format!("/v1/tasks/{id}"), None),
        ("GET", "/v1/tasks".to_owned(), None),
        ("POST", format!("/v1/tasks/{id}/complete"), Some(json!({"token": 3}))),
    ] {
        let answer = world.send(method, &path, body).await;
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (503, "store_unavailable"), "{method} {path}");
        assert_eq!(answer.headers[header::RETRY_AFTER], "1");
        assert!(!answer.text.contains("/dev"));
    }
}

#[tokio::test]
async fn a_rare_match_is_on_the_first_page() {
    let world = World::new();
    let rare = world.submit(json!({"type": "a", "delay_seconds": 600, "metadata": {"rare": "yes"}})).await;
    let common = vec![r#"{"type":"a","delay_seconds":600}"#; 10_000].join("\n");
    // Enough for a second read of the store, and no more: a page is filled for a moment only.
    batch(&world, "/v1/tasks/batch?return=ids", "application/x-ndjson", &common).await.expect(200);
    let answer = world.get("/v1/tasks?metadata.rare=yes").await;
    assert_eq!(answer["items"][0]["task_id"], rare, "{}", answer["next_cursor"]);
}
