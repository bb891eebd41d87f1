//! The request to a webhook: its headers, the submitter's and then ours, and its body.
//!
//! The webhook client calls [`body`], and [`headers`] with what it made. A submitter's header never
//! overrides one of ours, and the payload is in the body as its author wrote it.

use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use punctual_client::Envelope;
use punctual_core::callback::reserved_header;
use punctual_core::task::{Callback, CallbackBody, Task};
use punctual_core::time::Timestamp;
use punctual_scheduler::dependency_results::Results;

use crate::signature::SigningKeys;

const AGENT: HeaderValue = HeaderValue::from_static(concat!("Punctual/", env!("CARGO_PKG_VERSION")));
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The headers for the run of `task` that begins at `now`, and sends this body.
pub(crate) fn headers(task: &Task, callback: &Callback, keys: &SigningKeys, now: Timestamp, body: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(callback.headers.len() + 16);
    for (name, value) in &callback.headers {
        // They were checked at submission. A store may be edited by hand, so they are checked
        // again.
        if let (false, Ok(name), Ok(value)) =
            (reserved_header(name), HeaderName::try_from(name), HeaderValue::try_from(value))
        {
            headers.insert(name, value);
        }
    }
    let id = task.id.to_string();
    let seconds = now.as_millis().div_euclid(1_000).to_string();
    if let Some(signature) = keys.sign(&id, &seconds, body) {
        insert(&mut headers, "webhook-signature", signature);
    }
    headers.insert(CONTENT_TYPE, JSON);
    headers.insert(USER_AGENT, AGENT);
    for (name, value) in [
        ("punctual-task-id", id.clone()),
        ("punctual-type", task.lane.key.kind.clone()),
        ("punctual-attempt", task.position.attempts.to_string()),
        ("punctual-fencing-token", task.position.version.to_string()),
        ("punctual-execute-at", task.execute_at.to_string()),
        ("idempotency-key", id.clone()),
        ("traceparent", traceparent(rand::random(), rand::random())),
        ("webhook-id", id),
        ("webhook-timestamp", seconds),
    ] {
        insert(&mut headers, name, value);
    }
    if let Some(schedule) = task.body.schedule_id {
        insert(&mut headers, "punctual-schedule-id", schedule.to_string());
    }
    if let Some(instant) = task.scheduled_for() {
        insert(&mut headers, "punctual-scheduled-for", instant.to_string());
    }
    headers
}

/// The body for a run of `task`. `results` are those of its dependencies, for an envelope.
pub(crate) fn body(task: &Task, callback: &Callback, results: Results) -> String {
    let payload = &task.body.payload;
    if callback.body == CallbackBody::Payload {
        return payload.get().to_owned();
    }
    let key = &task.lane.key;
    let envelope = Envelope {
        task_id: task.id,
        kind: key.kind.clone(),
        queue: key.queue.clone(),
        attempt: task.position.attempts,
        token: task.position.version,
        execute_at: task.execute_at,
        metadata: task.body.metadata.clone(),
        payload: payload.clone(),
        dependencies: results,
    };
    serde_json::to_string(&envelope).expect("invariant: an envelope can be written as JSON")
}

fn insert(headers: &mut HeaderMap, name: &'static str, value: String) {
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(name, value);
    }
}

/// A new trace for each run. It is marked as sampled, since most receivers record nothing under a
/// parent that is not.
fn traceparent(trace: u128, span: u64) -> String {
    format!("00-{:032x}-{:016x}-01", trace.max(1), span.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_is_never_all_zero() {
        assert_eq!(traceparent(0, 0), "00-00000000000000000000000000000001-0000000000000001-01");
        assert_eq!(traceparent(u128::MAX, u64::MAX).len(), 55);
    }
}
