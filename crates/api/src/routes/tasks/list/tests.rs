use axum::http::header::ETAG;
use serde_json::{Value, json};

use crate::testing::World;

async fn types(world: &World, path: &str) -> Vec<String> {
    let page = world.get(path).await;
    let items = page["items"].as_array().unwrap();
    items.iter().map(|task| task["type"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn tasks_are_found_by_each_filter() {
    let world = World::new();
    world.submit(json!({"type": "mail.send", "queue": "q.a", "metadata": {"team": "x"}})).await;
    world.submit(json!({"type": "mail.drop", "ordering_key": "o", "idempotency_key": "i", "delay_seconds": 9})).await;
    world.submit(json!({"type": "sms.send", "queue": "p", "retry_policy": {"max_retries": 0}})).await;
    let lease = world.lease("w1", "p").await;
    world.report(&lease, "fail", json!({"error": {"code": "boom", "message": "it broke"}})).await.expect(200);
    for (query, expected) in [
        ("type=mail.*", &["mail.drop", "mail.send"][..]),
        ("queue=q*", &["mail.send"]),
        ("metadata[team]=x", &["mail.send"]),
        ("metadata%5Bteam%5D=x&metadata.team2=y", &[]),
        ("ordering_key=o", &["mail.drop"]),
        ("idempotency_key=i", &["mail.drop"]),
        ("worker_id=w1", &["sms.send"]),
        ("error_code=boom", &["sms.send"]),
        ("completed_after=2026-05-22T18:00:00Z", &["sms.send"]),
        ("completed_before=2026-05-22T18:00:00Z", &[]),
    ] {
        assert_eq!(types(&world, &format!("/v1/tasks?{query}")).await, expected, "{query}");
    }
    assert_eq!(types(&world, "/v1/dead-letters?error_code=boom").await, ["sms.send"]);
    assert!(types(&world, "/v1/dead-letters?error_code=bang").await.is_empty());
}

#[tokio::test]
async fn a_summary_leaves_out_what_can_be_large() {
    let world = World::new();
    let headers = json!({"x-a": "1"});
    let task = json!({"type": "t", "payload": {"a": 1}, "callback_url": "https://example.com/hook", "callback_headers": headers});
    world.submit(task.clone()).await;
    let named = |path: &str| format!("/v1/{path}?view=summary");
    let has_large =
        |item: &Value| ["payload", "result", "callback_headers"].iter().any(|name| item.get(name).is_some());
    let listed = world.get(&named("tasks")).await["items"][0].take();
    assert!(!has_large(&listed) && listed["callback_url"].is_string(), "{listed}");
    let read: punctual_client::Task = serde_json::from_value(listed).unwrap();
    assert_eq!(read.payload.get(), "null", "the wire type reads a summary");
    assert!(has_large(&world.get("/v1/tasks?view=full").await["items"][0]));
    let schedule = json!({"name": "s", "cron": "0 9 * * *", "task": task});
    world.send("POST", "/v1/schedules", Some(schedule)).await.expect(201);
    let listed = world.get(&named("schedules")).await["items"][0].take();
    assert!(!has_large(&listed["task"]) && listed["task"]["type"] == "t", "{listed}");
    assert!(!has_large(&world.get(&named("queues")).await["items"][0]));
    world.get(&named("workers")).await;
    assert_eq!(world.send("GET", "/v1/tasks?view=short", None).await.pointers(), ["?view"]);
}

#[tokio::test]
async fn an_unchanged_answer_is_not_sent_again() {
    let world = World::new();
    let id = world.submit(json!({"type": "t"})).await;
    let task = format!("/v1/tasks/{id}");
    let schedule = json!({"name": "s", "cron": "0 9 * * *", "task": {"type": "t"}});
    world.send("POST", "/v1/schedules", Some(schedule)).await.expect(201);
    let lists =
        ["tasks", "dead-letters", "queues", "schedules", "schedules/by-name/s/occurrences", "operations", "upcoming"];
    let of_operators = ["workers", "admin/nodes", "admin/partitions", "admin/breakers"];
    let lists = lists.iter().chain(&of_operators).map(|list| format!("/v1/{list}"));
    let of_task = ["", "/runs", "/events"].map(|tail| format!("{task}{tail}"));
    for path in &lists.chain(of_task).collect::<Vec<_>>() {
        let first = world.send("GET", path, None).await;
        let tag = first.headers[ETAG].to_str().unwrap();
        for known in [tag, &format!("\"x\", {tag}"), "*"] {
            let again = world.send_with("GET", path, ("if-none-match", known)).await;
            assert_eq!((again.status.as_u16(), again.text.as_str()), (304, ""), "{path} {known}");
            assert_eq!(again.headers[ETAG], tag);
        }
        let other = world.send_with("GET", path, ("if-none-match", "\"x\"")).await;
        assert_eq!((other.status.as_u16(), &other.text), (200, &first.text));
    }
    let tag = world.send("GET", "/v1/tasks", None).await.headers[ETAG].to_str().unwrap().to_owned();
    world.submit(json!({"type": "t"})).await;
    world.send_with("GET", "/v1/tasks", ("if-none-match", &tag)).await.expect(200);
}

#[tokio::test]
async fn a_running_task_is_always_sent() {
    let world = World::new();
    world.submit(json!({"type": "t"})).await;
    let lease = world.lease("w1", "default").await;
    let path = format!("/v1/tasks/{}", lease.id);
    let tag = world.send("GET", &path, None).await.headers[ETAG].to_str().unwrap().to_owned();
    world.report(&lease, "heartbeat", json!({"progress": {"percent": 7}})).await.expect(200);
    let again = world.send_with("GET", &path, ("if-none-match", &tag)).await;
    assert_eq!(again.expect(200)["progress"]["percent"], 7, "a heartbeat leaves the version as it is");
}
