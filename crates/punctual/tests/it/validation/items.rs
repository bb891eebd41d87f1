//! Lists in a body: their items are refused one by one, or with everything else that is wrong.

use serde_json::{Value, json};

use crate::it::world::{array, id_of, shared, unknown_task, worker_id};

/// Place and value of every fault.
fn listed(problem: &Value) -> Vec<(String, Value)> {
    let faults = array(&problem["errors"]).into_iter();
    faults.map(|fault| (fault["pointer"].as_str().expect("a place").to_owned(), fault["value"].clone())).collect()
}

fn pairs(expected: &[(&str, Value)]) -> Vec<(String, Value)> {
    expected.iter().map(|(pointer, value)| ((*pointer).to_owned(), value.clone())).collect()
}

#[tokio::test]
async fn a_refused_batch_lists_the_faults_of_its_tasks() {
    let caller = shared().await;
    let batch = json!({"tasks": [{"typ": "x", "type": "t"}, {"type": "t", "priority": 12}, {"type": "t"}], "x": 1});
    let problem =
        caller.api.post("/v1/tasks/batch?return=id&atomic=yes", &batch).await.problem_code(422, "invalid_request");
    let expected = pairs(&[
        ("?return", json!("id")),
        ("?atomic", json!("yes")),
        ("/x", json!(1)),
        ("/tasks/0/typ", json!("x")),
        ("/tasks/1/priority", json!(12)),
    ]);
    assert_eq!(listed(&problem), expected, "{problem:#}");
    let lines = "{\"typ\": 1}\n7\n";
    let call = caller.api.call("POST", "/v1/tasks/batch?atomic=yes").body("application/x-ndjson", lines);
    let places: Vec<String> = listed(&call.send().await.problem(422)).into_iter().map(|(place, _)| place).collect();
    assert_eq!(places, ["?atomic", "/tasks/0/type", "/tasks/0/typ", "/tasks/1"]);
    caller.expect_nothing_stored().await;
}

#[tokio::test]
async fn an_atomic_refusal_shows_what_was_sent() {
    let caller = shared().await;
    let batch = json!({"tasks": [{"type": "t"}, {"type": "t", "priority": "hgih", "delay_seconds": -1}]});
    let problem = caller.api.post("/v1/tasks/batch?atomic=true", &batch).await.problem_code(422, "batch_refused");
    let expected = pairs(&[("/tasks/1/delay_seconds", json!(-1)), ("/tasks/1/priority", json!("hgih"))]);
    assert_eq!(listed(&problem), expected, "{problem:#}");
}

#[tokio::test]
async fn an_item_of_a_settle_call_is_refused_by_itself() {
    let caller = shared().await;
    let id = caller.submit_id(json!({"type": "t", "queue": "q"})).await;
    let wanted = json!({"worker_id": worker_id(), "queues": ["q"], "max_tasks": 1, "wait_seconds": 20});
    let lease = caller.lease(wanted).await.remove(0);
    let items = json!([
        {"task_id": unknown_task(), "token": 1, "outcome": "failed", "retry_after_seconds": -1},
        {"task_id": "task_x", "token": 1, "outcome": "completed"},
        {"task_id": id, "token": lease["token"], "outcome": "completed"},
        {"task_id": id, "token": lease["token"], "outcome": "completed", "delay_seconds": 5, "retires": 1},
        7,
    ]);
    let answers = caller.settle_all(array(&items)).await;
    let statuses: Vec<&Value> = answers.iter().map(|answer| &answer["status"]).collect();
    assert_eq!(statuses, [422, 422, 200, 422, 422], "{answers:#?}");
    for (at, expected) in [
        (0, pairs(&[("/items/0/retry_after_seconds", json!(-1))])),
        (1, pairs(&[("/items/1/task_id", json!("task_x"))])),
        (3, pairs(&[("/items/3/retires", json!(1)), ("/items/3/delay_seconds", json!(5))])),
        (4, pairs(&[("/items/4", json!(null))])),
    ] {
        assert_eq!(listed(&answers[at]["error"]), expected, "{answers:#?}");
    }
    assert_eq!((&answers[3]["task_id"], answers[1].get("task_id")), (&json!(id), None));
    let whole = json!({"items": [{"task_id": "task_x", "token": 1, "outcome": "completed"}], "x": 1});
    let problem = caller.api.post("/v1/leases/settle", &whole).await.problem(422);
    assert_eq!(listed(&problem), pairs(&[("/x", json!(1)), ("/items/0/task_id", json!("task_x"))]), "{problem:#}");
}

#[tokio::test]
async fn every_unknown_dependency_is_named() {
    let caller = shared().await;
    let known = id_of(&caller.submit(json!({"type": "t", "delay_seconds": 600})).await);
    let (one, other) = (unknown_task(), unknown_task());
    let task = json!({"type": "t", "depends_on": [one, known, other]});
    let problem = caller.api.post("/v1/tasks", &task).await.problem_code(422, "unknown_dependency");
    assert_eq!(listed(&problem), pairs(&[("/depends_on/0", json!(one)), ("/depends_on/2", json!(other))]));
    let batch = json!({"tasks": [{"type": "t", "delay_seconds": 600}, {"type": "t", "depends_on": [0, one, other]}]});
    let expected = pairs(&[("/tasks/1/depends_on/1", json!(one)), ("/tasks/1/depends_on/2", json!(other))]);
    let answer = caller.api.post("/v1/tasks/batch", &batch).await.expect(200);
    assert_eq!(listed(&answer["items"][1]["error"]), expected, "{answer:#}");
    let problem = caller.api.post("/v1/tasks/batch?atomic=true", &batch).await.problem_code(422, "batch_refused");
    assert_eq!(listed(&problem), expected, "{problem:#}");
    let many: Vec<String> = (0..50).map(|_| unknown_task()).collect();
    let problem = caller.api.post("/v1/tasks", &json!({"type": "t", "depends_on": many})).await.problem(422);
    assert_eq!(listed(&problem).len(), 20, "{problem:#}");
}
