//! Idempotency keys: the same submission twice is one task.

use std::sync::Arc;

use punctual_testkit::http::Reply;
use serde_json::{Value, json};
use tokio::sync::Barrier;

use super::world::{Caller, id_of, shared};

fn keyed(key: &str) -> Value {
    json!({"type": "t", "delay_seconds": 600, "payload": {"n": 1}, "idempotency_key": key})
}

async fn by_header(caller: &Caller, key: &str, task: &Value) -> Reply {
    caller.api.call("POST", "/v1/tasks").header("idempotency-key", key).json(task).send().await
}

#[track_caller]
fn expect_replay(answer: &Reply, id: &str) {
    assert_eq!(id_of(&answer.expect(200)), id, "{answer}");
    assert_eq!(answer.header("idempotent-replayed"), Some("true"), "{answer}");
}

#[tokio::test]
async fn the_same_submission_again_is_a_replay() {
    let caller = shared().await;
    let first = caller.api.post("/v1/tasks", &keyed("k")).await;
    let id = id_of(&first.expect(201));
    assert_eq!(first.header("idempotent-replayed"), None, "{first}");
    for _ in 0..3 {
        expect_replay(&caller.api.post("/v1/tasks", &keyed("k")).await, &id);
    }
    assert_eq!(caller.list_ids("").await, [id]);
}

#[tokio::test]
async fn the_header_and_the_field_are_the_same_thing() {
    let caller = shared().await;
    let mut bare = keyed("k");
    bare.as_object_mut().expect("an object").remove("idempotency_key");
    let first = by_header(&caller, "k", &bare).await.expect(201);
    assert_eq!(first["idempotency_key"], "k");
    let id = id_of(&first);
    expect_replay(&by_header(&caller, "k", &bare).await, &id);
    expect_replay(&caller.api.post("/v1/tasks", &keyed("k")).await, &id);
    expect_replay(&by_header(&caller, "k", &keyed("k")).await, &id);
    assert_eq!(caller.list_ids("").await, [id]);
}

#[tokio::test]
async fn the_same_key_with_another_body_is_refused() {
    let caller = shared().await;
    let first = caller.submit(keyed("k")).await;
    for (field, value) in [
        ("payload", json!({"n": 2})),
        ("type", json!("other")),
        ("queue", json!("other")),
        ("priority", json!(9)),
        ("delay_seconds", json!(601)),
        ("metadata", json!({"a": "b"})),
        ("callback_url", json!("http://127.0.0.1:9/")),
        ("timeout_seconds", json!(5)),
    ] {
        let mut other = keyed("k");
        other[field] = value;
        caller.api.post("/v1/tasks", &other).await.problem_code(422, "idempotency_key_reused");
    }
    assert_eq!(caller.task(&id_of(&first)).await, first, "the original is intact");
    assert_eq!(caller.list_ids("").await.len(), 1);
}

#[tokio::test]
async fn tenants_have_their_own_keys() {
    let caller = shared().await;
    let stranger = caller.stranger();
    let (own, other) = (caller.submit_id(keyed("k")).await, stranger.submit_id(keyed("k")).await);
    assert_ne!(own, other);
    let mut different = keyed("k");
    different["payload"] = json!("mine");
    caller.stranger().submit(different).await;
    expect_replay(&caller.api.post("/v1/tasks", &keyed("k")).await, &own);
    expect_replay(&stranger.api.post("/v1/tasks", &keyed("k")).await, &other);
}

#[tokio::test]
async fn keys_differ_in_every_character() {
    let caller = shared().await;
    let keys = ["key", "KEY", "ke%y", "key%", "k_y", "key/1", "'; --"];
    for key in keys {
        caller.submit(keyed(key)).await;
    }
    assert_eq!(caller.list_ids("").await.len(), keys.len());
    caller.submit(json!({"type": "t", "delay_seconds": 600})).await;
    caller.submit(json!({"type": "t", "delay_seconds": 600})).await;
    assert_eq!(caller.list_ids("").await.len(), keys.len() + 2, "without a key nothing is a replay");
}

#[tokio::test]
async fn a_refused_submission_does_not_use_up_its_key() {
    let caller = shared().await;
    let mut bad = keyed("k");
    bad["priority"] = json!(99);
    caller.api.post("/v1/tasks", &bad).await.problem(422);
    caller.submit(keyed("k")).await;
}

#[tokio::test]
async fn a_replay_of_a_task_that_has_ended_runs_nothing_again() {
    let caller = shared().await;
    let task = json!({"type": "t", "queue": "q", "idempotency_key": "k"});
    let id = caller.submit_id(task.clone()).await;
    let lease = caller.lease_one("q").await;
    caller.report("complete", &lease, json!({"result": 1})).await.expect(200);
    caller.until(&id, "COMPLETED").await;
    expect_replay(&caller.api.post("/v1/tasks", &task).await, &id);
    let seen = caller.task(&id).await;
    assert_eq!((&seen["status"], &seen["result"]), (&json!("COMPLETED"), &json!(1)));
    assert_eq!(caller.list_ids("").await.len(), 1);
}

#[tokio::test]
async fn a_replay_does_not_undo_an_edit() {
    let caller = shared().await;
    let id = caller.submit_id(keyed("k")).await;
    caller.api.patch(&format!("/v1/tasks/{id}"), &json!({"payload": "edited"})).await.expect(200);
    expect_replay(&caller.api.post("/v1/tasks", &keyed("k")).await, &id);
    assert_eq!(caller.task(&id).await["payload"], "edited");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hundred_connections_with_one_key_make_one_task() {
    let caller = shared().await;
    let barrier = Arc::new(Barrier::new(100));
    let submissions: Vec<_> = (0..100)
        .map(|_| {
            let (caller, barrier) = (caller.apart(), Arc::clone(&barrier));
            tokio::spawn(async move {
                // A first call opens the connection, so that the hundred submissions really meet.
                caller.api.get("/healthz").await;
                barrier.wait().await;
                caller.api.post("/v1/tasks", &keyed("k")).await
            })
        })
        .collect();
    let mut created = Vec::new();
    let mut replayed = Vec::new();
    for submission in submissions {
        let answer = submission.await.expect("a submission ends");
        match answer.status() {
            201 => created.push(id_of(&answer.value())),
            200 => {
                assert_eq!(answer.header("idempotent-replayed"), Some("true"), "{answer}");
                replayed.push(id_of(&answer.value()));
            }
            // Another submission of the key is in progress: this one may be tried again.
            _ => drop(answer.problem(409)),
        }
    }
    assert_eq!(created.len(), 1, "one task is made");
    assert!(replayed.iter().all(|id| *id == created[0]), "all get the same task");
    assert_eq!(caller.list_ids("").await, created);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_different_bodies_with_one_key_one_is_accepted() {
    let caller = shared().await;
    let barrier = Arc::new(Barrier::new(30));
    let submissions: Vec<_> = (0..30)
        .map(|n| {
            let (caller, barrier) = (caller.apart(), Arc::clone(&barrier));
            tokio::spawn(async move {
                caller.api.get("/healthz").await;
                barrier.wait().await;
                let mut task = keyed("k");
                task["payload"] = json!(n);
                caller.api.post("/v1/tasks", &task).await
            })
        })
        .collect();
    let mut created = Vec::new();
    for submission in submissions {
        let answer = submission.await.expect("a submission ends");
        if answer.status() == 201 {
            created.push(id_of(&answer.value()));
        } else {
            answer.problem_any(&[409, 422]);
        }
    }
    assert_eq!(created.len(), 1);
    assert_eq!(caller.list_ids("").await, created);
}
