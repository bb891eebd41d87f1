//! The conformance suite of [`punctual_core::registry::Registry`]: each sentence of its
//! contract is a function here of the same name.

use std::time::Duration;

use punctual_core::ids::NodeId;
use punctual_core::registry::{NodePresence, NodeSession, WorkerPresence};
use punctual_core::time::Timestamp;
use punctual_core::upkeep::Prunable;

use crate::fixtures::{START, at};
use crate::store::{StoreFactory, StoreFixture};

/// Stamps the suite. `$factory` is an expression that returns a `StoreFactory` with a fresh place.
#[macro_export]
macro_rules! registry_conformance {
    ($factory:expr) => {
        $crate::stamp! { registry, $factory;
            presence_is_recorded,
            a_heartbeat_keeps_what_was_asked_for,
            workers_are_listed_by_tenant,
            nodes_are_listed_as_they_were_last_seen,
            a_removed_node_is_not_listed,

            a_silent_worker_is_forgotten,
        }
    };
}

/// The first and last instant and the latest queues and types are kept, also over a restart.
pub async fn presence_is_recorded(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let first = saw("w-é", &["q1", "äöü, \"x\""], &["k1"], START);
    fixture.database.record_workers(vec![first.clone(), saw("v", &[], &[], START)]).await.expect("it is remembered");
    assert_eq!(one(&fixture, "w-é").await, first);
    assert_eq!(one(&fixture, "v").await, saw("v", &[], &[], START));

    let second = saw("w-é", &["q2"], &["k2", "k3"], at(5_000));
    fixture.database.record_workers(vec![second.clone()]).await.expect("it is remembered");
    let known = WorkerPresence { first_seen_at: START, ..second };
    assert_eq!(one(&fixture, "w-é").await, known);

    let twice = vec![saw("w-é", &["q3"], &[], at(6_000)), saw("w-é", &["q4"], &[], at(7_000))];
    fixture.database.record_workers(twice).await.expect("a worker may be twice in one batch");
    let known = WorkerPresence { first_seen_at: START, ..saw("w-é", &["q4"], &[], at(7_000)) };
    assert_eq!(one(&fixture, "w-é").await, known);
    fixture.database.record_workers(vec![]).await.expect("an empty call is allowed");

    let fixture = fixture.reopen().await;
    assert_eq!(one(&fixture, "w-é").await, known);
}

/// Also twice in a batch. A worker that only sent heartbeats has no queues and types.
pub async fn a_heartbeat_keeps_what_was_asked_for(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let saw_all = async |seen| fixture.database.record_workers(seen).await.expect("they are remembered");
    saw_all(vec![saw("queues", &["q"], &[], START), saw("types", &[], &["k"], START)]).await;
    let signs = ["queues", "types", "new"].map(|name| saw(name, &[], &[], at(5_000)));
    saw_all(signs.to_vec()).await;
    let at_last = |seen: WorkerPresence, last_seen_at| WorkerPresence { last_seen_at, ..seen };
    assert_eq!(one(&fixture, "queues").await, at_last(saw("queues", &["q"], &[], START), at(5_000)));
    assert_eq!(one(&fixture, "types").await, at_last(saw("types", &[], &["k"], START), at(5_000)));
    assert_eq!(one(&fixture, "new").await, saw("new", &[], &[], at(5_000)));
    saw_all(vec![saw("queues", &[], &["x"], at(6_000)), saw("queues", &[], &[], at(7_000))]).await;
    assert_eq!(one(&fixture, "queues").await, at_last(saw("queues", &[], &["x"], START), at(7_000)));
}

/// A tenant's workers are listed by name, page by page, without those of other tenants.
pub async fn workers_are_listed_by_tenant(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let names: Vec<String> = (0..25).map(|number| format!("w{:02}", number * 7 % 25)).collect();
    let presences = |tenant: &str| -> Vec<WorkerPresence> {
        names.iter().map(|name| WorkerPresence { tenant: tenant.into(), ..saw(name, &[tenant], &[], START) }).collect()
    };
    let tenants = ["acme", "ACME", "", "ünï"];
    for tenant in tenants {
        fixture.database.record_workers(presences(tenant)).await.expect("they are remembered");
    }
    let mut sorted = names.clone();
    sorted.sort_unstable();
    for tenant in tenants {
        let (mut listed, mut after) = (Vec::new(), None);
        loop {
            let page = fixture.database.workers(tenant, after.clone(), 4).await.expect("workers answers");
            assert!(page.len() <= 4);
            let Some(last) = page.last() else { break };
            after = Some(last.name.clone());
            listed.extend(page);
        }
        assert!(listed.iter().all(|worker| worker.tenant == tenant && worker.queues == [tenant]));
        assert_eq!(listed.into_iter().map(|worker| worker.name).collect::<Vec<_>>(), sorted);
    }
    assert!(fixture.database.workers("nobody", None, 10).await.expect("workers answers").is_empty());
}

/// Workers last seen before the cutoff are forgotten and counted; one seen at it stays.
pub async fn a_silent_worker_is_forgotten(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let elsewhere = WorkerPresence { tenant: "other".into(), ..saw("old", &[], &[], START) };
    let seen = vec![saw("old", &[], &[], at(-1)), saw("edge", &[], &[], START), saw("new", &[], &[], at(1)), elsewhere];
    fixture.database.record_workers(seen).await.expect("they are remembered");
    assert_eq!(fixture.database.prune(Prunable::Workers, START, 1).await.expect("prune answers").removed, 1);
    assert_eq!(names(&fixture, "acme").await, ["edge", "new"]);
    assert_eq!(
        fixture.database.prune(Prunable::Workers, at(1), 1).await.expect("prune answers").removed,
        2,
        "of every tenant"
    );
    assert_eq!(names(&fixture, "acme").await, ["new"]);
    assert_eq!(names(&fixture, "other").await, Vec::<String>::new());
    fixture.database.record_workers(vec![saw("old", &[], &[], at(9))]).await.expect("it is remembered");
    assert_eq!(one(&fixture, "old").await.first_seen_at, at(9), "who was forgotten is new");
}

/// The first instant stays, everything else is the node's latest report; the oldest node is first.
/// The instants are those of the store's clock, and other nodes are not touched.
pub async fn nodes_are_listed_as_they_were_last_seen(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    assert_eq!(nodes(&fixture).await, []);
    let presence_of = |number, name: &str, skew_millis| NodePresence {
        name: name.into(),
        address: "[::1]:7878".into(),
        roles: vec!["api".into(), "äöü, \"x\"".into()],
        version: "1.2.3-é".into(),
        skew_millis,
        lease: Some(Duration::from_millis(30_500)),
        ..bare(NodeId::new(number))
    };
    let seen = |presence: &NodePresence, first, last| NodePresence {
        first_seen_at: at(first),
        last_seen_at: at(last),
        ..presence.clone()
    };
    let saw = async |presence: &NodePresence| {
        fixture.database.record_node(presence.clone()).await.expect("it is remembered");
    };
    let (old, young) = (presence_of(u64::MAX >> 1, "a", i64::MIN), presence_of(2, "", 7));
    saw(&old).await;
    fixture.advance(1_000);
    saw(&young).await;
    assert_eq!(nodes(&fixture).await, [seen(&old, 0, 0), seen(&young, 1_000, 1_000)]);

    fixture.advance(1_000);
    let again =
        NodePresence { lease: None, roles: vec![], address: "other".into(), ..presence_of(u64::MAX >> 1, "b", -1) };
    saw(&again).await;
    let same_time = presence_of(1, "c", 0);
    saw(&same_time).await;
    fixture.advance(1_000);
    saw(&young).await;
    let known = [seen(&again, 0, 2_000), seen(&young, 1_000, 3_000), seen(&same_time, 2_000, 2_000)];
    assert_eq!(nodes(&fixture).await, known);

    fixture.database.remove_node(young.id).await.expect("it is forgotten");
    assert_eq!(nodes(&fixture).await, [known[0].clone(), known[2].clone()]);
    saw(&young).await;
    assert_eq!(nodes(&fixture).await.last(), Some(&seen(&young, 3_000, 3_000)), "who was forgotten is new");
    let fixture = fixture.reopen().await;
    assert_eq!(nodes(&fixture).await.len(), 3, "a restart forgets no node");
}

/// A removed node is no longer listed, and an unknown node can be removed too.
pub async fn a_removed_node_is_not_listed(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let nodes = [NodeId::new(11), NodeId::new(12)];
    for node in nodes {
        fixture.database.record_node(bare(node)).await.expect("it is remembered");
    }
    fixture.database.remove_node(nodes[0]).await.expect("it is forgotten");
    fixture.database.remove_node(nodes[0]).await.expect("a second removal is allowed");
    fixture.database.remove_node(NodeId::random()).await.expect("removing an unknown node is allowed");
    let known = self::nodes(&fixture).await;
    assert_eq!(known.iter().map(|node| node.id).collect::<Vec<_>>(), nodes[1..]);
    fixture.database.record_node(bare(nodes[0])).await.expect("it is remembered");
    assert_eq!(self::nodes(&fixture).await.len(), 2);
}

fn saw(name: &str, queues: &[&str], kinds: &[&str], at: Timestamp) -> WorkerPresence {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    WorkerPresence {
        tenant: "acme".into(),
        name: name.into(),
        queues: texts(queues),
        kinds: texts(kinds),
        first_seen_at: at,
        last_seen_at: at,
    }
}

/// A node without any details, and with a wrong clock.
fn bare(id: NodeId) -> NodePresence {
    NodePresence {
        id,
        name: String::new(),
        address: String::new(),
        roles: Vec::new(),
        version: String::new(),
        skew_millis: 0,
        lease: None,
        first_seen_at: at(-77),
        last_seen_at: at(99_999_999),
        session: NodeSession::Unknown,
        gone_at: None,
    }
}

/// The nodes of a test. (The store may know of its own process too.)
async fn nodes(fixture: &StoreFixture<'_>) -> Vec<NodePresence> {
    let mut nodes = fixture.database.nodes().await.expect("nodes answers");
    nodes.retain(|node| node.id != fixture.node);
    nodes
}

async fn one(fixture: &StoreFixture<'_>, name: &str) -> WorkerPresence {
    let workers = fixture.database.workers("acme", None, 100).await.expect("workers answers");
    workers.into_iter().find(|worker| worker.name == name).expect("it was seen")
}

async fn names(fixture: &StoreFixture<'_>, tenant: &str) -> Vec<String> {
    let workers = fixture.database.workers(tenant, None, 100).await.expect("workers answers");
    workers.into_iter().map(|worker| worker.name).collect()
}
