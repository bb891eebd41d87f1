//! Nodes whose connections end, and what the store knows of them.

use std::time::Duration;

use punctual_core::coordinator::{Coordinator, LEADER};
use punctual_core::ids::NodeId;
use punctual_core::registry::{NodePresence, NodeSession, Registry};
use punctual_core::store::Store;
use punctual_testkit::eventually::eventually;
use punctual_testkit::fixtures::START;

use super::super::{PostgresStore, Wake};
use super::{Fixture, open};

const SOON: Duration = Duration::from_secs(20);
/// The node that watches: that of the fixture.
const WATCHER: NodeId = NodeId::new(7);
/// The node that is watched.
const OTHER: NodeId = NodeId::new(u64::MAX / 3);
const TTL: u64 = 30_000;

async fn record(store: &PostgresStore, id: NodeId) {
    let presence = NodePresence {
        id,
        name: String::new(),
        address: String::new(),
        roles: vec![],
        version: String::new(),
        skew_millis: 0,
        lease: Some(Duration::from_millis(TTL)),
        first_seen_at: START,
        last_seen_at: START,
        session: NodeSession::Unknown,
        gone_at: None,
    };
    store.record_node(presence).await.unwrap();
}

/// Another node, which is recorded, owns all partitions and leads.
async fn other_node(fixture: &Fixture) -> PostgresStore {
    let store = open(&fixture.url, OTHER).await;
    record(&store, OTHER).await;
    assert_eq!(store.take_share(OTHER, 4, TTL).await.unwrap().owned.len(), 4);
    assert_eq!(store.acquire(LEADER, OTHER, TTL).await.unwrap().unwrap().term, 1);
    store
}

async fn seen(store: &PostgresStore) -> NodePresence {
    store.nodes().await.unwrap().into_iter().find(|node| node.id == OTHER).expect("it was recorded")
}

/// Waits until the session of the other node is as wanted.
async fn until(store: &PostgresStore, what: &str, is_so: impl Fn(NodeSession) -> bool) -> NodeSession {
    eventually(what, SOON, async || {
        let session = seen(store).await.session;
        if is_so(session) { Ok(session) } else { Err(format!("{session:?}")) }
    })
    .await
}

/// Ends the connection that holds the lock of the other node, if one does.
async fn cut(fixture: &Fixture) {
    let cut = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_locks
         WHERE locktype = 'advisory' AND objsubid = 1 AND (classid::bigint << 32 | objid::bigint) = {}",
        OTHER.number()
    );
    fixture.server.execute(&cut).await;
}

/// Lets nobody connect to the database, or everybody again.
async fn allow_connections(fixture: &Fixture, allow: bool) {
    let name = fixture.url.rsplit('/').next().unwrap();
    fixture.server.execute(&format!("ALTER DATABASE \"{name}\" ALLOW_CONNECTIONS {allow}")).await;
}

/// Nothing changes for a node whose session is not known to have ended.
async fn assert_keeps_everything(store: &PostgresStore) {
    assert!(!store.declare_gone(OTHER).await.unwrap());
    assert_eq!(seen(store).await.gone_at, None);
    assert!(store.ownership().await.unwrap().iter().all(|row| row.owner == Some(OTHER)));
    assert_eq!(store.acquire(LEADER, WATCHER, TTL).await.unwrap(), None);
}

#[tokio::test]
async fn a_node_whose_connections_ended_loses_its_rights() {
    let fixture = Fixture::open().await;
    let third = open(&fixture.url, NodeId::new(9)).await;
    let (mut own, mut wakes) = (fixture.store.wakes(), third.wakes());
    let other = other_node(&fixture).await;
    assert!(matches!(seen(&fixture.store).await.session, NodeSession::Open(_)), "from its first record on");
    assert_keeps_everything(&fixture.store).await;
    drop(other);
    until(&fixture.store, "its session has ended", |session| session == NodeSession::Ended).await;
    assert!(fixture.store.declare_gone(OTHER).await.unwrap());
    for wakes in [&mut own, &mut wakes] {
        let wake = async { while wakes.next().await != Some(Wake::Partitions) {} };
        tokio::time::timeout(SOON, wake).await.expect("the nodes that live are notified");
    }
    assert_eq!(seen(&fixture.store).await.gone_at, Some(START));
    assert!(!fixture.store.declare_gone(OTHER).await.unwrap(), "once");
    let owned = fixture.store.take_share(WATCHER, 4, TTL).await.unwrap().owned;
    assert_eq!(owned.iter().map(|row| row.term).collect::<Vec<_>>(), [2; 4]);
    assert_eq!(fixture.store.acquire(LEADER, WATCHER, TTL).await.unwrap().unwrap().term, 2);
}

/// It was declared gone by mistake: nobody had noticed that it lives.
#[tokio::test]
async fn a_node_that_returns_is_not_gone() {
    let fixture = Fixture::open().await;
    let other = other_node(&fixture).await;
    let lease = other.holder(LEADER).await.unwrap().unwrap().lease;
    let connected = punctual_testkit::postgres::connect(&fixture.url).await;
    allow_connections(&fixture, false).await;
    cut(&fixture).await;
    eventually("it is declared gone", SOON, async || {
        connected.batch_execute("UPDATE punctual.nodes SET locked_on = pg_postmaster_start_time()").await.unwrap();
        if fixture.store.declare_gone(OTHER).await.unwrap() { Ok(()) } else { Err("it is not".to_owned()) }
    })
    .await;
    assert!(!other.renew(&lease, TTL).await.unwrap(), "its term is over");
    allow_connections(&fixture, true).await;
    until(&fixture.store, "it has its lock again", |session| matches!(session, NodeSession::Open(_))).await;
    assert_eq!(seen(&fixture.store).await.gone_at, None, "without a report of its presence");
    assert!(!fixture.store.declare_gone(OTHER).await.unwrap());
}

/// Its session has not returned. The webhooks of its new partitions must not be taken for lost.
#[tokio::test]
async fn a_node_that_takes_partitions_again_is_not_gone() {
    let fixture = Fixture::open().await;
    let other = other_node(&fixture).await;
    Store::close(&other).await.unwrap();
    until(&fixture.store, "its session has ended", |session| session == NodeSession::Ended).await;
    assert!(fixture.store.declare_gone(OTHER).await.unwrap());
    assert_eq!(fixture.store.take_share(OTHER, 4, TTL).await.unwrap().owned.len(), 4);
    assert_eq!(seen(&fixture.store).await.gone_at, None);
}

#[tokio::test]
async fn a_lost_lock_is_taken_again() {
    let fixture = Fixture::open().await;
    let other = other_node(&fixture).await;
    let before = seen(&fixture.store).await.session;
    for _ in 0..3 {
        cut(&fixture).await;
        let is_new = |session| matches!(session, NodeSession::Open(_)) && session != before;
        until(&fixture.store, "it has its lock again", is_new).await;
    }
    assert_keeps_everything(&fixture.store).await;
    drop(other);
}

#[tokio::test]
async fn a_node_without_its_lock_says_that_it_lives() {
    let fixture = Fixture::open().await;
    let other = other_node(&fixture).await;
    allow_connections(&fixture, false).await;
    cut(&fixture).await;
    until(&fixture.store, "it lives by its lease", |session| session == NodeSession::Unknown).await;
    assert_keeps_everything(&fixture.store).await;
    allow_connections(&fixture, true).await;
    until(&fixture.store, "it has its lock again", |session| matches!(session, NodeSession::Open(_))).await;
    drop(other);
}

/// No session outlives the server, so none of them says anything about its node.
#[tokio::test]
async fn a_restarted_server_declares_nobody_gone() {
    let mut fixture = Fixture::open().await;
    let other = other_node(&fixture).await;
    Store::close(&other).await.unwrap();
    until(&fixture.store, "its session has ended", |session| session == NodeSession::Ended).await;
    fixture.server.stop_fast().await;
    fixture.server.start_again().await;
    let nodes = async || fixture.store.nodes().await.map_err(|error| error.to_string());
    eventually("the server answers", SOON, nodes).await;
    assert_eq!(seen(&fixture.store).await.session, NodeSession::Unknown);
    assert_keeps_everything(&fixture.store).await;
}
