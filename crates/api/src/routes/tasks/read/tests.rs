use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::Request;
use axum::http::header::HOST;
use punctual_core::ids::NodeId;
use punctual_core::state::{By, Event, transition};
use punctual_core::store::Store;
use punctual_core::trail::Actor;
use serde_json::json;
use tower::ServiceExt;

use crate::readiness::Probes;
use crate::state::ApiConfig;
use crate::testing::{Answer, START, World};

/// Far longer than any of these waits takes.
const LONG: &str = "?wait_seconds=60";

impl World {
    /// Returns once this many clients wait.
    async fn until_clients_wait(&self, count: i64) {
        while self.api.operations.metrics.waiting_clients.get() != count {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_read_waits_until_the_task_has_finished() {
    let world = World::new();
    let id = world.submit(json!({"type": "work", "queue": "q"})).await;
    let path = format!("/v1/tasks/{id}{LONG}");
    let begun = Instant::now();
    let finish = async {
        world.until_clients_wait(2).await;
        let lease = world.lease("w", "q").await;
        world.report(&lease, "complete", json!({"result": 42})).await.expect(200);
    };
    let (one, other, ()) = tokio::join!(world.get(&path), world.get(&path), finish);
    for task in [one, other, world.get(&path).await] {
        assert_eq!((&task["status"], &task["result"]), (&json!("COMPLETED"), &json!(42)));
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert!(world.api.finish_watch.is_empty());
}

#[tokio::test]
async fn a_wait_that_is_over_shows_the_task_as_it_is() {
    let world = World::new();
    let id = world.submit(json!({"type": "work", "queue": "q"})).await;
    world.lease("w", "q").await;
    assert_eq!(world.get(&format!("/v1/tasks/{id}?wait_seconds=0.02")).await["status"], "RUNNING");
    for wrong in ["wait_seconds=60.1", "wait_seconds=-1", "wait_seconds=soon", "wait=5"] {
        let (name, _) = wrong.split_once('=').unwrap();
        let answer = world.send("GET", &format!("/v1/tasks/{id}?{wrong}"), None).await;
        assert_eq!(answer.pointers(), [format!("?{name}")]);
    }
}

#[tokio::test]
async fn tasks_that_finish_at_once_are_read_together() {
    const CLIENTS: usize = 200;
    let world = World::new();
    let mut ids = Vec::new();
    for _ in 0..CLIENTS {
        ids.push(world.submit(json!({"type": "work", "queue": "q", "delay_seconds": 600})).await);
    }
    let cancel = async {
        let by = By { now: START, node: NodeId::new(2), actor: Actor::Client };
        let task_ids: Vec<_> = ids.iter().map(|id| id.parse().unwrap()).collect();
        let tasks = world.sqlite.get("default", task_ids).await.unwrap().into_iter().flatten();
        let cancelled = tasks.map(|task| (task.id, transition(&task.position, Event::Cancel, &by).unwrap()));
        let before = world.store.got.load(Ordering::SeqCst);
        world.store.apply(cancelled.collect()).await.unwrap();
        before
    };
    let mut clients = tokio::task::JoinSet::new();
    for id in &ids {
        let request = Request::get(format!("/v1/tasks/{id}{LONG}")).header(HOST, "localhost");
        let answer = world.router.clone().oneshot(request.body(Body::empty()).unwrap());
        clients.spawn(async move { Answer::of(answer.await.unwrap()).await.expect(200)["status"].clone() });
        // One after the other: each is admitted as if its answer were large, until it waits.
        world.until_clients_wait(i64::try_from(clients.len()).unwrap()).await;
    }
    let before = cancel.await;
    for status in clients.join_all().await {
        assert_eq!(status, "CANCELLED");
    }
    let reads = world.store.got.load(Ordering::SeqCst) - before;
    assert!((4..=20).contains(&reads), "{reads} reads for {CLIENTS} clients");
}

/// The store of this node does not report it.
#[tokio::test]
async fn a_task_that_another_node_finished_is_found() {
    let world = World::new();
    let id = world.submit(json!({"type": "work", "queue": "q"})).await;
    let finish = async {
        world.until_clients_wait(1).await;
        let task_id = id.parse().unwrap();
        let task = world.sqlite.get("default", vec![task_id]).await.unwrap().remove(0).unwrap();
        let by = By { now: START, node: NodeId::new(2), actor: Actor::Client };
        let change = transition(&task.position, Event::Cancel, &by).unwrap();
        world.sqlite.apply(vec![(task_id, change)]).await.unwrap();
        world.api.finish_watch.run_once(&*world.sqlite).await.unwrap();
    };
    let path = format!("/v1/tasks/{id}{LONG}");
    let (task, ()) = tokio::join!(world.get(&path), finish);
    assert_eq!(task["status"], "CANCELLED");
}

#[tokio::test]
async fn waiting_clients_are_bounded_and_may_hang_up() {
    let world = World::with(ApiConfig { waiting_clients: 1, ..ApiConfig::default() }, Probes::default());
    let id = world.submit(json!({"type": "work"})).await;
    let path = format!("/v1/tasks/{id}{LONG}");
    for _ in 0..3 {
        tokio::select! {
            task = world.get(&path) => panic!("it has not finished: {task}"),
            () = world.until_clients_wait(1) => {}
        }
        // The client above has hung up.
        assert_eq!(world.api.operations.metrics.waiting_clients.get(), 0);
        assert!(world.api.finish_watch.is_empty());
    }
    let crowded = async {
        world.until_clients_wait(1).await;
        let answer = world.send("GET", &path, None).await;
        world.api.finish_watch.close();
        answer
    };
    let (first, second) = tokio::join!(world.get(&path), crowded);
    assert_eq!(second.problem(), "overloaded");
    assert_eq!(first["status"], "PENDING", "a node that shuts down answers at once");
}
