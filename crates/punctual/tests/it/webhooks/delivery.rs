//! What a delivery looks like and when it comes.

use punctual_testkit::sink::{Sink, SinkAnswer};
use serde_json::{Value, json};

use super::hook;
use crate::it::world::{SOON, expect_prompt, id_of, in_seconds, seconds_between, shared, time, written};

#[tokio::test]
async fn a_webhook_has_the_headers_of_the_contract() {
    let caller = shared().await;
    let sink = Sink::start();
    let task = hook(
        &sink,
        "/hook?tenant=1",
        json!({"type": "mail.send", "callback_headers": {"X-Shop": "berlin", "Authorization": "Bearer a"}}),
    );
    let task = caller.submit(task).await;
    let id = id_of(&task);
    let hit = sink.wait_for("/hook?tenant=1", 1, SOON).await.remove(0);
    assert_eq!(hit.method, "POST");
    for (name, value) in [
        ("Punctual-Task-Id", id.as_str()),
        ("Punctual-Type", "mail.send"),
        ("Punctual-Attempt", "1"),
        ("Idempotency-Key", &id),
        ("webhook-id", &id),
        ("X-Shop", "berlin"),
        ("Authorization", "Bearer a"),
    ] {
        assert_eq!(hit.header(name), value, "{name}");
    }
    assert_eq!(hit.header("content-type").split(';').next(), Some("application/json"));
    assert_eq!(time(&json!(hit.header("Punctual-Execute-At"))), time(&task["execute_at"]));
    let token: u64 = hit.header("Punctual-Fencing-Token").parse().expect("the token is a number");
    assert!(token > 0);
    let stamp: i64 = hit.header("webhook-timestamp").parse().expect("seconds since 1970");
    assert!((hit.at.as_second() - stamp).abs() <= 30, "webhook-timestamp {stamp} at {}", hit.at);
    let parts: Vec<&str> = hit.header("traceparent").split('-').collect();
    assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [2, 32, 16, 2], "{parts:?}");
    let hex = |part: &&str| part.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c));
    assert!(
        parts.iter().all(hex) && parts[0] == "00" && parts[1].contains(|c| c != '0') && parts[2].contains(|c| c != '0'),
        "{parts:?}"
    );
    assert!(hit.values("webhook-signature").is_empty(), "a tenant without a secret: {:?}", hit.headers);
    let done = caller.until(&id, "COMPLETED").await;
    assert!(!done["completed_at"].is_null());
    assert_eq!(sink.all_hits().len(), 1);
}

#[tokio::test]
async fn the_document_names_the_headers_that_come() {
    let sink = Sink::start();
    // A tenant with a secret gets all of them.
    let tenant = format!("signed-{}", uuid::Uuid::now_v7().simple());
    let caller = shared().await.of_tenant(&tenant);
    caller.api.post(&format!("/v1/admin/tenants/{tenant}/webhook-secrets"), &json!({})).await.expect(201);
    let document = caller.api.get("/openapi.json").await.expect(200).clone();
    let task = json!({"type": "t", "callback_url": sink.url("/x")});
    let schedule = json!({"name": sink.url("/x"), "cron": "@yearly", "task": task});
    let schedule = caller.api.post("/v1/schedules", &schedule).await.expect(201).clone();
    let id = schedule["schedule_id"].as_str().expect("it has an id").to_owned();
    caller.api.post(&format!("/v1/schedules/{id}/trigger"), &json!({})).await.expect(201);
    let hit = sink.wait_for("/x", 1, SOON).await.remove(0);
    let parameters = document.pointer("/webhooks/task/post/parameters").and_then(Value::as_array).expect("parameters");
    let named: Vec<String> = parameters.iter().map(|one| one["name"].as_str().unwrap().to_lowercase()).collect();
    for name in &named {
        assert_eq!(hit.values(name).len(), 1, "{name} does not come: {:?}", hit.headers);
    }
    for (name, _) in hit.headers.iter().filter(|(name, _)| !is_plain(name)) {
        assert!(named.contains(&name.to_lowercase()), "{name} is not in the document");
    }
}

/// Headers of every HTTP request.
fn is_plain(name: &str) -> bool {
    ["host", "accept", "accept-encoding", "content-type", "content-length", "user-agent"]
        .contains(&name.to_lowercase().as_str())
}

#[tokio::test]
async fn the_body_is_the_payload_byte_for_byte() {
    let caller = shared().await;
    let sink = Sink::start();
    let payloads = [
        "null",
        "\"text\"",
        "[1,2.50,-0.0,1e3]",
        r#"{ "b" : 1,  "a":[ true , null ], "big":12345678901234567890123, "price": 10.10 }"#,
        r#"{"z":"\u00e9 é \ud83d\ude00 \/ \\ \"","":{}}"#,
        "18446744073709551616",
    ];
    for (n, payload) in payloads.into_iter().enumerate() {
        let path = format!("/{n}");
        let body = format!(r#"{{"type":"t","callback_url":"{}","payload":{payload}}}"#, sink.url(&path));
        caller.api.call("POST", "/v1/tasks").body("application/json", body).send().await.expect(201);
        let hit = sink.wait_for(&path, 1, SOON).await.remove(0);
        assert_eq!(String::from_utf8_lossy(&hit.body), payload);
    }
}

#[tokio::test]
async fn a_large_payload_arrives_whole() {
    let caller = shared().await;
    let sink = Sink::start();
    let payload = "é".repeat(100_000);
    caller.submit(hook(&sink, "/large", json!({ "payload": payload }))).await;
    let hit = sink.wait_for("/large", 1, SOON).await.remove(0);
    assert!(hit.body == json!(payload).to_string().into_bytes(), "{} bytes arrived", hit.body.len());
}

#[tokio::test]
async fn a_task_without_a_payload_is_delivered_as_null() {
    let caller = shared().await;
    let sink = Sink::start();
    caller.submit(hook(&sink, "/null", json!({}))).await;
    assert_eq!(sink.wait_for("/null", 1, SOON).await[0].body, b"null");
}

#[tokio::test]
async fn future_tasks_are_delivered_at_their_time_not_before() {
    let caller = shared().await;
    expect_prompt("future deliveries", async || {
        let sink = Sink::start();
        let mut expected = Vec::new();
        for n in 0..30 {
            let due = in_seconds(0.5 + 0.1 * f64::from(n));
            let path = format!("/{n}");
            caller.submit(hook(&sink, &path, json!({"execute_at": written(due)}))).await;
            expected.push((path, due));
        }
        let mut behind = Vec::new();
        for (path, due) in expected {
            let hits = sink.wait_for(&path, 1, SOON).await;
            let late = seconds_between(due, hits[0].at);
            assert!(late >= 0.0, "{path} was delivered {late} s before its time");
            assert_eq!(hits[0].header("Punctual-Execute-At"), written(due));
            behind.push(late);
        }
        assert_eq!(sink.all_hits().len(), 30, "each was delivered once");
        behind
    })
    .await;
}

#[tokio::test]
async fn a_new_task_is_delivered_at_once() {
    let caller = shared().await;
    expect_prompt("new deliveries", async || {
        let sink = Sink::start();
        let mut behind = Vec::new();
        for n in 0..9 {
            let path = format!("/{n}");
            let before = in_seconds(0.0);
            caller.submit(hook(&sink, &path, json!({}))).await;
            behind.push(seconds_between(before, sink.wait_for(&path, 1, SOON).await[0].at));
        }
        behind
    })
    .await;
}

#[tokio::test]
async fn the_answer_is_the_result() {
    let caller = shared().await;
    let sink = Sink::start();
    let results =
        [json!({"sum": 42, "list": [1, null]}), json!("text"), json!(7.5), json!([]), json!(null), json!(true)];
    for (n, result) in results.iter().enumerate() {
        sink.answer(&format!("/{n}"), SinkAnswer::json(result));
    }
    let mut ids = Vec::new();
    for n in 0..results.len() {
        ids.push(caller.submit_id(hook(&sink, &format!("/{n}"), json!({}))).await);
    }
    for (id, result) in ids.iter().zip(&results) {
        assert_eq!(caller.until(id, "COMPLETED").await["result"], *result);
    }
}

#[tokio::test]
async fn a_hundred_due_at_once_are_each_delivered_once() {
    let caller = shared().await;
    let sink = Sink::start();
    let due = in_seconds(1.0);
    let tasks = (0..100).map(|n| hook(&sink, "/many", json!({"payload": n, "execute_at": written(due)}))).collect();
    let tasks = caller.submit_all(tasks).await;
    for task in &tasks {
        caller.until(&id_of(task), "COMPLETED").await;
    }
    let hits = sink.hits("/many");
    let mut seen: Vec<Value> = hits.iter().map(|hit| serde_json::from_slice(&hit.body).expect("JSON")).collect();
    seen.sort_by_key(Value::as_u64);
    assert_eq!(seen, (0..100).map(|n| json!(n)).collect::<Vec<_>>());
    assert!(hits.iter().all(|hit| hit.at >= due), "one came before its time");
}

#[tokio::test]
async fn a_cancelled_or_postponed_task_is_not_delivered() {
    let caller = shared().await;
    let sink = Sink::start();
    let due = written(in_seconds(1.0));
    let cancelled = caller.submit_id(hook(&sink, "/cancelled", json!({"execute_at": due}))).await;
    let postponed = caller.submit_id(hook(&sink, "/postponed", json!({"execute_at": due}))).await;
    caller.submit(hook(&sink, "/kept", json!({"execute_at": written(in_seconds(2.0))}))).await;
    caller.api.delete(&format!("/v1/tasks/{cancelled}")).await.expect(200);
    caller.api.patch(&format!("/v1/tasks/{postponed}"), &json!({"delay_seconds": 3600})).await.expect(200);
    // A task due a second later has been delivered: the others would have been, too.
    sink.wait_for("/kept", 1, SOON).await;
    assert_eq!((sink.hits("/cancelled").len(), sink.hits("/postponed").len()), (0, 0));
}
