//! Every call about one schedule, by its name.

use std::sync::Arc;

use axum::response::IntoResponse;
use punctual_auth::Principal;
use punctual_core::ids::ScheduleId;
use serde_json::{Value, json};

use crate::extract::{Caller, If};
use crate::problem::Code;
use crate::routes::schedules::remove::delete_schedule;
use crate::routes::schedules::request::ScheduleRequest;
use crate::testing::World;

async fn made(world: &World, name: &str) -> Value {
    let body = json!({"name": name, "cron": "0 0 1 1 *", "task": {"type": "t"}});
    world.send("POST", "/v1/schedules", Some(body)).await.expect(201)
}

#[test]
fn every_call_by_id_is_there_by_name() {
    let document = crate::openapi::assemble(crate::routes::router(), false).into_openapi();
    let document = serde_json::to_value(document).unwrap();
    let methods = |path: &str| document["paths"][path].as_object().map(|item| item.keys().cloned().collect::<Vec<_>>());
    let mut calls = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        let Some(verb) = path.strip_prefix("/v1/schedules/{id}") else { continue };
        let named = methods(&format!("/v1/schedules/by-name/{{name}}{verb}")).unwrap_or_default();
        for method in item.as_object().unwrap().keys() {
            assert!(named.contains(method), "{method} {path}");
            calls += 1;
        }
    }
    assert_eq!(calls, 10);
}

#[tokio::test]
async fn a_call_by_name_is_the_call_by_id() {
    let world = World::new();
    let id = made(&world, "a/b").await["schedule_id"].clone();
    let (named, by_id) = ("/v1/schedules/by-name/a%2Fb", format!("/v1/schedules/{}", id.as_str().unwrap()));
    assert_eq!(world.get(named).await, world.get(&by_id).await);
    assert_eq!(world.send("PATCH", named, Some(json!({"max_runs": 3}))).await.expect(200)["max_runs"], 3);
    assert_eq!(world.send("POST", &format!("{named}/pause"), None).await.expect(200)["paused"], true);
    assert_eq!(world.send("POST", &format!("{named}/resume"), None).await.expect(200)["paused"], false);
    let key = ("idempotency-key", "k");
    let fired = world.send_with("POST", &format!("{named}/trigger"), key).await.expect(201);
    let again = world.send_with("POST", &format!("{by_id}/trigger"), key).await.expect(200);
    assert_eq!(again, fired, "a key is the same by either path");
    assert_eq!(world.get(&format!("{named}/occurrences")).await["items"], json!([fired]));
    assert_eq!(
        world.get(&format!("{named}/preview?count=2")).await,
        world.get(&format!("{by_id}/preview?count=2")).await
    );
    let range = json!({"from": "2024-01-01T00:00:00Z", "to": "2025-01-01T00:00:00Z"});
    assert_eq!(world.send("POST", &format!("{named}/backfill"), Some(range)).await.expect(202)["instants"], 2);
    assert_eq!(world.send("DELETE", &format!("{named}/backfill"), None).await.expect(200)["instants"], 2);
    let late = world.send_with("DELETE", named, ("if-match", "\"1\"")).await;
    assert_eq!(late.json()["code"], "version_mismatch");
    assert_eq!(world.send("DELETE", named, None).await.expect(200)["schedule_id"], id);
    for (method, path) in [("DELETE", named.to_owned()), ("POST", format!("{named}/trigger")), ("GET", by_id)] {
        assert_eq!(world.send(method, &path, None).await.expect(404)["code"], "not_found", "{method} {path}");
    }
    for name in ["no%20name", "%ff"] {
        let nowhere = world.send("POST", &format!("/v1/schedules/by-name/{name}/pause"), None).await.expect(404);
        assert!(nowhere["detail"].as_str().unwrap().starts_with("there is no schedule with this name"), "{nowhere}");
    }
}

#[tokio::test]
async fn a_schedule_can_be_renamed_by_its_name() {
    let world = World::new();
    made(&world, "old").await;
    let renamed = world.send("PATCH", "/v1/schedules/by-name/old", Some(json!({"name": "new"}))).await.expect(200);
    assert_eq!(renamed["name"], "new");
    world.send("GET", "/v1/schedules/by-name/old", None).await.expect(404);
    assert_eq!(world.get("/v1/schedules/by-name/new").await["version"], 2);
}

/// A request that found the schedule by its name does not touch it under another.
#[tokio::test]
async fn a_renamed_schedule_is_not_what_a_call_meant() {
    let world = World::new();
    let there = made(&world, "old").await;
    let id: ScheduleId = there["schedule_id"].as_str().unwrap().parse().unwrap();
    let tenant = there["tenant"].as_str().unwrap().to_owned();
    let caller = Caller { tenant, principal: Arc::new(Principal::anyone()) };
    let request = ScheduleRequest { api: world.api.clone(), caller, id, name: Some("old".to_owned()) };
    world.send("PATCH", &format!("/v1/schedules/{id}"), Some(json!({"name": "new"}))).await.expect(200);
    let refused = delete_schedule(request, If::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    assert_eq!(refused.into_response().status(), 404);
    world.get("/v1/schedules/by-name/new").await;
}
