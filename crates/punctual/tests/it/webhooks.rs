//! Webhooks: what arrives at a target, when, and what becomes of its answer.

use punctual_testkit::sink::Sink;
use serde_json::{Value, json};

use super::world::{merged, quick};

mod answers;
mod asynchronous;
mod delivery;
mod dots;
mod hostile;
mod retries;

/// A task for a path of a sink, with quick retries and fields of its own.
fn hook(sink: &Sink, path: &str, fields: Value) -> Value {
    merged(json!({"type": "t", "callback_url": sink.url(path), "retry_policy": quick(3)}), fields)
}
