//! Leases that have run out, which need a moved clock, and a store that is gone.

use axum::http::StatusCode;
use punctual_core::coordinator::{Coordinator, LEADER};
use punctual_core::ids::NodeId;
use punctual_core::registry::Registry;
use punctual_core::store::Store;
use serde_json::{Value, json};

use crate::testing::{START, World, node};

const FIRST: NodeId = NodeId::new(1);
const SECOND: NodeId = NodeId::new(2);

#[tokio::test]
async fn a_node_shows_no_lease_that_has_run_out() {
    let world = World::new();
    world.sqlite.record_node(node(FIRST)).await.unwrap();
    world.clock.advance_millis(1_000);
    world.sqlite.record_node(node(FIRST)).await.unwrap();
    world.sqlite.acquire(LEADER, FIRST, 60_000).await.unwrap();
    world.sqlite.take_share(FIRST, 3, 60_000).await.unwrap();
    for (leader, partitions) in [(true, 3), (false, 0)] {
        let expected = json!({
            "id": "node_0000000000000001", "name": "machine", "address": null, "roles": [], "version": "1.2.3",
            "skew_ms": -20, "first_seen_at": START, "last_seen_at": START.plus_millis(1_000), "leader": leader,
            "partitions": partitions,
        });
        assert_eq!(world.get("/v1/admin/nodes").await["items"], json!([expected]));
        world.clock.advance_millis(60_000);
    }
}

#[tokio::test]
async fn a_partition_shows_its_owner_while_the_lease_lasts() {
    let world = World::new();
    let expect = async |owner: Value, name: Value, term: u64, until: i64| {
        let expected = json!({
            "partition": 0, "owner": owner, "owner_name": name, "term": term, "expires_at": START.plus_millis(until),
        });
        assert_eq!(world.get("/v1/admin/partitions").await["items"], json!([expected]));
    };
    world.sqlite.record_node(node(FIRST)).await.unwrap();
    world.sqlite.take_share(FIRST, 1, 30_000).await.unwrap();
    expect("node_0000000000000001".into(), "machine".into(), 1, 30_000).await;
    world.clock.advance_millis(30_000);
    expect(Value::Null, Value::Null, 1, 30_000).await;
    // A node that was never seen has no name.
    world.sqlite.take_share(SECOND, 1, 10_000).await.unwrap();
    expect("node_0000000000000002".into(), Value::Null, 2, 40_000).await;
}

#[tokio::test]
async fn an_unreachable_store_is_a_problem() {
    let world = World::new();
    world.sqlite.close().await.unwrap();
    for path in ["/v1/admin/nodes", "/v1/admin/partitions"] {
        let answer = world.send("GET", path, None).await;
        assert_eq!((answer.status, answer.problem().as_str()), (StatusCode::SERVICE_UNAVAILABLE, "store_unavailable"));
    }
}
