//! A leader dies on an instant, a little before it or a little after: the next leader fires it,
//! once, and soon.
//!
//! The short form kills a few leaders; `PUNCTUAL_CRON_KILLS=100` makes it a hundred.

use std::collections::HashSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use punctual_testkit::eventually::eventually;
use punctual_testkit::sink::Sink;
use serde_json::{Value, json};

use super::{
    create, every_second, expect_every_second, live, occurrences, outcomes, path, read, tasks, until_outcomes,
};
use crate::it::cluster::Cluster;
use crate::it::world::{Caller, SOON, seconds_between, time};

/// How many leaders are killed by default.
const KILLS: i64 = 3;

/// The leader's lease in a test cluster, and the tolerance beyond it.
const LATENESS_MAX: f64 = 3.0 + 5.0;

/// The first leader is killed this long before its instant, and the last this long after it. All
/// that a leader does about an instant, from the read to the commit, lies between.
const AROUND_MILLIS: i64 = 20;

/// The index of the node that leads.
pub async fn leader(cluster: &Cluster) -> usize {
    eventually("one leads", SOON, async || {
        for place in 0..cluster.nodes.len() {
            let metrics = cluster.caller(place).api.get("/metrics").await.text().to_owned();
            if metrics.lines().any(|line| line == "punctual_leader 1") {
                return Ok(place);
            }
        }
        Err("no node leads".to_owned())
    })
    .await
}

/// The id of the node at this index.
pub async fn node_id(cluster: &Cluster, place: usize) -> String {
    let nodes = cluster.caller(place).list("/v1/admin/nodes").await;
    // The node seen last at this address: a killed node may have had the same port.
    let node = nodes.iter().rfind(|node| node["address"] == cluster.nodes[place].address()).expect("it is known");
    node["id"].as_str().expect("an id").to_owned()
}

/// Waits until this long after the next whole second (or before it); returns that second.
pub async fn around_an_instant(offset: SignedDuration) -> Timestamp {
    let now = Timestamp::now();
    // The first second for which that moment is still to come.
    let instant = Timestamp::from_second((now - offset).as_second() + 1).expect("an instant");
    let wait = (instant + offset).duration_since(now).max(SignedDuration::ZERO);
    tokio::time::sleep(wait.try_into().unwrap_or(Duration::ZERO)).await;
    instant
}

/// The node that decided an instant, by the trail of its task; none if it has no task.
pub async fn decider(caller: &Caller, occurrence: &Value) -> Option<String> {
    let trail = caller.trail(occurrence["task_id"].as_str()?).await;
    assert_eq!((&trail[0]["actor"], &trail[0]["from"]), (&json!("schedule"), &json!(null)), "{trail:#?}");
    trail[0]["node"].as_str().map(str::to_owned)
}

/// A leader that was killed.
struct Killed {
    node: String,
    /// The instant next to its death.
    instant: Timestamp,
}

/// Kills the leader this long after an instant, and starts another node.
async fn kill_leader(cluster: &mut Cluster, offset: SignedDuration) -> Killed {
    let place = leader(cluster).await;
    let node = node_id(cluster, place).await;
    let instant = around_an_instant(offset).await;
    let mut killed = cluster.nodes.remove(place);
    killed.kill();
    cluster.join().await;
    Killed { node, instant }
}

/// Every second from the first to the last has one record, and each that fired has its own task.
async fn check(caller: &Caller, schedule: &Value) -> Vec<Value> {
    let all = occurrences(caller, schedule).await;
    expect_every_second(&all);
    let tasks: HashSet<&str> = all.iter().filter_map(|one| one["task_id"].as_str()).collect();
    let fired = outcomes(&all).iter().filter(|one| **one == "fired").count();
    assert_eq!(tasks.len(), fired, "each fired one has a task of its own");
    assert_eq!(read(caller, schedule).await["run_count"], fired);
    all
}

/// The lateness of the latest decision.
fn latest(all: &[Value]) -> f64 {
    let late = |one: &Value| seconds_between(time(&one["instant"]), time(&one["decided_at"]));
    all.iter().map(late).fold(0.0, f64::max)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_killed_on_an_instant_fires_each_once() {
    let kills = std::env::var("PUNCTUAL_CRON_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS);
    let (mut cluster, sink) = (Cluster::start(2).await, Sink::start());
    let task =
        json!({"type": "t", "callback_url": sink.url("/"), "retry_policy": {"max_retries": 9, "backoff_seconds": 0.1}});
    let more = json!({"overlap_policy": "allow_all", "catchup": "all", "task": task});
    let made = create(&cluster.caller(0), &every_second("s", more)).await;
    until_outcomes(&cluster.caller(0), &made, "fired", 1).await;
    let mut killed = Vec::new();
    for number in 0..kills {
        let offset = 2 * AROUND_MILLIS * number / (kills - 1).max(1) - AROUND_MILLIS;
        killed.push(kill_leader(&mut cluster, SignedDuration::from_millis(offset)).await);
        let caller = cluster.caller(0);
        let before = occurrences(&caller, &made).await.len();
        // Another node leads, and has caught up.
        eventually("it continues", SOON, async || {
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
    let latest = latest(&all);
    let (mut by_killed, mut by_successor) = (0, 0);
    for Killed { node, instant } in &killed {
        let own = all.iter().find(|one| time(&one["instant"]) == *instant).expect("the instant has a record");
        let by = decider(&caller, own).await.expect("it fired");
        *(if by == *node { &mut by_killed } else { &mut by_successor }) += 1;
    }
    println!(
        "{kills} leaders killed next to an instant, {} instants, the latest {latest:.3} s late; of those next to a death \
         {by_killed} were decided by the killed leader and {by_successor} by the successor",
        all.len()
    );
    assert!(latest <= LATENESS_MAX, "{latest} seconds late");
    for one in &all {
        caller.until_within(one["task_id"].as_str().expect("a task"), "COMPLETED", Duration::from_mins(1)).await;
    }
    let called: HashSet<String> = sink.all_hits().iter().map(|hit| hit.header("punctual-task-id").to_owned()).collect();
    assert_eq!(called.len(), all.len(), "each was called, and nothing else");
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
        caller.report("complete", &lease, json!({})).await.expect(200);
    }
    let fired = caller.api.post(&path(&made, "/trigger"), &json!({})).await;
    fired.expect_any(&[201, 202]);
    caller.api.delete(&path(&made, "")).await.expect(200);
}
