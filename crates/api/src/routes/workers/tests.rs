use serde_json::{Value, json};

use crate::presence::PresenceFlusher;
use crate::testing::{START, World};

async fn poll(world: &World, wanted: Value) {
    world.send("POST", "/v1/leases", Some(wanted)).await.expect(200);
}

#[tokio::test]
async fn workers_are_shown_before_and_after_they_are_written() {
    let world = World::new();
    poll(&world, json!({"worker_id": "b", "queues": ["mail"]})).await;
    world.clock.advance_millis(30_000);
    assert_eq!(PresenceFlusher::new(world.api.clone()).run_once().await.unwrap(), 1);
    poll(&world, json!({"worker_id": "a", "types": ["x.y"]})).await;
    world.clock.advance_millis(40_000);
    let expected = json!([
        {"worker_id": "a", "status": "active", "queues": [], "types": ["x.y"], "running": 0,
         "first_seen_at": START.plus_millis(30_000), "last_seen_at": START.plus_millis(30_000)},
        {"worker_id": "b", "status": "lost", "queues": ["mail"], "types": [], "running": 0,
         "first_seen_at": START, "last_seen_at": START},
    ]);
    assert_eq!(world.get("/v1/workers").await, json!({"items": expected, "next_cursor": null}));
    poll(&world, json!({"worker_id": "b", "queues": ["post"]})).await;
    let back = world.get("/v1/workers").await["items"][1].take();
    let (status, queues, first_seen_at) = (&back["status"], &back["queues"], &back["first_seen_at"]);
    assert_eq!((status, queues, first_seen_at), (&json!("active"), &json!(["post"]), &json!(START)));
}
