//! `rate_limit`, over sliding seconds.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use punctual_testkit::sink::Sink;
use serde_json::{Value, json};

use super::put;
use crate::it::cluster::Cluster;
use crate::it::workers::Workers;
use crate::it::world::{Caller, id_of, quick, settlement, shared, time};

/// When each of the tasks was claimed for the first time, in order.
async fn claimed(caller: &Caller, ids: &[String]) -> Vec<Timestamp> {
    claims(caller, ids).await.first
}

/// When tasks were claimed, in order.
#[derive(Default)]
struct Claims {
    /// The first claim of each.
    first: Vec<Timestamp>,
    /// Further claims, after a first one that was given back.
    all: Vec<Timestamp>,
    /// The nodes that claimed them.
    nodes: BTreeSet<String>,
}

async fn claims(caller: &Caller, ids: &[String]) -> Claims {
    let mut claims = Claims::default();
    for id in ids {
        let trail = caller.trail(id).await;
        let of_task: Vec<&Value> = trail.iter().filter(|event| event["to"] == "QUEUED").collect();
        claims.first.push(time(&of_task.first().unwrap_or_else(|| panic!("{trail:#?}"))["at"]));
        claims.all.extend(of_task.iter().map(|event| time(&event["at"])));
        claims.nodes.extend(of_task.iter().map(|event| event["node"].to_string()));
    }
    claims.first.sort_unstable();
    claims.all.sort_unstable();
    claims
}

fn most_in_a_second(times: &[Timestamp]) -> usize {
    let within = |(place, from): (usize, &Timestamp)| {
        times[place..].iter().take_while(|at| at.duration_since(*from) < SignedDuration::from_secs(1)).count()
    };
    times.iter().enumerate().map(within).max().unwrap_or(0)
}

#[tokio::test]
async fn webhooks_of_a_cluster_begin_at_the_rate_and_no_faster() {
    let (cluster, sink) = (Cluster::start(3).await, Sink::start());
    put(&cluster.caller(1), "q", json!({"rate_limit": {"per_second": 50, "burst": 10}})).await;
    let task = json!({"type": "t", "queue": "q", "callback_url": sink.url("/")});
    let mut tasks = cluster.caller(0).submit_all(vec![task.clone(); 150]).await;
    tasks.extend(cluster.caller(2).submit_all(vec![task; 150]).await);
    let ids: Vec<String> = tasks.iter().map(id_of).collect();
    for id in &ids {
        cluster.caller(0).until_within(id, "COMPLETED", Duration::from_mins(1)).await;
    }
    let times = claimed(&cluster.caller(0), &ids).await;
    let most = most_in_a_second(&times);
    assert!(most <= 63, "{most} in a second, where 50 and a burst of 10 may be");
    let took = times[times.len() - 1].duration_since(times[0]).as_secs_f64();
    // 290 after the burst, at 50 a second.
    assert!(took >= 5.8 * 0.95, "{took} s");
    assert!(took <= 5.8 * 1.25, "{took} s: the rate is not reached");
}

/// Workers at every node ask for all tasks. Together they get what one rate allows, also while a
/// node is killed and comes back.
#[tokio::test]
async fn pull_workers_of_three_nodes_share_one_rate() {
    const COUNT: u32 = 160;
    const RATE: u32 = 50;
    const BURST: u32 = 10;
    let mut cluster = Cluster::start(3).await;
    put(&cluster.caller(1), "q", json!({"rate_limit": {"per_second": RATE, "burst": BURST}})).await;
    let workers = Workers::start(cluster.callers(), 20);
    for is_killed in [false, true] {
        let mut rates = Vec::new();
        // The machine may be busy with all other tests: a design that is slow would be slow in
        // every round.
        while rates.iter().all(|rate| *rate < f64::from(RATE) * 0.9) {
            assert!(rates.len() < 3, "the rate is not reached: {rates:?} a second");
            let task = json!({"type": "u", "queue": "q", "retry_policy": quick(20)});
            let tasks = (0..COUNT).map(|_| task.clone()).collect();
            let ids: Vec<String> = cluster.caller(0).submit_all(tasks).await.iter().map(id_of).collect();
            if is_killed {
                cluster.caller(0).until(&ids[30], "COMPLETED").await;
                cluster.replace(2).await;
                workers.moved(2, cluster.caller(2));
            }
            for id in &ids {
                cluster.caller(0).until(id, "COMPLETED").await;
            }
            let Claims { first, all, nodes } = claims(&cluster.caller(0), &ids).await;
            let most = most_in_a_second(&all);
            assert!(most <= 63, "{most} in a second, where {RATE} and a burst of {BURST} may be");
            assert!(nodes.len() >= 3, "all have handed out some: {nodes:?}");
            let took = first[first.len() - 1].duration_since(first[0]).as_secs_f64();
            rates.push(f64::from(COUNT - BURST) / took);
        }
    }
    workers.end().await;
}

#[tokio::test]
async fn pull_workers_get_no_more_than_the_rate_however_they_ask() {
    let caller = shared().await;
    put(&caller, "q", json!({"rate_limit": {"per_second": 40}})).await;
    let ids: Vec<String> =
        caller.submit_all(vec![json!({"type": "t", "queue": "q"}); 120]).await.iter().map(id_of).collect();
    let begun = Instant::now();
    let workers: Vec<_> = (0..5)
        .map(|number| {
            let caller = caller.apart();
            tokio::spawn(async move {
                loop {
                    let wanted =
                        json!({"worker_id": format!("w{number}"), "queues": ["q"], "max_tasks": 50, "wait_seconds": 2});
                    let leases = caller.lease(wanted).await;
                    if leases.is_empty() {
                        return;
                    }
                    let items = leases.iter().map(|lease| settlement(lease, json!({"outcome": "completed"})));
                    caller.settle_all(items.collect()).await;
                }
            })
        })
        .collect();
    for id in &ids {
        caller.until(id, "COMPLETED").await;
    }
    let took = begun.elapsed().as_secs_f64();
    for worker in workers {
        worker.await.expect("it ends when nothing is left");
    }
    let times = claimed(&caller, &ids).await;
    assert!(most_in_a_second(&times) <= 42, "{} in a second", most_in_a_second(&times));
    assert!(took <= 3.0 * 1.4, "{took} s for 120 at 40 a second: the rate is not reached");
}

#[tokio::test]
async fn a_slow_rate_is_kept_too() {
    let caller = shared().await;
    put(&caller, "q", json!({"rate_limit": {"per_second": 2, "burst": 3}})).await;
    let ids: Vec<String> =
        caller.submit_all(vec![json!({"type": "t", "queue": "q"}); 6]).await.iter().map(id_of).collect();
    let mut given = 0;
    while given < ids.len() {
        let wanted = json!({"worker_id": "w", "queues": ["q"], "max_tasks": 50, "wait_seconds": 20});
        given += caller.lease(wanted).await.len();
    }
    let times = claimed(&caller, &ids).await;
    let after: Vec<f64> = times.iter().map(|at| at.duration_since(times[0]).as_secs_f64()).collect();
    assert!(after[2] < 0.3 && after[3] >= 0.4 && after[4] >= 0.9 && after[5] >= 1.4, "{after:?}");
}
