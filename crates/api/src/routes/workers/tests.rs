use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::presence::PresenceFlusher;
use crate::testing::{START, World};

async fn ask(world: &World, worker: &str, wants: &Value) {
    let mut asking = json!({"worker_id": worker});
    asking.as_object_mut().unwrap().extend(wants.as_object().unwrap().clone());
    assert_eq!(world.send("POST", "/v1/leases", Some(asking)).await.status, StatusCode::OK);
}

async fn page(world: &World, query: &str) -> (Vec<Value>, Value) {
    let answer = world.send("GET", &format!("/v1/workers{query}"), None).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    (answer.json()["items"].as_array().unwrap().clone(), answer.json()["next_cursor"].clone())
}

#[tokio::test]
async fn workers_are_shown_before_and_after_they_are_written() {
    let world = World::new();
    ask(&world, "b", &json!({"queues": ["mail"]})).await;
    world.clock.advance_millis(30_000);
    assert_eq!(PresenceFlusher::new(world.api.clone()).run_once().await.unwrap(), 1);
    ask(&world, "a", &json!({"types": ["x.y"]})).await;
    world.clock.advance_millis(40_000);
    let (workers, next) = page(&world, "").await;
    assert_eq!(next, Value::Null);
    assert_eq!(
        workers,
        [
            json!({"worker_id": "a", "status": "active", "queues": [], "types": ["x.y"], "running": 0,
                   "first_seen_at": START.plus_millis(30_000), "last_seen_at": START.plus_millis(30_000)}),
            json!({"worker_id": "b", "status": "lost", "queues": ["mail"], "types": [], "running": 0,
                   "first_seen_at": START, "last_seen_at": START}),
        ]
    );
    ask(&world, "b", &json!({"queues": ["post"]})).await;
    let (workers, _) = page(&world, "").await;
    assert_eq!((&workers[1]["status"], &workers[1]["queues"]), (&json!("active"), &json!(["post"])));
    assert_eq!(workers[1]["first_seen_at"], START.to_string());
}

#[tokio::test]
async fn workers_are_paged_and_kept_apart_by_tenant() {
    let world = World::new();
    for worker in ["a", "b", "c"] {
        ask(&world, worker, &json!({"queues": ["q"]})).await;
    }
    PresenceFlusher::new(world.api.clone()).run_once().await.unwrap();
    for worker in ["bb", "é ∞"] {
        ask(&world, worker, &json!({"queues": ["q"]})).await;
    }
    let mut names = Vec::new();
    let mut query = "?limit=2".to_owned();
    loop {
        let (workers, next) = page(&world, &query).await;
        assert!(workers.len() <= 2);
        names.extend(workers.iter().map(|worker| worker["worker_id"].as_str().unwrap().to_owned()));
        let Some(next) = next.as_str() else { break };
        query = format!("?limit=2&cursor={next}");
    }
    assert_eq!(names, ["a", "b", "bb", "c", "é ∞"]);
    assert_eq!(world.send("GET", "/v1/workers?cursor=AAAA", None).await.problem(), "invalid_cursor");
    assert_eq!(world.send("GET", "/v1/workers?lim=1", None).await.problem(), "invalid_request");
    let request = axum::http::Request::get("/v1/workers").header("punctual-tenant", "other");
    assert_eq!(world.call(request.body(axum::body::Body::empty()).unwrap()).await.json()["items"], json!([]));
}
