//! Webhooks: what arrives at a target, when, and what its answer does.

use punctual_testkit::sink::Sink;
use serde_json::{Value, json};

use super::world::{merged, quick};

mod answers;
mod asynchronous;
mod delivery;
mod dots;
mod envelope;
mod hostile;
mod retries;
mod signatures;

/// A task for a path of a sink, with quick retries and these fields.
fn hook(sink: &Sink, path: &str, fields: Value) -> Value {
    merged(json!({"type": "t", "callback_url": sink.url(path), "retry_policy": quick(3)}), fields)
}
