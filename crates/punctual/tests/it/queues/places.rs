//! `max_concurrency`, in the whole cluster.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use punctual_testkit::eventually::eventually;
use punctual_testkit::sink::{Answer, Sink};
use serde_json::{Value, json};

use super::{count, get, put};
use crate::it::cluster::Cluster;
use crate::it::world::{Caller, SOON, expect_prompt, id_of, quick, settlement, shared, time, worker_id};

/// By how much the clocks of nodes may be behind the store's: what counts as running is shortened by it at both ends.
const SKEW: jiff::SignedDuration = jiff::SignedDuration::from_millis(20);

/// The most runs at once, by what is recorded of them.
async fn most_at_once(caller: &Caller, ids: &[String]) -> usize {
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
        assert_eq!(began, None, "{id} has come to rest");
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
async fn a_queue_runs_no_more_than_it_may_and_no_fewer() {
    let (caller, sink) = (shared().await, Sink::start());
    sink.answer("/", Answer::status(200).after(Duration::from_millis(50)));
    put(&caller, "q", json!({"max_concurrency": 4})).await;
    let tasks = caller.submit_all(vec![json!({"type": "t", "queue": "q", "callback_url": sink.url("/")}); 40]).await;
    let ids: Vec<String> = tasks.iter().map(id_of).collect();
    let begun = Instant::now();
    for id in &ids {
        caller.until(id, "COMPLETED").await;
    }
    assert_eq!(sink.most_at_once(), 4);
    assert!(most_at_once(&caller, &ids).await <= 4);
    // Ten times fifty milliseconds, if places are taken again at once; ten seconds, if only by looking every second.
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_place_that_came_free_is_taken_at_once_on_any_node() {
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
            cluster.caller(2).tell("complete", &lease, json!({})).await.expect(200);
            let ended = Instant::now();
            let (next, at) = asked.await.expect("it is answered");
            lease = next;
            behind.push(at.saturating_duration_since(ended).as_secs_f64());
        }
        behind
    })
    .await;
}

/// Webhooks and pull workers in one queue; nodes are killed and come back. Whoever held a task when it died held a place
/// until somebody took it back.
#[tokio::test]
async fn the_limit_holds_on_three_nodes_while_they_are_killed() {
    const MOST: usize = 5;
    let (mut cluster, sink) = (Cluster::start(3).await, Sink::start());
    sink.answer("/", Answer::status(200).after(Duration::from_millis(40)));
    put(&cluster.caller(0), "q", json!({"max_concurrency": MOST})).await;
    let pushed = json!({"type": "t", "queue": "q", "callback_url": sink.url("/"), "retry_policy": quick(20)});
    let pulled = json!({"type": "u", "queue": "q", "retry_policy": quick(20)});
    let mut ids: Vec<String> = cluster.caller(0).submit_all(vec![pushed; 250]).await.iter().map(id_of).collect();
    ids.extend(cluster.caller(1).submit_all(vec![pulled; 60]).await.iter().map(id_of));
    let worker = tokio::spawn(pull(cluster.caller(2), 60));
    for round in 0..4 {
        let done = 40 * (round + 1);
        eventually("some were called", Duration::from_mins(1), async || {
            let hits = sink.all_hits().len();
            if hits >= done { Ok(()) } else { Err(format!("{hits} hits")) }
        })
        .await;
        // Never the last one, which the worker asks.
        cluster.nodes[round % 2].kill();
        cluster.nodes[round % 2] = cluster.serve.start().await;
    }
    let caller = cluster.caller(2);
    for id in &ids {
        caller.until_within(id, "COMPLETED", Duration::from_mins(1)).await;
    }
    worker.await.expect("the worker ends");
    assert!(sink.most_at_once() <= MOST, "{} calls at once", sink.most_at_once());
    let most = most_at_once(&caller, &ids).await;
    assert!((2..=MOST).contains(&most), "{most} runs at once");
    let queue = get(&caller, "q").await;
    assert_eq!((count(&queue, "QUEUED"), count(&queue, "RUNNING")), (0, 0), "no place has leaked");
    // All places are there again.
    caller.submit_all(vec![json!({"type": "u", "queue": "q"}); MOST + 1]).await;
    let wanted = json!({"worker_id": worker_id(), "queues": ["q"], "max_tasks": 100, "wait_seconds": 20});
    assert_eq!(caller.lease(wanted).await.len(), MOST);
}

/// Takes and completes so many tasks, each after a moment.
async fn pull(caller: Caller, count: usize) {
    let mut done = 0;
    while done < count {
        let wanted = json!({"worker_id": "w", "types": ["u"], "max_tasks": 2, "wait_seconds": 20, "lease_seconds": 30});
        let leases = caller.lease(wanted).await;
        done += leases.len();
        let items: Vec<Value> = leases.iter().map(|lease| settlement(lease, json!({"outcome": "completed"}))).collect();
        let settled = caller.settle_all(items).await;
        assert!(settled.iter().all(|item| item["status"] == 200), "{settled:?}");
    }
}
