//! Idempotency keys of triggers, `If-Match` and `If-None-Match`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{create, occurrences, path, read, statuses, tasks, until_outcomes, yearly};
use crate::it::world::{Caller, merged, shared};

async fn trigger(caller: &Caller, schedule: &Value, key: &str) -> punctual_testkit::http::Reply {
    caller.api.call("POST", &path(schedule, "/trigger")).header("idempotency-key", key).send().await
}

#[tokio::test]
async fn the_same_key_gives_the_same_task() {
    let caller = shared().await;
    for policy in ["skip", "buffer_all", "terminate_other", "allow_all"] {
        let (made, key) = (create(&caller, &yearly(policy, json!({"overlap_policy": policy}))).await, policy);
        let first = trigger(&caller, &made, key).await.expect(201);
        let again = trigger(&caller, &made, key).await;
        assert_eq!(again.header("idempotent-replayed"), Some("true"), "{policy}");
        assert_eq!(again.expect(200), first, "{policy}");
        let all = tasks(&caller, &made).await;
        assert_eq!((statuses(&all), &all[0]["idempotency_key"]), (vec!["PENDING"], &json!(key)), "{policy}");
        assert_eq!(read(&caller, &made).await["run_count"], 1, "{policy}");
        let lease = caller.lease_one(policy).await;
        caller.report("complete", &lease, json!({})).await.expect(200);
        assert_eq!(trigger(&caller, &made, key).await.expect(200), first, "{policy}: also after it has finished");
        assert_eq!(trigger(&caller, &made, &format!("{policy}-2")).await.expect(201)["outcome"], "fired", "{policy}");
        assert_eq!(tasks(&caller, &made).await.len(), 2, "{policy}");
    }
}

#[tokio::test]
async fn callers_at_once_under_one_key_get_one_task() {
    let caller = shared().await;
    let made = create(&caller, &yearly("s", json!({"overlap_policy": "allow_all"}))).await;
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (caller, made) = (caller.apart(), made.clone());
        calls.spawn(async move { trigger(&caller, &made, "k").await.expect_any(&[200, 201])["task_id"].to_string() });
    }
    let ids: BTreeSet<String> = calls.join_all().await.into_iter().collect();
    assert_eq!((ids.len(), tasks(&caller, &made).await.len()), (1, 1));
}

#[tokio::test]
async fn a_waiting_run_keeps_its_key() {
    let caller = shared().await;
    let made = create(&caller, &yearly("s", json!({"overlap_policy": "buffer_all"}))).await;
    trigger(&caller, &made, "first").await.expect(201);
    let waits = trigger(&caller, &made, "second").await.expect(202);
    assert_eq!((&waits["outcome"], &waits["task_id"]), (&json!("buffered"), &json!(null)));
    let again = trigger(&caller, &made, "second").await;
    assert_eq!((again.expect(202), again.header("idempotent-replayed")), (waits.clone(), Some("true")));
    assert_eq!(occurrences(&caller, &made).await.len(), 2);
    let lease = caller.lease_one("s").await;
    caller.report("complete", &lease, json!({})).await.expect(200);
    let all = until_outcomes(&caller, &made, "fired", 2).await;
    let ran = trigger(&caller, &made, "second").await.expect(200);
    assert_eq!((&ran, &ran["instant"]), (&all[1], &waits["instant"]));
    let made = tasks(&caller, &made).await;
    let keys: Vec<&Value> = made.iter().map(|task| &task["idempotency_key"]).collect();
    assert_eq!(keys, ["first", "second"], "each task shows the key of its trigger");
}

#[tokio::test]
async fn a_key_belongs_to_one_trigger_or_task() {
    let caller = shared().await;
    let one = create(&caller, &yearly("one", json!({}))).await;
    let other = create(&caller, &yearly("other", json!({}))).await;
    trigger(&caller, &one, "k").await.expect(201);
    trigger(&caller, &other, "k").await.problem_code(422, "idempotency_key_reused");
    let task = json!({"type": "t", "queue": "one", "idempotency_key": "k"});
    caller.api.post("/v1/tasks", &task).await.problem_code(422, "idempotency_key_reused");
    caller.submit(merged(task, json!({"idempotency_key": "l"}))).await;
    trigger(&caller, &other, "l").await.problem_code(422, "idempotency_key_reused");
    assert_eq!(tasks(&caller, &other).await.len(), 0);
    trigger(&caller, &one, "").await.problem_code(400, "invalid_idempotency_key");
    // A skipped run uses up no key.
    assert_eq!(trigger(&caller, &one, "m").await.expect(200)["outcome"], "skipped");
    let lease = caller.lease(json!({"worker_id": "w", "queues": ["one"], "max_tasks": 9, "wait_seconds": 9})).await;
    for lease in &lease {
        caller.report("complete", lease, json!({})).await.expect(200);
    }
    assert_eq!(trigger(&caller, &one, "m").await.expect(201)["outcome"], "fired");
}

#[tokio::test]
async fn triggers_and_backfills_honour_if_match() {
    let caller = shared().await;
    let made =
        create(&caller, &yearly("s", json!({"cron": "0 0 * * *", "interval_seconds": null, "starts_at": null}))).await;
    let range = json!({"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T00:00:00Z"});
    for (verb, body, status) in [("/trigger", json!({}), 201), ("/backfill", range, 202)] {
        let at = async |tag: &str| {
            caller.api.call("POST", &path(&made, verb)).header("if-match", tag).json(&body).send().await
        };
        at("\"2\"").await.problem_code(412, "version_mismatch");
        assert_eq!(at("\"1\"").await.status(), status, "{verb}");
    }
    assert_eq!(occurrences(&caller, &made).await.len(), 2);
    let put = async |name: &str, tag: &str| {
        let call = caller.api.call("PUT", &format!("/v1/schedules/by-name/{name}")).header("if-none-match", tag);
        call.json(&merged(yearly(name, json!({})), json!({"max_runs": 3}))).send().await
    };
    put("s", "*").await.problem_code(412, "version_mismatch");
    put("s", "\"1\"").await.problem_code(412, "version_mismatch");
    assert_eq!(read(&caller, &made).await["version"], 1);
    put("new", "*").await.expect(201);
    put("new", "*").await.problem_code(412, "version_mismatch");
    put("new", "\"7\"").await.expect(200);
    put("new", "x").await.problem_code(400, "invalid_header");
}

#[tokio::test]
async fn a_missing_schedule_matches_nothing() {
    let caller = shared().await;
    let put = async |header: &str, tag: &str, more: Value| {
        let call = caller.api.call("PUT", "/v1/schedules/by-name/s").header(header, tag);
        call.json(&yearly("s", more)).send().await
    };
    for tag in ["*", "\"1\""] {
        let problem = put("if-match", tag, json!({})).await.problem_code(412, "version_mismatch");
        assert_eq!(problem["detail"], "there is no such schedule; nothing was done", "{tag}");
    }
    assert_eq!(caller.list("/v1/schedules").await.len(), 0);
    let made = put("if-none-match", "*", json!({})).await.expect(201);
    put("if-none-match", "*", json!({"max_runs": 4})).await.problem_code(412, "version_mismatch");
    assert_eq!(read(&caller, &made).await, made);
    assert_eq!(put("if-match", "*", json!({"max_runs": 4})).await.expect(200)["version"], 2);
    // Both conditions at once can never hold.
    let both = caller.api.call("PUT", "/v1/schedules/by-name/s").header("if-match", "*").header("if-none-match", "*");
    both.json(&yearly("s", json!({}))).send().await.problem_code(412, "version_mismatch");
    caller.api.delete(&path(&made, "")).await.expect(200);
    put("if-match", "*", json!({})).await.problem_code(412, "version_mismatch");
}

#[tokio::test]
async fn a_schedule_is_read_by_its_name() {
    let caller = shared().await;
    let made = create(&caller, &yearly("a/b", json!({}))).await;
    let reply = caller.api.get("/v1/schedules/by-name/a%2Fb").await;
    assert_eq!((reply.header("etag"), reply.expect(200)), (Some("\"1\""), made.clone()));
    for name in ["other", "A%2Fb", "%20", &format!("n{}", "x".repeat(2_000))] {
        let problem = caller.api.get(&format!("/v1/schedules/by-name/{name}")).await.problem_code(404, "not_found");
        assert!(
            problem["detail"].as_str().is_some_and(|detail| detail.starts_with("there is no schedule")),
            "{problem:#}"
        );
    }
    caller.api.get("/v1/schedules/by-name/%ff").await.problem_code(404, "not_found");
    caller.stranger().api.get("/v1/schedules/by-name/a%2Fb").await.problem_code(404, "not_found");
    caller.api.delete(&path(&made, "")).await.expect(200);
    caller.api.get("/v1/schedules/by-name/a%2Fb").await.problem_code(404, "not_found");
}

#[tokio::test]
async fn unknown_fields_are_refused_everywhere() {
    let caller = shared().await;
    let made = create(&caller, &yearly("s", json!({}))).await;
    for verb in ["/trigger", "/resume", "/pause", "/backfill"] {
        caller.api.post(&path(&made, verb), &json!({"reasn": "x"})).await.invalid("/reasn");
    }
    for verb in ["/trigger", "/resume"] {
        caller.api.post(&path(&made, verb), &json!([])).await.problem(422);
    }
    assert_eq!(occurrences(&caller, &made).await.len(), 0);
    let problem = caller.api.post("/v1/schedules", &yearly("t", json!({"max_runs": "3"}))).await.invalid("/max_runs");
    assert_eq!(problem["errors"][0]["message"], "must be a whole number from 1 to 1000000000000");
    let problem = caller.api.call("PUT", "/v1/queues/q").json(&json!({"max_depth": 1.5})).send().await;
    let message = problem.invalid("/max_depth")["errors"][0]["message"].as_str().unwrap_or_default().to_owned();
    assert_eq!(message, "must be a whole number from 1 to 1000000000");
}
