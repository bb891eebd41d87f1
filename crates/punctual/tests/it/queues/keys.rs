//! `concurrency_key` and `max_per_key`, in the whole cluster.

use std::time::{Duration, Instant};

use punctual_testkit::sink::{Sink, SinkAnswer};
use serde_json::{Value, json};

use super::places::most_at_once;
use super::{get, put};
use crate::it::cluster::Cluster;
use crate::it::world::{Caller, id_of, shared};

/// Forty webhooks of two keys, at most two of a key at once; and those without a key beside them.
async fn no_key_runs_more_than_its_limit(setting: &Caller, submitting: &[Caller]) {
    let sink = Sink::start();
    sink.answer("/", SinkAnswer::status(200).after(Duration::from_millis(50)));
    assert_eq!(put(setting, "keyed", json!({"max_per_key": 2})).await["max_per_key"], 2);
    let task =
        |key: Value| json!({"type": "t", "queue": "keyed", "callback_url": sink.url("/"), "concurrency_key": key});
    let keys = [json!("a"), json!("ключ 🔑"), json!(null)];
    let mut ids: Vec<Vec<String>> = vec![Vec::new(); keys.len()];
    for (ids, key) in ids.iter_mut().zip(&keys) {
        for caller in submitting {
            let stored = caller.submit_all(vec![task(key.clone()); 20 / submitting.len()]).await;
            assert_eq!(stored[0]["concurrency_key"], *key);
            ids.extend(stored.iter().map(id_of));
        }
    }
    let begun = Instant::now();
    for id in ids.iter().flatten() {
        setting.until(id, "COMPLETED").await;
    }
    // Ten times fifty milliseconds if a free place is taken at once; ten seconds if only a check of
    // every second finds it.
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    for ids in &ids[..2] {
        assert!(most_at_once(setting, ids).await <= 2);
    }
    put(setting, "keyed", json!({})).await;
    assert_eq!(get(setting, "keyed").await["max_per_key"], json!(null));
}

#[tokio::test]
async fn a_key_runs_no_more_than_its_limit() {
    let caller = shared().await;
    no_key_runs_more_than_its_limit(&caller, std::slice::from_ref(&caller)).await;
}

#[tokio::test]
async fn a_key_runs_no_more_than_its_limit_on_any_node() {
    let cluster = Cluster::start(2).await;
    no_key_runs_more_than_its_limit(&cluster.caller(0), &[cluster.caller(0), cluster.caller(1)]).await;
}

#[tokio::test]
async fn keys_and_their_limit_are_checked() {
    let caller = shared().await;
    for bad in [json!(0), json!(10_001), json!(1.5)] {
        let answer = caller.api.call("PUT", "/v1/queues/q").json(&json!({"max_per_key": bad})).send().await;
        answer.invalid("/max_per_key");
    }
    let long = "é".repeat(255);
    let task = json!({"type": "t", "concurrency_key": long, "idempotency_key": "i", "delay_seconds": 600});
    assert_eq!(caller.submit(task.clone()).await["concurrency_key"], json!(long));
    for bad in ["", "a\tb", &"k".repeat(256)] {
        caller.api.post("/v1/tasks", &json!({"type": "t", "concurrency_key": bad})).await.invalid("/concurrency_key");
    }
    let mut other = task;
    other["concurrency_key"] = json!("another");
    caller.api.post("/v1/tasks", &other).await.problem(422);
}
