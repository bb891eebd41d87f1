//! Explanations over HTTP that need a moved clock or an open breaker.

use punctual_core::breakers::Breakers;
use serde_json::{Value, json};

use crate::presence::PresenceFlusher;
use crate::testing::{Lease, START, World, open_breaker};

const TARGET: &str = "http://93.184.216.34:80";

async fn explained(world: &World, id: &str) -> Value {
    world.get(&format!("/v1/tasks/{id}/explain")).await
}

fn codes(answer: &Value) -> Vec<&str> {
    answer["reasons"].as_array().unwrap().iter().map(|reason| reason["code"].as_str().unwrap()).collect()
}

/// A worker takes a task and does not poll again; another task waits behind it.
struct Busy {
    world: World,
    lease: Lease,
    waiting: String,
}

impl Busy {
    async fn start(lease_seconds: u64) -> Self {
        let world = World::new();
        let task = json!({"type": "t", "queue": "q", "timeout_seconds": 86_400});
        world.submit(task.clone()).await;
        let wanted = json!({"worker_id": "w", "queues": ["q"], "lease_seconds": lease_seconds});
        let lease = world.lease_as(wanted).await;
        let waiting = world.submit(task).await;
        PresenceFlusher::new(world.api.clone()).run_once().await.unwrap();
        Self { world, lease, waiting }
    }

    async fn report(&self, verb: &str) {
        self.world.report(&self.lease, verb, json!({})).await.expect(200);
    }

    /// Its status, how many tasks it holds, and how many seconds after the start it was last seen.
    async fn worker(&self) -> (String, u64, i64) {
        let answer = self.world.get("/v1/workers").await;
        let worker = &answer["items"][0];
        assert_eq!((&worker["worker_id"], &worker["queues"]), (&json!("w"), &json!(["q"])), "{answer}");
        let seen: punctual_core::time::Timestamp = serde_json::from_value(worker["last_seen_at"].clone()).unwrap();
        let status = worker["status"].as_str().unwrap().to_owned();
        (status, worker["running"].as_u64().unwrap(), seen.millis_since(START) / 1_000)
    }

    async fn expect_busy(&self) {
        let answer = explained(&self.world, &self.waiting).await;
        assert_eq!(codes(&answer), ["workers_busy"], "{answer:#}");
        let reason = &answer["reasons"][0];
        let shown = (&reason["workers"], &reason["busy"], &reason["position"], &answer["eta"]);
        assert_eq!(shown, (&json!(1), &json!(1), &json!(1), &json!(null)));
        let message = reason["message"].as_str().unwrap();
        assert!(message.contains("the only worker that polls for queue q or type t is busy with 1 task"), "{message}");
    }
}

#[tokio::test]
async fn a_worker_with_heartbeats_is_busy_and_not_lost() {
    let busy = Busy::start(60).await;
    for beat in 1..=4 {
        busy.world.clock.advance_millis(50_000);
        busy.report("heartbeat").await;
        assert_eq!(busy.worker().await, ("active".to_owned(), 1, 50 * beat));
        busy.expect_busy().await;
    }
    busy.report("complete").await;
    assert_eq!(busy.worker().await, ("active".to_owned(), 0, 200), "it was seen when it settled");
    PresenceFlusher::new(busy.world.api.clone()).run_once().await.unwrap();
    assert_eq!(busy.worker().await, ("active".to_owned(), 0, 200), "and is still known to ask for the queue");
    assert_eq!(codes(&explained(&busy.world, &busy.waiting).await), ["due_waiting_for_worker"]);
    busy.world.clock.advance_millis(61_000);
    assert_eq!(busy.worker().await.0, "lost");
    assert_eq!(codes(&explained(&busy.world, &busy.waiting).await), ["no_worker_polling"]);
}

#[tokio::test]
async fn a_silent_worker_is_busy_while_its_lease_lasts() {
    let busy = Busy::start(3_600).await;
    busy.world.clock.advance_millis(3_599_000);
    assert_eq!(busy.worker().await, ("active".to_owned(), 1, 0));
    busy.expect_busy().await;
    busy.world.clock.advance_millis(1_000);
    assert_eq!(busy.worker().await, ("lost".to_owned(), 0, 0));
    assert_eq!(codes(&explained(&busy.world, &busy.waiting).await), ["no_worker_polling"]);
}

#[tokio::test]
async fn a_holder_of_another_queues_task_is_busy_too() {
    let world = World::new();
    world.submit(json!({"type": "t", "queue": "other"})).await;
    world.lease_as(json!({"worker_id": "w", "queues": ["other", "q"]})).await;
    let waiting = world.submit(json!({"type": "t", "queue": "q"})).await;
    assert_eq!(codes(&explained(&world, &waiting).await), ["workers_busy"]);
    world.lease_as(json!({"worker_id": "free", "types": ["t", "u"]})).await;
    let another = world.submit(json!({"type": "u", "queue": "q"})).await;
    let answer = explained(&world, &another).await;
    assert_eq!(codes(&answer), ["workers_busy"]);
    assert_eq!(answer["reasons"][0]["workers"], 2, "one by its queue, the other by its type");
}

#[tokio::test]
async fn of_two_breakers_the_one_that_lasts_comes_first() {
    let (of_target, of_tenant) = (json!(TARGET), Value::Null);
    for (target_millis, tenant_millis, expected) in
        [(30_000, 60_000, [&of_tenant, &of_target]), (60_000, 30_000, [&of_target, &of_tenant])]
    {
        let world = World::new();
        let id = world.submit(json!({"type": "t", "callback_url": format!("{TARGET}/hook")})).await;
        for (target, millis) in [(TARGET, target_millis), ("", tenant_millis)] {
            assert!(world.sqlite.open_breaker(open_breaker("default", target, millis)).await.unwrap());
        }
        let answer = explained(&world, &id).await;
        assert_eq!(codes(&answer), ["breaker_open", "breaker_open", "no_partition_owner"], "{answer:#}");
        assert_eq!([&answer["reasons"][0]["target"], &answer["reasons"][1]["target"]], expected, "{answer:#}");
    }
}

#[tokio::test]
async fn a_task_expires_before_the_last_of_its_parents_is_due() {
    let world = World::new();
    let mut parents = Vec::new();
    for seconds in [0, 60, 30] {
        parents.push(world.submit(json!({"type": "t", "delay_seconds": seconds})).await);
    }
    let expires = |millis: i64| json!({"type": "t", "depends_on": parents, "expires_at": START.plus_millis(millis)});
    let (short, long) = (world.submit(expires(60_000)).await, world.submit(expires(61_000)).await);
    let answer = explained(&world, &short).await;
    assert_eq!(codes(&answer), ["expires_first", "waiting_for_dependencies"], "{answer:#}");
    let message = answer["reasons"][0]["message"].as_str().unwrap();
    assert!(message.contains(&parents[1]), "{message}");
    assert_eq!(codes(&explained(&world, &long).await), ["waiting_for_dependencies"]);
}
