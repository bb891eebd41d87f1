//! `PATCH /v1/tasks/{id}`.

use serde_json::{Value, json};

use crate::it::world::{boom, every, id_of, in_seconds, quick, seconds_between, shared, time, worker_id, written};

#[tokio::test]
async fn every_editable_field_can_be_edited() {
    let caller = shared().await;
    let mut task = caller.submit(json!({"type": "t", "delay_seconds": 600, "metadata": {"a": "1"}})).await;
    let path = format!("/v1/tasks/{}", id_of(&task));
    let later = written(in_seconds(7200.0));
    let policy = every(9, 2.5);
    for (field, value) in [
        ("execute_at", json!(later)),
        ("payload", json!({"edited": [1, 2]})),
        ("priority", json!(9)),
        ("expires_at", json!(written(in_seconds(9000.0)))),
        ("metadata", json!({"a": "2"})),
    ] {
        let edited = caller.api.patch(&path, &json!({ field: value })).await.expect(200);
        assert_eq!(edited[field], value, "{field} in the answer");
        assert!(edited["version"].as_u64() > task["version"].as_u64(), "{field} did not raise the version: {edited:#}");
        assert_eq!(caller.task(&id_of(&task)).await, edited, "{field}, read again");
        for other in ["type", "queue", "status", "created_at", "tenant", "retry_count"] {
            assert_eq!(edited[other], task[other], "{other} after an edit of {field}");
        }
        task = edited;
    }
    assert_eq!(time(&task["next_attempt_at"]), time(&json!(later)));
    let edited = caller.api.patch(&path, &json!({"retry_policy": policy})).await.expect(200);
    for (member, value) in policy.as_object().expect("an object") {
        let same = match value.as_f64() {
            Some(number) => edited["retry_policy"][member].as_f64() == Some(number),
            None => edited["retry_policy"][member] == *value,
        };
        assert!(same, "{member}: {edited:#}");
    }
    let edited = caller.api.patch(&path, &json!({"priority": "low"})).await.expect(200);
    assert_eq!(edited["priority"], 2);
    let before = in_seconds(0.0);
    let edited = caller.api.patch(&path, &json!({"delay_seconds": 1000.5})).await.expect(200);
    let off = seconds_between(before, time(&edited["execute_at"])) - 1000.5;
    assert!((0.0..15.0).contains(&off), "the delay is {off} s off");
}

#[tokio::test]
async fn a_payload_may_be_edited_to_null() {
    let caller = shared().await;
    let id = caller.submit_id(json!({"type": "t", "delay_seconds": 600, "payload": {"a": 1}})).await;
    let edited = caller.api.patch(&format!("/v1/tasks/{id}"), &json!({"payload": null})).await.expect(200);
    assert_eq!(edited["payload"], Value::Null);
}

#[tokio::test]
async fn an_edited_time_is_the_time_it_runs_at() {
    let caller = shared().await;
    let sooner = caller.submit_id(json!({"type": "t", "queue": "sooner", "delay_seconds": 3600})).await;
    let due = in_seconds(1.0);
    caller.api.patch(&format!("/v1/tasks/{sooner}"), &json!({"execute_at": written(due)})).await.expect(200);
    let lease = caller.lease_one("sooner").await;
    assert_eq!(id_of(&lease["task"]), sooner);
    assert!(in_seconds(0.0) >= due, "leased before its new time");

    let later = caller.submit_id(json!({"type": "t", "queue": "later", "delay_seconds": 0.7})).await;
    caller.api.patch(&format!("/v1/tasks/{later}"), &json!({"delay_seconds": 3600})).await.expect(200);
    let wanted = json!({"worker_id": worker_id(), "queues": ["later"], "max_tasks": 1, "wait_seconds": 2});
    assert_eq!(caller.lease(wanted).await, Vec::<Value>::new(), "leased at its old time");
}

#[tokio::test]
async fn the_worker_gets_the_edited_task() {
    let caller = shared().await;
    let id = caller.submit_id(json!({"type": "t", "queue": "edited", "delay_seconds": 3600, "payload": "old"})).await;
    let edit = json!({"payload": "new", "priority": 8, "retry_policy": quick(0), "delay_seconds": 0});
    caller.api.patch(&format!("/v1/tasks/{id}"), &edit).await.expect(200);
    let lease = caller.lease_one("edited").await;
    assert_eq!((&lease["task"]["payload"], &lease["task"]["priority"]), (&json!("new"), &json!(8)));
    caller.report("fail", &lease, boom()).await.expect(200);
    caller.until(&id, "DEAD_LETTERED").await;
}

#[tokio::test]
async fn an_edit_is_checked_like_a_submission() {
    let caller = shared().await;
    let task = caller.submit(json!({"type": "t", "delay_seconds": 600})).await;
    let path = format!("/v1/tasks/{}", id_of(&task));
    for (pointer, edit) in [
        ("/type", json!({"type": "other"})),
        ("/queue", json!({"queue": "no spaces"})),
        ("/status", json!({"status": "COMPLETED"})),
        ("/version", json!({"version": 99})),
        ("/nonsense", json!({"nonsense": 1})),
        ("/priority", json!({"priority": 10})),
        ("/execute_at", json!({"execute_at": "tomorrow"})),
        (
            "/metadata",
            json!({"metadata": (0..33).map(|n| (format!("k{n}"), json!("v"))).collect::<serde_json::Map<_, _>>()}),
        ),
    ] {
        caller.api.patch(&path, &edit).await.invalid(pointer);
    }
    caller.api.patch(&path, &json!({"execute_at": "2101-01-01T00:00:00Z", "delay_seconds": 5})).await.problem(422);
    caller.api.patch(&path, &json!([1])).await.problem_any(&[400, 422]);
    assert_eq!(caller.task(&id_of(&task)).await, task, "a refused edit has no effect");
}

#[tokio::test]
async fn if_match_is_honoured() {
    let caller = shared().await;
    let id = caller.submit_id(json!({"type": "t", "delay_seconds": 600})).await;
    let path = format!("/v1/tasks/{id}");
    let old = caller.api.get(&path).await.header("etag").expect("an ETag").to_owned();
    let edit = |tag: &str, priority: u8| {
        caller.api.call("PATCH", &path).header("if-match", tag).json(&json!({"priority": priority})).send()
    };
    let edited = edit(&old, 6).await;
    assert_eq!(edited.expect(200)["priority"], 6);
    edit(&old, 7).await.problem(412);
    edit("\"no-such-version\"", 7).await.problem_any(&[400, 412]);
    assert_eq!(caller.task(&id).await["priority"], 6, "a stale edit has no effect");
    let new = caller.api.get(&path).await.header("etag").expect("an ETag").to_owned();
    edit(&new, 8).await.expect(200);
    edit("*", 9).await.expect(200);
}

#[tokio::test]
async fn one_of_many_edits_of_a_version_succeeds() {
    let caller = shared().await;
    let id = caller.submit_id(json!({"type": "t", "delay_seconds": 600})).await;
    let path = format!("/v1/tasks/{id}");
    let tag = caller.api.get(&path).await.header("etag").expect("an ETag").to_owned();
    let edits: Vec<_> = (0..20)
        .map(|n| {
            let call = caller.api.call("PATCH", &path).header("if-match", &tag).json(&json!({ "payload": n }));
            tokio::spawn(call.send())
        })
        .collect();
    let mut taken = Vec::new();
    for edit in edits {
        let answer = edit.await.expect("an edit ends");
        if answer.status() == 200 {
            taken.push(answer.value()["payload"].clone());
        } else {
            answer.problem_any(&[409, 412]);
        }
    }
    assert_eq!(taken.len(), 1, "{taken:?} were taken");
    assert_eq!(caller.task(&id).await["payload"], taken[0]);
}

#[tokio::test]
async fn only_a_waiting_task_is_editable() {
    let caller = shared().await;
    let refused = async |id: &str| {
        let before = caller.task(id).await;
        caller.api.patch(&format!("/v1/tasks/{id}"), &json!({"priority": 1})).await.problem_code(409, "not_editable");
        assert_eq!(caller.task(id).await, before, "a refused edit has no effect");
    };
    let cancelled = caller.submit_id(json!({"type": "t", "delay_seconds": 600})).await;
    caller.api.delete(&format!("/v1/tasks/{cancelled}")).await.expect(200);
    refused(&cancelled).await;
    let id = caller.submit_id(json!({"type": "t", "queue": "run"})).await;
    let lease = caller.lease_one("run").await;
    refused(&id).await;
    caller.report("complete", &lease, json!({"result": 1})).await.expect(200);
    refused(&id).await;
}
