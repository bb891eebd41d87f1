use axum::http::StatusCode;
use punctual_core::coordinator::{Coordinator, LEADER};
use punctual_core::ids::NodeId;
use punctual_core::registry::{NodePresence, Registry};
use punctual_core::store::Store;
use serde_json::{Value, json};

use crate::testing::{START, World};

const FIRST: NodeId = NodeId::new(1);
const SECOND: NodeId = NodeId::new(2);

/// A node without an address and roles.
fn node(id: NodeId) -> NodePresence {
    NodePresence {
        id,
        name: "machine".into(),
        address: String::new(),
        roles: Vec::new(),
        version: "1.2.3".into(),
        skew_millis: -20,
        first_seen_at: START,
        last_seen_at: START,
    }
}

async fn items(world: &World, path: &str) -> Vec<Value> {
    let answer = world.send("GET", path, None).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    assert_eq!(answer.json()["next_cursor"], Value::Null);
    answer.json()["items"].as_array().unwrap().clone()
}

#[tokio::test]
async fn nodes_are_shown_with_leadership_and_partitions() {
    let world = World::new();
    let address = "127.0.0.1:7400".into();
    let first = NodePresence { address, roles: vec!["api".into(), "scheduler".into()], ..node(FIRST) };
    let second = NodePresence { roles: vec!["leader".into()], ..node(SECOND) };
    world.sqlite.record_node(first.clone()).await.unwrap();
    world.clock.advance_millis(1_000);
    world.sqlite.record_node(second).await.unwrap();
    world.sqlite.record_node(first).await.unwrap();
    world.sqlite.acquire(LEADER, SECOND, 60_000).await.unwrap();
    world.sqlite.take_share(FIRST, 3, 30_000).await.unwrap();
    let shown = |id: &str, rest: Value| {
        let mut node = json!({"id": id, "name": "machine", "version": "1.2.3", "skew_ms": -20,
                              "last_seen_at": START.plus_millis(1_000)});
        node.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        node
    };
    let expected = [
        shown(
            "node_0000000000000001",
            json!({"address": "127.0.0.1:7400", "roles": ["api", "scheduler"], "leader": false, "partitions": 3,
                   "first_seen_at": START}),
        ),
        shown(
            "node_0000000000000002",
            json!({"address": null, "roles": ["leader"], "leader": true, "partitions": 0,
                   "first_seen_at": START.plus_millis(1_000)}),
        ),
    ];
    assert_eq!(items(&world, "/v1/admin/nodes").await, expected);
    world.clock.advance_millis(60_000);
    let later = items(&world, "/v1/admin/nodes").await;
    assert!(later.iter().all(|node| node["leader"] == false && node["partitions"] == 0), "all has run out: {later:?}");
}

#[tokio::test]
async fn partitions_are_shown_with_their_owners_and_terms() {
    let world = World::new();
    assert!(items(&world, "/v1/admin/partitions").await.is_empty());
    world.sqlite.record_node(node(FIRST)).await.unwrap();
    world.sqlite.take_share(FIRST, 2, 30_000).await.unwrap();
    let row = |number: u16, (owner, name): (Option<&str>, Option<&str>), term: u64, at: i64| {
        json!({"partition": number, "owner": owner, "owner_name": name, "term": term,
               "expires_at": START.plus_millis(at)})
    };
    let own = (Some("node_0000000000000001"), Some("machine"));
    let shown = items(&world, "/v1/admin/partitions").await;
    assert_eq!(shown, [row(0, own, 1, 30_000), row(1, own, 1, 30_000)]);
    world.clock.advance_millis(30_000);
    let shown = items(&world, "/v1/admin/partitions").await;
    let unowned = (None, None);
    assert_eq!(shown, [row(0, unowned, 1, 30_000), row(1, unowned, 1, 30_000)]);
    world.sqlite.take_share(SECOND, 2, 10_000).await.unwrap();
    let unseen = (Some("node_0000000000000002"), None);
    assert_eq!(items(&world, "/v1/admin/partitions").await[0], row(0, unseen, 2, 40_000));
}

#[tokio::test]
async fn both_lists_can_be_read_in_pages() {
    let world = World::new();
    for number in 1..=5 {
        world.sqlite.record_node(node(NodeId::new(number))).await.unwrap();
    }
    world.sqlite.take_share(FIRST, 5, 30_000).await.unwrap();
    for path in ["/v1/admin/nodes", "/v1/admin/partitions"] {
        let all = items(&world, path).await;
        assert_eq!(all.len(), 5);
        let (mut paged, mut query) = (Vec::new(), "?limit=2".to_owned());
        loop {
            let answer = world.send("GET", &format!("{path}{query}"), None).await.json();
            let page = answer["items"].as_array().unwrap().clone();
            assert!(page.len() <= 2, "{answer}");
            paged.extend(page);
            let Some(next) = answer["next_cursor"].as_str() else { break };
            query = format!("?limit=2&cursor={next}");
        }
        assert_eq!(paged, all);
        assert_eq!(items(&world, &format!("{path}?limit=5")).await, all, "nothing follows a page that holds the rest");
        assert_eq!(world.send("GET", &format!("{path}?cursor=AAAA"), None).await.problem(), "invalid_cursor");
    }
    let next = world.send("GET", "/v1/admin/nodes?limit=1", None).await.json()["next_cursor"].clone();
    let foreign = format!("/v1/admin/partitions?cursor={}", next.as_str().unwrap());
    assert_eq!(world.send("GET", &foreign, None).await.problem(), "invalid_cursor");
}

#[tokio::test]
async fn an_unreachable_store_is_a_problem() {
    let world = World::new();
    for path in ["/v1/admin/nodes", "/v1/admin/partitions"] {
        assert_eq!(world.send("GET", &format!("{path}?limit=0"), None).await.problem(), "invalid_request");
        assert_eq!(world.send("GET", &format!("{path}?owner=x"), None).await.problem(), "invalid_request");
    }
    world.sqlite.close().await.unwrap();
    for path in ["/v1/admin/nodes", "/v1/admin/partitions"] {
        let answer = world.send("GET", path, None).await;
        assert_eq!((answer.status, answer.problem().as_str()), (StatusCode::SERVICE_UNAVAILABLE, "store_unavailable"));
    }
}
