//! Silence and time: leases that run out, timeouts, poison, expiry.

use std::time::Duration;

use jiff::Timestamp;
use punctual_testkit::eventually::eventually;
use serde_json::{Value, json};

use crate::it::world::{
    SOON, boom, every, id_of, in_seconds, quick, seconds_between, shared, time, worker_id, written,
};

#[tokio::test]
async fn an_expired_lease_goes_to_another_worker() {
    let caller = shared().await;
    let id = caller.submit_id(json!({"type": "t", "queue": "q", "retry_policy": quick(3)})).await;
    let lost = caller.lease_for("q", 1).await;
    let found = caller.lease_one("q").await;
    let now = Timestamp::now();
    assert_eq!((id_of(&found["task"]), &found["attempt"]), (id.clone(), &json!(2)));
    assert!(now >= time(&lost["lease_expires_at"]), "handed out while it was still leased");
    assert!(found["token"].as_u64() > lost["token"].as_u64(), "the token grows");
    assert_ne!(found["run_id"], lost["run_id"]);
    caller.report("heartbeat", &lost, json!({"progress": 0.9})).await.problem_code(409, "stale_token");
    caller.report("complete", &lost, json!({"result": "late"})).await.problem_code(409, "stale_token");
    let task = caller.task(&id).await;
    assert_eq!(
        (&task["status"], &task["result"], &task["worker_id"]),
        (&json!("RUNNING"), &Value::Null, &found["task"]["worker_id"])
    );
    caller.report("complete", &found, json!({"result": "in time"})).await.expect(200);
    assert_eq!(caller.until(&id, "COMPLETED").await["result"], "in time");
    let runs = caller.runs(&id).await;
    assert_eq!(runs.len(), 2, "{runs:#?}");
    assert_eq!(runs.iter().filter(|run| run["outcome"] == "completed").count(), 1, "{runs:#?}");
    caller.trail(&id).await;
}

#[tokio::test]
async fn an_expired_lease_is_never_revived_by_a_heartbeat() {
    let caller = shared().await;
    let slow = every(3, 600.0);
    let id = caller.submit_id(json!({"type": "t", "queue": "q", "retry_policy": slow})).await;
    let lost = caller.lease_for("q", 1).await;
    let before = caller.until(&id, "PENDING").await;
    caller.report("heartbeat", &lost, json!({"progress": 0.9})).await.problem_code(409, "stale_token");
    caller.report("complete", &lost, json!({"result": "late"})).await.problem_code(409, "stale_token");
    caller.report("release", &lost, json!({})).await.problem_code(409, "stale_token");
    assert_eq!(caller.task(&id).await, before);
}

#[tokio::test]
async fn the_checkpoint_of_a_lost_worker_is_handed_on() {
    let caller = shared().await;
    caller.submit(json!({"type": "t", "queue": "q", "retry_policy": quick(3)})).await;
    let lost = caller.lease_for("q", 1).await;
    caller.report("heartbeat", &lost, json!({"checkpoint": {"row": 7}})).await.expect(200);
    let found = caller.lease_one("q").await;
    assert_eq!(found["checkpoint"], json!({"row": 7}));
}

#[tokio::test]
async fn a_lost_worker_uses_up_the_retries() {
    let caller = shared().await;
    let id = caller.submit_id(json!({"type": "t", "queue": "q", "retry_policy": quick(1)})).await;
    for _ in 0..2 {
        caller.lease_for("q", 1).await;
    }
    let task = caller.until(&id, "DEAD_LETTERED").await;
    assert!(task["last_error"]["code"].is_string(), "{task:#}");
}

#[tokio::test]
async fn a_task_that_kills_its_worker_three_times_is_poisoned() {
    let caller = shared().await;
    let poison = caller.submit_id(json!({"type": "t", "queue": "q", "retry_policy": quick(20)})).await;
    for attempt in 1..=3 {
        let lease = caller.lease_for("q", 1).await;
        assert_eq!((id_of(&lease["task"]), &lease["attempt"]), (poison.clone(), &json!(attempt)));
    }
    let task = caller.until(&poison, "DEAD_LETTERED").await;
    assert_eq!(task["last_error"]["code"], "poisoned", "{task:#}");
    assert_eq!(caller.runs(&poison).await.len(), 3);
    let wanted = json!({"worker_id": worker_id(), "queues": ["q"], "max_tasks": 1, "wait_seconds": 1});
    assert_eq!(caller.lease(wanted).await, Vec::<Value>::new());
    let other = caller.submit_id(json!({"type": "t", "queue": "q"})).await;
    assert_eq!(id_of(&caller.lease_one("q").await["task"]), other, "others are not affected");
    caller.trail(&poison).await;
}

#[tokio::test]
async fn heartbeats_do_not_extend_a_runs_timeout() {
    let caller = shared().await;
    let id = caller.submit_id(json!({"type": "t", "queue": "q", "timeout_seconds": 1, "retry_policy": quick(1)})).await;
    for attempt in 1..=2_usize {
        let lease = caller.lease_one("q").await;
        let started = in_seconds(0.0);
        assert_eq!(lease["attempt"], attempt);
        // Sends heartbeats until it learns that the run is no longer its own.
        eventually("the run is taken away", SOON, async || {
            let beat = caller.report("heartbeat", &lease, json!({})).await;
            if beat.status() == 200 {
                let (timeout_at, begun_at) = (time(&beat.value()["timeout_at"]), time(&beat.value()["started_at"]));
                assert_eq!(timeout_at.duration_since(begun_at).as_millis(), 1_000);
                return Err("the heartbeat is still accepted".to_owned());
            }
            beat.problem_code(409, "timed_out");
            Ok(())
        })
        .await;
        let ran = seconds_between(started, in_seconds(0.0));
        assert!(ran >= 0.9, "taken away after {ran} s");
        // Heartbeats are refused from the deadline on, an outcome from when the task was taken
        // back.
        eventually("the task is taken back", SOON, async || {
            let runs = caller.runs(&id).await;
            if runs[attempt - 1]["finished_at"].is_null() { Err(format!("{runs:?}")) } else { Ok(()) }
        })
        .await;
        caller.report("complete", &lease, json!({"result": "late"})).await.problem_code(409, "timed_out");
    }
    let task = caller.until(&id, "DEAD_LETTERED").await;
    assert_eq!(task["last_error"]["code"], "timeout", "{task:#}");
    assert!(task["result"].is_null());
    assert_eq!(caller.runs(&id).await.len(), 2);
}

#[tokio::test]
async fn a_task_not_started_by_its_expiry_fails() {
    let caller = shared().await;
    let expires = in_seconds(1.0);
    let id = caller.submit_id(json!({"type": "t", "queue": "nobody", "expires_at": written(expires)})).await;
    let task = caller.until(&id, "FAILED").await;
    assert_eq!(task["last_error"]["code"], "expired", "{task:#}");
    assert!(time(&task["completed_at"]) >= expires, "expired before its time: {task:#}");
    let wanted = json!({"worker_id": worker_id(), "queues": ["nobody"], "max_tasks": 1, "wait_seconds": 1});
    assert_eq!(caller.lease(wanted).await, Vec::<Value>::new());
    assert_eq!(caller.runs(&id).await, Vec::<Value>::new());
    caller.trail(&id).await;
}

#[tokio::test]
async fn a_started_task_does_not_expire() {
    let caller = shared().await;
    let expires = in_seconds(1.5);
    let id = caller.submit_id(json!({"type": "t", "queue": "q", "expires_at": written(expires)})).await;
    let lease = caller.lease_one("q").await;
    eventually("the expiry has passed", SOON, async || {
        let past = seconds_between(expires, in_seconds(0.0));
        if past > 1.0 { Ok(()) } else { Err(format!("{past} s")) }
    })
    .await;
    assert_eq!(caller.task(&id).await["status"], "RUNNING");
    caller.report("complete", &lease, json!({"result": 1})).await.expect(200);
    caller.until(&id, "COMPLETED").await;
}

/// The contract says "not started by then", and leaves open whether a retry is a start; either way
/// there is one clear end.
#[tokio::test]
async fn a_retry_at_the_expiry_runs_or_expires_not_both() {
    let caller = shared().await;
    let task =
        json!({"type": "t", "queue": "q", "expires_at": written(in_seconds(1.5)), "retry_policy": every(9, 2.0)});
    let id = caller.submit_id(task).await;
    let lease = caller.lease_one("q").await;
    caller.report("fail", &lease, boom()).await.expect(200);
    let wanted = json!({"worker_id": worker_id(), "queues": ["q"], "max_tasks": 1, "wait_seconds": 10});
    if let Some(again) = caller.lease(wanted).await.first() {
        caller.report("complete", again, json!({"result": "retried"})).await.expect(200);
        assert_eq!(caller.until(&id, "COMPLETED").await["result"], "retried");
        assert_eq!(caller.runs(&id).await.len(), 2);
    } else {
        let task = caller.until(&id, "FAILED").await;
        assert_eq!(task["last_error"]["code"], "expired", "{task:#}");
        assert_eq!(caller.runs(&id).await.len(), 1);
    }
    caller.trail(&id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_completion_at_the_instant_of_expiry_wins_or_loses_clearly() {
    let caller = shared().await;
    caller.submit_all((0..40).map(|_| json!({"type": "t", "queue": "q", "retry_policy": quick(20)})).collect()).await;
    let mut leases: Vec<Value> = Vec::new();
    while leases.len() < 40 {
        let wanted =
            json!({"worker_id": worker_id(), "queues": ["q"], "max_tasks": 40, "wait_seconds": 20, "lease_seconds": 2});
        leases.extend(caller.lease(wanted).await);
        leases.retain(|lease| lease["attempt"] == 1);
    }
    let reporters: Vec<_> = leases
        .into_iter()
        .enumerate()
        .map(|(n, lease)| {
            let caller = caller.clone();
            tokio::spawn(async move {
                // From a tenth of a second before to three tenths after the end of the lease.
                let moment = time(&lease["lease_expires_at"])
                    + jiff::SignedDuration::from_millis(i64::try_from(n).expect("small") * 10 - 100);
                let wait = moment.duration_since(Timestamp::now());
                tokio::time::sleep(Duration::try_from(wait).unwrap_or_default()).await;
                let answer = caller.report("complete", &lease, json!({"result": "first"})).await;
                (lease, answer)
            })
        })
        .collect();
    for reporter in reporters {
        let (lease, answer) = reporter.await.expect("a reporter ends");
        let id = id_of(&lease["task"]);
        if answer.status() == 200 {
            let task = caller.until(&id, "COMPLETED").await;
            assert_eq!(task["result"], "first");
            let runs = caller.runs(&id).await;
            assert_eq!(runs.iter().filter(|run| run["outcome"] == "completed").count(), 1, "{runs:#?}");
            assert_eq!(runs.len(), 1, "completed, and handed out again: {runs:#?}");
        } else {
            answer.problem_code(409, "stale_token");
            let task = caller.task(&id).await;
            assert_ne!(task["status"], "COMPLETED", "refused, and completed all the same: {task:#}");
            assert!(task["result"].is_null(), "{task:#}");
        }
        caller.trail(&id).await;
    }
}
