//! Reasons of a task's queue: a pause, its limits, and several of these at once.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{codes, expect_says, explained, only, put, take};
use crate::it::world::{Caller, id_of, in_seconds, seconds_between, shared, time, worker_id, written};

async fn pause(caller: &Caller, queue: &str, how: Value) -> Value {
    caller.api.post(&format!("/v1/queues/{queue}/pause"), &how).await.expect(200)["pause"].clone()
}

/// Polls for a queue without waiting, so that a worker was seen.
async fn poll(caller: &Caller, queue: &str) {
    let wanted = json!({"worker_id": worker_id(), "queues": [queue], "max_tasks": 1, "wait_seconds": 0});
    assert_eq!(caller.lease(wanted).await, Vec::<Value>::new());
}

/// Who paused it, since when, why and until when.
pub async fn paused(acting: &Caller, asking: &Caller) {
    poll(asking, "paused").await;
    let until = written(in_seconds(3_600.0));
    let shown = pause(acting, "paused", json!({"reason": "stocktaking", "until": until})).await;
    let id = acting.submit_id(json!({"type": "t", "queue": "paused"})).await;
    let (reason, eta) = only(&explained(asking, &id).await, "queue_paused");
    assert_eq!((&reason["until"], &eta, &reason["queue"]), (&json!(until), &json!(until), &json!("paused")));
    assert_eq!((&reason["since"], &reason["by"]), (&shown["paused_at"], &shown["paused_by"]));
    assert_eq!(reason["reason"], "stocktaking");
    let by = shown["paused_by"].as_str().unwrap_or_default();
    expect_says(&reason, &["paused", by, &until, "stocktaking"]);

    // With another reason, a later end, and without an end.
    let due = written(in_seconds(7_200.0));
    let later = acting.submit_id(json!({"type": "t", "queue": "paused", "execute_at": due})).await;
    let (_, eta) = only(&explained(asking, &later).await, "not_due_yet");
    assert_eq!(eta, json!(due));
    pause(acting, "paused", json!({})).await;
    let answer = explained(asking, &later).await;
    assert_eq!(
        (codes(&answer), &answer["eta"]),
        (["not_due_yet", "queue_paused"].map(str::to_owned).to_vec(), &json!(null))
    );
    assert_eq!(answer["reasons"][1].get("until"), None);
}

#[tokio::test]
async fn a_pause_is_a_reason() {
    let caller = shared().await;
    paused(&caller, &caller).await;
}

/// The limit, how many run, and the position.
pub async fn full(acting: &Caller, asking: &Caller) {
    put(acting, "full", json!({"max_concurrency": 2})).await;
    let tasks = acting.submit_all(vec![json!({"type": "t", "queue": "full"}); 6]).await;
    let leases = take(acting, "full", 2).await;
    // Once the other node knows the worker that polled too, nothing else is in the way.
    let last = id_of(&tasks[5]);
    poll(asking, "full").await;
    let (reason, eta) = only(&explained(asking, &last).await, "queue_concurrency");
    assert_eq!((&reason["limit"], &reason["running"], &reason["position"]), (&json!(2), &json!(2), &json!(4)));
    assert_eq!((&reason["queue"], &eta), (&json!("full"), &json!(null)));
    expect_says(&reason, &["queue full runs at most 2 tasks at once, and 2 run", "3 other tasks"]);
    // A more urgent task overtakes it.
    acting.submit(json!({"type": "t", "queue": "full", "priority": 9})).await;
    let (reason, _) = only(&explained(asking, &last).await, "queue_concurrency");
    assert_eq!(reason["position"], 5);
    acting.report("complete", &leases[0], json!({})).await.expect(200);
    // There is a free place, so the limit does not hold it; other tasks take the place first.
    let answer = explained(asking, &last).await;
    assert_eq!(codes(&answer), ["due_waiting_for_worker", "queue_concurrency"], "{answer:#}");
    let next = &answer["reasons"][1];
    assert_eq!((&next["running"], &next["position"], &next["comes_next"]), (&json!(1), &json!(5), &json!(true)));
    expect_says(next, &["after that", "at most 2 tasks at once, of which 1 runs now"]);
}

#[tokio::test]
async fn a_concurrency_limit_is_a_reason() {
    let caller = shared().await;
    full(&caller, &caller).await;
}

/// The key, the limit and how many run, also for a task that no claim reads any more.
pub async fn full_key(acting: &Caller, asking: &Caller) {
    put(acting, "per-key", json!({"max_per_key": 2})).await;
    let task = json!({"type": "t", "queue": "per-key", "concurrency_key": "customer 4"});
    let tasks = acting.submit_all(vec![task; 4]).await;
    let leases = take(acting, "per-key", 2).await;
    poll(acting, "per-key").await;
    poll(asking, "per-key").await;
    let last = id_of(&tasks[3]);
    let (reason, eta) = only(&explained(asking, &last).await, "concurrency_key");
    assert_eq!((&reason["limit"], &reason["running"], &eta), (&json!(2), &json!(2), &json!(null)));
    assert_eq!((&reason["queue"], &reason["concurrency_key"]), (&json!("per-key"), &json!("customer 4")));
    expect_says(&reason, &["queue per-key runs at most 2 tasks of concurrency key customer 4 at once, and 2 run"]);
    acting.report("complete", &leases[0], json!({})).await.expect(200);
    assert_eq!(take(acting, "per-key", 1).await.len(), 1, "the next is woken");
}

#[tokio::test]
async fn a_full_concurrency_key_is_a_reason() {
    let caller = shared().await;
    full_key(&caller, &caller).await;
}

/// The rate, the position, and when there is a token for it.
pub async fn slow(acting: &Caller, asking: &Caller) {
    put(acting, "slow", json!({"rate_limit": {"per_second": 0.1, "burst": 2}})).await;
    let tasks = acting.submit_all(vec![json!({"type": "t", "queue": "slow"}); 5]).await;
    take(acting, "slow", 2).await;
    let begun = in_seconds(0.0);
    poll(asking, "slow").await;
    let (reason, eta) = only(&explained(asking, &id_of(&tasks[4])).await, "queue_rate");
    assert_eq!((&reason["per_second"], &reason["burst"], &reason["position"]), (&json!(0.1), &json!(2), &json!(3)));
    assert_eq!((&reason["until"], &reason["queue"]), (&eta, &json!("slow")));
    // Three tokens at ten seconds each, from the moment when the last was taken.
    let wait = seconds_between(begun, time(&eta));
    assert!((25.0..31.0).contains(&wait), "{wait} s: {reason:#}");
    let may_begin = format!("it may begin at {} at the earliest", eta.as_str().unwrap_or_default());
    expect_says(&reason, &["0.1 tasks a second", "burst 2", "2 other tasks", &may_begin]);
}

#[tokio::test]
async fn a_rate_limit_is_a_reason() {
    let caller = shared().await;
    slow(&caller, &caller).await;
}

#[tokio::test]
async fn all_reasons_are_shown_in_order() {
    let caller = shared().await;
    let settings = json!({"max_concurrency": 1, "rate_limit": {"per_second": 0.1, "burst": 1}});
    put(&caller, "q", settings).await;
    let tasks = caller.submit_all(vec![json!({"type": "t", "queue": "q"}); 3]).await;
    take(&caller, "q", 1).await;
    pause(&caller, "q", json!({"until": written(in_seconds(600.0))})).await;
    let answer = explained(&caller, &id_of(&tasks[2])).await;
    assert_eq!(codes(&answer), ["queue_paused", "queue_concurrency", "queue_rate"]);
    assert_eq!(answer["eta"], json!(null), "the duration of the running task is unknown");
    // A task with a dependency is held by that, its time and the pause.
    let parent = id_of(&tasks[1]);
    let child = json!({"type": "t", "queue": "q", "depends_on": [parent], "delay_seconds": 60});
    let child = caller.submit_id(child).await;
    let expected = ["waiting_for_dependencies", "not_due_yet", "queue_paused"];
    assert_eq!(codes(&explained(&caller, &child).await), expected);
}

#[tokio::test]
async fn positions_are_counted_up_to_ten_thousand() {
    let caller = shared().await;
    put(&caller, "q", json!({"max_concurrency": 1})).await;
    let mut last = String::new();
    for _ in 0..2 {
        let tasks = vec![json!({"type": "t", "queue": "q"}); 5_100];
        let answer = caller.api.post("/v1/tasks/batch?return=ids", &json!({ "tasks": tasks })).await.expect(200);
        last = answer["items"][5_099]["task_id"].as_str().expect("an id").to_owned();
    }
    take(&caller, "q", 1).await;
    let begun = Instant::now();
    let (reason, _) = only(&explained(&caller, &last).await, "queue_concurrency");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!((&reason["position"], &reason["position_or_later"]), (&json!(10_001), &json!(true)));
    expect_says(&reason, &["10,000 or more other tasks"]);
}

/// A queue far below its limit, with tasks of more types than an explanation reads.
#[tokio::test]
async fn a_limit_with_free_places_comes_next() {
    const TYPES: usize = 1_100;
    let caller = shared().await;
    put(&caller, "q", json!({"max_concurrency": 500})).await;
    let tasks: Vec<Value> = (0..TYPES).map(|n| json!({"type": format!("t{n}"), "queue": "q"})).collect();
    let last = id_of(&caller.submit_all(tasks).await[TYPES - 1]);
    let begun = Instant::now();
    let answer = explained(&caller, &last).await;
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(codes(&answer), ["no_worker_polling", "queue_concurrency"], "{answer:#}");
    let limit = &answer["reasons"][1];
    assert_eq!((&limit["running"], &limit["comes_next"]), (&json!(0), &json!(true)));
    assert_eq!((&limit["position"], &limit["position_or_later"]), (&json!(1_000), &json!(true)));
    expect_says(limit, &["999 or more other tasks"]);
}
