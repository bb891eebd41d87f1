//! Settling one run: `/complete`, `/fail`, `/heartbeat` and `/release` of its task.

use std::time::Duration;

use punctual_testkit::eventually::eventually;
use serde_json::{Value, json};

use crate::it::world::{
    SOON, boom, code_of, every, in_seconds, merged, quick, seconds_between, shared, time, worker_id,
};

#[tokio::test]
async fn a_repeated_completion_changes_nothing() {
    let caller = shared().await;
    let id = caller.submit_id(json!({"type": "t", "queue": "q"})).await;
    let lease = caller.lease_one("q").await;
    let outcome = json!({"outcome": "completed", "result": {"sum": 7}});
    assert_eq!(caller.settle(&lease, outcome.clone()).await["status"], 200);
    let before = caller.until(&id, "COMPLETED").await;
    for _ in 0..3 {
        assert_eq!(caller.settle(&lease, outcome.clone()).await["status"], 200);
        caller.report("complete", &lease, json!({"result": {"sum": 7}})).await.expect(200);
    }
    assert_eq!(caller.task(&id).await, before);
    caller.trail(&id).await;
}

#[tokio::test]
async fn another_outcome_with_the_same_token_is_refused() {
    let caller = shared().await;
    let id = caller.submit_id(json!({"type": "t", "queue": "q"})).await;
    let lease = caller.lease_one("q").await;
    caller.report("complete", &lease, json!({"result": "first"})).await.expect(200);
    let before = caller.until(&id, "COMPLETED").await;
    caller.report("complete", &lease, json!({"result": "second"})).await.problem(409);
    caller.report("fail", &lease, boom()).await.problem(409);
    caller.report("release", &lease, json!({})).await.problem(409);
    caller.report("heartbeat", &lease, json!({})).await.problem_any(&[409, 410]);
    assert_eq!(caller.settle(&lease, json!({"outcome": "completed", "result": "third"})).await["status"], 409);
    assert_eq!(caller.task(&id).await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn only_the_first_of_two_completions_counts() {
    let caller = shared().await;
    for round in 0..5 {
        let queue = format!("q{round}");
        let id = caller.submit_id(json!({"type": "t", "queue": queue})).await;
        let lease = caller.lease_one(&queue).await;
        let reporters: Vec<_> = (0..8)
            .map(|n| {
                let (caller, lease) = (caller.apart(), lease.clone());
                tokio::spawn(async move { (n, caller.report("complete", &lease, json!({ "result": n })).await) })
            })
            .collect();
        let mut accepted = Vec::new();
        for reporter in reporters {
            let (n, answer) = reporter.await.expect("a reporter ends");
            if answer.status() == 200 {
                accepted.push(n);
            } else {
                answer.problem(409);
            }
        }
        assert_eq!(accepted.len(), 1, "{accepted:?} were accepted");
        assert_eq!(caller.until(&id, "COMPLETED").await["result"], accepted[0]);
    }
}

#[tokio::test]
async fn a_repeated_failure_counts_once() {
    let caller = shared().await;
    let slow = every(3, 600.0);
    let id = caller.submit_id(json!({"type": "t", "queue": "q", "retry_policy": slow})).await;
    let lease = caller.lease_one("q").await;
    caller.report("fail", &lease, boom()).await.expect(200);
    let before = caller.until(&id, "PENDING").await;
    caller.report("fail", &lease, boom()).await.expect(200);
    assert_eq!(caller.task(&id).await, before);
    assert_eq!(caller.runs(&id).await.len(), 1);
    caller.report("complete", &lease, json!({})).await.problem(409);
    assert_eq!(caller.task(&id).await, before);
}

#[tokio::test]
async fn a_failure_is_kept_and_retried_after_the_backoff() {
    let caller = shared().await;
    let policy = every(3, 1.5);
    let id = caller.submit_id(json!({"type": "t", "queue": "q", "retry_policy": policy})).await;
    let lease = caller.lease_one("q").await;
    let before = in_seconds(0.0);
    caller.report("fail", &lease, boom()).await.expect(200);
    let task = caller.until(&id, "PENDING").await;
    assert_eq!((&task["last_error"]["code"], &task["last_error"]["message"]), (&json!("boom"), &json!("it broke")));
    let wait = seconds_between(before, time(&task["next_attempt_at"]));
    assert!((1.5..6.0).contains(&wait), "the next attempt is in {wait} s: {task:#}");
    caller.lease_one("q").await;
    let waited = seconds_between(before, in_seconds(0.0));
    assert!(waited >= 1.5, "retried after {waited} s");
}

#[tokio::test]
async fn backoff_grows_as_its_name_says() {
    let caller = shared().await;
    for (backoff, expected) in
        [("fixed", [100.0, 100.0, 100.0]), ("linear", [100.0, 200.0, 300.0]), ("exponential", [100.0, 200.0, 350.0])]
    {
        let policy = merged(every(9, 100.0), json!({"backoff": backoff, "max_backoff_seconds": 350}));
        let id = caller.submit_id(json!({"type": "t", "queue": backoff, "retry_policy": policy})).await;
        for delay in expected {
            let lease = caller.lease_one(backoff).await;
            let before = in_seconds(0.0);
            caller.report("fail", &lease, boom()).await.expect(200);
            let wait = seconds_between(before, time(&caller.until(&id, "PENDING").await["next_attempt_at"]));
            assert!((delay..delay + 10.0).contains(&wait), "{backoff}: the next attempt is in {wait} s, not {delay}");
            let run = caller.api.call("POST", &format!("/v1/tasks/{id}/run")).send().await;
            assert!(run.status() < 300, "{run}");
        }
    }
}

#[tokio::test]
async fn full_jitter_stays_below_the_backoff() {
    let caller = shared().await;
    let policy = merged(every(9, 1000.0), json!({"jitter": "full"}));
    let mut waits = Vec::new();
    for _ in 0..8 {
        let id = caller.submit_id(json!({"type": "t", "queue": "q", "retry_policy": policy})).await;
        let lease = caller.lease_one("q").await;
        let before = in_seconds(0.0);
        caller.report("fail", &lease, boom()).await.expect(200);
        // A jitter near zero makes it due at once; then it waits for a worker, which is PENDING as
        // well.
        waits.push(seconds_between(before, time(&caller.until(&id, "PENDING").await["next_attempt_at"])));
        caller.api.delete(&format!("/v1/tasks/{id}")).await.expect(200);
    }
    assert!(waits.iter().all(|wait| (0.0..1010.0).contains(wait)), "{waits:?}");
    assert!(waits.iter().any(|wait| (wait - waits[0]).abs() > 1.0), "no jitter: {waits:?}");
}

#[tokio::test]
async fn retry_after_seconds_is_honoured() {
    let caller = shared().await;
    let id = caller.submit_id(json!({"type": "t", "queue": "q", "retry_policy": quick(3)})).await;
    let lease = caller.lease_one("q").await;
    let before = in_seconds(0.0);
    let mut failure = boom();
    failure["retry_after_seconds"] = json!(2);
    caller.report("fail", &lease, failure).await.expect(200);
    let wait = seconds_between(before, time(&caller.until(&id, "PENDING").await["next_attempt_at"]));
    assert!((2.0..6.0).contains(&wait), "the next attempt is in {wait} s");
    caller.lease_one("q").await;
    let waited = seconds_between(before, in_seconds(0.0));
    assert!(waited >= 2.0, "retried after {waited} s");
}

#[tokio::test]
async fn a_failure_not_worth_retrying_is_a_dead_letter_at_once() {
    let caller = shared().await;
    let id =
        caller.submit_id(json!({"type": "t", "queue": "q", "payload": {"kept": true}, "retry_policy": quick(9)})).await;
    let lease = caller.lease_one("q").await;
    caller
        .report("fail", &lease, json!({"error": {"code": "bad_input", "message": "never"}, "retryable": false}))
        .await
        .expect(200);
    let task = caller.until(&id, "DEAD_LETTERED").await;
    assert_eq!(task["last_error"]["code"], "bad_input");
    assert_eq!(task["payload"], json!({"kept": true}));
    assert_eq!(caller.runs(&id).await.len(), 1);
}

#[tokio::test]
async fn retries_used_up_make_a_dead_letter() {
    let caller = shared().await;
    for max_retries in [0, 2] {
        let queue = format!("q{max_retries}");
        let id = caller.submit_id(json!({"type": "t", "queue": queue, "retry_policy": quick(max_retries)})).await;
        for _ in 0..=max_retries {
            let lease = caller.lease_one(&queue).await;
            caller.report("fail", &lease, boom()).await.expect(200);
        }
        let task = caller.until(&id, "DEAD_LETTERED").await;
        assert_eq!(task["last_error"]["code"], "boom");
        assert_eq!(caller.runs(&id).await.len(), usize::try_from(max_retries).expect("small") + 1);
        let wanted = json!({"worker_id": worker_id(), "queues": [queue], "max_tasks": 1, "wait_seconds": 1});
        assert_eq!(caller.lease(wanted).await, Vec::<Value>::new(), "a dead letter is not handed out");
    }
}

#[tokio::test]
async fn a_task_that_is_released_in_a_row_waits_longer() {
    let caller = shared().await;
    let id = caller.submit_id(json!({"type": "t", "queue": "q"})).await;
    let mut waits = Vec::new();
    for _ in 0..6 {
        let lease = caller.lease_one("q").await;
        caller.report("release", &lease, json!({})).await.expect(200);
        let task = caller.task(&id).await;
        waits.push(seconds_between(time(&task["updated_at"]), time(&task["next_attempt_at"])));
    }
    assert_eq!(waits, [0.0, 0.0, 0.0, 0.1, 0.2, 0.4]);
}

#[tokio::test]
async fn a_released_attempt_is_not_counted() {
    let caller = shared().await;
    let id = caller.submit_id(json!({"type": "t", "queue": "q", "retry_policy": quick(0)})).await;
    let mut last = 0;
    for _ in 0..5 {
        let lease = caller.lease_one("q").await;
        let token = lease["token"].as_u64().expect("a token");
        assert!(token > last, "token {token} after {last}");
        last = token;
        assert_eq!(lease["task"]["retry_count"], 0);
        caller.report("release", &lease, json!({})).await.expect(200);
        // The worker that released the task no longer holds it.
        caller.report("complete", &lease, json!({"result": "late"})).await.problem(409);
    }
    let lease = caller.lease_one("q").await;
    caller.report("complete", &lease, json!({"result": "done"})).await.expect(200);
    let task = caller.until(&id, "COMPLETED").await;
    assert_eq!((&task["result"], &task["retry_count"]), (&json!("done"), &json!(0)));
    caller.trail(&id).await;
}

#[tokio::test]
async fn heartbeats_extend_the_lease() {
    let caller = shared().await;
    let id = caller.submit_id(json!({"type": "t", "queue": "q", "retry_policy": quick(3)})).await;
    let lease = caller.lease_for("q", 2).await;
    let begun = in_seconds(0.0);
    // Three times as long as the lease.
    while seconds_between(begun, in_seconds(0.0)) < 6.0 {
        caller.report("heartbeat", &lease, json!({})).await.expect(200);
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    let task = caller.task(&id).await;
    assert_eq!((&task["status"], &task["retry_count"]), (&json!("RUNNING"), &json!(0)));
    caller.report("complete", &lease, json!({"result": "held"})).await.expect(200);
    assert_eq!(caller.until(&id, "COMPLETED").await["result"], "held");
    assert_eq!(caller.runs(&id).await.len(), 1);
}

#[tokio::test]
async fn progress_and_checkpoint_are_handed_to_the_next_attempt() {
    let caller = shared().await;
    let id = caller.submit_id(json!({"type": "t", "queue": "q", "retry_policy": quick(9)})).await;
    let first = caller.lease_one("q").await;
    caller.report("heartbeat", &first, json!({"progress": 0.25, "checkpoint": {"row": 100}})).await.expect(200);
    eventually("the progress is shown", SOON, async || {
        let task = caller.task(&id).await;
        if task["progress"] == 0.25 { Ok(()) } else { Err(task.to_string()) }
    })
    .await;
    caller.settle(&first, json!({"outcome": "heartbeat", "progress": 0.5, "checkpoint": {"row": 200}})).await;
    // A heartbeat without fields removes nothing.
    caller.report("heartbeat", &first, json!({})).await.expect(200);
    caller.report("fail", &first, boom()).await.expect(200);
    let second = caller.lease_one("q").await;
    assert_eq!((&second["attempt"], &second["checkpoint"]), (&json!(2), &json!({"row": 200})));
    caller.report("heartbeat", &second, json!({"checkpoint": "text"})).await.expect(200);
    caller.report("release", &second, json!({})).await.expect(200);
    let third = caller.lease_one("q").await;
    assert_eq!(third["checkpoint"], "text", "{third:#}");
}

#[tokio::test]
async fn an_older_token_has_no_effect() {
    let caller = shared().await;
    let id = caller.submit_id(json!({"type": "t", "queue": "q", "retry_policy": quick(9)})).await;
    let old = caller.lease_one("q").await;
    caller.report("fail", &old, boom()).await.expect(200);
    let new = caller.lease_one("q").await;
    let before = caller.task(&id).await;
    caller.report("complete", &old, json!({"result": "late"})).await.problem_code(409, "stale_token");
    caller.report("release", &old, json!({})).await.problem_code(409, "stale_token");
    caller
        .report("heartbeat", &old, json!({"progress": 0.9, "checkpoint": "late"}))
        .await
        .problem_code(409, "stale_token");
    for outcome in ["completed", "released", "heartbeat"] {
        let item = caller.settle(&old, json!({ "outcome": outcome })).await;
        assert_eq!((&item["status"], code_of(&item)), (&json!(409), "stale_token"), "{outcome}: {item:#}");
    }
    assert_eq!(caller.task(&id).await, before, "an older token changes nothing");
    let mut foreseen = new.clone();
    foreseen["token"] = json!(new["token"].as_u64().expect("a token") + 1000);
    caller.report("complete", &foreseen, json!({})).await.problem(409);
    caller.report("complete", &new, json!({"result": "in time"})).await.expect(200);
    assert_eq!(caller.until(&id, "COMPLETED").await["result"], "in time");
}

#[tokio::test]
async fn a_result_may_be_any_json() {
    let caller = shared().await;
    for (n, result) in
        [json!(null), json!(0), json!("text"), json!([1, {"a": null}]), json!({"nested": {"deep": [true]}})]
            .into_iter()
            .enumerate()
    {
        let queue = format!("q{n}");
        let id = caller.submit_id(json!({"type": "t", "queue": queue})).await;
        let lease = caller.lease_one(&queue).await;
        caller.report("complete", &lease, json!({ "result": result })).await.expect(200);
        assert_eq!(caller.until(&id, "COMPLETED").await["result"], result);
    }
    let id = caller.submit_id(json!({"type": "t", "queue": "none"})).await;
    let lease = caller.lease_one("none").await;
    caller.report("complete", &lease, json!({})).await.expect(200);
    assert_eq!(caller.until(&id, "COMPLETED").await["result"], Value::Null);
}
