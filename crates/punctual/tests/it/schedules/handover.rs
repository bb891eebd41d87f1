//! Overlap and catch-up where several nodes share a database: a new leader continues what another
//! began, also after an outage of all nodes.

use std::collections::{HashMap, HashSet};

use jiff::SignedDuration;
use tokio::task::JoinSet;

use super::catchup::{OUTAGE, Promises};
use super::failover::{around_an_instant, decider, leader, node_id};
use super::held::Held;
use super::occurrences;
use crate::it::cluster::Cluster;

const POLICIES: [&str; 6] = ["skip", "buffer_one", "buffer_all", "cancel_other", "terminate_other", "allow_all"];

/// Instants that are decided after the leader's death. Those of the three seconds of its lease come
/// late and together, the others on time.
const DECIDED_AFTER: usize = 6;

/// All policies at once, each with a task that is held since before the leader died.
#[tokio::test(flavor = "multi_thread")]
async fn every_policy_is_held_across_a_change_of_leaders() {
    let mut cluster = Cluster::start(2).await;
    let mut starting = JoinSet::new();
    for policy in POLICIES {
        let caller = cluster.caller(0);
        starting.spawn(async move { (policy, Held::start(&caller, policy).await) });
    }
    let held: HashMap<&str, Held> = starting.join_all().await.into_iter().collect();
    for one in held.values() {
        one.decided(&cluster.caller(0), 2).await;
    }
    let place = leader(&cluster).await;
    let killed = node_id(&cluster, place).await;
    around_an_instant(SignedDuration::ZERO).await;
    cluster.nodes.remove(place).kill();
    let caller = cluster.caller(0);
    let mut decided = HashMap::new();
    for (policy, one) in &held {
        decided.insert(*policy, occurrences(&caller, &one.made).await.len() + DECIDED_AFTER);
    }
    let of = |policy: &str| (&held[policy], decided[policy]);

    let (one, count) = of("allow_all");
    let all = one.decided(&caller, count).await;
    one.expect_side_by_side(&caller, count).await;
    let mut deciders = HashSet::new();
    for occurrence in &all {
        deciders.extend(decider(&caller, occurrence).await);
    }
    assert_eq!((deciders.len(), deciders.contains(&killed)), (2, true), "both have led: {deciders:?}");
    assert!(all.iter().any(|one| one["reason"] == "caught_up"), "there was no outage: {all:#?}");
    let (one, count) = of("skip");
    one.expect_skipped(&caller, count).await;
    let (one, count) = of("buffer_one");
    one.expect_one_kept_back(&caller, count).await;
    let (one, count) = of("cancel_other");
    one.expect_stop_asked(&caller, count).await;
    let (one, count) = of("terminate_other");
    one.expect_ended(&caller, count).await;
    let (one, count) = of("buffer_all");
    one.expect_all_kept_back(&caller, count).await;
}

/// The database's clock decides here, and a test cannot move it.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_catches_up_as_each_schedule_says() {
    let mut cluster = Cluster::start(2).await;
    let promises = Promises::start(&cluster.caller(0)).await;
    for node in &mut cluster.nodes {
        node.kill();
    }
    cluster.nodes.clear();
    // This sleep is the fault itself: an outage of this length.
    tokio::time::sleep(OUTAGE.unsigned_abs()).await;
    cluster.join().await;
    cluster.join().await;
    promises.expect_kept(&cluster.caller(1)).await;
}
