//! `DELETE /v1/tasks/{id}`.

use serde_json::{Value, json};

use crate::it::world::{boom, code_of, id_of, in_seconds, quick, shared, worker_id, written};

#[tokio::test]
async fn cancelling_a_waiting_task_is_idempotent() {
    let caller = shared().await;
    let id = caller.submit_id(json!({"type": "t", "delay_seconds": 600})).await;
    let path = format!("/v1/tasks/{id}");
    let first = caller.api.delete(&path).await.expect(200);
    assert_eq!((&first["status"], id_of(&first)), (&json!("CANCELLED"), id.clone()));
    let second = caller.api.delete(&path).await.expect(200);
    assert_eq!(second, first);
    assert_eq!(caller.task(&id).await, first);
    let trail = caller.trail(&id).await;
    assert_eq!(trail.iter().filter(|event| event["to"] == "CANCELLED").count(), 1, "{trail:#?}");
}

#[tokio::test]
async fn a_cancelled_task_is_never_handed_out() {
    let caller = shared().await;
    let due = in_seconds(1.0);
    let kept = caller.submit_id(json!({"type": "t", "queue": "q", "execute_at": written(due)})).await;
    let cancelled = caller.submit_id(json!({"type": "t", "queue": "q", "execute_at": written(due)})).await;
    caller.api.delete(&format!("/v1/tasks/{cancelled}")).await.expect(200);
    assert_eq!(id_of(&caller.lease_one("q").await["task"]), kept);
    let wanted = json!({"worker_id": worker_id(), "queues": ["q"], "max_tasks": 10, "wait_seconds": 1});
    assert_eq!(caller.lease(wanted).await, Vec::<Value>::new());
    assert_eq!(caller.task(&cancelled).await["status"], "CANCELLED");
}

#[tokio::test]
async fn the_outcome_of_a_cancelled_run_is_discarded() {
    let caller = shared().await;
    for (n, verb) in ["complete", "fail"].into_iter().enumerate() {
        let queue = format!("stop-{n}");
        let id = caller.submit_id(json!({"type": "t", "queue": queue, "retry_policy": quick(3)})).await;
        let lease = caller.lease_one(&queue).await;
        caller.report("heartbeat", &lease, json!({})).await.expect(200);
        caller.api.delete(&format!("/v1/tasks/{id}")).await.expect(202);
        caller.report("heartbeat", &lease, json!({})).await.problem_code(410, "cancelled");
        let outcome = json!({"result": {"late": true}});
        let outcome = if verb == "complete" { outcome } else { boom() };
        caller.report(verb, &lease, outcome).await.problem_code(410, "cancelled");
        let task = caller.until(&id, "CANCELLED").await;
        assert!(task["result"].is_null(), "the outcome was kept: {task:#}");
        caller.trail(&id).await;
        let wanted = json!({"worker_id": worker_id(), "queues": [queue], "max_tasks": 1, "wait_seconds": 1});
        assert_eq!(caller.lease(wanted).await, Vec::<Value>::new(), "a cancelled task is not retried");
    }
}

#[tokio::test]
async fn a_batched_heartbeat_of_a_cancelled_run_gets_410() {
    let caller = shared().await;
    let id = caller.submit_id(json!({"type": "t", "queue": "q"})).await;
    let lease = caller.lease_one("q").await;
    caller.api.delete(&format!("/v1/tasks/{id}")).await.expect(202);
    let item = caller.settle(&lease, json!({"outcome": "heartbeat"})).await;
    assert_eq!((&item["status"], code_of(&item)), (&json!(410), "cancelled"), "{item:#}");
}

#[tokio::test]
async fn a_silent_run_is_cancelled_when_its_lease_ends() {
    let caller = shared().await;
    let id = caller.submit_id(json!({"type": "t", "queue": "q", "retry_policy": quick(3)})).await;
    caller.lease_for("q", 1).await;
    caller.api.delete(&format!("/v1/tasks/{id}")).await.expect(202);
    caller.until(&id, "CANCELLED").await;
}

#[tokio::test]
async fn a_task_that_has_ended_cannot_be_cancelled() {
    let caller = shared().await;
    let completed = caller.submit_id(json!({"type": "t", "queue": "completed"})).await;
    let lease = caller.lease_one("completed").await;
    caller.report("complete", &lease, json!({"result": 1})).await.expect(200);
    let dead = caller.submit_id(json!({"type": "t", "queue": "dead"})).await;
    let lease = caller.lease_one("dead").await;
    let error = json!({"error": {"code": "e", "message": "m"}, "retryable": false});
    caller.report("fail", &lease, error).await.expect(200);
    let expired =
        caller.submit_id(json!({"type": "t", "queue": "nobody", "expires_at": written(in_seconds(0.5))})).await;
    for (id, status) in [(completed, "COMPLETED"), (dead, "DEAD_LETTERED"), (expired, "FAILED")] {
        let before = caller.until(&id, status).await;
        caller.api.delete(&format!("/v1/tasks/{id}")).await.problem_code(409, "already_final");
        assert_eq!(caller.task(&id).await, before, "a refused cancellation has no effect");
    }
}

#[tokio::test]
async fn cancelling_races_with_leasing_to_one_clear_end() {
    let caller = shared().await;
    let tasks = caller.submit_all((0..20).map(|_| json!({"type": "t", "queue": "race"})).collect()).await;
    let worker = caller.apart();
    let leasing = tokio::spawn(async move {
        let wanted = json!({"worker_id": worker_id(), "queues": ["race"], "max_tasks": 5, "wait_seconds": 1});
        let mut leases: Vec<Value> = Vec::new();
        for _ in 0..8 {
            leases.extend(worker.lease(wanted.clone()).await);
        }
        leases
    });
    let mut answers = Vec::new();
    for task in &tasks {
        let id = id_of(task);
        let answer = caller.api.delete(&format!("/v1/tasks/{id}")).await;
        answer.expect_any(&[200, 202]);
        answers.push((id, answer.status()));
    }
    let leases = leasing.await.expect("the worker ends");
    for (id, status) in answers {
        let lease = leases.iter().find(|lease| lease["task"]["task_id"] == id.as_str());
        match (status, lease) {
            (200, None) => {}
            (202, Some(lease)) => {
                caller.report("complete", lease, json!({})).await.problem_code(410, "cancelled");
            }
            (status, lease) => panic!("{id}: answered {status}, and the lease is {lease:?}"),
        }
        caller.until(&id, "CANCELLED").await;
    }
}
