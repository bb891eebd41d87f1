//! From the first attempt to the dead letter, and back.

use std::time::Duration;

use punctual_testkit::eventually::eventually;
use punctual_testkit::sink::{Sink, SinkAnswer};
use serde_json::{Value, json};

use super::hook;
use crate::it::world::{SOON, World, in_seconds, quick, seconds_between, shared, time, written};

#[tokio::test]
async fn attempts_count_up_tokens_grow_and_the_id_stays() {
    let caller = shared().await;
    let sink = Sink::start();
    sink.script("/thrice", [SinkAnswer::status(500), SinkAnswer::status(500), SinkAnswer::status(200)]);
    let id = caller.submit_id(hook(&sink, "/thrice", json!({"payload": {"n": 1}}))).await;
    let done = caller.until(&id, "COMPLETED").await;
    assert_eq!(done["retry_count"], 2);
    let hits = sink.hits("/thrice");
    let attempts: Vec<&str> = hits.iter().map(|hit| hit.header("Punctual-Attempt")).collect();
    assert_eq!(attempts, ["1", "2", "3"]);
    let tokens: Vec<u64> =
        hits.iter().map(|hit| hit.header("Punctual-Fencing-Token").parse().expect("a token")).collect();
    assert!(tokens.is_sorted_by(|a, b| a < b), "the tokens grow: {tokens:?}");
    for hit in &hits {
        assert_eq!((hit.header("webhook-id"), hit.header("Idempotency-Key")), (id.as_str(), id.as_str()));
        assert_eq!(hit.body, br#"{"n":1}"#);
    }
    let waits: Vec<f64> = hits.windows(2).map(|pair| seconds_between(pair[0].at, pair[1].at)).collect();
    assert!(waits.iter().all(|wait| (0.1..10.0).contains(wait)), "retried after {waits:?} s");
    let runs = caller.runs(&id).await;
    assert_eq!(runs.len(), 3, "{runs:#?}");
    caller.trail(&id).await;
}

#[tokio::test]
async fn a_dead_letter_keeps_its_history_and_can_be_redriven() {
    let caller = shared().await;
    let sink = Sink::start();
    sink.answer("/broken", SinkAnswer::status(500).body("broken"));
    let id =
        caller.submit_id(hook(&sink, "/broken", json!({"payload": {"version": 1}, "retry_policy": quick(2)}))).await;
    let dead = caller.until(&id, "DEAD_LETTERED").await;
    assert_eq!(dead["payload"], json!({"version": 1}));
    assert!(dead["last_error"]["code"].is_string(), "{dead:#}");
    assert_eq!((sink.hits("/broken").len(), caller.runs(&id).await.len()), (3, 3));
    let tokens = |sink: &Sink| {
        sink.hits("/broken")
            .iter()
            .map(|hit| hit.header("Punctual-Fencing-Token").parse().expect("a token"))
            .collect::<Vec<u64>>()
    };

    // Still broken: the retries begin from zero, so there are three more attempts.
    let answer = caller.api.call("POST", &format!("/v1/tasks/{id}/redrive")).send().await;
    assert!(answer.status() < 300, "{answer}");
    sink.wait_for("/broken", 6, SOON).await;
    caller.until(&id, "DEAD_LETTERED").await;
    assert_eq!(sink.hits("/broken").len(), 6);

    sink.answer("/broken", SinkAnswer::json(&json!("repaired")));
    let answer = caller.api.post(&format!("/v1/tasks/{id}/redrive"), &json!({"payload": {"version": 2}})).await;
    assert!(answer.status() < 300, "{answer}");
    let done = caller.until(&id, "COMPLETED").await;
    assert_eq!((&done["result"], &done["payload"]), (&json!("repaired"), &json!({"version": 2})));
    assert_eq!(sink.hits("/broken")[6].body, br#"{"version":2}"#);
    assert!(tokens(&sink).is_sorted_by(|a, b| a < b), "the tokens grow, re-driven or not: {:?}", tokens(&sink));
    caller.trail(&id).await;
}

#[tokio::test]
async fn an_answer_to_a_cancelled_run_is_discarded() {
    let caller = shared().await;
    let sink = Sink::start();
    for (n, answer) in
        [SinkAnswer::json(&json!("late")), SinkAnswer::status(500), SinkAnswer::status(404)].into_iter().enumerate()
    {
        let path = format!("/{n}");
        sink.answer(&path, answer.after(Duration::from_secs(2)));
        let id = caller.submit_id(hook(&sink, &path, json!({}))).await;
        sink.wait_for(&path, 1, SOON).await;
        caller.api.delete(&format!("/v1/tasks/{id}")).await.expect(202);
        let task = caller.until(&id, "CANCELLED").await;
        assert!(task["result"].is_null(), "{task:#}");
        // Until after the target has answered, or the call was dropped.
        eventually("the call is over", SOON, async || match sink.waiting() {
            0 => Ok(()),
            waiting => Err(format!("{waiting} waiting")),
        })
        .await;
        let task = caller.task(&id).await;
        assert_eq!((&task["status"], &task["result"]), (&json!("CANCELLED"), &Value::Null), "{task:#}");
        assert_eq!(sink.hits(&path).len(), 1, "a cancelled run was retried");
        caller.trail(&id).await;
    }
}

#[tokio::test]
async fn a_webhook_that_has_expired_is_not_sent() {
    let world = World::start_with(|serve| serve.setting("WEBHOOKS__PER_TARGET", "1")).await;
    let caller = world.caller();
    let sink = Sink::start();
    // The first task takes the target's only slot for longer than the second may wait.
    sink.answer("/first", SinkAnswer::status(200).after(Duration::from_secs(4)));
    let first = caller.submit_id(hook(&sink, "/first", json!({}))).await;
    sink.wait_for("/first", 1, SOON).await;
    let second = caller.submit_id(hook(&sink, "/second", json!({"expires_at": written(in_seconds(1.0))}))).await;
    let task = caller.until(&second, "FAILED").await;
    assert_eq!(task["last_error"]["code"], "expired", "{task:#}");
    caller.until(&first, "COMPLETED").await;
    // Another task got the slot after the first, so the second was skipped.
    let third = caller.submit_id(hook(&sink, "/third", json!({}))).await;
    caller.until(&third, "COMPLETED").await;
    assert_eq!(sink.hits("/second").len(), 0);
    caller.trail(&second).await;
}

/// Dunning: the customer's card is tried again after three days.
#[tokio::test]
async fn retries_can_be_listed_over_days() {
    let caller = shared().await;
    let sink = Sink::start();
    sink.answer("/declined", SinkAnswer::status(402));
    let policy = json!({"delays_seconds": [0.1, 259_200], "retry_on": ["402", "5xx"]});
    let id = caller.submit_id(hook(&sink, "/declined", json!({"retry_policy": policy}))).await;
    sink.wait_for("/declined", 2, SOON).await;
    let task = eventually("the second run has failed", SOON, async || {
        let task = caller.task(&id).await;
        if task["retry_count"] == 2 { Ok(task) } else { Err(format!("{task:#}")) }
    })
    .await;
    let shown =
        json!({"max_retries": 2, "jitter": "none", "delays_seconds": [0.1, 259_200], "retry_on": ["5xx", "402"]});
    assert_eq!((&task["status"], &task["retry_policy"]), (&json!("PENDING"), &shown));
    let wait = seconds_between(in_seconds(0.0), time(&task["next_attempt_at"]));
    assert!((259_000.0..=259_200.0).contains(&wait), "the next attempt is in {wait} s");
}

#[tokio::test]
async fn what_retry_on_leaves_out_is_not_retried() {
    let caller = shared().await;
    let sink = Sink::start();
    sink.answer("/broken", SinkAnswer::status(500));
    let policy = json!({"max_retries": 5, "backoff_seconds": 0.1, "retry_on": ["timeout", "503"]});
    let id = caller.submit_id(hook(&sink, "/broken", json!({"retry_policy": policy}))).await;
    caller.until(&id, "DEAD_LETTERED").await;
    assert_eq!(sink.hits("/broken").len(), 1);
}
