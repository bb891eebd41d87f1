//! Fields: unknown ones, bounds at the limit and beyond it, NUL, names.

use punctual_testkit::eventually::eventually;
use serde_json::{Map, Value, json};

use crate::it::world::{Caller, SOON, array, every, id_of, merged, quick, shared, unknown_task, worker_id};

/// A task that waits, with these fields.
fn with(fields: Value) -> Value {
    merged(json!({"type": "t", "delay_seconds": 600}), fields)
}

fn letters(length: usize) -> String {
    "x".repeat(length)
}

async fn accepted(caller: &Caller, fields: Value) -> Value {
    caller.submit(with(fields)).await
}

async fn refused(caller: &Caller, pointer: &str, fields: Value) {
    caller.api.post("/v1/tasks", &with(fields)).await.invalid(pointer);
}

#[tokio::test]
async fn unknown_fields_are_refused_by_name() {
    let caller = shared().await;
    for name in ["typ", "Type", "execute_At", "delay", "retries", "tenant_id", "", "$schema"] {
        caller.api.post("/v1/tasks", &json!({"type": "t", name: 1})).await.invalid(&format!("/{name}"));
    }
    let nested =
        caller.api.post("/v1/tasks", &json!({"type": "t", "retry_policy": {"max_retries": 1, "retries": 2}})).await;
    let problem = nested.problem(422);
    let points = |error: &Value| error["pointer"].as_str().is_some_and(|at| at.contains("/retry_policy"));
    assert!(array(&problem["errors"]).iter().any(points), "no error points into the retry policy\n{nested}");
    caller.expect_nothing_stored().await;
}

#[tokio::test]
async fn fields_of_the_server_cannot_be_submitted() {
    let caller = shared().await;
    for name in [
        "task_id",
        "tenant",
        "status",
        "state",
        "version",
        "retry_count",
        "attempts",
        "created_at",
        "updated_at",
        "next_attempt_at",
        "started_at",
        "completed_at",
        "worker_id",
        "schedule_id",
        "result",
        "progress",
        "last_error",
    ] {
        caller.api.post("/v1/tasks", &json!({"type": "t", name: "x"})).await.invalid(&format!("/{name}"));
    }
    caller.expect_nothing_stored().await;
}

#[tokio::test]
async fn a_type_has_1_to_255_of_its_characters() {
    let caller = shared().await;
    for fine in [letters(1), letters(255), "A-Za-z0-9._:/-".to_owned()] {
        assert_eq!(accepted(&caller, json!({"type": fine})).await["type"], fine);
    }
    let stranger = caller.stranger();
    for bad in [
        String::new(),
        letters(256),
        "a b".to_owned(),
        "a\n".to_owned(),
        "é".to_owned(),
        "a%".to_owned(),
        "a\\b".to_owned(),
    ] {
        refused(&stranger, "/type", json!({"type": bad})).await;
    }
    for bad in [json!(null), json!(1), json!(["t"]), json!({})] {
        refused(&stranger, "/type", json!({"type": bad})).await;
    }
    stranger.api.post("/v1/tasks", &json!({"payload": 1})).await.problem(422);
    stranger.expect_nothing_stored().await;
}

#[tokio::test]
async fn a_priority_is_0_to_9_or_a_name() {
    let caller = shared().await;
    for fine in [json!(0), json!(9), json!("low"), json!("normal"), json!("high")] {
        accepted(&caller, json!({"priority": fine})).await;
    }
    let stranger = caller.stranger();
    for bad in [
        json!(-1),
        json!(10),
        json!(256),
        json!(1.5),
        json!("urgent"),
        json!("HIGH"),
        json!("5"),
        json!(""),
        json!([5]),
    ] {
        refused(&stranger, "/priority", json!({"priority": bad})).await;
    }
    stranger.expect_nothing_stored().await;
}

#[tokio::test]
async fn metadata_is_a_flat_string_map_of_up_to_32() {
    let caller = shared().await;
    let entries = |count: usize| (0..count).map(|n| (format!("key{n}"), json!("value"))).collect::<Map<_, _>>();
    accepted(&caller, json!({"metadata": {}})).await;
    assert_eq!(
        accepted(&caller, json!({"metadata": entries(32)})).await["metadata"].as_object().map(Map::len),
        Some(32)
    );
    let stranger = caller.stranger();
    refused(&stranger, "/metadata", json!({"metadata": entries(33)})).await;
    for bad in
        [json!({"a": 1}), json!({"a": null}), json!({"a": {"b": "c"}}), json!({"a": ["b"]}), json!(["a"]), json!("a")]
    {
        let answer = stranger.api.post("/v1/tasks", &with(json!({"metadata": bad}))).await;
        let problem = answer.problem(422);
        let points = |error: &Value| error["pointer"].as_str().is_some_and(|at| at.contains("/metadata"));
        assert!(array(&problem["errors"]).iter().any(points), "no error points into the metadata\n{answer}");
    }
    stranger.expect_nothing_stored().await;
}

#[tokio::test]
async fn an_idempotency_key_has_1_to_255_characters() {
    let caller = shared().await;
    accepted(&caller, json!({"idempotency_key": "k"})).await;
    accepted(&caller, json!({"idempotency_key": letters(255)})).await;
    let by_header = |key: String| {
        caller.api.call("POST", "/v1/tasks").header("idempotency-key", &key).json(&with(json!({}))).send()
    };
    by_header("h".to_owned()).await.expect(201);
    by_header("h".repeat(255)).await.expect(201);
    let stranger = caller.stranger();
    refused(&stranger, "/idempotency_key", json!({"idempotency_key": ""})).await;
    refused(&stranger, "/idempotency_key", json!({"idempotency_key": letters(256)})).await;
    refused(&stranger, "/idempotency_key", json!({"idempotency_key": 5})).await;
    for key in [String::new(), "h".repeat(256), "h".repeat(10_000)] {
        let call = stranger.api.call("POST", "/v1/tasks").header("idempotency-key", &key);
        call.json(&with(json!({}))).send().await.problem_any(&[400, 422]);
    }
    stranger.expect_nothing_stored().await;
}

#[tokio::test]
async fn a_retry_policy_has_known_words_and_bounds() {
    let caller = shared().await;
    for backoff in ["fixed", "linear", "exponential"] {
        for jitter in ["none", "full"] {
            let policy = merged(every(0, 1.0), json!({"backoff": backoff, "jitter": jitter}));
            accepted(&caller, json!({"retry_policy": policy})).await;
        }
    }
    let stranger = caller.stranger();
    for (member, bad) in [
        ("max_retries", json!(-1)),
        ("max_retries", json!(1.5)),
        ("max_retries", json!("3")),
        ("max_retries", json!(1e30)),
        ("backoff", json!("quadratic")),
        ("backoff_seconds", json!(-1)),
        ("backoff_seconds", json!("1")),
        ("backoff_seconds", json!(1e300)),
        ("max_backoff_seconds", json!(-0.5)),
        ("max_backoff_seconds", json!(1e300)),
        ("jitter", json!("some")),
    ] {
        let mut policy = quick(1);
        policy[member] = bad.clone();
        refused(&stranger, &format!("/retry_policy/{member}"), json!({"retry_policy": policy})).await;
    }
    refused(&stranger, "/retry_policy", json!({"retry_policy": 3})).await;
    stranger.expect_nothing_stored().await;
}

#[tokio::test]
async fn a_timeout_is_a_positive_number_of_seconds() {
    let caller = shared().await;
    for fine in [json!(1), json!(1.5), json!(3600)] {
        accepted(&caller, json!({"timeout_seconds": fine})).await;
    }
    let stranger = caller.stranger();
    for bad in [json!(-1), json!("60"), json!(1e300), json!([])] {
        refused(&stranger, "/timeout_seconds", json!({"timeout_seconds": bad})).await;
    }
    stranger.expect_nothing_stored().await;
}

#[tokio::test]
async fn all_faults_of_a_task_are_reported_in_order() {
    let caller = shared().await;
    let answer = caller
        .api
        .post("/v1/tasks", &json!({"type": "", "priority": 11, "execute_at": "x", "metadata": {"a": 1}}))
        .await;
    let problem = answer.problem(422);
    assert!(!array(&problem["errors"]).is_empty(), "validation names its errors\n{answer}");
    caller.expect_nothing_stored().await;
}

#[tokio::test]
async fn nul_is_refused_in_every_string() {
    let caller = shared().await;
    for fields in [
        json!({"type": "a\u{0}b"}),
        json!({"queue": "a\u{0}b"}),
        json!({"callback_url": "http://127.0.0.1:9/\u{0}"}),
        json!({"callback_url": "http://127.0.0.1:9/", "callback_headers": {"X-A": "a\u{0}b"}}),
        json!({"callback_url": "http://127.0.0.1:9/", "callback_headers": {"X-\u{0}": "a"}}),
        json!({"idempotency_key": "a\u{0}b"}),
        json!({"ordering_key": "a\u{0}b"}),
        json!({"metadata": {"a": "a\u{0}b"}}),
        json!({"metadata": {"a\u{0}b": "a"}}),
        json!({"priority": "high\u{0}"}),
        json!({"expires_at": "2101-01-01T00:00:00Z\u{0}"}),
        json!({"on_dependency_failure": "run\u{0}"}),
        json!({"depends_on": [format!("{}\u{0}", unknown_task())]}),
    ] {
        caller.api.post("/v1/tasks", &with(fields)).await.problem_any(&[400, 422]);
    }
    for (member, text) in [("worker_id", "w\u{0}"), ("queues", "q\u{0}"), ("types", "t\u{0}")] {
        let mut wanted = json!({"worker_id": worker_id(), "max_tasks": 1, "wait_seconds": 0});
        wanted[member] = if member == "worker_id" { json!(text) } else { json!([text]) };
        if member == "worker_id" {
            wanted["queues"] = json!(["q"]);
        }
        caller.api.post("/v1/leases", &wanted).await.problem_any(&[400, 422]);
    }
    caller.api.get("/v1/tasks?queue=a%00b").await.expect_any(&[200, 400, 422]);
    caller.expect_nothing_stored().await;
}

#[tokio::test]
async fn nul_in_a_payload_is_refused_or_kept_as_it_is() {
    let caller = shared().await;
    let payload = json!({"text": "a\u{0}b", "\u{0}": 1});
    let answer = caller.api.post("/v1/tasks", &with(json!({"payload": payload}))).await;
    if answer.status() == 201 {
        assert_eq!(caller.task(&id_of(&answer.value())).await["payload"], payload);
    } else {
        answer.problem_any(&[400, 422]);
        caller.expect_nothing_stored().await;
    }
}

#[tokio::test]
async fn nul_from_a_worker_never_breaks_the_run() {
    let caller = shared().await;
    let id = caller.submit_id(json!({"type": "t", "queue": "q", "retry_policy": quick(5)})).await;
    let lease = caller.lease_one("q").await;
    let text = "a\u{0}b";
    caller
        .report("heartbeat", &lease, json!({"progress": text, "checkpoint": {"at": text}}))
        .await
        .expect_any(&[200, 400, 422]);
    let failed = caller
        .report("fail", &lease, json!({"error": {"code": "boom", "message": text, "details": text}, "retryable": true}))
        .await;
    failed.expect_any(&[200, 400, 422]);
    let lease = if failed.status() == 200 { caller.lease_one("q").await } else { lease };
    let completed = caller.report("complete", &lease, json!({"result": text})).await;
    completed.expect_any(&[200, 400, 422]);
    if completed.status() != 200 {
        caller.report("complete", &lease, json!({"result": "fine"})).await.expect(200);
    }
    eventually("the run completes", SOON, async || {
        let task = caller.task(&id).await;
        if task["status"] == "COMPLETED" { Ok(()) } else { Err(task.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn sql_in_a_name_is_a_name_or_refused() {
    let caller = shared().await;
    let kept = caller.submit_id(json!({"type": "t", "delay_seconds": 600})).await;
    let odd = "x'); DROP TABLE tasks; --";
    let fields = json!({"queue": odd, "ordering_key": odd, "idempotency_key": odd, "metadata": {odd: odd}});
    caller.api.post("/v1/tasks", &with(fields)).await.expect_any(&[201, 422]);
    let task = accepted(&caller, json!({"metadata": {"k": odd}, "payload": odd})).await;
    assert_eq!((&task["metadata"]["k"], &task["payload"]), (&json!(odd), &json!(odd)));
    assert_eq!(caller.task(&kept).await["status"], "PENDING");
}

#[tokio::test]
async fn a_poll_has_bounds() {
    let caller = shared().await;
    let wanted = |member: &str, value: Value| {
        let mut wanted =
            json!({"worker_id": worker_id(), "queues": ["q"], "max_tasks": 1, "wait_seconds": 0, "lease_seconds": 60});
        wanted[member] = value;
        wanted
    };
    for (member, fine) in [
        ("lease_seconds", json!(1)),
        ("lease_seconds", json!(3600)),
        ("wait_seconds", json!(0)),
        ("max_tasks", json!(1)),
    ] {
        caller.api.post("/v1/leases", &wanted(member, fine)).await.expect(200);
    }
    for (member, bad) in [
        ("lease_seconds", json!(0)),
        ("lease_seconds", json!(3601)),
        ("lease_seconds", json!("60")),
        ("wait_seconds", json!(61)),
        ("wait_seconds", json!(-1)),
        ("max_tasks", json!(-1)),
        ("max_tasks", json!("1")),
        ("worker_id", json!(7)),
        ("queues", json!("q")),
        ("nonsense", json!(1)),
    ] {
        caller.api.post("/v1/leases", &wanted(member, bad)).await.invalid(&format!("/{member}"));
    }
    // The longest wait is legal; a due task ends it at once.
    caller.submit_id(json!({"type": "t", "queue": "q"})).await;
    assert_eq!(caller.lease(wanted("wait_seconds", json!(60))).await.len(), 1);
}

#[tokio::test]
async fn a_settlement_is_checked() {
    let caller = shared().await;
    let id = caller.submit_id(json!({"type": "t", "queue": "q"})).await;
    let lease = caller.lease_one("q").await;
    for verb in ["complete", "fail", "heartbeat", "release"] {
        let path = format!("/v1/tasks/{id}/{verb}");
        caller.api.post(&path, &json!({})).await.problem(422);
        caller.api.post(&path, &json!({"token": "many"})).await.invalid("/token");
        caller.api.post(&path, &json!({"token": lease["token"], "nonsense": 1})).await.invalid("/nonsense");
    }
    for (path, body) in
        [("/v1/leases/settle", json!({"items": 1})), ("/v1/leases/settle", json!({"items": [], "nonsense": 1}))]
    {
        caller.api.post(path, &body).await.problem(422);
    }
    let task = caller.task(&id).await;
    assert_eq!(task["status"], "RUNNING", "a refused settlement has no effect");
    caller.report("complete", &lease, json!({})).await.expect(200);
}
