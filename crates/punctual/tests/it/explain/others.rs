//! Tasks that a task waits for: its dependencies, and the task that has the turn of its ordering
//! key.

use std::time::{Duration, Instant};

use punctual_testkit::eventually::eventually;
use serde_json::{Value, json};

use super::{codes, expect_says, explained, fatal, only, put, take};
use crate::it::world::{Caller, SOON, array, boom, every, id_of, merged, shared};

fn ids(tasks: &[Value]) -> Vec<String> {
    tasks.iter().map(id_of).collect()
}

/// Waits until the explanation has only this reason, with these fields.
async fn until(caller: &Caller, id: &str, code: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    eventually(code, SOON, async || {
        let answer = explained(caller, id).await;
        let (reason, eta) = only(&answer, code);
        assert_eq!(eta, Value::Null, "the duration is unknown: {answer:#}");
        if is_so(&reason) { Ok(reason) } else { Err(format!("{answer:#}")) }
    })
    .await
}

/// The first ten in the order in which they are named, and their number.
pub async fn blocked(acting: &Caller, asking: &Caller) {
    let parents = ids(&acting.submit_all(vec![json!({"type": "t", "queue": "parents"}); 12]).await);
    let named: Vec<&String> = parents.iter().rev().collect();
    let child = acting.submit_id(json!({"type": "t", "queue": "children", "depends_on": named})).await;
    let listed = |states: &[(&str, &str)]| -> Value {
        states.iter().map(|(id, state)| json!({"id": id, "state": state})).collect()
    };
    let reason = until(asking, &child, "waiting_for_dependencies", |reason| reason["count"] == 12).await;
    let first: Vec<(&str, &str)> = named.iter().take(10).map(|id| (id.as_str(), "PENDING")).collect();
    assert_eq!(reason["tasks"], listed(&first));
    expect_says(&reason, &["12 tasks", named[0], "PENDING"]);

    let leases = take(acting, "parents", 12).await;
    for lease in leases.iter().filter(|lease| parents[..10].contains(&id_of(&lease["task"]))) {
        acting.report("complete", lease, json!({})).await.expect(200);
    }
    let reason = until(asking, &child, "waiting_for_dependencies", |reason| reason["count"] == 2).await;
    assert_eq!(reason["tasks"], listed(&[(named[0], "RUNNING"), (named[1], "RUNNING")]));
}

#[tokio::test]
async fn unfinished_dependencies_are_a_reason() {
    let caller = shared().await;
    blocked(&caller, &caller).await;
}

/// A dead letter whose queue holds the tasks behind it.
pub async fn held_children(acting: &Caller, asking: &Caller) {
    put(acting, "careful", json!({"on_dead_letter": "hold"})).await;
    let parent = acting.submit_id(json!({"type": "t", "queue": "careful"})).await;
    let child = acting.submit_id(json!({"type": "t", "queue": "held", "depends_on": [parent]})).await;
    acting.report("fail", &take(acting, "careful", 1).await[0], fatal()).await.expect(200);
    let is_held = |reason: &Value| reason["tasks"][0]["state"] == "DEAD_LETTERED";
    let reason = until(asking, &child, "waiting_for_dependencies", is_held).await;
    assert_eq!(reason["tasks"], json!([{"id": parent, "state": "DEAD_LETTERED", "holds": true}]));
    expect_says(&reason, &[&parent, "dead letter", "re-drive it", "CANCELLED (on_dependency_failure: cancel)"]);
    assert_eq!(reason["message"].as_str().unwrap_or_default().matches(parent.as_str()).count(), 1, "{reason:#}");
    acting.api.post(&format!("/v1/tasks/{parent}/redrive"), &json!({})).await.expect(200);
    let reason = until(asking, &child, "waiting_for_dependencies", |reason| !is_held(reason)).await;
    assert_eq!(reason["tasks"], json!([{"id": parent, "state": "PENDING"}]));
}

#[tokio::test]
async fn a_dead_letter_that_holds_children_is_a_reason() {
    let caller = shared().await;
    held_children(&caller, &caller).await;
}

#[tokio::test]
async fn thousands_of_dependencies_are_explained_quickly() {
    const PARENTS: usize = 9_999;
    let caller = shared().await;
    let mut tasks = vec![json!({"type": "t", "queue": "parents"}); PARENTS];
    tasks.push(json!({"type": "t", "depends_on": (0..PARENTS).collect::<Vec<_>>()}));
    let answer = caller.api.post("/v1/tasks/batch?return=ids", &json!({ "tasks": tasks })).await.expect(200);
    let items = array(&answer["items"]);
    let child = items[PARENTS]["task_id"].as_str().expect("an id").to_owned();
    let begun = Instant::now();
    let (reason, _) = only(&explained(&caller, &child).await, "waiting_for_dependencies");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!((array(&reason["tasks"]).len(), &reason["count"]), (10, &json!(PARENTS)));
    assert_eq!(reason["tasks"][0]["id"], items[0]["task_id"]);
    expect_says(&reason, &["9,999 tasks"]);
}

/// The task that has the turn, and the position.
pub async fn turns(acting: &Caller, asking: &Caller) {
    let task = json!({"type": "t", "queue": "keyed", "ordering_key": "invoice 7"});
    let tasks = ids(&acting.submit_all(vec![task; 4]).await);
    let has = |state: &'static str| move |reason: &Value| reason["tasks"][0]["state"] == state;
    let reason = until(asking, &tasks[3], "waiting_for_turn", has("PENDING")).await;
    assert_eq!(
        (&reason["tasks"], &reason["position"], &reason["ordering_key"]),
        (&json!([{"id": tasks[0], "state": "PENDING"}]), &json!(3), &json!("invoice 7"))
    );
    let lease = take(acting, "keyed", 1).await.remove(0);
    let reason = until(asking, &tasks[3], "waiting_for_turn", has("RUNNING")).await;
    assert_eq!(reason["position"], 3);
    expect_says(&reason, &["\"invoice 7\"", &tasks[0], "RUNNING", "2 wait before it"]);
    let reason = until(asking, &tasks[1], "waiting_for_turn", has("RUNNING")).await;
    assert_eq!(reason["position"], 1);
    acting.report("complete", &lease, json!({})).await.expect(200);
    let reason = until(asking, &tasks[3], "waiting_for_turn", |reason| reason["position"] == 2).await;
    assert_eq!(reason["tasks"][0]["id"], tasks[1]);
}

#[tokio::test]
async fn the_turn_of_another_task_is_a_reason() {
    let caller = shared().await;
    turns(&caller, &caller).await;
}

/// Held until the dead letter is re-driven.
pub async fn held_keys(acting: &Caller, asking: &Caller) {
    put(acting, "strict", json!({"on_dead_letter": "hold"})).await;
    let task = json!({"type": "t", "queue": "strict", "ordering_key": "k"});
    let tasks = ids(&acting.submit_all(vec![task; 2]).await);
    acting.report("fail", &take(acting, "strict", 1).await[0], fatal()).await.expect(200);
    let is_held = |reason: &Value| reason["tasks"][0]["holds"] == true;
    let reason = until(asking, &tasks[1], "waiting_for_turn", is_held).await;
    assert_eq!(reason["tasks"], json!([{"id": tasks[0], "state": "DEAD_LETTERED", "holds": true}]));
    expect_says(&reason, &[&tasks[0], "dead letter", "re-drive it"]);
    acting.api.post(&format!("/v1/tasks/{}/redrive", tasks[0]), &json!({})).await.expect(200);
    let has_turn = |reason: &Value| reason["tasks"] == json!([{"id": tasks[0], "state": "PENDING"}]);
    until(asking, &tasks[1], "waiting_for_turn", has_turn).await;
}

#[tokio::test]
async fn a_dead_letter_that_holds_a_key_is_a_reason() {
    let caller = shared().await;
    held_keys(&caller, &caller).await;
}

/// The explanation says what the first task in the way waits for.
pub async fn chains(acting: &Caller, asking: &Caller) {
    let parent = json!({"type": "t", "queue": "failing", "retry_policy": every(3, 600.0)});
    let parent = acting.submit_id(parent).await;
    let child = acting.submit_id(json!({"type": "t", "queue": "children", "depends_on": [parent]})).await;
    acting.report("fail", &take(acting, "failing", 1).await[0], boom()).await.expect(200);
    let retry_at = acting.task(&parent).await["next_attempt_at"].as_str().unwrap_or_default().to_owned();
    let (reason, _) = only(&explained(asking, &child).await, "waiting_for_dependencies");
    expect_says(&reason, &[&format!("{parent}, PENDING, which waits for its retry at {retry_at}"), "boom"]);
    let grandchild = acting.submit_id(json!({"type": "t", "queue": "children", "depends_on": [child]})).await;
    let (reason, _) = only(&explained(asking, &grandchild).await, "waiting_for_dependencies");
    expect_says(&reason, &[&format!("{child}, BLOCKED, which waits itself for tasks that it depends on")]);

    let task = json!({"type": "t", "queue": "failing", "ordering_key": "retried", "retry_policy": every(3, 600.0)});
    let tasks = ids(&acting.submit_all(vec![task; 2]).await);
    acting.report("fail", &take(acting, "failing", 1).await[0], boom()).await.expect(200);
    let retry_at = acting.task(&tasks[0]).await["next_attempt_at"].as_str().unwrap_or_default().to_owned();
    let has_turn = |reason: &Value| reason["tasks"][0]["id"] == tasks[0].as_str();
    let reason = until(asking, &tasks[1], "waiting_for_turn", has_turn).await;
    expect_says(&reason, &[&format!("{} has it, PENDING, which waits for its retry at {retry_at}", tasks[0])]);
}

#[tokio::test]
async fn the_task_in_the_way_is_explained_too() {
    let caller = shared().await;
    chains(&caller, &caller).await;
}

/// Both reasons are shown, and which comes first.
pub async fn blocked_with_a_key(acting: &Caller, asking: &Caller) {
    let keyed = json!({"type": "t", "queue": "both", "ordering_key": "both"});
    let holder = acting.submit_id(keyed.clone()).await;
    take(acting, "both", 1).await;
    let parent = acting.submit_id(json!({"type": "t", "queue": "parents-of-both", "delay_seconds": 600})).await;
    let child = acting.submit_id(merged(keyed, json!({"depends_on": [parent]}))).await;
    let answer = explained(asking, &child).await;
    assert_eq!(codes(&answer), ["waiting_for_dependencies", "waiting_for_turn"], "{answer:#}");
    let turn = &answer["reasons"][1];
    assert_eq!((&turn["comes_next"], &turn["ordering_key"]), (&json!(true), &json!("both")));
    expect_says(turn, &["after that it waits for its turn", &holder, "RUNNING"]);
    expect_says(&answer["reasons"][0], &[&parent, "which is due at"]);
}

#[tokio::test]
async fn a_dependency_comes_before_the_turn() {
    let caller = shared().await;
    blocked_with_a_key(&caller, &caller).await;
}
