//! The defaults that queues give their tasks.

use punctual_testkit::eventually::eventually;
use punctual_testkit::sink::Sink;
use serde_json::json;

use super::{count, get, put};
use crate::it::cluster::Cluster;
use crate::it::world::{SOON, id_of, in_seconds, merged, seconds_between, shared, time, written};

#[tokio::test]
async fn a_queue_has_defaults_for_its_tasks() {
    let caller = shared().await;
    let policy = json!({"max_retries": 9, "backoff": "fixed", "backoff_seconds": 2, "jitter": "none"});
    let queue = put(&caller, "mail", json!({"retry_policy": policy, "timeout_seconds": 7})).await;
    assert_eq!(queue["retry_policy"]["max_retries"], 9);
    let task = caller.submit(json!({"type": "t", "queue": "mail"})).await;
    assert_eq!((&task["retry_policy"]["max_retries"], &task["timeout_seconds"]), (&json!(9), &json!(7)));
    let own = json!({"type": "t", "queue": "mail", "retry_policy": {"max_retries": 1}, "timeout_seconds": 1});
    let task = caller.submit(own).await;
    assert_eq!((&task["retry_policy"]["max_retries"], &task["retry_policy"]["backoff"]), (&json!(1), &json!("fixed")));
    assert_eq!(task["timeout_seconds"], 1);
    let other = caller.submit(json!({"type": "t", "queue": "other"})).await;
    assert_eq!(other["retry_policy"]["max_retries"], 7);
    put(&caller, "mail", json!({})).await;
    assert_eq!(caller.submit(json!({"type": "t", "queue": "mail"})).await["retry_policy"]["max_retries"], 7);
    let listed = caller.list("/v1/queues").await;
    let depths: Vec<_> =
        listed.iter().map(|queue| (queue["name"].as_str().expect("a name"), count(queue, "PENDING"))).collect();
    assert_eq!(depths, [("mail", 3), ("other", 1)]);
}

#[tokio::test]
async fn a_task_without_a_callback_takes_its_queues() {
    let (caller, sink, own) = (shared().await, Sink::start(), Sink::start());
    let settings = json!({"callback_url": sink.url("/of-queue"), "callback_headers": {"X-Secret": "of the queue"}});
    let queue = put(&caller, "mail", settings).await;
    assert_eq!(queue["callback_url"], sink.url("/of-queue"));
    let task = caller.submit(json!({"type": "t", "queue": "mail", "payload": 7})).await;
    assert_eq!(task["callback_url"], sink.url("/of-queue"), "the task shows its target");
    caller.until(&id_of(&task), "COMPLETED").await;
    let hit = &sink.wait_for("/of-queue", 1, SOON).await[0];
    assert_eq!((hit.header("x-secret"), hit.body.as_slice()), ("of the queue", b"7".as_slice()));
    let elsewhere = json!({"type": "t", "queue": "mail", "callback_url": own.url("/own")});
    caller.until(&caller.submit_id(elsewhere).await, "COMPLETED").await;
    assert!(own.wait_for("/own", 1, SOON).await[0].values("x-secret").is_empty(), "the queue's headers are its own");
    put(&caller, "mail", json!({})).await;
    let pulled = caller.submit(json!({"type": "t", "queue": "mail"})).await;
    assert_eq!((&pulled["callback_url"], &pulled["status"]), (&json!(null), &json!("PENDING")));
    assert_eq!(sink.all_hits().len(), 1);
}

#[tokio::test]
async fn new_queue_settings_do_not_change_a_replay() {
    let caller = shared().await;
    let task = json!({"type": "t", "queue": "mail", "idempotency_key": "k"});
    let first = caller.submit(task.clone()).await;
    put(&caller, "mail", json!({"timeout_seconds": 7, "dispatch_jitter_seconds": 5})).await;
    assert_eq!(caller.api.post("/v1/tasks", &task).await.expect(200)["task_id"], first["task_id"]);
}

#[tokio::test]
async fn tasks_due_at_once_are_spread_evenly_over_the_jitter() {
    const TASKS: usize = 2_000;
    let caller = shared().await;
    put(&caller, "herd", json!({"dispatch_jitter_seconds": 5})).await;
    let at = written(in_seconds(3_600.0));
    let task = json!({"type": "t", "queue": "herd", "execute_at": at});
    let tasks = caller.submit_all(vec![task; TASKS]).await;
    let mut buckets = [0_i64; 10];
    for task in &tasks {
        assert_eq!(task["execute_at"], at.as_str());
        let late = seconds_between(time(&task["execute_at"]), time(&task["next_attempt_at"]));
        assert!((0.0..5.0).contains(&late), "{late}");
        let tenth = (0..10_u8).rev().find(|tenth| late >= 0.5 * f64::from(*tenth)).unwrap_or(0);
        buckets[usize::from(tenth)] += 1;
    }
    // 200 are expected in each; 27 is two standard deviations, 80 nearly six.
    assert!(buckets.iter().all(|tasks| (tasks - 200).abs() < 80), "{buckets:?}");
}

#[tokio::test]
async fn a_herd_is_dispatched_over_the_jitter() {
    let caller = shared().await;
    put(&caller, "herd", json!({"dispatch_jitter_seconds": 2})).await;
    let begun = in_seconds(0.0);
    let ids: Vec<_> = caller
        .submit_all(vec![json!({"type": "t", "queue": "herd"}); 100])
        .await
        .iter()
        .map(crate::it::world::id_of)
        .collect();
    let mut started = Vec::new();
    while started.len() < ids.len() {
        let wanted = json!({"worker_id": "w", "queues": ["herd"], "max_tasks": 100, "wait_seconds": 10});
        for lease in caller.lease(wanted).await {
            let task = &lease["task"];
            started.push(seconds_between(time(&task["execute_at"]), time(&task["started_at"])));
        }
    }
    assert!(seconds_between(begun, in_seconds(0.0)) > 1.5, "the last are due at the end of the window");
    let early = started.iter().filter(|late| **late < 1.0).count();
    assert!((20..=80).contains(&early), "{early} of 100 in the first half");
}

#[tokio::test]
async fn settings_reach_the_other_nodes() {
    let cluster = Cluster::start(2).await;
    put(&cluster.caller(0), "mail", json!({"timeout_seconds": 7, "max_depth": 5})).await;
    let task = json!({"type": "t", "queue": "mail"});
    eventually("the other node knows", SOON, async || {
        let answer = cluster.caller(1).api.post("/v1/tasks", &merged(task.clone(), json!({"queue": "mail"}))).await;
        match answer.status() {
            201 if answer.expect(201)["timeout_seconds"] == 7 => Ok(()),
            429 => panic!("it knows the depth, but not the timeout"),
            _ => Err(answer.to_string()),
        }
    })
    .await;
    assert_eq!(get(&cluster.caller(1), "mail").await["max_depth"], 5);
}
