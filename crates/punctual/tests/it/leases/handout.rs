//! `POST /v1/leases`: which worker gets which tasks.

use std::collections::BTreeSet;

use punctual_testkit::eventually::eventually;
use punctual_testkit::sink::{Sink, SinkAnswer};
use serde_json::{Value, json};

use crate::it::world::{
    Caller, SOON, boom, expect_id, id_of, in_seconds, quick, seconds_between, settlement, shared, time, worker_id,
    written,
};

fn wanting(queues: &[&str], max_tasks: usize, wait_seconds: u64) -> Value {
    json!({"worker_id": worker_id(), "queues": queues, "max_tasks": max_tasks, "wait_seconds": wait_seconds})
}

#[tokio::test]
async fn a_lease_has_all_that_a_worker_needs() {
    let caller = shared().await;
    let submitted =
        caller.submit(json!({"type": "mail", "queue": "q", "payload": {"to": "x"}, "metadata": {"a": "b"}})).await;
    let worker = worker_id();
    let before = in_seconds(0.0);
    let wanted = json!({"worker_id": worker, "queues": ["q"], "max_tasks": 1, "wait_seconds": 20, "lease_seconds": 30});
    let lease = caller.lease(wanted).await.remove(0);
    let after = in_seconds(0.0);
    expect_id(lease["run_id"].as_str().expect("a run's id"), "run_");
    assert_eq!(lease["attempt"], 1);
    assert!(lease["token"].is_u64(), "the token is a number: {lease:#}");
    assert!(lease.get("checkpoint").is_some_and(Value::is_null), "{lease:#}");
    let expires = time(&lease["lease_expires_at"]);
    assert!(seconds_between(before, expires) >= 29.9 && seconds_between(after, expires) <= 30.1, "{lease:#}");
    let task = &lease["task"];
    assert_eq!((&task["status"], &task["worker_id"]), (&json!("RUNNING"), &json!(worker)));
    for member in ["task_id", "tenant", "type", "queue", "payload", "metadata", "priority", "execute_at", "created_at"]
    {
        assert_eq!(task[member], submitted[member], "{member}");
    }
    assert_eq!(*task, caller.task(&id_of(task)).await, "the task as it can be read");
}

#[tokio::test]
async fn a_lease_lasts_a_minute_by_default() {
    let caller = shared().await;
    caller.submit(json!({"type": "t", "queue": "q"})).await;
    let before = in_seconds(0.0);
    let lease = caller.lease(wanting(&["q"], 1, 20)).await.remove(0);
    let lasts = seconds_between(before, time(&lease["lease_expires_at"]));
    assert!((59.9..80.0).contains(&lasts), "{lasts} s");
}

#[tokio::test]
async fn workers_are_handed_tasks_of_their_queues_only() {
    let caller = shared().await;
    let mut ids = Vec::new();
    for queue in ["a", "b", "c"] {
        ids.push(caller.submit_id(json!({"type": "t", "queue": queue})).await);
    }
    assert_eq!(id_of(&caller.lease_one("b").await["task"]), ids[1]);
    let mut rest = BTreeSet::new();
    while rest.len() < 2 {
        let leases = caller.lease(wanting(&["a", "b", "c"], 5, 20)).await;
        assert!(!leases.is_empty(), "two tasks are left");
        rest.extend(leases.iter().map(|lease| id_of(&lease["task"])));
    }
    assert_eq!(rest, BTreeSet::from([ids[0].clone(), ids[2].clone()]));
    assert_eq!(caller.lease(wanting(&["a", "b", "c", "never-used"], 5, 0)).await, Vec::<Value>::new());
}

#[tokio::test]
async fn workers_are_handed_tasks_of_their_types_from_any_queue() {
    let caller = shared().await;
    let mail_a = caller.submit_id(json!({"type": "mail", "queue": "a"})).await;
    let mail_b = caller.submit_id(json!({"type": "mail", "queue": "b"})).await;
    let other = caller.submit_id(json!({"type": "mail.bulk", "queue": "a"})).await;
    let wanted = |types: &[&str], wait: u64| {
        let worker = worker_id();
        json!({"worker_id": worker, "types": types, "max_tasks": 10, "wait_seconds": wait})
    };
    let mut seen = BTreeSet::new();
    while seen.len() < 2 {
        let leases = caller.lease(wanted(&["mail"], 20)).await;
        assert!(!leases.is_empty(), "two tasks are due");
        seen.extend(leases.iter().map(|lease| id_of(&lease["task"])));
    }
    assert_eq!(seen, BTreeSet::from([mail_a, mail_b]));
    assert_eq!(caller.lease(wanted(&["mail"], 1)).await, Vec::<Value>::new());
    let leases = caller.lease(wanted(&["nothing", "mail.bulk"], 20)).await;
    assert_eq!(leases.iter().map(|lease| id_of(&lease["task"])).collect::<Vec<_>>(), [other]);
}

#[tokio::test]
async fn no_worker_gets_another_tenants_task() {
    let caller = shared().await;
    let stranger = caller.stranger();
    caller.submit(json!({"type": "t", "queue": "q"})).await;
    assert_eq!(stranger.lease(wanting(&["q"], 10, 1)).await, Vec::<Value>::new());
    let lease = caller.lease_one("q").await;
    stranger.report("complete", &lease, json!({})).await.problem(404);
    let item = stranger.settle(&lease, json!({"outcome": "completed"})).await;
    assert_eq!(item["status"], 404, "{item:#}");
    caller.report("complete", &lease, json!({})).await.expect(200);
}

#[tokio::test]
async fn no_worker_gets_too_many_tasks_or_one_twice() {
    let caller = shared().await;
    caller.submit_all((0..25).map(|_| json!({"type": "t", "queue": "q"})).collect()).await;
    let mut seen = BTreeSet::new();
    while seen.len() < 25 {
        let leases = caller.lease(wanting(&["q"], 4, 20)).await;
        assert!((1..=4).contains(&leases.len()), "{} leases", leases.len());
        for lease in leases {
            assert!(seen.insert(id_of(&lease["task"])), "a task was handed out twice");
        }
    }
    assert_eq!(caller.lease(wanting(&["q"], 4, 1)).await, Vec::<Value>::new());
}

#[tokio::test]
async fn many_are_handed_out_in_one_call() {
    let caller = shared().await;
    caller
        .submit_all(
            (0..100).map(|_| json!({"type": "t", "queue": "q", "execute_at": written(in_seconds(1.5))})).collect(),
        )
        .await;
    let mut seen = 0;
    let mut largest = 0;
    while seen < 100 {
        let leases = caller.lease(wanting(&["q"], 100, 20)).await;
        assert!(!leases.is_empty(), "{seen} of 100 were handed out");
        seen += leases.len();
        largest = largest.max(leases.len());
    }
    assert!(largest > 1, "max_tasks of 100 never gave more than one");
}

#[tokio::test]
async fn tasks_of_high_priority_come_first() {
    let caller = shared().await;
    // All are due when the first worker polls; lower priorities were submitted first.
    let priorities = [[1; 10], [5; 10], [9; 10]].concat().into_iter();
    let tasks = priorities.map(|priority| json!({"type": "t", "queue": "q", "priority": priority, "delay_seconds": 1}));
    let due =
        caller.submit_all(tasks.collect()).await.iter().map(|task| time(&task["execute_at"])).max().expect("tasks");
    eventually("all are due", SOON, async || {
        let late = seconds_between(due, in_seconds(0.0));
        if late > 0.5 { Ok(()) } else { Err(format!("{late} s after the time")) }
    })
    .await;
    let mut order = Vec::new();
    for _ in 0..30 {
        order.push(caller.lease_one("q").await["task"]["priority"].as_u64().expect("a priority"));
    }
    assert_eq!(order[0], 9, "the first is one of the most important: {order:?}");
    let mean = |priority: u64| {
        let places: Vec<usize> =
            order.iter().enumerate().filter(|(_, p)| **p == priority).map(|(place, _)| place).collect();
        places.iter().sum::<usize>() * 100 / places.len()
    };
    assert!(mean(9) < mean(5) && mean(5) < mean(1), "the important come first: {order:?}");
}

#[tokio::test]
async fn tokens_only_grow_and_attempts_count_up() {
    let caller = shared().await;
    let id = caller.submit_id(json!({"type": "t", "queue": "q", "retry_policy": quick(5)})).await;
    let mut last = 0;
    for attempt in 1..=4 {
        let lease = caller.lease_one("q").await;
        assert_eq!((id_of(&lease["task"]), &lease["attempt"]), (id.clone(), &json!(attempt)));
        assert_eq!(lease["task"]["retry_count"], attempt - 1);
        let token = lease["token"].as_u64().expect("a token");
        assert!(token > last, "token {token} after {last}");
        last = token;
        caller.report("fail", &lease, boom()).await.expect(200);
    }
}

#[tokio::test]
async fn a_task_with_a_webhook_is_not_for_pull_workers() {
    let caller = shared().await;
    let sink = Sink::start();
    sink.answer("/hook", SinkAnswer::hang());
    let id = caller.submit_id(json!({"type": "t", "queue": "q", "callback_url": sink.url("/hook")})).await;
    assert_eq!(caller.lease(wanting(&["q"], 10, 1)).await, Vec::<Value>::new());
    sink.wait_for("/hook", 1, SOON).await;
    caller.api.delete(&format!("/v1/tasks/{id}")).await.expect(202);
}

#[tokio::test]
async fn many_workers_run_each_task_once() {
    let caller = shared().await;
    let tasks = caller.submit_all((0..200).map(|n| json!({"type": "t", "queue": "q", "payload": n})).collect()).await;
    let workers: Vec<_> = (0..8).map(|_| tokio::spawn(work_until_dry(caller.apart()))).collect();
    let mut seen = Vec::new();
    for worker in workers {
        seen.extend(worker.await.expect("a worker ends"));
    }
    assert_eq!(seen.len(), 200, "each task was handed out once");
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 200, "each task was handed out once");
    for task in tasks {
        assert_eq!(caller.until(&id_of(&task), "COMPLETED").await["result"], task["payload"]);
    }
}

/// Leases and completes until no task came for two seconds; returns their ids.
async fn work_until_dry(caller: Caller) -> Vec<String> {
    let mut seen = Vec::new();
    loop {
        let leases = caller.lease(wanting(&["q"], 5, 2)).await;
        if leases.is_empty() {
            return seen;
        }
        seen.extend(leases.iter().map(|lease| id_of(&lease["task"])));
        let done = leases
            .iter()
            .map(|lease| settlement(lease, json!({"outcome": "completed", "result": lease["task"]["payload"]})));
        for item in caller.settle_all(done.collect()).await {
            assert_eq!(item["status"], 200, "{item:#}");
        }
    }
}
