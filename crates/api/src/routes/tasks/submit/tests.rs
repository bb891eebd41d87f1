use serde_json::{Value, json};

use crate::testing::World;

fn keyed(key: &str, payload: &str) -> Value {
    json!({"type": "work", "idempotency_key": key, "payload": payload, "delay_seconds": 600})
}

async fn cancel(world: &World, id: &str) {
    world.send("DELETE", &format!("/v1/tasks/{id}"), None).await.expect(200);
}

#[tokio::test]
async fn the_key_of_a_cancelled_task_is_used_again_on_request() {
    let world = World::new();
    let first = world.submit(keyed("k", "a")).await;
    cancel(&world, &first).await;
    let replay = world.send("POST", "/v1/tasks", Some(keyed("k", "a"))).await.expect(200);
    assert_eq!(replay["task_id"], first.as_str());
    let path = "/v1/tasks?replace_final=true";
    let second = world.send("POST", path, Some(keyed("k", "b"))).await.expect(201);
    assert_ne!(second["task_id"], first.as_str());
    let again = world.send("POST", path, Some(keyed("k", "b"))).await.expect(200);
    assert_eq!(again["task_id"], second["task_id"], "a repeated request replaces nothing");
    for wrong in ["replace_final=maybe", "replace=true"] {
        let answer = world.send("POST", &format!("/v1/tasks?{wrong}"), Some(keyed("k", "b"))).await;
        assert_eq!(answer.pointers(), [format!("?{}", wrong.split_once('=').unwrap().0)]);
    }
}

#[tokio::test]
async fn a_batch_replaces_only_what_was_cancelled() {
    let world = World::new();
    let (kept, cancelled) = (world.submit(keyed("kept", "a")).await, world.submit(keyed("gone", "a")).await);
    cancel(&world, &cancelled).await;
    let child = json!({"type": "child", "idempotency_key": "gone", "depends_on": [0]});
    let batch = json!({"tasks": [keyed("kept", "a"), child]});
    let answer = world.send("POST", "/v1/tasks/batch?replace_final=true", Some(batch)).await.expect(200);
    let items = &answer["items"];
    assert_eq!((&items[0]["status"], &items[1]["status"]), (&json!(200), &json!(201)));
    assert_eq!(items[1]["task"]["depends_on"], json!([kept]));
}

#[tokio::test]
async fn an_atomic_batch_stores_all_or_nothing() {
    let world = World::new();
    let send =
        async |tasks: Value| world.send("POST", "/v1/tasks/batch?atomic=true", Some(json!({"tasks": tasks}))).await;
    // One that the check refuses, and one that the store refuses.
    let unknown = json!({"type": "c", "depends_on": ["task_00000000-0000-7000-8000-000000000000"]});
    for (bad, pointer) in [(json!({"type": "no spaces"}), "/tasks/1/type"), (unknown, "/tasks/1/depends_on/0")] {
        let answer = send(json!([keyed("k", "a"), bad, {"type": "child", "depends_on": [0]}])).await;
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (422, "batch_refused"));
        assert_eq!(answer.json()["errors"][0]["pointer"], pointer);
        assert!(answer.json()["detail"].as_str().unwrap().starts_with("1 of 3 tasks were refused"), "{}", answer.text);
        assert_eq!(world.get("/v1/tasks").await["items"], json!([]));
    }
    let answer = send(json!([keyed("k", "a"), {"type": "child", "depends_on": [0]}])).await.expect(200);
    assert_eq!(answer["items"][1]["task"]["status"], "BLOCKED");
}

#[tokio::test]
async fn an_atomic_batch_without_room_may_be_repeated() {
    let world = World::new();
    world.send("PUT", "/v1/queues/small", Some(json!({"max_depth": 1}))).await.expect(200);
    let task = json!({"type": "t", "queue": "small"});
    let batch = json!({"tasks": [task, task, {"type": "t"}]});
    let answer = world.send("POST", "/v1/tasks/batch?atomic=true", Some(batch)).await;
    assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (429, "queue_full"));
    assert!(answer.headers.contains_key("retry-after"));
    assert_eq!(world.get("/v1/tasks").await["items"], json!([]));
}
