//! Edits of a schedule: what they keep, and what they refuse.

use serde_json::{Value, json};

use crate::testing::World;

/// A schedule for the 31st, as it was made, and its path.
async fn month_end(world: &World, day_overflow: Value) -> (Value, String) {
    let body = json!({"name": "invoice", "cron": "0 9 31 * *", "day_overflow": day_overflow, "task": {"type": "t"}});
    let made = world.send("POST", "/v1/schedules", Some(body)).await.expect(201);
    let path = format!("/v1/schedules/{}", made["schedule_id"].as_str().unwrap());
    (made, path)
}

#[tokio::test]
async fn day_overflow_decides_about_short_months() {
    let world = World::new();
    let (made, path) = month_end(&world, json!("last")).await;
    assert_eq!(made["day_overflow"], "last");
    let days = async |path: &str| {
        let page = world.get(&format!("{path}/preview?count=3")).await;
        let items = page["items"].as_array().unwrap();
        items.iter().map(|item| item["run_at"].as_str().unwrap()[5..10].to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(days(&path).await, ["05-31", "06-30", "07-31"]);
    let edited = world.send("PATCH", &path, Some(json!({"day_overflow": "skip"}))).await.expect(200);
    assert_eq!((&edited["day_overflow"], &edited["version"]), (&json!("skip"), &json!(2)));
    assert_eq!(days(&path).await, ["05-31", "07-31", "08-31"]);
    assert_eq!(world.send("PATCH", &path, Some(json!({"day_overflow": null}))).await.pointers(), ["/day_overflow"]);
}

#[tokio::test]
async fn a_day_that_no_month_has_needs_day_overflow() {
    let world = World::new();
    let (_, path) = month_end(&world, json!("last")).await;
    let february = world.send("PATCH", &path, Some(json!({"cron": "0 9 30 2 *"}))).await.expect(200);
    assert_eq!(february["next_run_at"], "2027-02-28T09:00:00.000Z");
    let refused = world.send("PATCH", &path, Some(json!({"day_overflow": "skip"}))).await;
    assert_eq!(refused.pointers(), ["/cron"]);
    let message = refused.json()["errors"][0]["message"].clone();
    assert!(message.as_str().unwrap().ends_with("or set day_overflow to last"), "{message}");
}
