//! `POST /v1/tasks` and `GET /v1/tasks/{id}`.

use jiff::Timestamp;
use punctual_testkit::http::ApiClient;
use serde_json::{Value, json};

use crate::it::world::{
    every, expect_id, id_of, in_seconds, merged, seconds_between, shared, time, unknown_task, worker_id, written,
};

/// The fields that a task has besides the submitted ones.
const RETURNED: [&str; 15] = [
    "task_id",
    "tenant",
    "status",
    "version",
    "retry_count",
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
];

#[tokio::test]
async fn only_the_type_is_required_and_the_rest_has_defaults() {
    let caller = shared().await;
    let before = in_seconds(0.0);
    let answer = caller.api.post("/v1/tasks", &json!({"type": "report.daily"})).await;
    let task = answer.expect(201);
    assert_eq!(answer.header("content-type").and_then(|media| media.split(';').next()), Some("application/json"));
    for member in RETURNED {
        assert!(task.get(member).is_some(), "no {member:?} in {task:#}");
    }
    expect_id(task["task_id"].as_str().expect("an id"), "task_");
    assert_eq!(task["type"], "report.daily");
    assert_eq!(task["payload"], Value::Null);
    assert_eq!(task["queue"], "default");
    assert_eq!(task["priority"], 5);
    assert_eq!(task["timeout_seconds"].as_f64(), Some(300.0));
    assert_eq!(task["retry_count"], 0);
    assert_eq!(task["status"], "PENDING");
    assert!(task["version"].is_u64(), "{task:#}");
    let policy = &task["retry_policy"];
    assert_eq!(
        (&policy["max_retries"], &policy["backoff"], &policy["jitter"]),
        (&json!(7), &json!("exponential"), &json!("full"))
    );
    assert_eq!(policy["backoff_seconds"].as_f64(), Some(30.0));
    assert_eq!(policy["max_backoff_seconds"].as_f64(), Some(3600.0));
    for absent in
        ["started_at", "completed_at", "worker_id", "schedule_id", "result", "progress", "last_error", "callback_url"]
    {
        assert!(task[absent].is_null(), "{absent} of a new task: {task:#}");
    }
    for instant in ["created_at", "updated_at", "execute_at", "next_attempt_at"] {
        let off = seconds_between(before, time(&task[instant]));
        assert!((0.0..30.0).contains(&off), "{instant} is {off} s after the submission began: {task:#}");
    }
}

#[tokio::test]
async fn every_submitted_field_comes_back() {
    let caller = shared().await;
    let execute_at = in_seconds(3600.0);
    let expires_at = in_seconds(7200.0);
    let submitted = json!({
        "type": "mail:send/v2.1_x-Y",
        "payload": {"to": "a@example.com", "n": [1, 2.5, null, true]},
        "queue": "mail",
        "callback_url": "http://127.0.0.1:9/hook?x=1",
        "callback_headers": {"X-Shop": "berlin"},
        "callback_body": "envelope",
        "execute_at": written(execute_at),
        "priority": 7,
        "idempotency_key": "order-17",
        "retry_policy": merged(every(7, 1.5), json!({"backoff": "linear", "max_backoff_seconds": 60})),
        "timeout_seconds": 12.5,
        "expires_at": written(expires_at),
        "metadata": {"customer": "4", "region": "eu"},
    });
    let task = caller.submit(submitted.clone()).await;
    for (of_it, task) in [("the answer", task.clone()), ("the reading", caller.task(&id_of(&task)).await)] {
        for member in [
            "type",
            "payload",
            "queue",
            "callback_url",
            "callback_body",
            "execute_at",
            "priority",
            "idempotency_key",
            "timeout_seconds",
            "expires_at",
            "metadata",
        ] {
            assert_eq!(task[member], submitted[member], "{member} of {of_it}: {task:#}");
        }
        for member in ["max_retries", "backoff", "jitter"] {
            assert_eq!(task["retry_policy"][member], submitted["retry_policy"][member], "{member} of {of_it}");
        }
        assert_eq!(task["retry_policy"]["backoff_seconds"].as_f64(), Some(1.5));
        assert_eq!(task["retry_policy"]["max_backoff_seconds"].as_f64(), Some(60.0));
        assert_eq!(task["callback_headers"].to_string().to_lowercase(), r#"{"x-shop":"berlin"}"#);
        assert_eq!(time(&task["next_attempt_at"]), execute_at);
    }
}

#[tokio::test]
async fn unsupported_features_are_refused_not_ignored() {
    let caller = shared().await;
    for (field, value) in [
        ("ordering_key", json!("customer-4")),
        ("concurrency_key", json!("customer-4")),
        ("depends_on", json!([unknown_task()])),
        ("on_dependency_failure", json!("run")),
    ] {
        let answer = caller.api.post("/v1/tasks", &json!({"type": "t", "delay_seconds": 600, field: value})).await;
        if answer.status() == 201 {
            assert_eq!(answer.value()[field], value, "{field} was accepted and forgotten\n{answer}");
        } else {
            let problem = answer.problem(422);
            assert!(problem.to_string().contains(field), "{field} is not named\n{answer}");
        }
    }
}

#[tokio::test]
async fn a_delay_counts_from_now_whole_or_fractional() {
    let caller = shared().await;
    for delay in [json!(90), json!(90.25), json!(0)] {
        let before = in_seconds(0.0);
        let task = caller.submit(json!({"type": "t", "delay_seconds": delay})).await;
        let off = seconds_between(before, time(&task["execute_at"])) - delay.as_f64().expect("a number");
        assert!((0.0..15.0).contains(&off), "a delay of {delay} is {off} s off");
    }
}

#[tokio::test]
async fn times_with_any_offset_are_shown_in_utc() {
    let caller = shared().await;
    for (given, expected) in [
        ("2124-05-22T18:00:00Z", "2124-05-22T18:00:00.000Z"),
        ("2124-05-22T18:00:00.5Z", "2124-05-22T18:00:00.500Z"),
        ("2124-05-22T20:00:00+02:00", "2124-05-22T18:00:00.000Z"),
        ("2124-05-22T12:30:00.123-05:30", "2124-05-22T18:00:00.123Z"),
        ("2124-05-23T00:00:00+05:45", "2124-05-22T18:15:00.000Z"),
    ] {
        let task =
            caller.submit(json!({"type": "t", "execute_at": given, "expires_at": "2125-01-01T01:00:00+01:00"})).await;
        assert_eq!(task["execute_at"], expected, "{given}");
        assert_eq!(task["expires_at"], "2125-01-01T00:00:00.000Z");
        assert_eq!(caller.task(&id_of(&task)).await["execute_at"], expected, "{given}, read again");
    }
}

#[tokio::test]
async fn the_past_means_now() {
    let caller = shared().await;
    for (n, past) in
        [written(in_seconds(-1.0)), "1970-01-01T00:00:00Z".to_owned(), "1999-12-31T23:59:59+14:00".to_owned()]
            .iter()
            .enumerate()
    {
        let queue = format!("past-{n}");
        let id = caller.submit_id(json!({"type": "t", "queue": queue, "execute_at": past})).await;
        let lease = caller.lease_one(&queue).await;
        assert_eq!(id_of(&lease["task"]), id, "{past}");
    }
}

#[tokio::test]
async fn priorities_are_numbers_or_names() {
    let caller = shared().await;
    for (given, expected) in
        [(json!("low"), 2), (json!("normal"), 5), (json!("high"), 8), (json!(0), 0), (json!(4), 4), (json!(9), 9)]
    {
        let task = caller.submit(json!({"type": "t", "priority": given, "delay_seconds": 600})).await;
        assert_eq!(task["priority"], expected, "{given}");
    }
}

#[tokio::test]
async fn any_json_is_a_payload() {
    let caller = shared().await;
    let payloads = [
        "null",
        "true",
        "0",
        "-0.5",
        "\"text\"",
        "[]",
        "{}",
        "9007199254740993",
        "18446744073709551615",
        "[[[[]]]]",
        r#"{"":{"a b":"\u00e9\ud83d\ude00 ' \" \\ % _ ;--"}}"#,
    ];
    for payload in payloads {
        let body = format!(r#"{{"type":"t","delay_seconds":600,"payload":{payload}}}"#);
        let task =
            caller.api.call("POST", "/v1/tasks").body("application/json; charset=utf-8", body).send().await.expect(201);
        let expected: Value = serde_json::from_str(payload).expect("the test's own JSON");
        assert_eq!(task["payload"], expected, "{payload}");
        assert_eq!(caller.task(&id_of(&task)).await["payload"], expected, "{payload}, read again");
    }
}

#[tokio::test]
async fn numbers_and_spelling_in_a_payload_are_kept_to_the_digit() {
    let caller = shared().await;
    let payload = r#"{"z":1.0,"a":123456789012345678901234567890,"price":0.10000000000000000001}"#;
    let body = format!(r#"{{"type":"t","delay_seconds":600,"payload":{payload}}}"#);
    let id = id_of(&caller.api.call("POST", "/v1/tasks").body("application/json", body).send().await.expect(201));
    let read = caller.api.get(&format!("/v1/tasks/{id}")).await;
    let squeezed: String = read.text().chars().filter(|c| !c.is_whitespace()).collect();
    assert!(squeezed.contains(payload), "the payload {payload} in {read}");
}

#[tokio::test]
async fn a_header_names_the_tenant() {
    let caller = shared().await;
    let named = caller.stranger();
    let task = named.submit(json!({"type": "t", "delay_seconds": 600})).await;
    let tenant = task["tenant"].as_str().expect("a tenant").to_owned();
    assert!(tenant.starts_with("t-"), "{task:#}");
    let nameless = ApiClient::new(&format!("http://{}", caller.address()));
    let task = nameless.post("/v1/tasks", &json!({"type": "t", "delay_seconds": 600})).await.expect(201);
    assert_eq!(task["tenant"], "default");
}

#[tokio::test]
async fn a_task_is_read_with_an_etag_of_its_version() {
    let caller = shared().await;
    let submitted = caller.submit(json!({"type": "t", "delay_seconds": 600})).await;
    let path = format!("/v1/tasks/{}", id_of(&submitted));
    let first = caller.api.get(&path).await;
    assert_eq!(first.expect(200), submitted);
    let tag = first.header("etag").expect("an ETag").to_owned();
    assert!(tag.trim_start_matches("W/").starts_with('"') && tag.ends_with('"'), "{tag} is not a quoted tag");
    assert!(tag.contains(&submitted["version"].to_string()), "{tag} is not of version {}", submitted["version"]);
    let edited = caller.api.patch(&path, &json!({"priority": 9})).await.expect(200);
    let second = caller.api.get(&path).await;
    assert_ne!(second.header("etag"), Some(tag.as_str()), "the tag of version {}", edited["version"]);
}

#[tokio::test]
async fn an_unknown_or_foreign_task_is_not_found() {
    let caller = shared().await;
    let id = caller.submit_id(json!({"type": "t", "delay_seconds": 600})).await;
    let stranger = caller.stranger();
    for (asker, id) in [(&caller, unknown_task()), (&stranger, id.clone())] {
        for (method, tail) in [
            ("GET", ""),
            ("DELETE", ""),
            ("GET", "/runs"),
            ("GET", "/events"),
            ("GET", "/explain"),
            ("POST", "/run"),
            ("POST", "/redrive"),
        ] {
            asker.api.call(method, &format!("/v1/tasks/{id}{tail}")).send().await.problem(404);
        }
        asker.api.patch(&format!("/v1/tasks/{id}"), &json!({"priority": 1})).await.problem(404);
        for verb in ["complete", "fail", "heartbeat", "release"] {
            asker.api.post(&format!("/v1/tasks/{id}/{verb}"), &json!({"token": 1})).await.problem(404);
        }
    }
    let seen = caller.task(&id).await;
    assert_eq!((&seen["status"], &seen["priority"]), (&json!("PENDING"), &json!(5)));
    stranger.expect_nothing_stored().await;
}

#[tokio::test]
async fn the_times_of_a_life_are_in_order() {
    let caller = shared().await;
    let id = caller.submit_id(json!({"type": "t", "queue": "life"})).await;
    let worker = worker_id();
    let wanted = json!({"worker_id": worker, "queues": ["life"], "max_tasks": 1, "wait_seconds": 20});
    let lease = caller.lease(wanted).await.remove(0);
    let running = caller.task(&id).await;
    assert_eq!((&running["status"], &running["worker_id"]), (&json!("RUNNING"), &json!(worker)));
    assert!(running["completed_at"].is_null());
    caller.report("complete", &lease, json!({"result": {"ok": true}})).await.expect(200);
    let done = caller.task(&id).await;
    assert_eq!((&done["status"], &done["result"]), (&json!("COMPLETED"), &json!({"ok": true})));
    let at = |member: &str| time(&done[member]);
    assert!(at("created_at") <= at("started_at") && at("started_at") <= at("completed_at"), "{done:#}");
    assert!(
        at("completed_at") <= at("updated_at").max(at("completed_at")) && at("updated_at") <= Timestamp::now(),
        "{done:#}"
    );
    assert!(done["version"].as_u64() > running["version"].as_u64());
}
