//! `GET /v1/tasks/{id}/runs`, `/events` and `/explain`.

use serde_json::{Value, json};

use crate::it::world::{array, boom, expect_id, in_seconds, quick, shared, time, worker_id, written};

#[tokio::test]
async fn a_new_task_has_one_event_and_no_runs() {
    let caller = shared().await;
    let task = caller.submit(json!({"type": "t", "delay_seconds": 600})).await;
    let id = task["task_id"].as_str().expect("an id");
    let trail = caller.trail(id).await;
    assert_eq!(trail.len(), 1, "{trail:#?}");
    assert_eq!((&trail[0]["to"], &trail[0]["version"]), (&json!("PENDING"), &task["version"]));
    assert_eq!(caller.runs(id).await, Vec::<Value>::new());
}

/// A submitter may edit a task as often as it likes; the row does not grow with it.
#[tokio::test]
async fn a_long_life_keeps_its_first_and_last_steps() {
    let caller = shared().await;
    let id = caller.submit_id(json!({"type": "t", "delay_seconds": 600})).await;
    let mut task = Value::Null;
    for n in 0..210 {
        task = caller.api.patch(&format!("/v1/tasks/{id}"), &json!({"payload": n})).await.expect(200);
    }
    let (mut events, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = caller.api.get(&format!("/v1/tasks/{id}/events?limit=50{cursor}")).await.expect(200);
        events.extend(array(&page["items"]));
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert!(events.len() < 150, "{} events", events.len());
    assert_eq!((&events[0]["reason"], &events[0]["version"]), (&json!("submitted"), &json!(1)));
    assert_eq!(events[events.len() - 1]["version"], task["version"]);
    let omitted: Vec<&Value> = events.iter().filter(|event| event["reason"] == "omitted").collect();
    assert_eq!(omitted.len(), 1, "{omitted:#?}");
    let counted: u64 = events.iter().map(|event| event["omitted"].as_u64().unwrap_or(1)).sum();
    assert_eq!(json!(counted), task["version"], "each step is listed or counted");
}

#[tokio::test]
async fn every_attempt_is_a_run() {
    let caller = shared().await;
    let id = caller.submit_id(json!({"type": "t", "queue": "q", "retry_policy": quick(3)})).await;
    let mut leased = Vec::new();
    for n in 1..=3 {
        let worker = worker_id();
        let wanted = json!({"worker_id": worker, "queues": ["q"], "max_tasks": 1, "wait_seconds": 20});
        let lease = caller.lease(wanted).await.remove(0);
        let outcome = if n < 3 {
            caller
                .report(
                    "fail",
                    &lease,
                    json!({"error": {"code": "boom", "message": format!("number {n}")}, "retryable": true}),
                )
                .await
        } else {
            caller.report("complete", &lease, json!({"result": n})).await
        };
        outcome.expect(200);
        leased.push((worker, lease));
    }
    caller.until(&id, "COMPLETED").await;
    let mut runs = caller.runs(&id).await;
    runs.sort_by_key(|run| run["attempt"].as_u64());
    assert_eq!(runs.len(), 3, "{runs:#?}");
    for (n, (run, (worker, lease))) in runs.iter().zip(&leased).enumerate() {
        for member in ["run_id", "attempt", "worker_id", "started_at", "finished_at", "outcome", "error", "http_status"]
        {
            assert!(run.get(member).is_some(), "no {member:?} in {run:#}");
        }
        expect_id(run["run_id"].as_str().expect("an id"), "run_");
        assert_eq!(run["run_id"], lease["run_id"]);
        assert_eq!((&run["attempt"], &run["worker_id"]), (&json!(n + 1), &json!(worker)));
        assert!(time(&run["started_at"]) <= time(&run["finished_at"]));
        assert!(run["http_status"].is_null(), "a pull worker has no HTTP status: {run:#}");
        if n < 2 {
            assert_eq!((&run["outcome"], &run["error"]["code"]), (&json!("failed"), &json!("boom")), "{run:#}");
            assert_eq!(run["error"]["message"], format!("number {}", n + 1));
        } else {
            assert_eq!((&run["outcome"], &run["error"]), (&json!("completed"), &Value::Null), "{run:#}");
        }
    }
}

#[tokio::test]
async fn a_run_that_goes_on_has_no_end_yet() {
    let caller = shared().await;
    let id = caller.submit_id(json!({"type": "t", "queue": "q"})).await;
    let lease = caller.lease_one("q").await;
    let runs = caller.runs(&id).await;
    assert_eq!(runs.len(), 1, "{runs:#?}");
    assert_eq!(runs[0]["run_id"], lease["run_id"]);
    time(&runs[0]["started_at"]);
    assert!(runs[0]["finished_at"].is_null() && runs[0]["error"].is_null(), "{runs:#?}");
}

#[tokio::test]
async fn the_audit_trail_is_a_legal_path_without_gaps() {
    let caller = shared().await;
    let id = caller.submit_id(json!({"type": "t", "queue": "q", "delay_seconds": 600, "retry_policy": quick(5)})).await;
    let path = format!("/v1/tasks/{id}");
    caller.api.patch(&path, &json!({"priority": 7, "delay_seconds": 0})).await.expect(200);
    let lease = caller.lease_one("q").await;
    caller.report("heartbeat", &lease, json!({"progress": 0.5})).await.expect(200);
    caller.report("fail", &lease, boom()).await.expect(200);
    let lease = caller.lease_one("q").await;
    caller.report("release", &lease, json!({})).await.expect(200);
    let lease = caller.lease_one("q").await;
    caller
        .report("fail", &lease, json!({"error": {"code": "bad", "message": "m"}, "retryable": false}))
        .await
        .expect(200);
    caller.until(&id, "DEAD_LETTERED").await;
    caller.api.post(&format!("{path}/redrive"), &json!({})).await;
    let lease = caller.lease_one("q").await;
    caller.report("complete", &lease, json!({})).await.expect(200);
    let task = caller.until(&id, "COMPLETED").await;
    let trail = caller.trail(&id).await;
    let last = trail.last().expect("events");
    assert_eq!((&last["to"], &last["version"]), (&task["status"], &task["version"]), "{trail:#?}");
    let mut states: Vec<&str> = trail.iter().filter_map(|event| event["to"].as_str()).collect();
    states.dedup();
    let round = ["PENDING", "QUEUED", "RUNNING"];
    let expected = [&round[..], &round, &round, &["DEAD_LETTERED"], &round, &["COMPLETED"]].concat();
    assert_eq!(states, expected);
}

#[tokio::test]
async fn explain_says_why_a_task_has_not_run() {
    let caller = shared().await;
    let due = in_seconds(3600.0);
    let future = caller.submit_id(json!({"type": "t", "execute_at": written(due)})).await;
    let unwanted = caller.submit_id(json!({"type": "t", "queue": "nobody-works-here"})).await;
    let ended = caller.submit_id(json!({"type": "t", "delay_seconds": 600})).await;
    caller.api.delete(&format!("/v1/tasks/{ended}")).await.expect(200);
    let explained = async |id: &str| {
        let answer = caller.api.get(&format!("/v1/tasks/{id}/explain")).await.expect(200);
        assert!(answer.get("eta").is_some(), "{answer:#}");
        for reason in array(&answer["reasons"]) {
            assert!(reason["code"].is_string() && reason["message"].is_string(), "{answer:#}");
        }
        answer
    };
    let answer = explained(&future).await;
    assert_eq!(answer["state"], "PENDING");
    assert!(!array(&answer["reasons"]).is_empty(), "a reason for waiting: {answer:#}");
    assert!(time(&answer["eta"]) >= due, "earlier than its time: {answer:#}");
    let answer = explained(&unwanted).await;
    assert_eq!(answer["state"], "PENDING");
    assert!(!array(&answer["reasons"]).is_empty(), "a reason for waiting: {answer:#}");
    assert_eq!(explained(&ended).await["state"], "CANCELLED");
}
