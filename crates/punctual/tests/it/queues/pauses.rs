//! Pauses: strict, durable, and level-triggered.

use std::time::{Duration, Instant};

use punctual_testkit::eventually::eventually;
use punctual_testkit::postgres::execute;
use punctual_testkit::sink::{Sink, SinkAnswer};
use serde_json::{Value, json};

use super::{count, get, pause, resume};
use crate::it::cluster::Cluster;
use crate::it::world::{Caller, SOON, World, expect_prompt, id_of, in_seconds, shared, worker_id, written};

fn ask(queue: &str, wait_seconds: u32) -> Value {
    json!({"worker_id": worker_id(), "queues": [queue], "max_tasks": 10, "wait_seconds": wait_seconds})
}

/// Waits until no worker holds a task of a queue; returns how many wait.
async fn until_idle(caller: &Caller, queue: &str) -> u64 {
    eventually("no worker holds a task", SOON, async || {
        let queue = get(caller, queue).await;
        let busy = count(&queue, "QUEUED") + count(&queue, "RUNNING");
        if busy == 0 { Ok(count(&queue, "PENDING")) } else { Err(format!("{queue:#}")) }
    })
    .await
}

#[tokio::test]
async fn a_paused_queue_gives_nothing_until_it_is_resumed() {
    let (caller, sink) = (shared().await, Sink::start());
    let shown = pause(&caller, "q", json!({"reason": "maintenance"})).await;
    assert_eq!((&shown["paused"], &shown["pause"]["reason"]), (&json!(true), &json!("maintenance")));
    let pulled = caller.submit_id(json!({"type": "t", "queue": "q"})).await;
    let pushed = caller.submit_id(json!({"type": "t", "queue": "q", "callback_url": sink.url("/")})).await;
    let free = caller.submit_id(json!({"type": "t", "queue": "free", "callback_url": sink.url("/free")})).await;
    caller.until(&free, "COMPLETED").await;
    assert_eq!(caller.lease(ask("q", 1)).await, Vec::<Value>::new());
    assert_eq!((sink.hits("/").len(), count(&get(&caller, "q").await, "PENDING")), (0, 2));
    let waiting = tokio::spawn({
        let caller = caller.apart();
        async move { caller.lease(ask("q", 30)).await }
    });
    let shown = resume(&caller, "q").await;
    assert_eq!((&shown["paused"], &shown["pause"]), (&json!(false), &json!(null)));
    assert_eq!(
        waiting.await.expect("it is answered").iter().map(|lease| id_of(&lease["task"])).collect::<Vec<_>>(),
        [pulled]
    );
    caller.until(&pushed, "COMPLETED").await;
}

#[tokio::test]
async fn a_pause_survives_kill_9() {
    let mut world = World::start().await;
    let until = written(in_seconds(3_600.0));
    let before = pause(&world.caller(), "q", json!({"reason": "why", "until": until})).await;
    let id = world.caller().submit_id(json!({"type": "t", "queue": "q"})).await;
    world.server.kill();
    world.restart().await;
    let caller = world.caller();
    assert_eq!(get(&caller, "q").await["pause"], before["pause"]);
    assert_eq!(caller.lease(ask("q", 0)).await, Vec::<Value>::new());
    let metric = async |wanted: &str| {
        eventually(wanted, SOON, async || {
            let metrics = caller.api.get("/metrics").await.text().to_owned();
            if metrics.lines().any(|line| line == wanted) { Ok(()) } else { Err(metrics) }
        })
        .await;
    };
    metric("punctual_queues_paused 1").await;
    resume(&caller, "q").await;
    metric("punctual_queues_paused 0").await;
    world.server.kill();
    world.restart().await;
    assert_eq!(id_of(&world.caller().lease_one("q").await["task"]), id);
}

#[tokio::test]
async fn a_pause_with_an_end_ends_on_time() {
    let caller = shared().await;
    expect_prompt("behind the end of the pause", async || {
        let mut behind = Vec::new();
        for round in 0..5 {
            let queue = format!("q{round}");
            let until = in_seconds(0.3);
            pause(&caller, &queue, json!({"until": written(until)})).await;
            caller.submit_id(json!({"type": "t", "queue": &queue})).await;
            caller.lease_one(&queue).await;
            behind.push(crate::it::world::seconds_between(until, in_seconds(0.0)));
        }
        assert!(behind.iter().all(|late| *late >= 0.0), "early: {behind:?}");
        behind
    })
    .await;
    assert_eq!(get(&caller, "q0").await["paused"], false);
}

#[tokio::test]
async fn no_node_begins_a_task_after_the_pause_is_answered() {
    let (cluster, sink) = (Cluster::start(3).await, Sink::start());
    sink.answer("/", SinkAnswer::status(200));
    let task = json!({"type": "t", "queue": "q", "callback_url": sink.url("/")});
    let pulled = json!({"type": "t", "queue": "q"});
    for round in 0..4 {
        let caller = cluster.caller(round % 3);
        caller.submit_all(vec![task.clone(); 1_000]).await;
        caller.submit_all(vec![pulled.clone(); 300]).await;
        let workers: Vec<_> = (0..3)
            .map(|node| {
                let caller = cluster.caller(node);
                tokio::spawn(async move {
                    loop {
                        let leases = caller.lease(ask("q", 1)).await;
                        if leases.is_empty() {
                            return;
                        }
                        let items = leases
                            .iter()
                            .map(|lease| crate::it::world::settlement(lease, json!({"outcome": "completed"})));
                        caller.settle_all(items.collect()).await;
                    }
                })
            })
            .collect();
        let hits = sink.all_hits().len();
        eventually("some have begun", SOON, async || {
            let now = sink.all_hits().len();
            if now > hits + 20 { Ok(()) } else { Err(format!("{now} hits")) }
        })
        .await;
        let other = cluster.caller((round + 1) % 3);
        pause(&other, "q", json!({})).await;
        let waiting = count(&get(&other, "q").await, "PENDING");
        for worker in workers {
            worker.await.expect("it ends at an empty poll");
        }
        assert_eq!(until_idle(&other, "q").await, waiting, "something began after the pause was answered");
        assert!(waiting > 0, "nothing was left to begin in round {round}");
        resume(&cluster.caller((round + 2) % 3), "q").await;
    }
}

#[tokio::test]
async fn a_resume_without_a_notification_is_found() {
    let (cluster, sink) = (Cluster::start(2).await, Sink::start());
    pause(&cluster.caller(0), "q", json!({})).await;
    let pulled = cluster.caller(0).submit_id(json!({"type": "t", "queue": "q"})).await;
    let pushed = cluster.caller(0).submit_id(json!({"type": "t", "queue": "q", "callback_url": sink.url("/")})).await;
    assert_eq!(cluster.caller(1).lease(ask("q", 1)).await, Vec::<Value>::new());
    // Written past all nodes, without a notification.
    let sql = "UPDATE punctual.queues SET paused_at = NULL, paused_by = NULL, version = version + 1";
    execute(&cluster.database, sql).await;
    execute(&cluster.database, "DELETE FROM punctual.gates").await;
    let begun = Instant::now();
    assert_eq!(id_of(&cluster.caller(1).lease_one("q").await["task"]), pulled);
    cluster.caller(1).until(&pushed, "COMPLETED").await;
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());

    // The same for a pause: the row itself counts.
    let sql = "UPDATE punctual.queues SET paused_at = 0, paused_by = 'somebody', version = version + 1";
    execute(&cluster.database, sql).await;
    execute(&cluster.database, "INSERT INTO punctual.gates (tenant, queue, is_paused) VALUES ('default', 'q', true)")
        .await;
    let id = cluster.caller(0).submit_id(json!({"type": "t", "queue": "q"})).await;
    assert_eq!(cluster.caller(0).lease(ask("q", 1)).await, Vec::<Value>::new());
    assert_eq!(cluster.caller(1).lease(ask("q", 0)).await, Vec::<Value>::new());
    assert_eq!(cluster.caller(1).task(&id).await["status"], "PENDING");
}
