use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::forecast::{INSTANTS_MAX, SCHEDULES_MAX};
use crate::testing::World;

async fn schedule(world: &World, name: &str, cron: &str) {
    let body = json!({"name": name, "cron": cron, "task": {"type": "t"}});
    world.send("POST", "/v1/schedules", Some(body)).await.expect(201);
}

async fn forecast(world: &World, query: &str) -> Value {
    world.get(&format!("/v1/forecast{query}")).await
}

fn minute(at: &str, tasks: u64, schedules: u64) -> Value {
    json!({"at": format!("2026-05-22T{at}:00.000Z"), "tasks": tasks, "schedules": schedules})
}

#[tokio::test]
async fn tasks_and_schedules_share_the_minutes() {
    let world = World::new();
    let empty = forecast(&world, "").await;
    assert_eq!(
        empty,
        json!({
            "from": "2026-05-22T18:01:00.000Z", "to": "2026-05-23T18:01:00.000Z", "complete": true,
            "schedules_until": null, "schedules_missing": 0, "tasks": 0, "schedules": 0, "minutes": [], "herds": [],
        })
    );
    for seconds in [0, 59, 60, 119, 600, 7_200] {
        world.submit(json!({"type": "t", "delay_seconds": seconds})).await;
    }
    schedule(&world, "tens", "*/10 * * * *").await;
    schedule(&world, "threes", "*/20 10 18 * * *").await;
    let shown = forecast(&world, "?hours=1&top=2").await;
    let minutes = [
        minute("18:01", 2, 0),
        minute("18:10", 1, 4),
        minute("18:20", 0, 1),
        minute("18:30", 0, 1),
        minute("18:40", 0, 1),
        minute("18:50", 0, 1),
        minute("19:00", 0, 1),
    ];
    assert_eq!(shown["minutes"], json!(minutes));
    assert_eq!(shown["herds"], json!([minute("18:10", 1, 4), minute("18:01", 2, 0)]));
    assert_eq!((&shown["tasks"], &shown["schedules"], &shown["complete"]), (&json!(3), &json!(9), &json!(true)));
    assert_eq!(forecast(&world, "?hours=2").await["tasks"], 4);
    assert_eq!(forecast(&world, "?top=0").await["herds"], json!([]));
}

#[tokio::test]
async fn parameters_have_bounds() {
    let world = World::new();
    for query in ["hours=0", "hours=49", "hours=-1", "hours=1.5", "hours=", "top=101", "top=-1", "minutes=5"] {
        let answer = world.send("GET", &format!("/v1/forecast?{query}"), None).await;
        let name = query.split('=').next().unwrap();
        assert_eq!(answer.pointers(), [format!("?{name}")], "{query}");
    }
    let shown = forecast(&world, "?hours=48&top=100").await;
    assert_eq!(shown["to"], "2026-05-24T18:01:00.000Z");
}

#[tokio::test]
async fn too_many_instants_are_counted_up_to_a_time() {
    let world = World::new();
    world.submit(json!({"type": "t", "delay_seconds": 40 * 3_600})).await;
    for name in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"] {
        schedule(&world, name, "* * * * * *").await;
    }
    let shown = forecast(&world, "?hours=48").await;
    assert_eq!((&shown["complete"], &shown["schedules_missing"]), (&json!(false), &json!(0)));
    // Ten a second, of which the first minute is not in it.
    let whole = (INSTANTS_MAX / 10 + 1) / 60 - 1;
    assert_eq!(shown["schedules"], whole * 600);
    assert_eq!(shown["schedules_until"], "2026-05-23T21:46:00.000Z");
    assert_eq!(shown["tasks"], 1, "what waits is counted to the end");
}

#[tokio::test]
async fn schedules_beyond_the_bound_are_counted_as_missing() {
    let world = World::new();
    let mut made = JoinSet::new();
    for number in 0..SCHEDULES_MAX + 2 {
        let body = json!({"name": format!("s{number:05}"), "cron": "0 0 * * *", "task": {"type": "t"}}).to_string();
        let request = Request::post("/v1/schedules").header("host", "localhost");
        let request = request.header("content-type", "application/json");
        let (router, request) = (world.router.clone(), request.body(Body::from(body)).unwrap());
        made.spawn(async move { tower::ServiceExt::oneshot(router, request).await.unwrap().status() });
    }
    assert!(made.join_all().await.iter().all(|status| *status == 201));
    let shown = forecast(&world, "").await;
    assert_eq!((&shown["complete"], &shown["schedules_missing"]), (&json!(false), &json!(2)));
    assert_eq!((&shown["schedules"], &shown["schedules_until"]), (&json!(SCHEDULES_MAX), &json!(null)));
}
