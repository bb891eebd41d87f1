//! Explanations over HTTP that need a moved clock or an open breaker.

use axum::http::StatusCode;
use punctual_core::breakers::{BreakerKey, Breakers, OpenBreaker, Runs};
use serde_json::{Value, json};

use crate::presence::PresenceFlusher;
use crate::testing::{START, World};

const TARGET: &str = "http://93.184.216.34:80";

async fn submit(world: &World, task: Value) -> String {
    let answer = world.send("POST", "/v1/tasks", Some(task)).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text);
    answer.json()["task_id"].as_str().unwrap().to_owned()
}

async fn explained(world: &World, id: &str) -> Value {
    let answer = world.send("GET", &format!("/v1/tasks/{id}/explain"), None).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    answer.json()
}

fn codes(answer: &Value) -> Vec<&str> {
    answer["reasons"].as_array().unwrap().iter().map(|reason| reason["code"].as_str().unwrap()).collect()
}

/// A worker takes a task and does not poll again; another task waits behind it.
struct Busy {
    world: World,
    lease: Value,
    waiting: String,
}

impl Busy {
    async fn start(lease_seconds: u64) -> Self {
        let world = World::new();
        let task = json!({"type": "t", "queue": "q", "timeout_seconds": 86_400});
        submit(&world, task.clone()).await;
        let asking = json!({"worker_id": "w", "queues": ["q"], "wait_seconds": 5, "lease_seconds": lease_seconds});
        let answer = world.send("POST", "/v1/leases", Some(asking)).await.json();
        let waiting = submit(&world, task).await;
        PresenceFlusher::new(world.api.clone()).run_once().await.unwrap();
        Self { world, lease: answer["leases"][0].clone(), waiting }
    }

    async fn report(&self, verb: &str) {
        let id = self.lease["task"]["task_id"].as_str().unwrap();
        let body = json!({"token": self.lease["token"]});
        let answer = self.world.send("POST", &format!("/v1/tasks/{id}/{verb}"), Some(body)).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    }

    /// Its status, how many tasks it holds, and how many seconds after the start it was last seen.
    async fn worker(&self) -> (String, u64, i64) {
        let answer = self.world.send("GET", "/v1/workers", None).await.json();
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
        assert!(message.contains("the only worker that asks for queue q or type t is busy with 1 task"), "{message}");
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
    submit(&world, json!({"type": "t", "queue": "other"})).await;
    let asking = json!({"worker_id": "w", "queues": ["other", "q"], "wait_seconds": 5});
    assert_eq!(world.send("POST", "/v1/leases", Some(asking)).await.json()["leases"].as_array().unwrap().len(), 1);
    let waiting = submit(&world, json!({"type": "t", "queue": "q"})).await;
    assert_eq!(codes(&explained(&world, &waiting).await), ["workers_busy"]);
    let asking = json!({"worker_id": "free", "types": ["t", "u"], "wait_seconds": 5});
    assert_eq!(world.send("POST", "/v1/leases", Some(asking)).await.json()["leases"].as_array().unwrap().len(), 1);
    let another = submit(&world, json!({"type": "u", "queue": "q"})).await;
    let answer = explained(&world, &another).await;
    assert_eq!(codes(&answer), ["workers_busy"]);
    assert_eq!(answer["reasons"][0]["workers"], 2, "one by its queue, the other by its type");
}

async fn open_breaker(world: &World, target: &str, probe_in_millis: i64) {
    let breaker = OpenBreaker {
        key: BreakerKey::new("default", target),
        opened_at: START,
        next_probe_at: START.plus_millis(probe_in_millis),
        runs: Runs { ok: 0, failed: 20 },
        reason: "20 of 20 failed".into(),
        half_open: false,
        probe: None,
        overtaken: Vec::new(),
        last_probe: None,
    };
    assert!(world.sqlite.open_breaker(breaker).await.unwrap());
}

#[tokio::test]
async fn of_two_breakers_the_one_that_lasts_comes_first() {
    for (of_target, of_tenant, expected) in
        [(30_000, 60_000, [json!(null), json!(TARGET)]), (60_000, 30_000, [json!(TARGET), json!(null)])]
    {
        let world = World::new();
        let id = submit(&world, json!({"type": "t", "callback_url": format!("{TARGET}/hook")})).await;
        open_breaker(&world, TARGET, of_target).await;
        assert_eq!(codes(&explained(&world, &id).await)[0], "breaker_open");
        open_breaker(&world, "", of_tenant).await;
        let answer = explained(&world, &id).await;
        assert_eq!(codes(&answer), ["breaker_open", "breaker_open", "no_partition_owner"], "{answer:#}");
        let reasons = &answer["reasons"];
        assert_eq!([&reasons[0]["target"], &reasons[1]["target"]], [&expected[0], &expected[1]], "{answer:#}");
        assert!(reasons[0].get("position").is_none() && reasons[0]["message"].as_str().unwrap().contains("or another"));
    }
}

#[tokio::test]
async fn a_task_expires_before_the_last_of_its_parents_is_due() {
    let world = World::new();
    let parent = |seconds: u64| json!({"type": "t", "delay_seconds": seconds});
    let parents = [submit(&world, parent(0)).await, submit(&world, parent(60)).await, submit(&world, parent(30)).await];
    let child = |expires_in_millis: i64| json!({"type": "t", "depends_on": parents, "expires_at": START.plus_millis(expires_in_millis)});
    let (short, long) = (submit(&world, child(60_000)).await, submit(&world, child(61_000)).await);
    let answer = explained(&world, &short).await;
    assert_eq!(codes(&answer), ["expires_first", "waiting_for_dependencies"], "{answer:#}");
    let message = answer["reasons"][0]["message"].as_str().unwrap();
    assert!(message.contains(&parents[1]), "{message}");
    assert_eq!(codes(&explained(&world, &long).await), ["waiting_for_dependencies"]);
}
