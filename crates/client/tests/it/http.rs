//! The client against a server with scripted answers.

use std::time::{Duration, Instant};

use punctual_client::http::{Client, ClientError, Failure, Retries};
use punctual_client::{LeaseRequest, NewTask};
use punctual_testkit::sink::{Hit, Sink, SinkAnswer};
use serde_json::{Value, json};

const ID: &str = "task_01981e2c-5b7a-7c3e-9f00-3a4b5c6d7e8f";

/// A client that retries quickly, a few times.
fn client(sink: &Sink) -> Client {
    let retries = Retries { most: 3, first: Duration::from_millis(5), longest: Duration::from_secs(2) };
    Client::new(&sink.url("")).expect("an address").retries(retries)
}

/// A task as a server shows it.
fn task() -> Value {
    let time = "2026-05-22T18:00:00.000Z";
    json!({
        "task_id": ID, "tenant": "default", "type": "t", "queue": "default", "status": "RUNNING", "version": 3, "priority": 5,
        "payload": {"a": 1}, "callback_url": null, "callback_headers": {}, "execute_at": time, "next_attempt_at": null,
        "expires_at": null, "idempotency_key": null, "retry_count": 0, "timeout_seconds": 300, "metadata": {},
        "retry_policy": {"max_retries": 3, "backoff": "exponential", "backoff_seconds": 30, "max_backoff_seconds": 3600, "jitter": "full"},
        "created_at": time, "updated_at": time, "started_at": time, "completed_at": null, "worker_id": "w", "schedule_id": null,
        "result": null, "progress": null, "last_error": null, "a_field_of_a_later_version": 1,
    })
}

fn leases() -> Value {
    let lease = json!({
        "task": task(), "run_id": ID.replace("task_", "run_"), "attempt": 1, "token": 3,
        "lease_expires_at": "2026-05-22T18:01:00.000Z", "checkpoint": null,
    });
    json!({ "leases": [lease] })
}

fn problem(status: u16, code: &str) -> SinkAnswer {
    let body = json!({
        "type": format!("urn:punctual:problem:{code}"), "title": "A title", "status": status, "detail": "what happened",
        "code": code,
    });
    SinkAnswer::status(status).header("content-type", "application/problem+json").body(body.to_string())
}

fn body(hit: &Hit) -> Value {
    serde_json::from_slice(&hit.body).expect("a body is JSON")
}

#[tokio::test]
async fn a_submission_keeps_its_key_over_every_attempt() {
    let sink = Sink::start();
    let busy = || problem(503, "overloaded");
    sink.script("/v1/tasks", [busy(), SinkAnswer::reset(), SinkAnswer::cut_short(), SinkAnswer::json(&task())]);
    let submitted = client(&sink).submit(NewTask::of_type("t")).await.expect("the fourth attempt succeeds");
    assert!(submitted.replayed, "200, not 201: an earlier attempt created the task");
    assert_eq!(submitted.task.task_id.to_string(), ID);
    let hits = sink.hits("/v1/tasks");
    let keys: Vec<Value> = hits.iter().map(|hit| body(hit)["idempotency_key"].clone()).collect();
    assert_eq!(keys.len(), 4);
    assert!(keys[0].as_str().is_some_and(|key| key.len() == 32) && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    // Another submission is another task; one with a key of its own keeps it.
    sink.answer("/v1/tasks", SinkAnswer::json(&task()));
    let own = NewTask { idempotency_key: Some("order-17".to_owned()), ..NewTask::of_type("t") };
    for new in [NewTask::of_type("t"), own] {
        client(&sink).submit(new).await.expect("it succeeds");
    }
    let hits = sink.hits("/v1/tasks");
    assert_ne!(body(&hits[4])["idempotency_key"], keys[0]);
    assert_eq!(body(&hits[5])["idempotency_key"], "order-17");
}

#[tokio::test]
async fn every_task_of_a_batch_has_a_key_of_its_own() {
    let sink = Sink::start();
    let answer = json!({"items": [{"status": 201, "task": task()}, {"status": 422, "error": {
        "type": "urn:punctual:problem:invalid_request", "title": "t", "status": 422, "detail": "d", "code": "invalid_request",
        "errors": [{"pointer": "/type", "message": "must be …"}]}}]});
    sink.script("/v1/tasks/batch", [problem(429, "overloaded"), SinkAnswer::json(&answer)]);
    let items =
        client(&sink).submit_batch(vec![NewTask::of_type("a"), NewTask::of_type("")]).await.expect("it succeeds");
    assert_eq!(items.iter().map(|item| item.status).collect::<Vec<_>>(), [201, 422]);
    let hits: Vec<Value> = sink.hits("/v1/tasks/batch").iter().map(body).collect();
    assert_eq!(hits[0], hits[1]);
    assert_ne!(hits[0]["tasks"][0]["idempotency_key"], hits[0]["tasks"][1]["idempotency_key"]);
}

#[tokio::test]
async fn a_retry_waits_for_its_retry_after() {
    let sink = Sink::start();
    let path = format!("/v1/tasks/{ID}");
    sink.script(&path, [problem(503, "overloaded").header("retry-after", "1"), SinkAnswer::json(&task())]);
    let begun = Instant::now();
    client(&sink).get(ID.parse().expect("an id")).await.expect("the second attempt succeeds");
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    // Longer than the client waits: it fails at once.
    sink.answer(&path, problem(503, "overloaded").header("retry-after", "3600"));
    let begun = Instant::now();
    let error = client(&sink).get(ID.parse().expect("an id")).await.expect_err("it gives up");
    assert_eq!((error.code(), error.status(), error.is_retryable()), (Some("overloaded"), Some(503), true));
    assert!(begun.elapsed() < Duration::from_mins(1) && sink.hits(&path).len() == 3);
}

#[tokio::test]
async fn only_temporary_errors_are_retried_a_few_times() {
    let sink = Sink::start();
    let id = ID.parse().expect("an id");
    let path = format!("/v1/tasks/{ID}");
    sink.answer(&path, problem(503, "store_unavailable"));
    let error = client(&sink).get(id).await.expect_err("the call is refused");
    assert_eq!((error.code(), sink.hits(&path).len()), (Some("store_unavailable"), 4));
    assert_eq!(error.to_string(), "what happened (store_unavailable)");
    sink.answer(&path, problem(404, "not_found"));
    let error = client(&sink).get(id).await.expect_err("the call is refused");
    assert_eq!((error.code(), error.is_retryable(), sink.hits(&path).len()), (Some("not_found"), false, 5));
    // An answer of a proxy.
    sink.answer(&path, SinkAnswer::status(400).body("<html>a proxy</html>"));
    let error = client(&sink).get(id).await.expect_err("the call is refused");
    assert!(matches!(&error, ClientError::Unexpected { status: 400, body } if body.contains("a proxy")), "{error}");
    sink.answer(&path, SinkAnswer::json(&json!({"task_id": 7})));
    assert!(matches!(client(&sink).get(id).await, Err(ClientError::Unreadable(_))));
    assert_eq!(sink.hits(&path).len(), 7);
}

#[tokio::test]
async fn every_settlement_carries_the_token() {
    let sink = Sink::start();
    sink.answer("/v1/leases", SinkAnswer::json(&leases()));
    let client = client(&sink).tenant("acme").expect("a tenant");
    let wanted =
        LeaseRequest { worker_id: "w".to_owned(), queues: Some(vec!["q".to_owned()]), ..LeaseRequest::default() };
    let lease = client.lease(&wanted).await.expect("it leases").remove(0);
    let path = |verb: &str| format!("/v1/tasks/{ID}/{verb}");
    let mut beat = task();
    beat["lease_expires_at"] = json!("2026-05-22T18:02:00.000Z");
    beat["timeout_at"] = json!("2026-05-22T18:05:00.000Z");
    sink.answer(&path("heartbeat"), SinkAnswer::json(&beat));
    for verb in ["complete", "fail", "release"] {
        sink.answer(&path(verb), SinkAnswer::json(&task()));
    }
    let json = |text: &str| punctual_core::json::Json::parse(text).expect("JSON");
    let beat = client.heartbeat(&lease, Some(json("0.5")), Some(json("[1]"))).await.expect("it beats");
    assert_eq!(beat.lease_expires_at.map(|at| at.to_string()).as_deref(), Some("2026-05-22T18:02:00.000Z"));
    assert_eq!(beat.timeout_at.map(|at| at.to_string()).as_deref(), Some("2026-05-22T18:05:00.000Z"));
    assert_eq!(beat.task.payload.get(), r#"{"a":1}"#);
    client.complete(&lease, Some(json("{}"))).await.expect("it completes");
    client.fail(&lease, Failure { is_final: true, ..Failure::default() }).await.expect("it fails");
    client.release(&lease).await.expect("it releases");
    let sent = |verb: &str| body(&sink.hits(&path(verb))[0]);
    assert_eq!(sent("heartbeat"), json!({"token": 3, "progress": 0.5, "checkpoint": [1]}));
    assert_eq!(sent("complete"), json!({"token": 3, "result": {}}));
    assert_eq!(sent("fail"), json!({"token": 3, "retryable": false}));
    assert_eq!(sent("release"), json!({"token": 3}));
    assert!(sink.all_hits().iter().all(|hit| hit.header("punctual-tenant") == "acme"));
}

#[tokio::test]
async fn a_malformed_address_is_refused() {
    for bad in ["", "127.0.0.1:7400", "https://example.com", "ftp://example.com", "http://example.com/v1", "http://h?q"]
    {
        let found = Client::new(bad).err().unwrap_or_else(|| panic!("{bad} is accepted")).to_string();
        assert!(found.contains("is not the address of a server"), "{found}");
    }
    assert!(Client::new("http://127.0.0.1:7400/").is_ok());
    let unreachable = Client::new("http://127.0.0.1:1").expect("an address").retries(Retries::NEVER);
    let error = unreachable.get(ID.parse().expect("an id")).await.expect_err("no server listens there");
    assert!(matches!(error, ClientError::Unreachable(_)) && error.is_retryable(), "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
}
