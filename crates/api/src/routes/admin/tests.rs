//! Leases that have run out, which need a moved clock, and a store that is gone.

use std::time::Duration;

use axum::http::StatusCode;
use axum::http::header::AGE;
use punctual_core::coordinator::{Coordinator, LEADER};
use punctual_core::ids::NodeId;
use punctual_core::registry::{NodePresence, Registry};
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
            "partitions": partitions, "silent": !leader, "lease_seconds": null,
            "taken_over_at": if leader { Value::Null } else { json!(START.plus_millis(31_000)) },
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
async fn a_silent_node_is_marked_by_its_own_lease() {
    let world = World::new();
    let patient = NodePresence { lease: Some(Duration::from_mins(5)), ..node(FIRST) };
    world.sqlite.record_node(patient).await.unwrap();
    world.sqlite.record_node(node(SECOND)).await.unwrap();
    for (seconds, silent) in [(15, [false, false]), (85, [false, true]), (51, [true, true])] {
        world.clock.advance_millis(seconds * 1_000);
        let nodes = world.get("/v1/admin/nodes").await["items"].clone();
        assert_eq!([&nodes[0]["silent"], &nodes[1]["silent"]], [&json!(silent[0]), &json!(silent[1])], "{nodes:#}");
        let until = [(0, 300_000), (1, 30_000)]
            .map(|(place, millis)| if silent[place] { json!(START.plus_millis(millis)) } else { Value::Null });
        assert_eq!([&nodes[0]["taken_over_at"], &nodes[1]["taken_over_at"]], [&until[0], &until[1]]);
    }
}

#[tokio::test]
async fn the_last_answer_is_shown_while_the_store_is_away() {
    let world = World::new();
    world.sqlite.record_node(node(FIRST)).await.unwrap();
    world.sqlite.take_share(FIRST, 3, 60_000).await.unwrap();
    let paths = ["/v1/admin/nodes", "/v1/admin/partitions"];
    let fresh = [world.send("GET", paths[0], None).await, world.send("GET", paths[1], None).await];
    world.sqlite.close().await.unwrap();
    world.clock.advance_millis(90_000);
    for (path, fresh) in paths.into_iter().zip(fresh) {
        let aged = world.send("GET", path, None).await;
        assert_eq!((aged.status, aged.json()), (StatusCode::OK, fresh.json()), "as it was then");
        assert_eq!(fresh.headers.get(AGE), None);
        assert!(aged.headers[AGE].to_str().unwrap().parse::<u64>().is_ok(), "{:?}", aged.headers);
    }
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
