//! A leader that dies exactly on an instant: whoever leads next fires it, once, and soon.
//!
//! The short form kills a few leaders; `PUNCTUAL_CRON_KILLS=100` makes it a hundred.

use std::collections::HashSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use punctual_testkit::eventually::eventually;
use punctual_testkit::sink::Sink;
use serde_json::{Value, json};

use super::{create, every_second, live, occurrences, outcomes, path, read, tasks, until_outcomes};
use crate::it::cluster::Cluster;
use crate::it::world::{Caller, SOON, seconds_between, time};

/// Leaders that are killed if nobody says how many.
const KILLS: usize = 3;

/// The leader's lease in a cluster of tests, and what may be added to it.
const MOST_LATE: f64 = 3.0 + 5.0;

/// The place of the node that leads.
async fn leader(cluster: &Cluster) -> usize {
    eventually("one leads", SOON, async || {
        for place in 0..cluster.nodes.len() {
            let metrics = cluster.caller(place).api.get("/metrics").await.text().to_owned();
            if metrics.lines().any(|line| line == "punctual_leader 1") {
                return Ok(place);
            }
        }
        Err("nobody does".to_owned())
    })
    .await
}

/// Waits for the next whole second.
async fn on_the_instant() {
    let now = Timestamp::now();
    let next = Timestamp::from_second(now.as_second() + 1).expect("an instant");
    let wait = next.duration_since(now).max(SignedDuration::ZERO);
    tokio::time::sleep(wait.try_into().unwrap_or(Duration::ZERO)).await;
}

/// Every second from the first to the last has one record, and every one that fired a task of its own.
async fn check(caller: &Caller, schedule: &Value) -> Vec<Value> {
    let all = occurrences(caller, schedule).await;
    let instants: Vec<i64> = all.iter().map(|one| time(&one["instant"]).as_second()).collect();
    let expected: Vec<i64> = (instants[0]..=instants[instants.len() - 1]).collect();
    assert_eq!(instants, expected, "each instant once");
    let tasks: HashSet<&str> = all.iter().filter_map(|one| one["task_id"].as_str()).collect();
    let fired = outcomes(&all).iter().filter(|one| **one == "fired").count();
    assert_eq!(tasks.len(), fired, "each fired one has a task of its own");
    assert_eq!(read(caller, schedule).await["run_count"], fired);
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_killed_on_an_instant_costs_no_instant_and_fires_none_twice() {
    let kills = std::env::var("PUNCTUAL_CRON_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS);
    let (mut cluster, sink) = (Cluster::start(2).await, Sink::start());
    let task =
        json!({"type": "t", "callback_url": sink.url("/"), "retry_policy": {"max_retries": 9, "backoff_seconds": 0.1}});
    let more = json!({"overlap_policy": "allow_all", "catchup": "all", "task": task});
    let made = create(&cluster.caller(0), &every_second("s", more)).await;
    until_outcomes(&cluster.caller(0), &made, "fired", 1).await;
    let mut latest: f64 = 0.0;
    for _ in 0..kills {
        let place = leader(&cluster).await;
        on_the_instant().await;
        let mut killed = cluster.nodes.remove(place);
        killed.kill();
        cluster.join().await;
        let caller = cluster.caller(0);
        let before = occurrences(&caller, &made).await.len();
        // Somebody else leads, and has caught up.
        eventually("it goes on", SOON, async || {
            let all = occurrences(&caller, &made).await;
            let last = all.last().map(|one| time(&one["instant"])).unwrap_or_default();
            let is_current = seconds_between(last, Timestamp::now()) < 1.5;
            if all.len() > before && is_current { Ok(()) } else { Err(format!("{} at {last}", all.len())) }
        })
        .await;
    }
    let caller = cluster.caller(0);
    caller.api.post(&path(&made, "/pause"), &json!({})).await.expect(200);
    let all = check(&caller, &made).await;
    assert!(outcomes(&all).iter().all(|one| *one == "fired"), "{all:#?}");
    for one in &all {
        latest = latest.max(seconds_between(time(&one["instant"]), time(&one["decided_at"])));
    }
    println!("{kills} leaders killed on an instant, {} instants, the latest {latest:.3} s late", all.len());
    assert!(latest <= MOST_LATE, "{latest} seconds late");
    for one in &all {
        caller.until_within(one["task_id"].as_str().expect("a task"), "COMPLETED", Duration::from_mins(1)).await;
    }
    let called: HashSet<String> = sink.all_hits().iter().map(|hit| hit.header("punctual-task-id").to_owned()).collect();
    assert_eq!(called.len(), all.len(), "each was called, and nothing else");
}

#[tokio::test(flavor = "multi_thread")]
async fn overlap_is_held_across_a_change_of_leaders() {
    let mut cluster = Cluster::start(2).await;
    let made =
        create(&cluster.caller(0), &every_second("q", json!({"overlap_policy": "skip", "catchup": "all"}))).await;
    let lease = cluster.caller(0).lease_one("q").await;
    until_outcomes(&cluster.caller(0), &made, "skipped", 1).await;
    let place = leader(&cluster).await;
    on_the_instant().await;
    cluster.nodes.remove(place).kill();
    let caller = cluster.caller(0);
    let skipped = occurrences(&caller, &made).await.len() - 1;
    let all = until_outcomes(&caller, &made, "skipped", skipped + 2).await;
    assert_eq!(outcomes(&all).iter().filter(|one| **one == "fired").count(), 1, "{all:#?}");
    assert_eq!(live(&tasks(&caller, &made).await), 1);
    caller.tell("complete", &lease, json!({})).await.expect(200);
    until_outcomes(&caller, &made, "fired", 2).await;
    check(&caller, &made).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_written_on_any_node_is_fired_by_the_leader() {
    let cluster = Cluster::start(2).await;
    let leads = leader(&cluster).await;
    let caller = cluster.caller(1 - leads);
    let made = create(&caller, &every_second("s", json!({"overlap_policy": "buffer_all"}))).await;
    until_outcomes(&caller, &made, "buffered", 2).await;
    for _ in 0..3 {
        let lease = caller.lease_one("s").await;
        assert_eq!(live(&tasks(&caller, &made).await), 1);
        caller.tell("complete", &lease, json!({})).await.expect(200);
    }
    let fired = caller.api.post(&path(&made, "/trigger"), &json!({})).await;
    fired.expect_any(&[201, 202]);
    caller.api.delete(&path(&made, "")).await.expect(200);
}
