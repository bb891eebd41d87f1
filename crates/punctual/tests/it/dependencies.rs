//! Dependencies: which task waits for which, and how each ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::Barrier;

use super::cluster::Cluster;
use super::world::{Caller, SOON, array, boom, id_of, merged, quick, shared, unknown_task, worker_id};

fn child(fields: Value) -> Value {
    merged(json!({"type": "child", "queue": "children"}), fields)
}

fn statuses(items: &[Value]) -> Vec<u64> {
    items.iter().map(|item| item["status"].as_u64().unwrap_or_default()).collect()
}

async fn batch(caller: &Caller, tasks: &[Value]) -> Vec<Value> {
    let answer = caller.api.post("/v1/tasks/batch?return=ids", &json!({ "tasks": tasks })).await;
    array(&answer.expect(200)["items"])
}

/// Completes tasks of a queue until `count` are done.
async fn complete_all(caller: &Caller, queue: &str, count: usize) {
    let mut done = 0;
    while done < count {
        let wanted = json!({"worker_id": worker_id(), "queues": [queue], "max_tasks": 1_000, "wait_seconds": 20});
        let leases = caller.lease(wanted).await;
        assert!(!leases.is_empty(), "only {done} of {count} tasks came");
        done += leases.len();
        let items = leases.iter().map(|lease| super::world::settlement(lease, json!({"outcome": "completed"})));
        caller.settle_all(items.collect()).await;
    }
    assert_eq!(done, count);
}

/// Ends a task that waits in a queue of its own.
async fn end(caller: &Caller, id: &str, queue: &str, end: &str) {
    match end {
        "CANCELLED" => drop(caller.api.delete(&format!("/v1/tasks/{id}")).await.expect(200)),
        "FAILED" => {
            let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_millis(300);
            let patch = json!({"execute_at": jiff::Timestamp::now().to_string(), "expires_at": soon.to_string()});
            caller.api.patch(&format!("/v1/tasks/{id}"), &patch).await.expect(200);
        }
        _ => {
            let lease = caller.lease_one(queue).await;
            assert_eq!(id_of(&lease["task"]), id);
            let verb = if end == "COMPLETED" { "complete" } else { "fail" };
            let body = if end == "COMPLETED" { json!({}) } else { boom() };
            caller.report(verb, &lease, body).await.expect(200);
        }
    }
    caller.until(id, end).await;
}

#[tokio::test]
async fn a_diamond_is_submitted_in_one_batch_and_runs_in_order() {
    let caller = shared().await;
    let tasks = vec![
        child(json!({"payload": "last", "depends_on": [2, 3]})),
        child(json!({"payload": "first"})),
        child(json!({"payload": "left", "depends_on": [1]})),
        child(json!({"payload": "right", "depends_on": [1]})),
    ];
    let tasks = caller.submit_all(tasks).await;
    assert_eq!((&tasks[0]["status"], &tasks[1]["status"]), (&json!("BLOCKED"), &json!("PENDING")));
    assert_eq!(tasks[0]["depends_on"], json!([tasks[2]["task_id"], tasks[3]["task_id"]]));
    assert_eq!(tasks[0]["on_dependency_failure"], "cancel");
    let mut order = Vec::new();
    while order.len() < 4 {
        let lease = caller.lease_one("children").await;
        order.push(lease["task"]["payload"].as_str().unwrap_or_default().to_owned());
        caller.report("complete", &lease, json!({})).await.expect(200);
    }
    assert_eq!((order[0].as_str(), order[3].as_str()), ("first", "last"), "{order:?}");
    let trail = caller.trail(&id_of(&tasks[0])).await;
    assert_eq!(
        (&trail[0]["to"], &trail[1]["reason"], &trail[1]["actor"]),
        (&json!("BLOCKED"), &json!("unblocked"), &json!("resolver"))
    );
}

#[tokio::test]
async fn each_failure_policy_handles_each_end() {
    let caller = shared().await;
    let policies = [("cancel", "CANCELLED"), ("run", "PENDING"), ("fail", "FAILED")];
    for (number, ended) in ["COMPLETED", "CANCELLED", "FAILED", "DEAD_LETTERED"].into_iter().enumerate() {
        let queue = format!("parents{number}");
        let parent = json!({"type": "t", "queue": queue, "retry_policy": quick(0)});
        let parent = if ended == "FAILED" { merged(parent, json!({"delay_seconds": 600})) } else { parent };
        let parent = caller.submit_id(parent).await;
        let mut children = Vec::new();
        for (policy, expected) in policies {
            let wish = child(
                json!({"depends_on": [parent], "on_dependency_failure": policy, "queue": format!("c{number}{policy}")}),
            );
            children.push((caller.submit_id(wish).await, policy, expected));
        }
        end(&caller, &parent, &queue, ended).await;
        for (id, policy, expected) in children {
            let expected = if ended == "COMPLETED" { "PENDING" } else { expected };
            let task = caller.until(&id, expected).await;
            if expected != "PENDING" {
                assert_eq!(task["last_error"]["code"], "dependency_failed", "{policy} {ended}");
                let named = format!("{parent}, which this task depends on, did not complete: it finished as {ended}");
                assert_eq!(task["last_error"]["message"], named, "{policy} {ended}");
                let explained = caller.api.get(&format!("/v1/tasks/{id}/explain")).await.expect(200);
                let reason = &explained["reasons"][0];
                assert_eq!((&reason["code"], &reason["reason"]), (&json!("final"), &json!(named)), "{policy} {ended}");
                assert_eq!(reason["tasks"], json!([{"id": parent, "state": ended}]), "{policy} {ended}");
            }
        }
        // A child that is submitted afterwards ends the same way.
        let late = caller.submit_id(child(json!({"depends_on": [parent]}))).await;
        caller.until(&late, if ended == "COMPLETED" { "PENDING" } else { "CANCELLED" }).await;
    }
}

/// A chain, on the settings that a new user has: the dead letter cancels it, and its re-drive
/// brings it back to its end.
#[tokio::test]
async fn a_redrive_brings_a_cancelled_chain_back() {
    chain_comes_back(async |caller, first| {
        caller.api.post(&format!("/v1/tasks/{first}/redrive"), &json!({"dependents": true})).await.expect(200);
        "client".to_owned()
    })
    .await;
}

#[tokio::test]
async fn a_bulk_redrive_brings_cancelled_chains_back() {
    chain_comes_back(async |caller, _| {
        let wanted = json!({"filter": {"queue": "first"}, "dependents": true});
        let operation = caller.api.post("/v1/dead-letters/redrive", &wanted).await.expect(202);
        format!("operation:{}", operation["operation_id"].as_str().expect("an id"))
    })
    .await;
}

/// Cancels a chain by its first task's dead letter, and has `redrive` bring it back,
/// which returns on whose behalf it does.
async fn chain_comes_back(redrive: impl AsyncFn(&Caller, &str) -> String) {
    let caller = shared().await;
    let first = json!({"type": "t", "queue": "first", "retry_policy": quick(0)});
    let tasks =
        caller.submit_all(vec![first, child(json!({"depends_on": [0]})), child(json!({"depends_on": [1]}))]).await;
    let [first, second, third] = [0, 1, 2].map(|place| id_of(&tasks[place]));
    end(&caller, &first, "first", "DEAD_LETTERED").await;
    caller.until(&third, "CANCELLED").await;
    let actor = redrive(&caller, &first).await;
    end(&caller, &first, "first", "COMPLETED").await;
    let waited = async |id: &str| caller.api.get(&format!("/v1/tasks/{id}?wait_seconds=30")).await.expect(200);
    let ((), third) = tokio::join!(complete_all(&caller, "children", 2), waited(&third));
    assert_eq!(third["status"], "COMPLETED");
    let trail = caller.trail(&second).await;
    assert!(trail.iter().any(|step| step["reason"] == "revived"), "{trail:#?}");
    let trail = caller.trail(&first).await;
    assert!(trail.iter().any(|step| step["reason"] == "redriven" && step["actor"] == actor), "{trail:#?}");
}

#[tokio::test]
async fn impossible_dependencies_are_refused() {
    let caller = shared().await;
    let theirs = caller.stranger().submit_id(json!({"type": "t", "delay_seconds": 600})).await;
    for missing in [unknown_task(), theirs] {
        let refused = caller.api.post("/v1/tasks", &child(json!({"depends_on": [missing]}))).await;
        let problem = refused.problem_code(422, "unknown_dependency");
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains(&missing)), "{refused}");
        assert_eq!(problem["errors"][0]["pointer"], "/depends_on/0");
    }
    caller.api.post("/v1/tasks", &child(json!({"depends_on": ["task_1"]}))).await.invalid("/depends_on/0");
    caller.api.post("/v1/tasks", &child(json!({"depends_on": [0]}))).await.invalid("/depends_on/0");
    caller.api.post("/v1/tasks", &child(json!({"on_dependency_failure": "panic"}))).await.problem(422);
    let many: Vec<String> = (0..10_001).map(|_| unknown_task()).collect();
    caller.api.post("/v1/tasks", &child(json!({"depends_on": many}))).await.problem(422);
    caller.expect_nothing_stored().await;
}

#[tokio::test]
async fn a_cycle_is_refused_with_its_members_named() {
    let caller = shared().await;
    let tasks = vec![
        child(json!({"depends_on": [1]})),
        child(json!({"depends_on": [0]})),
        child(json!({"depends_on": [2]})),
        child(json!({"depends_on": [0]})),
        child(json!({"delay_seconds": 600})),
        child(json!({"depends_on": [6]})),
    ];
    let items = batch(&caller, &tasks).await;
    assert_eq!(statuses(&items), [422, 422, 422, 422, 201, 422]);
    let codes: Vec<&str> = items.iter().map(|item| item["error"]["code"].as_str().unwrap_or_default()).collect();
    let [first, second, itself, behind, _, beyond] = codes[..] else { panic!("{codes:?}") };
    assert_eq!((first, second), ("dependency_cycle", "dependency_cycle"));
    assert_eq!((itself, behind, beyond), ("dependency_cycle", "unknown_dependency", "invalid_request"));
    assert!(items[1]["error"]["detail"].as_str().is_some_and(|text| text.contains("tasks 0, 1 ")), "{items:#?}");
    assert!(items[2]["error"]["detail"].as_str().is_some_and(|text| text.contains("its own position")), "{items:#?}");
    assert_eq!(items[2]["error"]["errors"][0]["pointer"], "/tasks/2/depends_on");

    // As many as a batch takes, in a time that shows that the check is linear.
    let many = 10_000;
    let tasks: Vec<Value> = (0..many).map(|place| child(json!({"depends_on": [(place + 1) % many]}))).collect();
    let begun = Instant::now();
    let items = batch(&caller, &tasks).await;
    assert!(items.iter().all(|item| item["error"]["code"] == "dependency_cycle"));
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!(caller.list_ids("").await.len(), 1);
}

#[tokio::test]
async fn replayed_and_refused_members_of_a_batch() {
    let caller = shared().await;
    let tasks = vec![
        json!({"type": "t", "queue": "parents", "idempotency_key": "p"}),
        child(json!({"depends_on": [0], "idempotency_key": "c"})),
    ];
    let first = batch(&caller, &tasks).await;
    let again = batch(&caller, &tasks).await;
    assert_eq!((statuses(&first), statuses(&again)), (vec![201, 201], vec![200, 200]));
    assert_eq!(first[1]["task_id"], again[1]["task_id"]);
    let tasks = vec![
        child(json!({"depends_on": [1, 2]})),
        tasks[0].clone(),
        json!({"type": "t", "queue": "parents", "idempotency_key": "q"}),
        json!({"type": "other", "idempotency_key": "p"}),
        child(json!({"depends_on": [3]})),
        child(json!({"depends_on": [6]})),
        json!({"type": ""}),
    ];
    let mixed = batch(&caller, &tasks).await;
    assert_eq!(statuses(&mixed), [201, 200, 201, 422, 422, 422, 422]);
    for place in [4, 5] {
        assert_eq!(mixed[place]["error"]["code"], "unknown_dependency");
    }
    let id = mixed[0]["task_id"].as_str().unwrap_or_default().to_owned();
    let depends_on = json!([first[0]["task_id"], mixed[2]["task_id"]]);
    assert_eq!(caller.task(&id).await["depends_on"], depends_on);
    complete_all(&caller, "parents", 2).await;
    caller.until(&id, "PENDING").await;
}

/// Ten thousand parents and one child; as many children and one parent; a chain of that length.
async fn ten_thousand(caller: &Caller, store: &str) {
    const MANY: usize = 10_000;
    let mut begun = Instant::now();
    let mut lap = |what: &str| {
        println!("{store}: {what}: {:?}", begun.elapsed());
        begun = Instant::now();
    };
    let mut tasks = vec![json!({"type": "t", "queue": "middle", "depends_on": [MANY - 1]}); MANY - 1];
    tasks.push(json!({"type": "t", "queue": "top"}));
    let middle = batch(caller, &tasks).await;
    assert!(middle.iter().all(|item| item["status"] == 201));
    let ids: Vec<&Value> = middle[..MANY - 1].iter().map(|item| &item["task_id"]).collect();
    let bottom = caller.submit_id(child(json!({"depends_on": ids}))).await;
    lap("a diamond of 10,000 was submitted");
    complete_all(caller, "top", 1).await;
    complete_all(caller, "middle", MANY - 1).await;
    lap("its middle was completed");
    let released = caller.until_within(&bottom, "PENDING", SOON * 6).await;
    assert_eq!(released["version"], 2, "it is released once");
    lap("its end was released");

    let mut tasks = vec![json!({"type": "t", "queue": "root", "delay_seconds": 600})];
    tasks.extend((1..MANY).map(|place| child(json!({"depends_on": [place - 1], "on_dependency_failure": "fail"}))));
    let chain = batch(caller, &tasks).await;
    lap("a chain of 10,000 was submitted");
    let id = |place: usize| chain[place]["task_id"].as_str().unwrap_or_default().to_owned();
    caller.api.delete(&format!("/v1/tasks/{}", id(0))).await.expect(200);
    caller.until_within(&id(MANY - 1), "FAILED", SOON * 12).await;
    lap("it failed to its end");
    assert_eq!(caller.task(&id(MANY / 2)).await["status"], "FAILED");
}

#[tokio::test]
async fn ten_thousand_dependencies_resolve_in_one_process() {
    let world = super::world::World::start().await;
    ten_thousand(&world.caller(), "sqlite").await;
}

#[tokio::test]
async fn ten_thousand_dependencies_resolve_in_a_cluster() {
    let cluster = Cluster::start(2).await;
    ten_thousand(&cluster.caller(0), "postgres").await;
}

/// The parent completes on one node while the child is submitted on another, at the same time.
async fn race(one: &Caller, other: &Caller, rounds: usize) {
    for round in 0..rounds {
        let parent = one.submit_id(json!({"type": "t", "queue": "race"})).await;
        let lease = one.lease_one("race").await;
        assert_eq!(id_of(&lease["task"]), parent);
        let barrier = Arc::new(Barrier::new(2));
        let complete = tokio::spawn({
            let (caller, barrier) = (one.apart(), Arc::clone(&barrier));
            async move {
                barrier.wait().await;
                caller.report("complete", &lease, json!({})).await.expect(200);
            }
        });
        barrier.wait().await;
        let child = other.submit(child(json!({"depends_on": [parent]}))).await;
        complete.await.expect("it does not panic");
        let status = other.until(&id_of(&child), "PENDING").await;
        assert!(status["version"].as_u64() <= Some(2), "round {round}: {status:#}");
    }
}

#[tokio::test]
async fn a_completion_beside_the_submission_never_loses_the_wake_up() {
    let caller = shared().await;
    race(&caller, &caller, 150).await;
}

#[tokio::test]
async fn a_completion_on_another_node_never_loses_the_wake_up() {
    let cluster = Cluster::start(2).await;
    race(&cluster.caller(0), &cluster.caller(1), 150).await;
}

/// The children of a dead letter in a queue with `hold` wait until it is re-driven.
async fn a_redrive_wakes_held_children(caller: &Caller) {
    caller
        .api
        .call("PUT", "/v1/queues/parents")
        .json(&json!({"on_dead_letter": "hold"}))
        .send()
        .await
        .expect_any(&[200, 201]);
    let parent = caller.submit_id(json!({"type": "t", "queue": "parents", "retry_policy": quick(0)})).await;
    let before = caller.submit_id(child(json!({"depends_on": [parent]}))).await;
    end(caller, &parent, "parents", "DEAD_LETTERED").await;
    let after = caller.submit_id(child(json!({"depends_on": [parent], "on_dependency_failure": "fail"}))).await;
    let wanted = json!({"worker_id": worker_id(), "queues": ["children"], "max_tasks": 10, "wait_seconds": 3});
    assert_eq!(caller.lease(wanted).await, Vec::<Value>::new());
    for id in [&before, &after] {
        assert_eq!(caller.task(id).await["status"], "BLOCKED");
    }
    caller.api.post(&format!("/v1/tasks/{parent}/redrive"), &json!({})).await.expect(200);
    end(caller, &parent, "parents", "COMPLETED").await;
    for id in [&before, &after] {
        caller.until(id, "PENDING").await;
    }
}

#[tokio::test]
async fn a_redrive_wakes_held_children_in_one_process() {
    a_redrive_wakes_held_children(&shared().await).await;
}

#[tokio::test]
async fn a_redrive_wakes_held_children_in_a_cluster() {
    let cluster = Cluster::start(2).await;
    a_redrive_wakes_held_children(&cluster.caller(0)).await;
}

#[tokio::test]
async fn a_blocked_task_can_be_edited_and_cancelled() {
    let caller = shared().await;
    let parent = caller.submit_id(json!({"type": "t", "queue": "parents"})).await;
    let edited = caller.submit_id(child(json!({"depends_on": [parent]}))).await;
    let cancelled = caller.submit_id(child(json!({"depends_on": [parent]}))).await;
    let patch = json!({"payload": "new", "execute_at": "2100-01-01T00:00:00Z"});
    let task = caller.api.patch(&format!("/v1/tasks/{edited}"), &patch).await.expect(200);
    assert_eq!(task["status"], "BLOCKED");
    caller.api.delete(&format!("/v1/tasks/{cancelled}")).await.expect(200);
    end(&caller, &parent, "parents", "COMPLETED").await;
    let task = caller.until(&edited, "PENDING").await;
    assert_eq!((&task["payload"], &task["next_attempt_at"]), (&json!("new"), &json!("2100-01-01T00:00:00.000Z")));
    assert_eq!(caller.task(&cancelled).await["status"], "CANCELLED");
}
