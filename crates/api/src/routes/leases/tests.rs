use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

use crate::server::Peer;
use crate::testing::{Lease, START, World, merged};

/// A task that is with a worker.
async fn running(world: &World) -> Lease {
    world.submit(json!({"type": "work", "queue": "q"})).await;
    world.lease("w1", "q").await
}

/// Settles runs in one call and returns the answer of each.
async fn settle(world: &World, items: Value) -> Vec<Value> {
    let answer = world.send("POST", "/v1/leases/settle", Some(json!({"items": items}))).await;
    answer.expect(200)["items"].as_array().unwrap().clone()
}

/// Settles one leased task and returns its answer.
async fn settled(world: &World, fields: Value) -> Value {
    let lease = running(world).await;
    let item = merged(json!({"task_id": lease.id, "token": lease.token}), fields);
    settle(world, json!([item])).await.remove(0)
}

async fn beat(world: &World, lease: &Lease, times: usize) {
    for _ in 0..times {
        world.report(lease, "heartbeat", json!({})).await.expect(200);
    }
}

#[tokio::test]
async fn a_lease_is_counted_with_its_lateness() {
    let world = World::new();
    world.submit(json!({"type": "work", "queue": "q"})).await;
    world.clock.advance_millis(30);
    assert_eq!(world.lease("w1", "q").await.expires_at, START.plus_millis(60_030).to_string());
    let metrics = world.api.operations.metrics.prometheus();
    assert!(metrics.contains("punctual_leases_total 1\n"), "{metrics}");
    assert!(metrics.contains("punctual_lateness_seconds_sum 0.03\n"), "{metrics}");
}

/// It hangs up after its answer was made, and before the answer is sent.
#[tokio::test]
async fn a_task_for_a_worker_that_hung_up_goes_to_another() {
    let world = World::new();
    let id = world.submit(json!({"type": "work", "queue": "q"})).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let worker = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (connection, address) = listener.accept().await.unwrap();
    let wanted = json!({"worker_id": "gone", "queues": ["q"], "wait_seconds": 20}).to_string();
    let request = Request::post("/v1/leases").header("content-type", "application/json");
    let request = request.extension(Peer::of(&connection, address.ip(), false)).body(Body::from(wanted)).unwrap();
    let answer = world.unread(request).await;
    drop(worker);
    connection.readable().await.unwrap();
    assert!(answer.into_body().collect().await.is_err(), "a task was sent to a worker that is gone");
    let lease = world.lease_as(json!({"worker_id": "other", "queues": ["q"], "wait_seconds": 20})).await;
    assert_eq!(lease.id, id);
}

#[tokio::test]
async fn a_shutdown_ends_the_waiting_polls() {
    let world = World::new();
    world.shutdown.cancel();
    let answer =
        world.send("POST", "/v1/leases", Some(json!({"worker_id": "w", "queues": ["q"], "wait_seconds": 60}))).await;
    // Either it waited already and gets nothing, or it came too late.
    assert!(answer.status == StatusCode::OK || answer.problem() == "shutting_down", "{}", answer.text);
    let later = world.send("POST", "/v1/leases", Some(json!({"worker_id": "w", "queues": ["q"]}))).await;
    assert_eq!((later.status, later.problem().as_str()), (StatusCode::SERVICE_UNAVAILABLE, "shutting_down"));
}

#[tokio::test]
async fn a_flood_of_heartbeats_is_not_written() {
    let world = World::new();
    let lease = running(&world).await;
    beat(&world, &lease, 200).await;
    // Ten a second; the loop may last longer than one on a busy machine.
    let written = world.store.extended.load(Ordering::SeqCst);
    assert!(written < 200, "{written}");
    world.report(&lease, "complete", json!({})).await.expect(200);
    assert_eq!(world.report(&lease, "heartbeat", json!({})).await.problem(), "stale_token");
}

#[tokio::test]
async fn a_cancellation_is_noticed_in_a_flood_of_heartbeats() {
    let world = World::new();
    let lease = running(&world).await;
    beat(&world, &lease, 20).await;
    world.send("DELETE", &format!("/v1/tasks/{}", lease.id), None).await.expect(202);
    let answer = world.report(&lease, "heartbeat", json!({})).await;
    assert_eq!((answer.status, answer.problem().as_str()), (StatusCode::GONE, "cancelled"));
}

#[tokio::test]
async fn a_settlement_answers_only_what_is_new() {
    let world = World::new();
    let answer = settled(&world, json!({"outcome": "completed", "result": 1})).await;
    assert_eq!(answer, json!({"status": 200, "task_id": answer["task_id"]}));
    let answer = settled(&world, json!({"outcome": "heartbeat", "progress": 1})).await;
    assert_eq!(answer["lease_expires_at"], START.plus_millis(60_000).to_string());
}

#[tokio::test]
async fn an_invalid_item_does_not_touch_the_others() {
    let world = World::new();
    let Lease { id, token, .. } = running(&world).await;
    let item = json!({"task_id": id, "token": token, "outcome": "released"});
    let answers = settle(&world, json!([merged(item.clone(), json!({"result": 1})), item])).await;
    let [invalid, released] = answers.as_slice() else { panic!("{answers:?}") };
    assert_eq!((&invalid["status"], &released["status"]), (&json!(422), &json!(200)));
    assert_eq!(invalid["error"]["errors"][0]["pointer"], "/items/0/result");
}

#[tokio::test]
async fn settled_runs_are_counted_by_outcome() {
    for (outcome, label) in [("completed", "completed"), ("failed", "retried"), ("released", "given_back")] {
        let world = World::new();
        settled(&world, json!({"outcome": outcome})).await;
        let metrics = world.api.operations.metrics.prometheus();
        assert!(metrics.contains(&format!("punctual_tasks_settled_total{{outcome=\"{label}\"}} 1\n")), "{metrics}");
    }
}

#[tokio::test]
async fn a_settle_call_is_bounded() {
    let world = World::new();
    assert!(settle(&world, json!([])).await.is_empty());
    let item = json!({"task_id": "task_00000000-0000-7000-8000-000000000000", "token": 1, "outcome": "released"});
    let answer = world.send("POST", "/v1/leases/settle", Some(json!({"items": vec![item; 1_001]}))).await;
    assert_eq!(answer.pointers(), ["/items"]);
}

#[tokio::test]
async fn a_task_shows_when_it_was_asked_to_stop() {
    let world = World::new();
    let lease = running(&world).await;
    let path = format!("/v1/tasks/{}", lease.id);
    assert_eq!(world.get(&path).await["cancel_requested_at"], json!(null));
    world.clock.advance_millis(5);
    let asked = world.send("DELETE", &path, None).await.expect(202);
    assert_eq!(asked["cancel_requested_at"], START.plus_millis(5).to_string());
    world.clock.advance_millis(5);
    assert_eq!(world.report(&lease, "complete", json!({})).await.problem(), "cancelled");
    let stopped = world.get(&path).await;
    assert_eq!(
        (&stopped["status"], &stopped["cancel_requested_at"]),
        (&json!("CANCELLED"), &asked["cancel_requested_at"])
    );
}

#[tokio::test]
async fn a_task_can_be_given_back_for_a_while() {
    let world = World::new();
    let lease = running(&world).await;
    let task = world.report(&lease, "release", json!({"delay_seconds": 90})).await.expect(200);
    let later = START.plus_millis(90_000).to_string();
    assert_eq!((&task["status"], &task["next_attempt_at"]), (&json!("PENDING"), &json!(later)));
    assert_eq!(task["retry_count"], 0, "the attempt is not counted");
    let too_long = world.report(&lease, "release", json!({"delay_seconds": 2_592_001})).await;
    assert_eq!(too_long.pointers(), ["/delay_seconds"]);
    let answer = settled(&world, json!({"outcome": "completed", "delay_seconds": 1})).await;
    assert_eq!(answer["error"]["errors"][0]["pointer"], "/items/0/delay_seconds");
}

/// The resolver does not run here, so the child depends on tasks that had ended before.
#[tokio::test]
async fn a_lease_has_the_results_of_the_dependencies() {
    let world = World::new();
    let mut parents = Vec::new();
    for result in [json!({"rows": 3}), json!(null)] {
        let lease = running(&world).await;
        world.report(&lease, "complete", json!({"result": result})).await.expect(200);
        parents.push(lease.id);
    }
    world.submit(json!({"type": "child", "queue": "children", "depends_on": parents})).await;
    let wanted = json!({"worker_id": "w", "queues": ["children"], "wait_seconds": 5});
    let answer = world.send("POST", "/v1/leases", Some(wanted)).await.expect(200);
    let expected = json!([
        {"task_id": parents[0], "status": "COMPLETED", "result": {"rows": 3}},
        {"task_id": parents[1], "status": "COMPLETED", "result": null},
    ]);
    assert_eq!(answer["leases"][0]["dependencies"], expected);
}

#[tokio::test]
async fn results_beyond_the_bound_are_left_out() {
    let world = World::new();
    let mut parents = Vec::new();
    for _ in 0..17 {
        let lease = running(&world).await;
        world.report(&lease, "complete", json!({"result": "x".repeat(65_000)})).await.expect(200);
        parents.push(lease.id);
    }
    for depends_on in [&parents[..16], &parents[..]] {
        world.submit(json!({"type": "child", "queue": "children", "depends_on": depends_on})).await;
        let wanted = json!({"worker_id": "w", "queues": ["children"], "wait_seconds": 5});
        let answer = world.send("POST", "/v1/leases", Some(wanted)).await.expect(200);
        let results = answer["leases"][0]["dependencies"].as_array().map(Vec::len);
        assert_eq!(results, (depends_on.len() == 16).then_some(16));
    }
}
