use axum::body::Body;
use axum::http::{Request, header};
use punctual_submission::SubmissionRules;
use serde_json::{Value, json};

use crate::extract::TENANT_HEADER;
use crate::readiness::Probes;
use crate::state::ApiConfig;
use crate::testing::{Answer, World};

async fn submitted(world: &World, body: Value) -> String {
    let answer = world.send("POST", "/v1/tasks", Some(body)).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    answer.json()["task_id"].as_str().unwrap().to_owned()
}

async fn with_header(
    world: &World,
    method: &str,
    path: &str,
    (name, value): (&str, &str),
    body: Option<Value>,
) -> Answer {
    let request = Request::builder().method(method).uri(path).header(name, value);
    let request = request.header(header::CONTENT_TYPE, "application/json");
    let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
    world.call(request.body(body).unwrap()).await
}

async fn batch(world: &World, path: &str, media_type: &str, body: &str) -> Answer {
    let request = Request::post(path).header(header::CONTENT_TYPE, media_type);
    world.call(request.body(Body::from(body.to_owned())).unwrap()).await
}

/// Takes the one due task of the default queue.
async fn leased(world: &World) -> (String, u64) {
    let ask = json!({"worker_id": "w1", "queues": ["default"]});
    let mut tries = 0;
    loop {
        let answer = world.send("POST", "/v1/leases", Some(ask.clone())).await.json();
        if let Some(lease) = answer["leases"].get(0) {
            return (lease["task"]["task_id"].as_str().unwrap().to_owned(), lease["token"].as_u64().unwrap());
        }
        tries += 1;
        assert!(tries < 1_000, "nothing was leased");
        tokio::task::yield_now().await;
    }
}

/// A task in the dead letters.
async fn dead_letter(world: &World) -> String {
    submitted(world, json!({"type": "t", "payload": {"n": 1}, "retry_policy": {"max_retries": 0}})).await;
    let (id, token) = leased(world).await;
    let error = json!({"code": "boom", "message": "it broke", "details": {"line": 7}});
    let failed =
        world.send("POST", &format!("/v1/tasks/{id}/fail"), Some(json!({"token": token, "error": error}))).await;
    assert_eq!(failed.status, 200, "{}", failed.text);
    id
}

#[tokio::test]
async fn a_submitted_task_is_read_back() {
    let world = World::new();
    let answer = world
        .send(
            "POST",
            "/v1/tasks",
            Some(json!({"type": "t", "payload": {"a": 1}, "execute_at": "1999-01-01T00:00:00+01:00"})),
        )
        .await;
    assert_eq!(answer.status, 201);
    assert_eq!(answer.headers[header::ETAG], "\"1\"");
    let task = answer.json();
    let path = format!("/v1/tasks/{}", task["task_id"].as_str().unwrap());
    assert_eq!(answer.headers[header::LOCATION], path.as_str());
    assert_eq!(task["execute_at"], "1998-12-31T23:00:00.000Z");
    let read = world.send("GET", &path, None).await;
    assert_eq!((read.status.as_u16(), read.json()), (200, task.clone()));
    let wire: punctual_client::Task = serde_json::from_value(task.clone()).unwrap();
    assert_eq!(serde_json::to_value(wire).unwrap(), task, "the wire type reads what we write");
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let world = World::new();
    let id = submitted(&world, json!({"type": "t"})).await;
    for path in [
        "/v1/tasks/x",
        "/v1/tasks/%00",
        "/v1/tasks/%ff",
        "/v1/tasks/..%2f",
        "/v1/tasks/task_00000000-0000-7000-8000-000000000000",
    ] {
        let answer = world.send("GET", path, None).await;
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (404, "not_found"), "{path}");
    }
    let foreign = with_header(&world, "GET", &format!("/v1/tasks/{id}"), (TENANT_HEADER, "other"), None).await;
    assert_eq!(foreign.status, 404);
    let bad = with_header(&world, "GET", &format!("/v1/tasks/{id}"), (TENANT_HEADER, "a b"), None).await;
    assert_eq!((bad.status.as_u16(), bad.problem().as_str()), (400, "invalid_tenant"));
}

#[tokio::test]
async fn a_repeated_submission_is_recognised() {
    let world = World::new();
    let first = with_header(
        &world,
        "POST",
        "/v1/tasks",
        ("idempotency-key", "\"k\""),
        Some(json!({"type": "t", "delay_seconds": 5})),
    )
    .await;
    world.clock.advance_millis(1_000);
    let again =
        world.send("POST", "/v1/tasks", Some(json!({"delay_seconds": 5.0, "idempotency_key": "k", "type": "t"}))).await;
    assert_eq!((first.status.as_u16(), again.status.as_u16()), (201, 200));
    assert_eq!(again.headers["idempotent-replayed"], "true");
    assert_eq!(first.json(), again.json());
    let other = world.send("POST", "/v1/tasks", Some(json!({"type": "u", "idempotency_key": "k"}))).await;
    assert_eq!((other.status.as_u16(), other.problem().as_str()), (422, "idempotency_key_reused"));
    let bad = with_header(&world, "POST", "/v1/tasks", ("idempotency-key", ""), Some(json!({"type": "t"}))).await;
    assert_eq!((bad.status.as_u16(), bad.problem().as_str()), (400, "invalid_idempotency_key"));
}

#[tokio::test]
async fn bodies_are_judged_before_they_are_stored() {
    let submission = SubmissionRules { payload_bytes: 100, ..SubmissionRules::default() };
    let world = World::with(ApiConfig { body_bytes: 400, submission, ..ApiConfig::default() }, Probes::default());
    let send = async |body: &str| batch(&world, "/v1/tasks", "application/json", body).await;
    for (body, status, code) in [
        ("{", 400, "invalid_json"),
        (r#"{"type":"a","type":"a"}"#, 400, "invalid_json"),
        (r#"{"type":"a","state":"RUNNING"}"#, 422, "invalid_request"),
        (&format!(r#"{{"type":"a","payload":"{}"}}"#, "x".repeat(100)), 413, "too_large"),
        (&format!(r#"{{"type":"a"{}}}"#, " ".repeat(400)), 413, "too_large"),
    ] {
        let answer = send(body).await;
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (status, code), "{body}");
    }
    let form = batch(&world, "/v1/tasks", "application/x-www-form-urlencoded", "type=a").await;
    assert_eq!((form.status.as_u16(), form.problem().as_str()), (415, "unsupported_media_type"));
    assert!(world.send("GET", "/v1/tasks", None).await.json()["items"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn the_good_tasks_of_a_batch_are_kept() {
    let world = World::new();
    let body = r#"{"tasks": [{"type":"a"}, {"type":"b","priority":11}, 7, {"type":"c","payload":{"k":1,"k":1}},
        {"type":"d","idempotency_key":"k"}, {"type":"d","idempotency_key":"k"}, {"type":"e","idempotency_key":"k"}]}"#;
    let answer = batch(&world, "/v1/tasks/batch", "application/json", body).await;
    assert_eq!(answer.status, 200);
    let items = answer.json()["items"].clone();
    let items = items.as_array().unwrap();
    let statuses: Vec<u64> = items.iter().map(|item| item["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [201, 422, 422, 400, 201, 200, 422]);
    assert_eq!(items[1]["error"]["errors"][0]["pointer"], "/tasks/1/priority");
    assert_eq!(items[2]["error"]["errors"][0]["pointer"], "/tasks/2");
    assert_eq!(items[3]["error"]["code"], "invalid_json");
    assert_eq!(items[4]["task"], items[5]["task"]);
    assert_eq!(items[6]["error"]["code"], "idempotency_key_reused");
    assert_eq!(world.send("GET", "/v1/tasks", None).await.json()["items"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_batch_may_come_in_lines_and_answer_ids() {
    let world = World::new();
    let body = "{\"type\":\"a\"}\r\n\n{\"type\":\n{\"type\":\"b\"}";
    let answer = batch(&world, "/v1/tasks/batch?return=ids", "application/x-ndjson", body).await;
    let items = answer.json()["items"].clone();
    assert_eq!(
        items.as_array().unwrap().iter().map(|item| item["status"].as_u64().unwrap()).collect::<Vec<_>>(),
        [201, 400, 201]
    );
    assert!(items[0]["task_id"].as_str().unwrap().starts_with("task_") && items[0].get("task").is_none());
    let empty = batch(&world, "/v1/tasks/batch", "application/x-ndjson", "\n").await;
    assert_eq!(empty.json(), json!({"items": []}));
    let typo = batch(&world, "/v1/tasks/batch?retrun=ids", "application/json", r#"{"tasks":[]}"#).await;
    assert_eq!((typo.status.as_u16(), typo.problem().as_str()), (422, "invalid_request"));
}

#[tokio::test]
async fn a_batch_is_bounded() {
    let world = World::with(ApiConfig { batch_tasks: 2, ..ApiConfig::default() }, Probes::default());
    for (media_type, body) in [("application/json", r#"{"tasks":[1,2,3]}"#), ("application/x-ndjson", "1\n2\n3")] {
        let answer = batch(&world, "/v1/tasks/batch", media_type, body).await;
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (422, "invalid_request"), "{media_type}");
    }
    let keyed =
        with_header(&world, "POST", "/v1/tasks/batch", ("idempotency-key", "k"), Some(json!({"tasks": []}))).await;
    assert_eq!((keyed.status.as_u16(), keyed.problem().as_str()), (400, "invalid_idempotency_key"));
}

#[tokio::test]
async fn a_large_batch_is_taken() {
    let world = World::new();
    let tasks: Vec<Value> =
        (0..5_000).map(|n| json!({"type": "t", "payload": {"n": n, "text": "x".repeat(100)}})).collect();
    let answer =
        batch(&world, "/v1/tasks/batch?return=ids", "application/json", &json!({"tasks": tasks}).to_string()).await;
    assert_eq!(answer.json()["items"].as_array().unwrap().len(), 5_000);
}

#[tokio::test]
async fn a_waiting_task_is_edited() {
    let world = World::new();
    let id = submitted(
        &world,
        json!({"type": "t", "delay_seconds": 60, "expires_at": "2026-05-23T00:00:00Z", "metadata": {"a": "1"},
        "retry_policy": {"max_retries": 7, "backoff": "fixed"}}),
    )
    .await;
    let path = format!("/v1/tasks/{id}");
    let patch = json!({"execute_at": "2026-05-22T20:00:00Z", "payload": null, "priority": "low", "expires_at": null,
        "metadata": {"b": "2"}, "retry_policy": {"backoff_seconds": 1}});
    let answer = with_header(&world, "PATCH", &path, ("if-match", "\"1\""), Some(patch)).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.headers[header::ETAG], "\"2\"");
    let task = answer.json();
    assert_eq!(task["execute_at"], "2026-05-22T20:00:00.000Z");
    assert_eq!(task["next_attempt_at"], "2026-05-22T20:00:00.000Z");
    assert_eq!((&task["payload"], &task["priority"], &task["expires_at"]), (&Value::Null, &json!(2), &Value::Null));
    assert_eq!(task["metadata"], json!({"b": "2"}));
    assert_eq!(
        (&task["retry_policy"]["max_retries"], &task["retry_policy"]["backoff_seconds"]),
        (&json!(7), &json!(1))
    );

    let stale = with_header(&world, "PATCH", &path, ("if-match", "\"1\""), Some(json!({"priority": 1}))).await;
    assert_eq!((stale.status.as_u16(), stale.problem().as_str()), (412, "version_mismatch"));
    let nothing = world.send("PATCH", &path, Some(json!({}))).await;
    assert_eq!((nothing.status.as_u16(), &nothing.json()["version"]), (200, &json!(2)));
    let merge = batch(&world, &path, "application/json", "{}").await;
    assert_eq!(merge.status, 405, "POST is another verb");
}

#[tokio::test]
async fn an_edit_is_judged() {
    let world = World::new();
    let id = submitted(&world, json!({"type": "t", "delay_seconds": 60, "expires_at": "2026-05-23T00:00:00Z"})).await;
    let path = format!("/v1/tasks/{id}");
    for (patch, pointer) in [
        (json!({"execute_at": "2026-05-24T00:00:00Z"}), "/execute_at"),
        (json!({"expires_at": "2026-05-22T18:00:59Z"}), "/expires_at"),
        (json!({"execute_at": null}), "/execute_at"),
        (json!({"priority": null}), "/priority"),
        (json!({"metadata": null}), "/metadata"),
        (json!({"execute_at": "2026-05-22T20:00:00Z", "delay_seconds": 1}), "/delay_seconds"),
        (json!({"type": "u"}), "/type"),
    ] {
        let answer = world.send("PATCH", &path, Some(patch.clone())).await;
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (422, "invalid_request"), "{patch}");
        assert_eq!(answer.json()["errors"][0]["pointer"], pointer, "{patch}");
    }
    let delayed = world.send("PATCH", &path, Some(json!({"delay_seconds": 0}))).await;
    assert_eq!(delayed.json()["execute_at"], "2026-05-22T18:00:00.000Z");
    leased(&world).await;
    let late = world.send("PATCH", &path, Some(json!({"priority": 1}))).await;
    assert_eq!((late.status.as_u16(), late.problem().as_str()), (409, "not_editable"));
}

#[tokio::test]
async fn a_waiting_task_is_cancelled_once_and_for_all() {
    let world = World::new();
    let id = submitted(&world, json!({"type": "t", "delay_seconds": 60})).await;
    let path = format!("/v1/tasks/{id}");
    let first = world.send("DELETE", &path, None).await;
    let again = world.send("DELETE", &path, None).await;
    assert_eq!((first.status.as_u16(), again.status.as_u16()), (200, 200));
    assert_eq!(first.json()["status"], "CANCELLED");
    assert_eq!(first.json(), again.json());
    for (verb, code) in [("run", "not_waiting"), ("redrive", "not_dead_lettered")] {
        let refused = world.send("POST", &format!("{path}/{verb}"), None).await;
        assert_eq!((refused.status.as_u16(), refused.problem().as_str()), (409, code));
    }
}

#[tokio::test]
async fn a_running_task_is_asked_to_stop() {
    let world = World::new();
    let id = submitted(&world, json!({"type": "t"})).await;
    let (_, token) = leased(&world).await;
    let path = format!("/v1/tasks/{id}");
    for _ in 0..2 {
        let asked = world.send("DELETE", &path, None).await;
        assert_eq!((asked.status.as_u16(), &asked.json()["status"]), (202, &json!("RUNNING")));
    }
    assert_eq!(world.send("GET", &format!("{path}/explain"), None).await.json()["reasons"][0]["code"], "stopping");
    let told = world.send("POST", &format!("{path}/complete"), Some(json!({"token": token}))).await;
    assert_eq!(told.status, 410);
    let done = world.send("DELETE", &path, None).await;
    assert_eq!((done.status.as_u16(), &done.json()["status"]), (200, &json!("CANCELLED")));
}

#[tokio::test]
async fn what_has_come_to_rest_stays() {
    let world = World::new();
    let id = submitted(&world, json!({"type": "t"})).await;
    let (_, token) = leased(&world).await;
    let path = format!("/v1/tasks/{id}");
    world.send("POST", &format!("{path}/complete"), Some(json!({"token": token, "result": {"ok": true}}))).await;
    let refused = world.send("DELETE", &path, None).await;
    assert_eq!((refused.status.as_u16(), refused.problem().as_str()), (409, "already_final"));
    let task = world.send("GET", &path, None).await.json();
    assert_eq!(
        (&task["status"], &task["result"], &task["worker_id"]),
        (&json!("COMPLETED"), &json!({"ok": true}), &json!("w1"))
    );
}

#[tokio::test]
async fn a_waiting_task_is_made_due() {
    let world = World::new();
    let id = submitted(&world, json!({"type": "t", "delay_seconds": 3600})).await;
    let path = format!("/v1/tasks/{id}/run");
    let due = world.send("POST", &path, None).await;
    assert_eq!((due.status.as_u16(), &due.json()["next_attempt_at"]), (200, &json!("2026-05-22T18:00:00.000Z")));
    let again = world.send("POST", &path, None).await;
    assert_eq!(
        (again.status.as_u16(), &again.json()["version"]),
        (200, &json!(2)),
        "what is due already keeps its place"
    );
    assert_eq!(leased(&world).await.0, id);
    assert_eq!(world.send("POST", &path, None).await.problem(), "not_waiting");
}

#[tokio::test]
async fn a_dead_letter_is_driven_again() {
    let world = World::new();
    let id = dead_letter(&world).await;
    let listed = world.send("GET", "/v1/dead-letters?type=t", None).await.json();
    assert_eq!(listed["items"][0]["last_error"]["code"], "boom");
    assert_eq!(world.send("GET", "/v1/dead-letters?status=PENDING", None).await.status, 422);
    let path = format!("/v1/tasks/{id}/redrive");
    let typo = world.send("POST", &path, Some(json!({"paylaod": 1}))).await;
    assert_eq!(typo.status, 422);
    let driven = world.send("POST", &path, Some(json!({"payload": {"n": 2}}))).await;
    assert_eq!(driven.status, 200, "{}", driven.text);
    let task = driven.json();
    assert_eq!(
        (&task["status"], &task["retry_count"], &task["payload"]),
        (&json!("PENDING"), &json!(0), &json!({"n": 2}))
    );
    assert_eq!(world.send("POST", &path, None).await.problem(), "not_dead_lettered");
}

#[tokio::test]
async fn a_tasks_life_is_told() {
    let world = World::new();
    let id = dead_letter(&world).await;
    world.send("POST", &format!("/v1/tasks/{id}/redrive"), None).await;
    let (_, token) = leased(&world).await;
    world.send("POST", &format!("/v1/tasks/{id}/complete"), Some(json!({"token": token}))).await;

    let runs = world.send("GET", &format!("/v1/tasks/{id}/runs"), None).await.json();
    let outcomes: Vec<&str> =
        runs["items"].as_array().unwrap().iter().map(|run| run["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["failed", "completed"]);
    assert_eq!(runs["items"][0]["error"], json!({"code": "boom", "message": "it broke", "details": {"line": 7}}));
    assert_eq!((&runs["items"][0]["attempt"], &runs["items"][0]["worker_id"]), (&json!(1), &json!("w1")));

    let path = format!("/v1/tasks/{id}/events");
    let all = world.send("GET", &path, None).await.json()["items"].clone();
    let all = all.as_array().unwrap();
    let steps: Vec<(&str, &str, &str)> = all
        .iter()
        .map(|e| (e["to"].as_str().unwrap(), e["actor"].as_str().unwrap(), e["reason"].as_str().unwrap()))
        .collect();
    assert_eq!(
        steps,
        [
            ("PENDING", "client", "submitted"),
            ("QUEUED", "worker:w1", "claimed"),
            ("RUNNING", "worker:w1", "started"),
            ("DEAD_LETTERED", "worker:w1", "boom"),
            ("PENDING", "client", "redriven"),
            ("QUEUED", "worker:w1", "claimed"),
            ("RUNNING", "worker:w1", "started"),
            ("COMPLETED", "worker:w1", "completed"),
        ]
    );
    assert_eq!(all[0]["from"], Value::Null);
    assert!(all.windows(2).all(|pair| pair[1]["from"] == pair[0]["to"]));

    let mut paged = Vec::new();
    let mut next = format!("{path}?limit=3");
    loop {
        let page = world.send("GET", &next, None).await.json();
        paged.extend(page["items"].as_array().unwrap().clone());
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        next = format!("{path}?limit=3&cursor={cursor}");
    }
    assert_eq!(&paged, all);
    let foreign = world.send("GET", &next.replace("/events", "/runs"), None).await;
    assert_eq!((foreign.status.as_u16(), foreign.problem().as_str()), (400, "invalid_cursor"));
}

#[tokio::test]
async fn a_listing_is_paged_without_gap_or_repeat() {
    let world = World::new();
    let mut ids = Vec::new();
    for n in 0..7 {
        ids.push(
            submitted(&world, json!({"type": "t", "delay_seconds": 100 - n, "metadata": {"n": n.to_string()}})).await,
        );
    }
    ids.reverse();
    for order in ["", "&order=execute_at"] {
        let mut found = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = world.send("GET", &format!("/v1/tasks?limit=3{order}{cursor}"), None).await.json();
            found.extend(
                page["items"].as_array().unwrap().iter().map(|task| task["task_id"].as_str().unwrap().to_owned()),
            );
            let Some(next) = page["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(found, ids, "{order}");
    }
    let one = world.send("GET", "/v1/tasks?metadata.n=3&status=PENDING&status=RUNNING", None).await.json();
    assert_eq!(one["items"].as_array().unwrap().len(), 1);
    let cursor = world.send("GET", "/v1/tasks?limit=1", None).await.json()["next_cursor"].as_str().unwrap().to_owned();
    for query in [format!("order=execute_at&cursor={cursor}"), format!("cursor={cursor}A"), "cursor=".to_owned()] {
        let answer = world.send("GET", &format!("/v1/tasks?{query}"), None).await;
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (400, "invalid_cursor"), "{query}");
    }
    for query in ["limit=1000000000", "status=pending", "state=PENDING", "type=a&type=b"] {
        let answer = world.send("GET", &format!("/v1/tasks?{query}"), None).await;
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (422, "invalid_request"), "{query}");
    }
}

#[tokio::test]
async fn a_task_that_has_not_run_is_explained() {
    let world = World::new();
    let explained = async |id: &str| {
        let told = world.send("GET", &format!("/v1/tasks/{id}/explain"), None).await.json();
        (told["reasons"][0]["code"].as_str().unwrap().to_owned(), told["eta"].as_str().map(str::to_owned))
    };
    let id = submitted(&world, json!({"type": "t", "delay_seconds": 10})).await;
    assert_eq!(explained(&id).await, ("not_due_yet".to_owned(), Some("2026-05-22T18:00:10.000Z".to_owned())));
    world.clock.advance_millis(10_000);
    assert_eq!(explained(&id).await, ("no_worker_polling".to_owned(), None));
    world.send("POST", "/v1/leases", Some(json!({"worker_id": "other", "queues": ["elsewhere"]}))).await;
    assert_eq!(explained(&id).await.0, "no_worker_polling");
    let (_, token) = leased(&world).await;
    assert_eq!(explained(&id).await, ("running".to_owned(), None));
    world
        .send(
            "POST",
            &format!("/v1/tasks/{id}/fail"),
            Some(json!({"token": token, "error": {"code": "boom"}, "retry_after_seconds": 30})),
        )
        .await;
    assert_eq!(explained(&id).await, ("waiting_for_retry".to_owned(), Some("2026-05-22T18:00:40.000Z".to_owned())));
    world.clock.advance_millis(30_000);
    assert_eq!(explained(&id).await.0, "due_waiting_for_worker");
    world.clock.advance_millis(60_000);
    assert_eq!(explained(&id).await.0, "no_worker_polling");
    world.send("DELETE", &format!("/v1/tasks/{id}"), None).await;
    assert_eq!(explained(&id).await.0, "final");
}

#[tokio::test]
async fn a_broken_store_is_told_without_its_secrets() {
    let world = World::new();
    let id = submitted(&world, json!({"type": "t"})).await;
    world.store.broken.store(true, std::sync::atomic::Ordering::SeqCst);
    for (method, path, body) in [
        ("POST", "/v1/tasks".to_owned(), Some(json!({"type": "t"}))),
        ("GET", format!("/v1/tasks/{id}"), None),
        ("DELETE", format!("/v1/tasks/{id}"), None),
        ("GET", "/v1/tasks".to_owned(), None),
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
    let rare = submitted(&world, json!({"type": "a", "delay_seconds": 600, "metadata": {"rare": "yes"}})).await;
    let common = vec![r#"{"type":"a","delay_seconds":600}"#; 10_000].join("\n");
    // As many as take a second look at the store, and no more: a page is filled for a moment only.
    let answer = batch(&world, "/v1/tasks/batch?return=ids", "application/x-ndjson", &common).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let answer = world.send("GET", "/v1/tasks?metadata.rare=yes", None).await.json();
    assert_eq!(answer["items"][0]["task_id"], rare, "{}", answer["next_cursor"]);
}
