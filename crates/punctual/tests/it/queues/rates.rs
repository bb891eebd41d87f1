//! `rate_limit`, over sliding seconds.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use punctual_testkit::sink::Sink;
use serde_json::json;

use super::put;
use crate::it::cluster::Cluster;
use crate::it::world::{Caller, id_of, settlement, shared, time};

/// When each of the tasks was claimed, in order.
async fn claimed(caller: &Caller, ids: &[String]) -> Vec<Timestamp> {
    let mut claimed = Vec::new();
    for id in ids {
        let trail = caller.trail(id).await;
        let first = trail.iter().find(|event| event["to"] == "QUEUED").unwrap_or_else(|| panic!("{trail:#?}"));
        claimed.push(time(&first["at"]));
    }
    claimed.sort_unstable();
    claimed
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
