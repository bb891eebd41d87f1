//! Targets that hang, drip or flood: they hold up no other target.

use std::time::{Duration, Instant};

use punctual_testkit::eventually::eventually;
use punctual_testkit::sink::{Sink, SinkAnswer};
use serde_json::json;

use super::hook;
use crate::it::world::{SOON, World, id_of, quick, shared};

#[tokio::test]
async fn a_dead_target_does_not_hold_up_the_others() {
    let world = World::start().await;
    let caller = world.caller();
    let (dead, alive) = (Sink::start(), Sink::start());
    dead.answer("/hook", SinkAnswer::hang());
    let tasks = (0..600).map(|_| hook(&dead, "/hook", json!({"timeout_seconds": 60, "priority": 9}))).collect();
    caller.submit_all(tasks).await;
    dead.wait_for("/hook", 1, SOON).await;
    let begun = Instant::now();
    let tasks = (0..50).map(|_| hook(&alive, "/hook", json!({"priority": 0}))).collect();
    let tasks = caller.submit_all(tasks).await;
    alive.wait_for("/hook", 50, Duration::from_secs(10)).await;
    for task in tasks {
        caller.until(&id_of(&task), "COMPLETED").await;
    }
    assert!(begun.elapsed() < Duration::from_secs(15), "the others took {:?}", begun.elapsed());
    let hanging = dead.most_at_once();
    assert!((2..=64).contains(&hanging), "{hanging} calls hung at one target at a time");
}

#[tokio::test]
async fn a_slot_that_hung_is_free_after_the_timeout() {
    let world = World::start_with(|serve| serve.setting("WEBHOOKS__PER_TARGET", "2")).await;
    let caller = world.caller();
    let sink = Sink::start();
    sink.script("/hook", [SinkAnswer::hang(), SinkAnswer::hang(), SinkAnswer::status(200)]);
    let tasks = (0..6).map(|_| hook(&sink, "/hook", json!({"timeout_seconds": 1}))).collect();
    for task in caller.submit_all(tasks).await {
        caller.until(&id_of(&task), "COMPLETED").await;
    }
    assert!(sink.most_at_once() <= 2, "{} calls at a time", sink.most_at_once());
    eventually("the hanging calls were given up", SOON, async || match sink.waiting() {
        0 => Ok(()),
        waiting => Err(format!("{waiting} waiting")),
    })
    .await;
}

/// Loopback is allowed here, and still a submitter cannot have the node call its own API.
#[tokio::test]
async fn the_own_api_cannot_be_called() {
    let world = World::start().await;
    let caller = world.caller().of_tenant("evil");
    let own = world.server.address();
    let literal = json!({"type": "t", "callback_url": format!("http://{own}/v1/tasks")});
    caller.api.post("/v1/tasks", &literal).await.invalid("/callback_url");
    let named = format!("http://{}/v1/queues/default/pause", own.replace("127.0.0.1", "localhost"));
    let id = caller.submit_id(json!({"type": "t", "callback_url": named, "retry_policy": quick(3)})).await;
    let task = caller.until(&id, "DEAD_LETTERED").await;
    assert_eq!(task["last_error"]["code"], "blocked_target", "{task:#}");
    assert_eq!(caller.runs(&id).await.len(), 1, "it was retried");
}

#[tokio::test]
async fn endless_answers_are_cut_off() {
    let caller = shared().await;
    let sink = Sink::start();
    sink.answer("/endless", SinkAnswer::endless());
    let endless =
        caller.submit_id(hook(&sink, "/endless", json!({"timeout_seconds": 10, "retry_policy": quick(0)}))).await;
    // 2xx completes; no more of the body is read than a result may be long.
    let task = caller.until(&endless, "COMPLETED").await;
    assert!(task["result"].is_null());
    sink.script("/drip", [SinkAnswer::trickle(), SinkAnswer::json(&json!("whole"))]);
    let drip = caller.submit_id(hook(&sink, "/drip", json!({"timeout_seconds": 1}))).await;
    caller.until(&drip, "COMPLETED").await;
    eventually("no connection is left hanging", SOON, async || match sink.waiting() {
        0 => Ok(()),
        waiting => Err(format!("{waiting} waiting")),
    })
    .await;
}

#[tokio::test]
async fn an_idle_connection_that_closed_costs_no_attempt() {
    let caller = shared().await;
    let sink = Sink::start();
    // The target closes after every answer, as if its idle timeout had passed.
    sink.answer("/hook", SinkAnswer::status(200).header("connection", "close"));
    for _ in 0..10 {
        let id = caller.submit_id(hook(&sink, "/hook", json!({"retry_policy": quick(3)}))).await;
        caller.until(&id, "COMPLETED").await;
    }
    assert!(sink.hits("/hook").len() >= 10);
}
