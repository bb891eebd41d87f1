//! `POST /v1/tasks/batch`: JSON and NDJSON, and an outcome for each task in its order.

use std::collections::BTreeSet;

use punctual_testkit::http::Reply;
use serde_json::{Value, json};

use super::world::{Caller, array, id_of, merged, shared};

/// Posts tasks as NDJSON.
async fn ndjson(caller: &Caller, body: impl Into<Vec<u8>>) -> Reply {
    caller.api.call("POST", "/v1/tasks/batch").body("application/x-ndjson", body).send().await
}

fn later(fields: Value) -> Value {
    merged(json!({"type": "t", "delay_seconds": 600}), fields)
}

fn lines(tasks: &[Value]) -> String {
    tasks.iter().map(Value::to_string).collect::<Vec<_>>().join("\n") + "\n"
}

fn statuses(items: &[Value]) -> Vec<u64> {
    items.iter().map(|item| item["status"].as_u64().unwrap_or_default()).collect()
}

/// Good and bad tasks alternating, with the expected outcome of each.
fn mixed() -> (Vec<Value>, Vec<u64>) {
    let tasks = vec![
        later(json!({"payload": 0})),
        later(json!({"type": ""})),
        later(json!({"payload": 2, "queue": "mail"})),
        later(json!({"nonsense": 1})),
        later(json!({"priority": 10})),
        later(json!({"payload": 5, "priority": "high"})),
        json!({}),
        json!(7),
        later(json!({"callback_url": "http://10.0.0.1/"})),
        later(json!({"payload": 9})),
    ];
    (tasks, vec![201, 422, 201, 422, 422, 201, 422, 422, 422, 201])
}

async fn expect_mixed(caller: &Caller, answer: &Reply, tasks: &[Value], expected: &[u64]) {
    let items = array(&answer.expect(200)["items"]);
    assert_eq!(statuses(&items), expected, "{answer}");
    let mut kept = BTreeSet::new();
    for (n, item) in items.iter().enumerate() {
        if item["status"] == 201 {
            let id = id_of(&item["task"]);
            assert_eq!(item["task"]["payload"], tasks[n]["payload"], "item {n} is out of order\n{answer}");
            assert_eq!(caller.task(&id).await["payload"], tasks[n]["payload"]);
            kept.insert(id);
        } else {
            let code = item["error"]["code"].as_str().unwrap_or_default();
            assert!(!code.is_empty(), "item {n} has no code\n{answer}");
            assert!(item.get("task").is_none_or(Value::is_null), "item {n} has a task\n{answer}");
        }
    }
    assert_eq!(caller.list_ids("").await.into_iter().collect::<BTreeSet<_>>(), kept, "only the good ones are stored");
}

#[tokio::test]
async fn each_task_of_a_batch_has_its_own_outcome_in_order() {
    let caller = shared().await;
    let (tasks, expected) = mixed();
    let answer = caller.api.post("/v1/tasks/batch", &json!({ "tasks": tasks })).await;
    expect_mixed(&caller, &answer, &tasks, &expected).await;
}

#[tokio::test]
async fn ndjson_is_read_line_by_line() {
    let caller = shared().await;
    let (tasks, expected) = mixed();
    expect_mixed(&caller, &ndjson(&caller, lines(&tasks)).await, &tasks, &expected).await;
    let other = caller.stranger();
    let without_the_last_newline = format!("{}\r\n{}", later(json!({"payload": 1})), later(json!({"payload": 2})));
    let answer = ndjson(&other, without_the_last_newline).await;
    assert_eq!(statuses(&array(&answer.expect(200)["items"])), [201, 201], "{answer}");
    assert_eq!(other.list_ids("").await.len(), 2);
}

#[tokio::test]
async fn a_broken_line_of_ndjson_hurts_only_itself() {
    let caller = shared().await;
    let good = later(json!({}));
    let answer = ndjson(&caller, format!("{good}\n{{\"type\":\n{good}\n")).await;
    let items = array(&answer.expect(200)["items"]);
    assert_eq!(items.len(), 3, "{answer}");
    assert_eq!((&items[0]["status"], &items[2]["status"]), (&json!(201), &json!(201)), "{answer}");
    assert!([400, 422].contains(&items[1]["status"].as_u64().unwrap_or_default()), "{answer}");
    assert_eq!(caller.list_ids("").await.len(), 2);
}

#[tokio::test]
async fn the_errors_of_an_item_say_what_is_wrong() {
    let caller = shared().await;
    let answer = caller.api.post("/v1/tasks/batch", &json!({"tasks": [later(json!({"priority": 10}))]})).await;
    let items = array(&answer.expect(200)["items"]);
    let text = items[0]["error"].to_string();
    assert!(text.contains("priority"), "the error does not name the field: {text}");
    let pointers: Vec<Value> = array(&items[0]["error"]["errors"]);
    assert!(
        pointers.iter().any(|error| error["pointer"].as_str().is_some_and(|at| at.ends_with("/priority"))),
        "{text}"
    );
}

#[tokio::test]
async fn ten_thousand_tasks_are_one_call() {
    let caller = shared().await;
    let tasks: Vec<Value> = (0..10_000).map(|n| later(json!({ "payload": n }))).collect();
    let stored = caller.submit_all(tasks).await;
    assert_eq!(stored.len(), 10_000);
    assert!(stored.iter().enumerate().all(|(n, task)| task["payload"] == n), "the items are out of order");
    let ids: BTreeSet<String> = stored.iter().map(id_of).collect();
    assert_eq!(ids.len(), 10_000, "an id was given twice");
    for n in [0, 4_999, 9_999] {
        assert_eq!(caller.task(&id_of(&stored[n])).await["payload"], n);
    }
}

#[tokio::test]
async fn ten_thousand_and_one_are_refused_altogether() {
    let caller = shared().await;
    let tasks: Vec<Value> = (0..10_001).map(|_| later(json!({}))).collect();
    caller.api.post("/v1/tasks/batch", &json!({ "tasks": tasks })).await.problem_any(&[413, 422]);
    ndjson(&caller, lines(&tasks)).await.problem_any(&[413, 422]);
    caller.expect_nothing_stored().await;
}

#[tokio::test]
async fn return_ids_answers_ids_only() {
    let caller = shared().await;
    let tasks: Vec<Value> = (0..20).map(|n| later(json!({"payload": {"canary": n}}))).collect();
    let answer = caller.api.post("/v1/tasks/batch?return=ids", &json!({ "tasks": tasks })).await;
    let mut ids = Vec::new();
    collect_ids(&answer.expect(200), &mut ids);
    assert_eq!(ids.len(), 20, "{answer}");
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(caller.task(id).await["payload"]["canary"], n, "the ids are out of order");
    }
    for more in ["canary", "created_at", "retry_policy"] {
        assert!(!answer.text().contains(more), "{more:?} besides the ids\n{answer}");
    }
    let answer = caller
        .api
        .post("/v1/tasks/batch?return=ids", &json!({"tasks": [later(json!({"type": ""})), later(json!({}))]}))
        .await;
    let mut ids = Vec::new();
    collect_ids(&answer.expect(200), &mut ids);
    assert_eq!(ids.len(), 1, "{answer}");
    assert!(answer.text().contains("422"), "the bad one is reported\n{answer}");
}

fn collect_ids(value: &Value, ids: &mut Vec<String>) {
    match value {
        Value::String(text) if text.starts_with("task_") => ids.push(text.clone()),
        Value::Array(values) => values.iter().for_each(|value| collect_ids(value, ids)),
        Value::Object(members) => members.values().for_each(|value| collect_ids(value, ids)),
        _ => {}
    }
}

#[tokio::test]
async fn a_key_that_is_used_twice_in_a_batch_makes_one_task() {
    let caller = shared().await;
    let keyed = |payload: u8| later(json!({"idempotency_key": "k", "payload": payload}));
    let tasks = json!({"tasks": [keyed(1), keyed(1), keyed(2), later(json!({"idempotency_key": "other"}))]});
    let answer = caller.api.post("/v1/tasks/batch", &tasks).await;
    let items = array(&answer.expect(200)["items"]);
    assert_eq!(statuses(&items), [201, 200, 422, 201], "{answer}");
    assert_eq!(id_of(&items[0]["task"]), id_of(&items[1]["task"]), "{answer}");
    assert_eq!(items[2]["error"]["code"], "idempotency_key_reused", "{answer}");
    assert_eq!(caller.list_ids("").await.len(), 2);
    // The whole batch again, as from a client that lost the response.
    let again = caller.api.post("/v1/tasks/batch", &tasks).await;
    assert_eq!(statuses(&array(&again.expect(200)["items"])), [200, 200, 422, 200], "{again}");
    assert_eq!(caller.list_ids("").await.len(), 2);
}

#[tokio::test]
async fn a_payload_over_the_limit_hurts_only_its_own_task() {
    let caller = shared().await;
    let tasks = json!({"tasks": [later(json!({"payload": "x".repeat(256 * 1024)})), later(json!({}))]});
    let answer = caller.api.post("/v1/tasks/batch", &tasks).await;
    let items = array(&answer.expect(200)["items"]);
    assert!([413, 422].contains(&items[0]["status"].as_u64().unwrap_or_default()), "{answer}");
    assert_eq!(items[1]["status"], 201, "{answer}");
}

#[tokio::test]
async fn a_batch_may_be_larger_than_a_task() {
    let caller = shared().await;
    let tasks = (0..16).map(|_| later(json!({"payload": "x".repeat(200_000)}))).collect();
    assert_eq!(caller.submit_all(tasks).await.len(), 16);
}

#[tokio::test]
async fn a_malformed_batch_is_refused_altogether() {
    let caller = shared().await;
    for bad in [json!([]), json!({}), json!({"tasks": {}}), json!({"tasks": [later(json!({}))], "nonsense": 1})] {
        caller.api.post("/v1/tasks/batch", &bad).await.problem_any(&[400, 422]);
    }
    let cut = format!(r#"{{"tasks":[{},"#, later(json!({})));
    caller.api.call("POST", "/v1/tasks/batch").body("application/json", cut).send().await.problem(400);
    caller.expect_nothing_stored().await;
}

#[tokio::test]
async fn tasks_of_a_batch_run_like_any_other() {
    let caller = shared().await;
    let tasks = caller.submit_all((0..50).map(|n| json!({"type": "t", "queue": "q", "payload": n})).collect()).await;
    let mut left: BTreeSet<String> = tasks.iter().map(id_of).collect();
    while !left.is_empty() {
        let lease = caller.lease_one("q").await;
        assert!(left.remove(&id_of(&lease["task"])), "a task was handed out twice");
        caller.report("complete", &lease, json!({"result": lease["task"]["payload"]})).await.expect(200);
    }
    for (n, task) in tasks.iter().enumerate() {
        assert_eq!(caller.until(&id_of(task), "COMPLETED").await["result"], n);
    }
}
