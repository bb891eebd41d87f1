//! `max_concurrency`, in the whole cluster.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use punctual_testkit::eventually::eventually;
use punctual_testkit::sink::{Sink, SinkAnswer};
use serde_json::json;

use super::{count, get, put};
use crate::it::cluster::Cluster;
use crate::it::partitions::owner_of;
use crate::it::workers::Workers;
use crate::it::world::{Caller, SOON, World, expect_prompt, id_of, quick, shared, time, worker_id};

/// How far the clocks of nodes may be behind the store's: a run is shortened by it at both ends.
const SKEW: jiff::SignedDuration = jiff::SignedDuration::from_millis(40);

/// How long a run takes where servers are killed: long compared with that.
const RUN_TIME: Duration = Duration::from_millis(300);

/// How many may run at once there.
const LIMIT: usize = 5;

/// The most runs at once, by their records.
pub async fn most_at_once(caller: &Caller, ids: &[String]) -> usize {
    let mut steps: Vec<(Timestamp, i32)> = Vec::new();
    for id in ids {
        let mut began = None;
        for event in caller.trail(id).await {
            let (at, to) = (time(&event["at"]), event["to"].as_str().unwrap_or_default().to_owned());
            let held = ["QUEUED", "RUNNING"].contains(&to.as_str());
            match (began, held) {
                (None, true) => began = Some(at),
                (Some(from), false) => {
                    began = None;
                    if from + SKEW < at - SKEW {
                        steps.extend([(from + SKEW, 1), (at - SKEW, -1)]);
                    }
                }
                _ => {}
            }
        }
        assert_eq!(began, None, "{id} has not finished");
    }
    steps.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, step) in steps {
        now += step;
        most = most.max(now);
    }
    usize::try_from(most).expect("not negative")
}

#[tokio::test]
async fn a_queue_runs_exactly_as_many_as_its_limit() {
    let (caller, sink) = (shared().await, Sink::start());
    sink.answer("/", SinkAnswer::status(200).after(Duration::from_millis(50)));
    put(&caller, "q", json!({"max_concurrency": 4})).await;
    let tasks = caller.submit_all(vec![json!({"type": "t", "queue": "q", "callback_url": sink.url("/")}); 40]).await;
    let ids: Vec<String> = tasks.iter().map(id_of).collect();
    let begun = Instant::now();
    for id in &ids {
        caller.until(id, "COMPLETED").await;
    }
    assert_eq!(sink.most_at_once(), 4);
    assert!(most_at_once(&caller, &ids).await <= 4);
    // Ten times fifty milliseconds if free places are taken at once; ten seconds if only the check
    // of every second finds them.
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn any_node_takes_a_free_place_at_once() {
    let cluster = Cluster::start(3).await;
    put(&cluster.caller(0), "q", json!({"max_concurrency": 1})).await;
    cluster.caller(0).submit_all(vec![json!({"type": "t", "queue": "q"}); 40]).await;
    let mut lease = cluster.caller(0).lease_one("q").await;
    let mut rounds = 0;
    expect_prompt("behind the end of the run before", async || {
        let mut behind = Vec::new();
        for _ in 0..8 {
            rounds += 1;
            let waiting = cluster.caller(rounds % 2);
            let asked = tokio::spawn(async move { (waiting.lease_one("q").await, Instant::now()) });
            eventually("it waits", SOON, async || {
                let metrics = cluster.caller(rounds % 2).api.get("/metrics").await.text().to_owned();
                if metrics.lines().any(|line| line == "punctual_waiting_workers 1") { Ok(()) } else { Err(metrics) }
            })
            .await;
            assert!(!asked.is_finished(), "there is one place");
            cluster.caller(2).report("complete", &lease, json!({})).await.expect(200);
            let ended = Instant::now();
            let (next, at) = asked.await.expect("it is answered");
            lease = next;
            behind.push(at.saturating_duration_since(ended).as_secs_f64());
        }
        behind
    })
    .await;
}

/// Fills a limited queue with twice as many tasks: webhooks (`t`) and tasks for pull workers (`u`),
/// whose runs all call the sink.
async fn fill_queue(caller: &Caller, sink: &Sink, of_each: usize) -> Vec<String> {
    sink.answer("/", SinkAnswer::status(200).after(RUN_TIME));
    put(caller, "q", json!({"max_concurrency": LIMIT})).await;
    let pushed = json!({"type": "t", "queue": "q", "callback_url": sink.url("/"), "retry_policy": quick(20)});
    let pulled = json!({"type": "u", "queue": "q", "payload": {"sink": sink.url("/")}, "retry_policy": quick(20)});
    let tasks = [vec![pushed; of_each], vec![pulled; of_each]].concat();
    caller.submit_all(tasks).await.iter().map(id_of).collect()
}

/// Checks the runs of these tasks: some were lost and repeated, and never more ran than the limit.
/// A worker that died with a task kept its place until the task was taken back.
async fn expect_limit(caller: &Caller, sink: &Sink, ids: &[String]) {
    let mut lost = 0;
    for id in ids {
        let done = caller.until_within(id, "COMPLETED", Duration::from_mins(1)).await;
        lost += done["retry_count"].as_u64().expect("a number");
    }
    assert!(lost > 0, "no killed node was running a task");
    assert_eq!(sink.most_at_once(), LIMIT, "calls at once");
    assert_eq!(most_at_once(caller, ids).await, LIMIT, "runs at once");
    let queue = get(caller, "q").await;
    assert_eq!((count(&queue, "QUEUED"), count(&queue, "RUNNING")), (0, 0), "no place has leaked");
    // All places are free again.
    caller.submit_all(vec![json!({"type": "v", "queue": "q"}); LIMIT + 1]).await;
    let wanted = json!({"worker_id": worker_id(), "types": ["v"], "max_tasks": 100, "wait_seconds": 20});
    assert_eq!(caller.lease(wanted).await.len(), LIMIT);
}

/// The node that dispatches the queue is killed twice, while it calls a webhook.
#[tokio::test]
async fn the_limit_holds_on_three_nodes_while_they_are_killed() {
    let (mut cluster, sink) = (Cluster::start(3).await, Sink::start());
    let ids = fill_queue(&cluster.caller(0), &sink, 50).await;
    let workers = Workers::start(cluster.callers(), 2);
    for _ in 0..2 {
        let owner = calling_owner(&cluster).await;
        cluster.replace(owner).await;
        workers.moved(owner, cluster.caller(owner));
    }
    expect_limit(&cluster.caller(0), &sink, &ids).await;
    workers.end().await;
}

/// Waits until the node that dispatches the queue is alive and calls a webhook; returns its number.
async fn calling_owner(cluster: &Cluster) -> usize {
    let caller = cluster.caller(0);
    eventually("the owner of the queue calls", SOON, async || {
        let owner = owner_of(&caller, "q").await.unwrap_or_default().replace("node_", "worker_");
        let running = caller.list("/v1/tasks?limit=1000&queue=q&type=t&status=RUNNING").await;
        let calls = running.iter().any(|task| task["worker_id"] == *owner);
        let place = cluster.place_of(&owner).await;
        place.filter(|_| calls).ok_or_else(|| format!("{owner} of {running:#?}"))
    })
    .await
}

#[tokio::test]
async fn the_limit_survives_a_killed_process() {
    let (mut world, sink) = (World::start().await, Sink::start());
    let ids = fill_queue(&world.caller(), &sink, 25).await;
    // The pull workers lose nothing. They take one less than the limit, so that a webhook runs
    // beside them.
    let workers = Workers::start(vec![world.caller(), world.caller()], LIMIT / 2);
    for _ in 0..2 {
        eventually("all places are taken", SOON, async || match sink.waiting() {
            LIMIT => Ok(()),
            fewer => Err(format!("{fewer} calls")),
        })
        .await;
        world.server.kill();
        world.restart().await;
        (0..2).for_each(|number| workers.moved(number, world.caller()));
    }
    expect_limit(&world.caller(), &sink, &ids).await;
    workers.end().await;
}
