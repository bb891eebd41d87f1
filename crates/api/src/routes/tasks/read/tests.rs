use std::time::{Duration, Instant};

use punctual_core::ids::NodeId;
use punctual_core::state::{By, Event, transition};
use punctual_core::store::Store;
use punctual_core::trail::Actor;
use serde_json::json;

use crate::readiness::Probes;
use crate::state::ApiConfig;
use crate::testing::{START, World};

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
