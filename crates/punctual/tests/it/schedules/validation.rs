//! Schedules that are refused, with the errors they get.

use serde_json::{Value, json};

use super::{create, path, yearly};
use crate::it::world::{merged, shared};

/// A valid body.
fn good() -> Value {
    json!({"name": "s", "cron": "0 3 * * *", "task": {"type": "t"}})
}

#[tokio::test]
async fn every_fault_names_its_field() {
    let caller = shared().await;
    let refuse = async |fields: Value, pointer: &str| {
        let reply = caller.api.post("/v1/schedules", &merged(good(), fields.clone())).await;
        assert!(!reply.invalid(pointer)["detail"].as_str().unwrap_or_default().is_empty(), "{fields}");
    };
    for cron in [
        "",
        "* * * *",
        "61 * * * *",
        "0 0 30 2 *",
        "0 0 31 4 *",
        "*/0 * * * *",
        "@reboot",
        "a b c d e",
        "* * * * * * *",
    ] {
        refuse(json!({ "cron": cron }), "/cron").await;
    }
    refuse(json!({"cron": "* ".repeat(5_000)}), "/cron").await;
    refuse(json!({"cron": null}), "/cron").await;
    refuse(json!({"interval_seconds": 60}), "/interval_seconds").await;
    for seconds in [json!(0), json!(0.5), json!(-1), json!(1e12)] {
        refuse(json!({"cron": null, "interval_seconds": seconds}), "/interval_seconds").await;
    }
    for zone in ["Mars/Olympus", "", "+02:00", "Etc/Unknown"] {
        refuse(json!({ "timezone": zone }), "/timezone").await;
    }
    for name in ["", "a b", "ä"] {
        refuse(json!({ "name": name }), "/name").await;
    }
    refuse(json!({"name": "a".repeat(256)}), "/name").await;
    refuse(json!({"name": null}), "/name").await;
    refuse(json!({"task": null}), "/task").await;
    for (field, value) in [
        ("type", json!("no spaces here")),
        ("queue", json!("")),
        ("priority", json!(10)),
        ("callback_url", json!("ftp://example.com")),
        ("timeout_seconds", json!(0)),
    ] {
        refuse(json!({"task": merged(json!({"type": "t"}), json!({ field: value }))}), &format!("/task/{field}")).await;
    }
    refuse(json!({"task": {"type": "t", "unknown": 1}}), "/task/unknown").await;
    refuse(json!({"unknown": 1}), "/unknown").await;
    for (field, value) in [
        ("overlap_policy", json!("never")),
        ("catchup", json!("some")),
        ("dst_gap", json!("x")),
        ("day_overflow", json!("first")),
        ("dst_fold", json!("x")),
        ("catchup_window_seconds", json!(-1)),
        ("catchup_window_seconds", json!(1e9)),
        ("jitter_seconds", json!(-1)),
        ("jitter_seconds", json!(100_000)),
        ("max_runs", json!(0)),
        ("max_runs", json!(1.5)),
        ("starts_at", json!("tomorrow")),
        ("ends_at", json!("2020-01-01T00:00:00Z")),
        ("paused", json!("yes")),
    ] {
        refuse(json!({ field: value }), &format!("/{field}")).await;
    }
    refuse(json!({"starts_at": "2031-01-02T00:00:00Z", "ends_at": "2031-01-01T00:00:00Z"}), "/ends_at").await;
    assert_eq!(caller.list("/v1/schedules").await.len(), 0, "nothing was stored");
    create(&caller, &good()).await;
}

/// Fields that suit a single task and not the task of a schedule, also in a preview.
#[tokio::test]
async fn fields_of_a_single_task_are_refused() {
    let caller = shared().await;
    let parent = caller.submit_id(json!({"type": "t"})).await;
    for (field, value) in [
        ("execute_at", json!("2030-01-01T00:00:00Z")),
        ("delay_seconds", json!(5)),
        ("expires_at", json!("2030-01-01T00:00:00Z")),
        ("idempotency_key", json!("k")),
        ("depends_on", json!([parent])),
        ("depends_on", json!([])),
        ("on_dependency_failure", json!("run")),
    ] {
        let schedule = merged(good(), json!({"task": {"type": "t", field: value}}));
        for call in ["/v1/schedules", "/v1/schedules/preview"] {
            let problem = caller.api.post(call, &schedule).await.invalid(&format!("/task/{field}"));
            let message = problem["errors"][0]["message"].as_str().unwrap_or_default();
            assert!(message.starts_with("must be left out: "), "{field}: {problem:#}");
        }
        let put = caller.api.call("PUT", "/v1/schedules/by-name/s").json(&schedule).send().await;
        put.invalid(&format!("/task/{field}"));
    }
    assert_eq!(caller.list("/v1/schedules").await.len(), 0, "nothing was stored");
    let made = create(&caller, &good()).await;
    let edit = json!({"task": {"type": "t", "depends_on": [parent]}});
    caller.api.patch(&path(&made, ""), &edit).await.invalid("/task/depends_on");
}

#[tokio::test]
async fn a_schedule_without_a_future_instant_is_refused() {
    let caller = shared().await;
    let in_a_gap = json!({"cron": "30 2 */25 3 0L", "timezone": "Europe/Berlin", "dst_gap": "skip"});
    for (timing, pointer, expected) in [
        (json!({"cron": "0 0 1 1 *", "ends_at": "2020-01-01T00:00:00Z"}), "/ends_at", "give a later one"),
        (json!({"interval_seconds": 2, "starts_at": "9999-12-31T23:59:58Z"}), "/starts_at", "give an earlier one"),
        (in_a_gap, "/cron", "dst_gap is skip"),
    ] {
        let schedule = merged(json!({"name": "s", "task": {"type": "t"}}), timing);
        for call in ["/v1/schedules", "/v1/schedules/preview"] {
            let problem = caller.api.post(call, &schedule).await.invalid(pointer);
            let message = problem["errors"][0]["message"].as_str().unwrap_or_default();
            assert!(message.contains(expected), "{call}: {problem:#}");
        }
    }
    assert_eq!(caller.list("/v1/schedules").await.len(), 0, "nothing was stored");
}

#[tokio::test]
async fn all_faults_are_reported_together() {
    let caller = shared().await;
    let bad =
        json!({"name": "", "cron": "x", "timezone": "y", "max_runs": 0, "task": {"type": "", "delay_seconds": 1}});
    let problem = caller.api.post("/v1/schedules", &bad).await.problem(422);
    let mut pointers: Vec<&str> = problem["errors"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|fault| fault["pointer"].as_str().expect("one"))
        .collect();
    pointers.sort_unstable();
    assert_eq!(pointers, ["/cron", "/max_runs", "/name", "/task/delay_seconds", "/task/type", "/timezone"]);
}

#[tokio::test]
async fn a_body_that_is_not_an_object_is_refused() {
    let caller = shared().await;
    for body in ["[]", "null", "5", "\"x\""] {
        let reply = caller.api.call("POST", "/v1/schedules").body("application/json", body).send().await;
        reply.problem_code(422, "invalid_request");
    }
    let twice = r#"{"name":"s","cron":"* * * * *","cron":"* * * * *","task":{"type":"t"}}"#;
    caller
        .api
        .call("POST", "/v1/schedules")
        .body("application/json", twice)
        .send()
        .await
        .problem_code(400, "invalid_json");
    caller.api.call("POST", "/v1/schedules").body("text/plain", "{}").send().await.problem(415);
    let large = json!({"name": "s", "cron": "* * * * *", "task": {"type": "t", "payload": "x".repeat(300_000)}});
    caller.api.post("/v1/schedules", &large).await.problem_code(413, "too_large");
}

#[tokio::test]
async fn a_backfill_is_of_the_past_and_bounded() {
    let caller = shared().await;
    let made = create(&caller, &merged(yearly("s", json!({})), json!({"interval_seconds": 1, "paused": true}))).await;
    let backfill =
        async |from: &str, to: &str| caller.api.post(&path(&made, "/backfill"), &json!({"from": from, "to": to})).await;
    backfill("x", "2026-01-01T00:00:00Z").await.invalid("/from");
    backfill("2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z").await.invalid("/to");
    backfill("2026-01-01T00:00:00Z", "2099-01-01T00:00:00Z").await.invalid("/to");
    caller.api.post(&path(&made, "/backfill"), &json!({"from": "2026-01-01T00:00:00Z"})).await.invalid("/to");
    let seconds = json!({"name": "seconds", "cron": "* * * * * *", "paused": true, "task": {"type": "t"}});
    let seconds = create(&caller, &seconds).await;
    let wanted = json!({"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T02:46:40Z"});
    let refused = caller.api.post(&path(&seconds, "/backfill"), &wanted).await;
    let problem = refused.invalid("/to");
    let message = problem["errors"][0]["message"].as_str().unwrap_or_default();
    assert!(message.contains("10000") && message.contains("2026-01-01T02:46:39"), "{message}");
}

#[tokio::test]
async fn a_pause_has_a_short_reason() {
    let caller = shared().await;
    let made = create(&caller, &yearly("s", json!({}))).await;
    let pause = async |body: Value| caller.api.post(&path(&made, "/pause"), &body).await;
    pause(json!({"reason": "x".repeat(256)})).await.invalid("/reason");
    pause(json!({"reason": "a\u{7}b"})).await.invalid("/reason");
    pause(json!({"why": "x"})).await.invalid("/why");
    assert_eq!(pause(json!({"reason": "x".repeat(255)})).await.expect(200)["paused"], true);
}
