//! Ordering keys: one at a time and in order, whatever happens to the tasks and their workers.

mod nodes;

use std::collections::HashMap;
use std::time::Duration;

use punctual_testkit::eventually::eventually;
use punctual_testkit::sink::{Hit, Sink, SinkAnswer};
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::world::{Caller, SOON, World, boom, id_of, merged, quick, shared, time, worker_id};

fn keyed(fields: Value) -> Value {
    merged(json!({"type": "t", "queue": "q", "ordering_key": "k"}), fields)
}

/// The task that a poll without waiting gets, if any.
async fn offered(caller: &Caller) -> Vec<String> {
    let wanted = json!({"worker_id": worker_id(), "queues": ["q"], "max_tasks": 10, "wait_seconds": 0});
    caller.lease(wanted).await.iter().map(|lease| id_of(&lease["task"])).collect()
}

/// Waits for a lease, which must be of this task.
async fn lease_of(caller: &Caller, id: &str) -> Value {
    let lease = caller.lease_one("q").await;
    assert_eq!(id_of(&lease["task"]), id, "another task came first");
    lease
}

#[tokio::test]
async fn tasks_of_a_key_run_one_at_a_time_by_their_times() {
    let caller = shared().await;
    let tasks = [3, 1, 2, 1].map(|ago| keyed(json!({"execute_at": format!("2020-01-01T00:00:0{}Z", 9 - ago)})));
    let tasks = caller.submit_all(tasks.to_vec()).await;
    assert_eq!(tasks[0]["ordering_key"], "k");
    for place in [0, 2, 1, 3] {
        let lease = lease_of(&caller, &id_of(&tasks[place])).await;
        assert_eq!(offered(&caller).await, Vec::<String>::new(), "two of a key at once");
        caller.report("complete", &lease, json!({})).await.expect(200);
    }
    assert_eq!(caller.task(&id_of(&tasks[3])).await["ordering_key"], "k");
}

#[tokio::test]
async fn tasks_of_other_keys_run_beside_it() {
    let caller = shared().await;
    let tasks: Vec<Value> = (0..20).map(|n| keyed(json!({"ordering_key": format!("k{}", n % 5)}))).collect();
    caller.submit_all(tasks).await;
    let other = caller.stranger();
    other.submit(keyed(json!({"ordering_key": "k0"}))).await;
    let mut seen: HashMap<String, usize> = HashMap::new();
    eventually("one of each key", SOON, async || {
        let wanted = json!({"worker_id": worker_id(), "queues": ["q"], "max_tasks": 10, "wait_seconds": 1});
        for lease in caller.lease(wanted).await {
            *seen.entry(lease["task"]["ordering_key"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
        if seen.len() == 5 { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await;
    assert!(seen.values().all(|count| *count == 1), "{seen:?}");
    other.lease_one("q").await;
}

#[tokio::test]
async fn a_retry_a_crash_and_a_release_keep_the_order() {
    let caller = shared().await;
    let tasks = caller.submit_all(vec![keyed(json!({"retry_policy": quick(5)})), keyed(json!({}))]).await;
    let (first, second) = (id_of(&tasks[0]), id_of(&tasks[1]));
    let lease = lease_of(&caller, &first).await;
    caller.report("fail", &lease, boom()).await.expect(200);
    let lease = lease_of(&caller, &first).await;
    caller.report("release", &lease, json!({})).await.expect(200);
    // A worker that falls silent.
    let wanted =
        json!({"worker_id": worker_id(), "queues": ["q"], "max_tasks": 5, "wait_seconds": 20, "lease_seconds": 1});
    let leases = caller.lease(wanted).await;
    assert_eq!(leases.iter().map(|lease| id_of(&lease["task"])).collect::<Vec<_>>(), std::slice::from_ref(&first));
    let lease = lease_of(&caller, &first).await;
    caller.report("complete", &lease, json!({})).await.expect(200);
    let lease = lease_of(&caller, &second).await;
    let done = caller.task(&first).await;
    assert!(time(&lease["task"]["started_at"]) >= time(&done["completed_at"]), "{lease:#} {done:#}");
}

#[tokio::test]
async fn cancellations_edits_and_redrives_keep_the_order() {
    let caller = shared().await;
    let at =
        |second: u32| keyed(json!({"execute_at": format!("2020-01-01T00:00:0{second}Z"), "retry_policy": quick(0)}));
    let tasks = caller.submit_all(vec![at(1), at(2), at(3), at(4), at(5)]).await;
    let ids: Vec<String> = tasks.iter().map(id_of).collect();
    caller.api.delete(&format!("/v1/tasks/{}", ids[0])).await.expect(200);
    let sooner = json!({"execute_at": "2019-01-01T00:00:00Z"});
    caller.api.patch(&format!("/v1/tasks/{}", ids[3]), &sooner).await.expect(200);
    let lease = lease_of(&caller, &ids[3]).await;
    let later = json!({"execute_at": "2021-01-01T00:00:00Z"});
    caller.api.patch(&format!("/v1/tasks/{}", ids[1]), &later).await.expect(200);
    caller.report("fail", &lease, boom()).await.expect(200);
    caller.until(&ids[3], "DEAD_LETTERED").await;
    let lease = lease_of(&caller, &ids[2]).await;
    // It is earlier than all waiting tasks, and waits for the running one.
    caller.api.post(&format!("/v1/tasks/{}/redrive", ids[3]), &json!({})).await.expect(200);
    assert_eq!(offered(&caller).await, Vec::<String>::new());
    caller.api.delete(&format!("/v1/tasks/{}", ids[2])).await.expect(202);
    assert_eq!(offered(&caller).await, Vec::<String>::new(), "it runs until its worker has stopped");
    caller.report("complete", &lease, json!({})).await.problem_code(410, "cancelled");
    for id in [&ids[3], &ids[4], &ids[1]] {
        let lease = lease_of(&caller, id).await;
        caller.report("complete", &lease, json!({})).await.expect(200);
    }
}

/// By default the tasks behind a dead letter continue; a queue may hold them.
async fn a_queue_may_hold_tasks_behind_a_dead_letter(caller: &Caller) {
    let fatal = || json!({"error": {"code": "bad", "message": "bad"}, "retryable": false});
    let ids: Vec<String> =
        caller.submit_all(vec![keyed(json!({})), keyed(json!({})), keyed(json!({}))]).await.iter().map(id_of).collect();
    let lease = lease_of(caller, &ids[0]).await;
    caller.report("fail", &lease, fatal()).await.expect(200);
    let lease = lease_of(caller, &ids[1]).await;
    caller
        .api
        .call("PUT", "/v1/queues/q")
        .json(&json!({"on_dead_letter": "hold"}))
        .send()
        .await
        .expect_any(&[200, 201]);
    caller.report("fail", &lease, fatal()).await.expect(200);
    caller.until(&ids[1], "DEAD_LETTERED").await;
    let wanted = json!({"worker_id": worker_id(), "queues": ["q"], "max_tasks": 10, "wait_seconds": 2});
    assert_eq!(caller.lease(wanted).await, Vec::<Value>::new(), "the third is held");
    caller.api.post(&format!("/v1/tasks/{}/redrive", ids[1]), &json!({})).await.expect(200);
    let lease = lease_of(caller, &ids[1]).await;
    caller.report("fail", &lease, fatal()).await.expect(200);
    caller.until(&ids[1], "DEAD_LETTERED").await;
    let purge = format!("/v1/tasks/{}/purge", ids[1]);
    for _ in 0..2 {
        let purged = caller.api.call("POST", &purge).send().await.expect(200);
        assert_eq!(purged["status"], "CANCELLED");
    }
    caller.api.call("POST", &format!("/v1/tasks/{}/purge", ids[2])).send().await.problem(409);
    let lease = lease_of(caller, &ids[2]).await;
    caller.report("complete", &lease, json!({})).await.expect(200);
}

#[tokio::test]
async fn a_dead_letter_may_hold_its_key_in_one_process() {
    a_queue_may_hold_tasks_behind_a_dead_letter(&shared().await).await;
}

#[tokio::test]
async fn a_dead_letter_may_hold_its_key_in_a_cluster() {
    let cluster = Cluster::start(2).await;
    a_queue_may_hold_tasks_behind_a_dead_letter(&cluster.caller(1)).await;
}

/// The numbers in the payloads that a sink got, in the order of the calls.
fn numbers(sink: &Sink) -> Vec<usize> {
    let number = |hit: &Hit| {
        let payload: Value = serde_json::from_slice(&hit.body).expect("a payload");
        payload["number"].as_u64().and_then(|number| usize::try_from(number).ok()).expect("a number")
    };
    sink.all_hits().iter().map(number).collect()
}

/// Checks the calls of a key: one at a time, each in its turn. A lost run is repeated before the
/// next.
fn expect_turns(sink: &Sink, count: usize) {
    let mut turns = numbers(sink);
    turns.dedup();
    assert_eq!(turns, (0..count).collect::<Vec<_>>(), "out of order: {:?}", numbers(sink));
    assert_eq!(sink.most_at_once(), 1, "two of a key at once");
}

#[tokio::test]
async fn the_order_survives_a_killed_process() {
    const COUNT: usize = 40;
    let (mut world, sink) = (World::start().await, Sink::start());
    sink.answer("/", SinkAnswer::status(200).after(Duration::from_millis(20)));
    // Only a kill ends the first run of these two.
    let stuck = [5, 15];
    sink.script("/stuck", [SinkAnswer::hang(), SinkAnswer::status(200), SinkAnswer::hang(), SinkAnswer::status(200)]);
    let task = |number: usize| {
        let url = sink.url(if stuck.contains(&number) { "/stuck" } else { "/" });
        let payload = json!({ "number": number });
        json!({"type": "t", "ordering_key": "k", "payload": payload, "callback_url": url, "retry_policy": quick(5)})
    };
    let ids: Vec<String> = world.caller().submit_all((0..COUNT).map(task).collect()).await.iter().map(id_of).collect();
    for hits in [1, 3] {
        sink.wait_for("/stuck", hits, SOON).await;
        world.server.kill();
        world.restart().await;
    }
    for id in &ids {
        world.caller().until_within(id, "COMPLETED", SOON * 2).await;
    }
    expect_turns(&sink, COUNT);
    for number in stuck {
        assert_eq!(numbers(&sink).iter().filter(|hit| **hit == number).count(), 2, "the run was lost and repeated");
    }
}

#[tokio::test]
async fn a_key_is_1_to_255_characters() {
    let caller = shared().await;
    let long = "ü".repeat(255);
    let task = caller.submit(keyed(json!({"ordering_key": long, "delay_seconds": 600}))).await;
    assert_eq!(task["ordering_key"], json!(long));
    for bad in [json!(""), json!("ü".repeat(256)), json!("a\nb")] {
        caller.api.post("/v1/tasks", &keyed(json!({"ordering_key": bad}))).await.invalid("/ordering_key");
    }
    for bad in [json!(7), json!(["k"])] {
        caller.api.post("/v1/tasks", &keyed(json!({"ordering_key": bad}))).await.problem(422);
    }
    // A replay must have the same ordering key.
    let submit = |key: &str| json!({"type": "t", "idempotency_key": "i", "ordering_key": key, "delay_seconds": 600});
    caller.api.post("/v1/tasks", &submit("a")).await.expect(201);
    caller.api.post("/v1/tasks", &submit("a")).await.expect(200);
    caller.api.post("/v1/tasks", &submit("b")).await.problem_code(422, "idempotency_key_reused");
}
