//! Queues: limits, pauses and defaults, on one node and on several.

mod conditions;
mod depth;
mod keys;
mod pauses;
mod places;
mod rates;
mod removal;
mod settings;

use serde_json::{Value, json};

use crate::it::world::Caller;

/// Writes the settings of a queue and returns it.
async fn put(caller: &Caller, queue: &str, settings: Value) -> Value {
    caller.api.call("PUT", &format!("/v1/queues/{queue}")).json(&settings).send().await.expect(200)
}

/// The queue as it is now.
async fn get(caller: &Caller, queue: &str) -> Value {
    caller.api.get(&format!("/v1/queues/{queue}")).await.expect(200)
}

async fn pause(caller: &Caller, queue: &str, how: Value) -> Value {
    caller.api.post(&format!("/v1/queues/{queue}/pause"), &how).await.expect(200)
}

async fn resume(caller: &Caller, queue: &str) -> Value {
    caller.api.post(&format!("/v1/queues/{queue}/resume"), &json!({})).await.expect(200)
}

fn count(queue: &Value, status: &str) -> u64 {
    queue["counts"][status].as_u64().unwrap_or_else(|| panic!("no {status} in {queue:#}"))
}
