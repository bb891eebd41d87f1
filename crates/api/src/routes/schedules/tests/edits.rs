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

/// A schedule whose task has a bit of everything.
async fn invoicing(world: &World) -> Value {
    let task = json!({
        "type": "invoice", "queue": "billing", "callback_url": "https://example.com/invoice",
        "payload": {"customer": "c1", "price": {"net": 900, "currency": "EUR"}, "lines": [1, 2]},
        "metadata": {"team": "a", "tier": "gold"}, "retry_policy": {"max_retries": 9},
    });
    let body = json!({"name": "invoice", "cron": "0 9 1 * *", "task": task});
    world.send("PUT", INVOICE, Some(body)).await.expect(201)
}

const INVOICE: &str = "/v1/schedules/by-name/invoice";

#[tokio::test]
async fn an_edit_merges_the_task() {
    let world = World::new();
    let was = invoicing(&world).await;
    let task = json!({"payload": {"price": {"net": 1000}}, "metadata": {"tier": null}, "callback_url": null});
    let edited = world.send("PATCH", INVOICE, Some(json!({ "task": task }))).await.expect(200);
    let mut expected = was["task"].clone();
    expected["payload"]["price"]["net"] = json!(1000);
    expected["metadata"].as_object_mut().unwrap().remove("tier");
    expected.as_object_mut().unwrap().remove("callback_url");
    assert_eq!(edited["task"], expected);
    let same = json!({"task": {"queue": "billing", "payload": {"lines": [1,2]}, "callback_url": null}});
    for nothing in [json!({}), json!({"task": {}}), same] {
        let again = world.send("PATCH", INVOICE, Some(nothing.clone())).await.expect(200);
        assert_eq!(again["version"], 2, "{nothing} changes nothing");
    }
    world.send("POST", &format!("{INVOICE}/trigger"), None).await.expect(201);
    let fired = world.get("/v1/tasks?queue=billing").await;
    assert_eq!(fired["items"][0]["payload"], expected["payload"]);
}

#[tokio::test]
async fn a_merged_task_is_checked_as_a_whole() {
    let world = World::new();
    let was = invoicing(&world).await;
    for (task, pointer) in [
        (json!({"type": null}), "/task/type"),
        (json!({"prize": 1}), "/task/prize"),
        (json!({"retry_policy": {"max_retries": "x"}}), "/task/retry_policy/max_retries"),
        (json!({"retry_policy": {"retries": 1}}), "/task/retry_policy/retries"),
        (json!({"queue": ""}), "/task/queue"),
        (json!({"delay_seconds": 5}), "/task/delay_seconds"),
        (json!([]), "/task"),
        (json!("x"), "/task"),
        (json!(null), "/task"),
    ] {
        let refused = world.send("PATCH", INVOICE, Some(json!({ "task": task }))).await;
        assert_eq!((refused.status.as_u16(), refused.pointers()), (422, vec![pointer.to_owned()]), "{task}");
    }
    assert_eq!(world.get(INVOICE).await, was, "nothing was changed");
}

#[tokio::test]
async fn a_payload_that_is_too_deep_is_refused() {
    let world = World::new();
    let send = async |name: &str, levels: usize| {
        let payload = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let body = format!(r#"{{"name":"{name}","cron":"0 9 1 * *","task":{{"type":"t","payload":{payload}}}}}"#);
        let request = axum::http::Request::post("/v1/schedules").header("content-type", "application/json");
        world.call(request.body(body.into()).unwrap()).await
    };
    assert_eq!(send("a", 126).await.text, world.send("GET", "/v1/schedules/by-name/a", None).await.text);
    assert_eq!(send("b", 127).await.pointers(), ["/task/payload"]);
    assert_eq!(send("c", 128).await.problem(), "invalid_json");
}
