//! Partitions of several nodes on one PostgreSQL, as an operator and a webhook's target see them.

mod takeover;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use punctual_core::lane::{LaneKey, Route};
use punctual_core::partitions::Partition;
use punctual_testkit::eventually::eventually;
use punctual_testkit::process::TestServer;
use punctual_testkit::sink::{Hit, Sink, SinkAnswer};
use serde_json::{Value, json};

use crate::it::cluster::Cluster;
use crate::it::world::{Caller, SOON, caller_of, id_of, in_seconds, quick, seconds_between, time, written};

const PARTITIONS: usize = 64;
/// Enough queues for every node to own some of them.
const QUEUES: u32 = 100;

/// The owner and the term of every partition.
type Owners = BTreeMap<u64, (Option<String>, u64)>;

async fn owners(caller: &Caller) -> Owners {
    let partitions = caller.list("/v1/admin/partitions").await;
    let row = |row: &Value| {
        time(&row["expires_at"]);
        let owner = row["owner"].as_str().map(str::to_owned);
        (row["partition"].as_u64().expect("a number"), (owner, row["term"].as_u64().expect("a term")))
    };
    partitions.iter().map(row).collect()
}

/// How many partitions each owner has; partitions without an owner are left out.
fn shares(owners: &Owners) -> BTreeMap<String, usize> {
    let mut shares = BTreeMap::new();
    for owner in owners.values().filter_map(|(owner, _)| owner.clone()) {
        *shares.entry(owner).or_default() += 1;
    }
    shares
}

/// Waits until this many nodes own every partition, with even shares, give or take one.
async fn until_shared(caller: &Caller, nodes: usize, within: Duration) -> Owners {
    eventually(&format!("{nodes} nodes share all partitions"), within, async || {
        let owners = owners(caller).await;
        let shares = shares(&owners);
        let (least, most) = (PARTITIONS / nodes, PARTITIONS.div_ceil(nodes));
        let is_fair = shares.len() == nodes
            && shares.values().sum::<usize>() == PARTITIONS
            && shares.values().all(|share| (least..=most).contains(share));
        if is_fair { Ok(owners) } else { Err(format!("{shares:?} of {}", owners.len())) }
    })
    .await
}

/// The id by which a node is known.
async fn id_of_node(caller: &Caller, server: &TestServer) -> String {
    eventually("the node is known", SOON, async || {
        let nodes = caller.list("/v1/admin/nodes").await;
        let found = nodes.iter().find(|node| node["address"] == server.address());
        found.and_then(|node| node["id"].as_str()).map(str::to_owned).ok_or_else(|| format!("{nodes:#?}"))
    })
    .await
}

/// The id of the node that currently dispatches a queue of the default tenant.
pub async fn owner_of(caller: &Caller, queue: &str) -> Option<String> {
    owners(caller).await.remove(&partition_of(queue)).and_then(|(owner, _)| owner)
}

/// For each node of a cluster, in order, a queue that it dispatches.
pub async fn queue_of_each(cluster: &Cluster) -> Vec<String> {
    let caller = cluster.caller(0);
    let owners = until_shared(&caller, cluster.nodes.len(), SOON).await;
    let mut queues = Vec::new();
    for server in &cluster.nodes {
        let id = id_of_node(&caller, server).await;
        let is_its = |queue: &String| owners[&partition_of(queue)].0.as_ref() == Some(&id);
        queues.extend((0..10_000).map(|number| format!("q{number}")).find(is_its));
    }
    assert_eq!(queues.len(), cluster.nodes.len(), "every node dispatches something");
    queues
}

/// The partition of a queue of the default tenant.
fn partition_of(queue: &str) -> u64 {
    let (tenant, queue) = ("default".to_owned(), queue.to_owned());
    let lane = LaneKey { tenant, queue, kind: String::new(), priority: 0, route: Route::Pull };
    Partition::of(&lane, u16::try_from(PARTITIONS).expect("a few")).number().into()
}

/// Webhooks that come due one after the other, in all queues, between `from` and `to` seconds.
async fn submit_webhooks(caller: &Caller, sink: &Sink, count: u32, from: f64, to: f64) -> Vec<String> {
    let task = |number: u32| {
        let due = from + (to - from) * f64::from(number) / f64::from(count);
        json!({
            "type": "t",
            "queue": format!("q{}", number % QUEUES),
            "callback_url": sink.url("/"),
            "execute_at": written(in_seconds(due)),
            "retry_policy": quick(5),
        })
    };
    caller.submit_all((0..count).map(task).collect()).await.iter().map(id_of).collect()
}

/// Waits until each was delivered and completed; no attempt may have been delivered twice. Returns
/// the first hit of each.
async fn until_delivered(caller: &Caller, sink: &Sink, ids: &[String]) -> Vec<Hit> {
    for id in ids {
        caller.until_within(id, "COMPLETED", Duration::from_mins(1)).await;
    }
    let (mut attempts, mut first) = (HashSet::new(), BTreeMap::new());
    for hit in sink.all_hits() {
        let attempt = (hit.header("punctual-task-id").to_owned(), hit.header("punctual-attempt").to_owned());
        assert!(attempts.insert(attempt.clone()), "attempt {} of {} was delivered twice", attempt.1, attempt.0);
        first.entry(attempt.0).or_insert(hit);
    }
    let hits: Vec<Hit> =
        ids.iter().map(|id| first.remove(id).unwrap_or_else(|| panic!("{id} never arrived"))).collect();
    let early = hits.iter().filter(|hit| lateness(hit) < 0.0).count();
    assert_eq!(early, 0, "nothing is early");
    hits
}

fn due(hit: &Hit) -> Timestamp {
    hit.header("punctual-execute-at").parse().expect("an instant")
}

fn lateness(hit: &Hit) -> f64 {
    seconds_between(due(hit), hit.at)
}

/// The 99th percentile of the lateness of those due from `since` on.
fn p99(hits: &[Hit], since: Timestamp) -> f64 {
    let mut late: Vec<f64> = hits.iter().filter(|hit| due(hit) >= since).map(lateness).collect();
    assert!(late.len() > 100, "only {} were due then", late.len());
    late.sort_by(f64::total_cmp);
    late[late.len() * 99 / 100]
}

#[tokio::test]
async fn every_partition_has_one_owner_and_shares_are_even() {
    let cluster = Cluster::start(3).await;
    let caller = cluster.caller(0);
    let owners = until_shared(&caller, 3, SOON).await;
    assert_eq!(owners.keys().copied().collect::<Vec<_>>(), (0..PARTITIONS as u64).collect::<Vec<_>>());
    let nodes = eventually("one leads and all are known", SOON, async || {
        let nodes = caller.list("/v1/admin/nodes").await;
        let leaders = nodes.iter().filter(|node| node["leader"] == true).count();
        if (nodes.len(), leaders) == (3, 1) { Ok(nodes) } else { Err(format!("{nodes:#?}")) }
    })
    .await;
    let shares = shares(&owners);
    for node in &nodes {
        let id = node["id"].as_str().expect("an id");
        assert_eq!(node["partitions"].as_u64(), shares.get(id).map(|share| *share as u64), "{node:#}");
        assert_eq!(node["roles"], json!(["api", "scheduler", "worker", "leader"]));
        assert_eq!(node["version"], env!("CARGO_PKG_VERSION"));
        assert!(node["name"].as_str().is_some_and(|name| !name.is_empty()), "{node:#}");
        assert!(node["skew_ms"].as_i64().is_some_and(|skew| skew.abs() < 5_000), "one machine has one clock: {node:#}");
        assert!(time(&node["first_seen_at"]) <= time(&node["last_seen_at"]));
    }
    for server in &cluster.nodes {
        let id = id_of_node(&caller, server).await;
        eventually("the metrics show the same", SOON, async || {
            let metrics = caller_of(server).api.get("/metrics").await.text().to_owned();
            let owned = format!("punctual_partitions_owned {}", shares[&id]);
            let is_leader = nodes.iter().any(|node| node["id"] == *id && node["leader"] == true);
            let leader = format!("punctual_leader {}", u8::from(is_leader));
            let has_line = |wanted: &str| metrics.lines().any(|line| line == wanted);
            let skew = metrics.lines().any(|line| line.starts_with("punctual_clock_skew_seconds "));
            if has_line(&owned) && has_line(&leader) && skew { Ok(()) } else { Err(metrics) }
        })
        .await;
    }
}

#[tokio::test]
async fn a_node_that_joins_gets_its_share() {
    let mut cluster = Cluster::start(2).await;
    let before = until_shared(&cluster.caller(0), 2, SOON).await;
    cluster.serve = cluster.serve.clone().setting("NAME", "newcomer-3");
    cluster.join().await;
    let after = until_shared(&cluster.caller(0), 3, SOON).await;
    let newcomer = id_of_node(&cluster.caller(1), &cluster.nodes[2]).await;
    for (partition, (owner, term)) in &after {
        let (old, old_term) = &before[partition];
        if *owner == Some(newcomer.clone()) {
            assert!(term > old_term, "a new owner has a new term");
        } else {
            assert_eq!((owner, term), (old, old_term), "partition {partition} moved without need");
        }
    }
    let nodes = cluster.caller(2).list("/v1/admin/nodes").await;
    let names: BTreeSet<&str> = nodes.iter().filter_map(|node| node["name"].as_str()).collect();
    assert!(names.contains("newcomer-3"), "{names:?}");
    for partition in cluster.caller(0).list("/v1/admin/partitions").await {
        let is_named = partition["owner_name"] == "newcomer-3";
        assert_eq!(is_named, partition["owner"] == newcomer.as_str(), "{partition:#}");
    }
    for node in 0..2 {
        let joined = format!("a node has joined node.id={newcomer} node.name=\"newcomer-3\"");
        cluster.until_logged(node, &joined).await;
        // Ten or eleven of its thirty-two move, at once.
        cluster.until_logged(node, " taken=0 given_up=1").await;
    }
    cluster.until_logged(2, "this node owns other partitions than before owned=").await;
}

#[tokio::test]
async fn a_node_that_shuts_down_hands_over_at_once() {
    let (mut cluster, sink) = (Cluster::start(3).await, Sink::start());
    let mut rounds = Vec::new();
    // The machine may be busy with all other tests: a design that is late would be late in every
    // round.
    while rounds.len() < 3 {
        until_shared(&cluster.caller(1), 3, SOON).await;
        let seen = sink.all_hits().len();
        let ids = submit_webhooks(&cluster.caller(1), &sink, 1_000, 1.0, 6.0).await;
        sink.wait_for("/", seen + 400, SOON).await;
        let signalled_at = Timestamp::now();
        cluster.nodes[0].terminate();
        let begun = Instant::now();
        until_shared(&cluster.caller(1), 2, SOON).await;
        let took = begun.elapsed();
        let hits = until_delivered(&cluster.caller(1), &sink, &ids).await;
        let exit = cluster.nodes[0].exit(SOON).await;
        assert_eq!(exit.code, Some(0), "{exit}");
        let late = p99(&hits, signalled_at);
        if took < Duration::from_secs(2) && late < 0.5 {
            return;
        }
        rounds.push((took, late));
        cluster.nodes.remove(0);
        cluster.join().await;
        cluster.nodes.rotate_right(1);
    }
    panic!("how long the handover took, and how late the webhooks were: {rounds:?}");
}

#[tokio::test]
async fn another_node_takes_over_from_a_killed_one() {
    let (mut cluster, sink) = (Cluster::start(3).await, Sink::start());
    let before = until_shared(&cluster.caller(1), 3, SOON).await;
    let killed = id_of_node(&cluster.caller(1), &cluster.nodes[0]).await;
    let ids = submit_webhooks(&cluster.caller(1), &sink, 500, 1.0, 6.0).await;
    sink.wait_for("/", 100, SOON).await;
    cluster.nodes[0].kill();
    let after = until_shared(&cluster.caller(1), 2, Duration::from_secs(6)).await;
    for (partition, (owner, term)) in &after {
        let (old, old_term) = &before[partition];
        assert_ne!(*owner, Some(killed.clone()));
        if *old == Some(killed.clone()) {
            assert!(term > old_term);
        }
    }
    let hits = until_delivered(&cluster.caller(1), &sink, &ids).await;
    let worst = hits.iter().map(lateness).fold(0.0, f64::max);
    assert!(worst < 10.0, "a webhook was {worst} s late");
    eventually("the killed node is removed", SOON, async || {
        let nodes = cluster.caller(2).list("/v1/admin/nodes").await;
        if nodes.iter().any(|node| node["id"] == *killed) { Err(format!("{nodes:#?}")) } else { Ok(()) }
    })
    .await;
    for node in 1..3 {
        // The node that has declared it gone says that instead.
        let ends = ["a node is gone", "a node has left"];
        let line = cluster.until_logged_any(node, &ends).await;
        assert!(line.contains(&killed), "{line}");
    }
}

#[tokio::test]
async fn a_frozen_owner_dispatches_nothing_when_it_wakes() {
    let (mut cluster, sink) = (Cluster::start(3).await, Sink::start());
    let before = until_shared(&cluster.caller(1), 3, SOON).await;
    let frozen = id_of_node(&cluster.caller(1), &cluster.nodes[0]).await;
    let mut ids = submit_webhooks(&cluster.caller(1), &sink, 400, 0.5, 6.5).await;
    sink.wait_for("/", 50, SOON).await;
    cluster.nodes[0].process().signal("STOP");
    // If it is frozen inside a claim, it keeps its partition until the database ends that
    // transaction, after ten seconds.
    until_shared(&cluster.caller(1), 2, SOON).await;
    // Due when it wakes, and later.
    ids.extend(submit_webhooks(&cluster.caller(1), &sink, 400, 0.0, 4.0).await);
    cluster.nodes[0].process().signal("CONT");
    let after = until_shared(&cluster.caller(1), 3, SOON).await;
    assert!(shares(&after).contains_key(&frozen), "it is one of them again");
    let lost = before.iter().filter(|(_, (owner, _))| *owner == Some(frozen.clone()));
    assert!(lost.clone().count() >= PARTITIONS / 3);
    for (partition, (_, term)) in lost {
        assert!(after[partition].1 > *term, "partition {partition} had another owner meanwhile");
    }
    until_delivered(&cluster.caller(2), &sink, &ids).await;
}

/// Shuts the first node down.
async fn end(cluster: &mut Cluster) {
    let mut node = cluster.nodes.remove(0);
    node.terminate();
    assert_eq!(node.exit(SOON).await.code, Some(0));
}

/// The rows of the former 80 partitions remain. So a node that counts 80 can start beside a node
/// that counts 64; the latter reports it.
#[tokio::test]
async fn another_number_of_partitions_is_reported() {
    let mut cluster = Cluster::start(0).await;
    let usual = cluster.serve.clone();
    cluster.serve = usual.clone().setting("SCHEDULER__PARTITIONS", "80");
    cluster.join().await;
    end(&mut cluster).await;
    let more = std::mem::replace(&mut cluster.serve, usual);
    cluster.join().await;
    until_shared(&cluster.caller(0), 1, SOON).await;
    cluster.serve = more;
    cluster.join().await;
    eventually("the first node logs it", SOON, async || {
        let log = cluster.nodes[0].log();
        if log.contains("scheduler.partitions is not the same on all nodes") { Ok(()) } else { Err(log) }
    })
    .await;
}

/// With different numbers some queues would have no dispatcher. A node that is alone may use a new
/// number.
#[tokio::test]
async fn a_node_with_other_partitions_does_not_start() {
    let mut cluster = Cluster::start(1).await;
    until_shared(&cluster.caller(0), 1, SOON).await;
    for count in ["32", "128"] {
        let exit = cluster.serve.clone().setting("SCHEDULER__PARTITIONS", count).fail(SOON).await;
        let sentence = format!("scheduler.partitions is {count} here, but 64 on the nodes that run on this store");
        assert!(exit.code == Some(1) && exit.stderr.contains(&sentence), "{exit}");
    }
    end(&mut cluster).await;
    let alone = cluster.serve.clone().setting("SCHEDULER__PARTITIONS", "32").start().await;
    eventually("the node owns all its partitions", SOON, async || {
        let owners = owners(&caller_of(&alone)).await;
        let shares = shares(&owners);
        if shares.values().eq([&32]) { Ok(()) } else { Err(format!("{shares:?}")) }
    })
    .await;
}
