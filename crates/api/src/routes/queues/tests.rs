use serde_json::{Value, json};

use crate::testing::{Answer, World};

async fn put(world: &World, settings: Value) -> Answer {
    world.send("PUT", "/v1/queues/mail", Some(settings)).await
}

#[track_caller]
fn expect_members(queue: &Value, expected: &Value) {
    for (member, value) in expected.as_object().unwrap() {
        assert_eq!(queue[member], *value, "{member}");
    }
}

#[tokio::test]
async fn setting_a_queue_replaces_all_its_settings() {
    let world = World::new();
    let all = json!({
        "max_concurrency": 3, "rate_limit": {"per_second": 2.5}, "max_depth": 10, "timeout_seconds": 1.5, "max_per_key": 2,
        "retry_policy": {"max_retries": 7}, "dispatch_jitter_seconds": 5, "on_dead_letter": "hold",
        "callback_url": "https://Hooks.example/mail#part", "callback_headers": {"X-Team": "billing"},
        "callback_body": "envelope",
    });
    let expected = json!({
        "max_concurrency": 3, "rate_limit": {"per_second": 2.5, "burst": 1}, "max_depth": 10, "timeout_seconds": 1.5,
        "max_per_key": 2, "dispatch_jitter_seconds": 5, "on_dead_letter": "hold",
        "callback_url": "https://hooks.example/mail", "callback_headers": {"X-Team": "billing"},
        "callback_body": "envelope",
        "counts": {"BLOCKED": 0, "PENDING": 0, "QUEUED": 0, "RUNNING": 0},
    });
    expect_members(&put(&world, all).await.expect(200), &expected);
    let defaults = json!({
        "max_concurrency": null, "max_per_key": null, "rate_limit": null, "max_depth": 4, "timeout_seconds": null, "retry_policy": null,
        "dispatch_jitter_seconds": 0, "on_dead_letter": "continue", "callback_url": null, "callback_headers": {},
        "callback_body": "payload",
    });
    expect_members(&put(&world, json!({"max_depth": 4})).await.expect(200), &defaults);
}

#[tokio::test]
async fn all_faults_of_settings_are_reported() {
    let world = World::new();
    let answer = put(
        &world,
        json!({
            "max_concurrency": 0, "max_per_key": 0, "rate_limit": {"per_second": 0, "burst": 0}, "max_depth": -1,
            "retry_policy": {"max_retries": 1001}, "timeout_seconds": 0, "dispatch_jitter_seconds": 3601,
            "callback_url": "http://169.254.169.254/", "callback_headers": {"Host": "x"},
        }),
    )
    .await;
    let mut faults = answer.pointers();
    faults.sort_unstable();
    let expected = [
        "/callback_headers/Host",
        "/callback_url",
        "/dispatch_jitter_seconds",
        "/max_concurrency",
        "/max_depth",
        "/max_per_key",
        "/rate_limit/burst",
        "/rate_limit/per_second",
        "/retry_policy/max_retries",
        "/timeout_seconds",
    ];
    assert_eq!(faults, expected);
    assert!(answer.text.contains("pause the queue"), "{}", answer.text);
    for (body, pointer) in [
        (json!({"max_concurency": 1}), "/max_concurency"),
        (json!({"rate_limit": {"burst": 1}}), "/rate_limit/per_second"),
        (json!({"rate_limit": 5}), "/rate_limit"),
        (json!({"on_dead_letter": "stop"}), "/on_dead_letter"),
        (json!({"callback_headers": {"x": "y"}}), "/callback_headers"),
        (json!({"callback_body": "envelope"}), "/callback_body"),
        (json!({"max_concurrency": 1.5}), "/max_concurrency"),
    ] {
        assert_eq!(put(&world, body).await.pointers(), [pointer]);
    }
    assert_eq!(world.send("GET", "/v1/queues/mail", None).await.status, 404, "nothing was set");
}

#[tokio::test]
async fn a_pause_says_since_when_and_by_whom() {
    let world = World::new();
    let body = json!({"reason": "the mail server is down", "until": "2026-05-22T19:00:00Z"});
    let expected = json!({
        "paused_at": "2026-05-22T18:00:00.000Z", "paused_by": "client", "reason": "the mail server is down",
        "until": "2026-05-22T19:00:00.000Z",
    });
    let queue = world.send("POST", "/v1/queues/mail/pause", Some(body)).await.expect(200);
    assert_eq!(queue["pause"], expected);
    put(&world, json!({"paused": false})).await.expect(200);
    let again = put(&world, json!({"paused": true})).await.expect(200);
    assert_eq!((&again["pause"]["until"], &again["pause"]["reason"]), (&Value::Null, &Value::Null));
}

#[tokio::test]
async fn pauses_and_resumes_are_checked() {
    let world = World::new();
    for (call, body, pointer) in [
        ("pause", json!({"until": "2026-05-22T18:00:00Z"}), "/until"),
        ("pause", json!({"until": "soon"}), "/until"),
        ("pause", json!({"reason": "x".repeat(1_025)}), "/reason"),
        ("resume", json!({"now": true}), "/now"),
    ] {
        let answer = world.send("POST", &format!("/v1/queues/mail/{call}"), Some(body)).await;
        assert_eq!(answer.pointers(), [pointer]);
    }
    assert_eq!(world.send("POST", "/v1/queues/mail/resume", None).await.problem(), "not_found");
    assert_eq!(world.send("GET", "/v1/queues/mail", None).await.problem(), "not_found", "nothing was made of it");
    assert_eq!(world.send("GET", "/v1/queues/a%20b", None).await.problem(), "invalid_request");
}
