//! Bulk operations of the real program: through `kill -9`, to their end.

use punctual_testkit::eventually::eventually;
use serde_json::json;

use crate::it::world::{SOON, World};

#[tokio::test]
async fn a_bulk_cancel_survives_a_kill() {
    let mut world = World::start().await;
    let of = |customer: &str| json!({"type": "t", "delay_seconds": 3600, "metadata": {"customer": customer}});
    let tasks = (0..1_000).flat_map(|_| [of("a"), of("b")]).collect();
    world.caller().submit_all(tasks).await;
    let wanted = json!({"filter": {"metadata": {"customer": "a"}}});
    let operation = world.caller().api.post("/v1/tasks/cancel", &wanted).await.expect(202);
    assert_eq!((&operation["state"], &operation["total"]), (&json!("running"), &json!(1_000)));
    world.server.kill();
    world.restart().await;
    let path = format!("/v1/operations/{}", operation["operation_id"].as_str().expect("an id"));
    eventually("the operation is done", SOON, async || {
        let operation = world.caller().api.get(&path).await.expect(200);
        if operation["state"] == "done" { Ok(()) } else { Err(operation.to_string()) }
    })
    .await;
    let count = async |filter: &str| {
        let (mut count, mut cursor) = (0, String::new());
        loop {
            let path = format!("/v1/tasks?limit=1000&view=summary&{filter}{cursor}");
            let page = world.caller().api.get(&path).await.expect(200);
            count += page["items"].as_array().expect("items").len();
            let Some(next) = page["next_cursor"].as_str() else { return count };
            cursor = format!("&cursor={next}");
        }
    };
    assert_eq!(count("status=CANCELLED&metadata[customer]=a").await, 1_000);
    assert_eq!(count("status=PENDING&metadata[customer]=b").await, 1_000);
}

#[tokio::test]
async fn a_filter_without_a_condition_changes_nothing() {
    let world = World::start().await;
    let caller = world.caller();
    let id = caller.submit_id(json!({"type": "t", "delay_seconds": 3600})).await;
    for path in ["/v1/tasks/cancel", "/v1/dead-letters/redrive", "/v1/dead-letters/purge"] {
        caller.api.post(path, &json!({"filter": {}})).await.invalid("/filter");
        caller.api.post(path, &json!({"filter": {}, "dry_run": true})).await.expect(200);
    }
    assert_eq!(caller.api.get(&format!("/v1/tasks/{id}")).await.expect(200)["status"], "PENDING");
}
