//! Checks an edit of a task that has not started, against the task as it is.
//!
//! Called by `PATCH /v1/tasks/{id}`. Invariant: after the edit the task can still run before it
//! expires.

use punctual_client as wire;
use punctual_core::task::{Destination, Edit, OrderingKeyEdit, Task};
use punctual_core::time::Timestamp;

use crate::SubmissionRules;
use crate::faults::Faults;
use crate::fields::When;

/// The edit that `patch` makes to `task` at `now`, the default one if it changes nothing. None only
/// with a fault.
pub fn check(
    faults: &mut Faults,
    patch: &wire::TaskPatch,
    task: &Task,
    now: Timestamp,
    rules: &SubmissionRules,
) -> Option<Edit> {
    let execute_at = given(faults, "/execute_at", patch.execute_at.as_ref());
    let delay_seconds = given(faults, "/delay_seconds", patch.delay_seconds.as_ref());
    let when = faults.when(execute_at.map(String::as_str), delay_seconds.copied());
    let execute_at = (when != When::Now).then(|| when.instant(now));
    let expires_at = match &patch.expires_at {
        Some(Some(text)) => faults.instant("/expires_at", text).map(Some),
        Some(None) => Some(None),
        None => None,
    };
    // Whichever of the two times is moved, the task must still be able to run.
    let due_at = execute_at.unwrap_or(task.due_at);
    match expires_at {
        Some(expiry) => faults.expiry("/expires_at", expiry, due_at, now),
        None if execute_at.is_some() => faults.expiry("/execute_at", task.expires_at, due_at, now),
        None => {}
    }
    let priority = given(faults, "/priority", patch.priority.as_ref()).map(|priority| faults.priority(priority));
    let retry_policy = given(faults, "/retry_policy", patch.retry_policy.as_ref())
        .map(|fields| faults.retry_policy(fields, &task.body.retry_policy));
    let metadata = given(faults, "/metadata", patch.metadata.as_ref());
    if let Some(metadata) = metadata {
        faults.metadata(metadata);
    }
    if let Some(payload) = &patch.payload {
        faults.payload(payload, rules.payload_bytes);
    }
    let queue = given(faults, "/queue", patch.queue.as_ref());
    if let Some(queue) = queue {
        faults.name("/queue", queue);
    }
    let timeout = given(faults, "/timeout_seconds", patch.timeout_seconds.as_ref());
    let timeout_millis = timeout.map(|seconds| faults.timeout(Some(*seconds), rules.timeout_millis));
    let ordering_key = patch.ordering_key.clone().map(|key| faults.ordering_key(key));
    let destination = destination(faults, patch, task, rules);
    if !faults.is_empty() {
        return None;
    }
    let body = &task.body;
    Some(Edit {
        execute_at,
        payload: patch.payload.clone(),
        priority,
        retry_policy,
        expires_at,
        metadata: metadata.cloned(),
        queue: queue.filter(|queue| **queue != task.lane.key.queue).cloned(),
        destination: destination.filter(|destination| destination.callback != body.callback),
        timeout_millis,
        ordering_key: ordering_key
            .filter(|to| *to != body.ordering_key)
            .map(|to| OrderingKeyEdit { from: body.ordering_key.clone(), to }),
    })
}

/// Where the task goes afterwards, if the patch says anything about it. Headers and a body that it
/// does not name stay as they are, unless there is no webhook any more.
fn destination(
    faults: &mut Faults,
    patch: &wire::TaskPatch,
    task: &Task,
    rules: &SubmissionRules,
) -> Option<Destination> {
    let headers = given(faults, "/callback_headers", patch.callback_headers.as_ref());
    let body = given(faults, "/callback_body", patch.callback_body.as_ref());
    if patch.callback_url.is_none() && headers.is_none() && body.is_none() {
        return None;
    }
    let now = task.body.callback.as_ref();
    let url = patch.callback_url.clone().unwrap_or_else(|| now.map(|callback| callback.url.clone()));
    let kept = || now.filter(|_| url.is_some()).map(|callback| callback.headers.clone());
    let headers = headers.cloned().or_else(kept);
    let kept = || now.filter(|_| url.is_some()).map(|callback| callback.body);
    let body = body.map(|body| (*body).into()).or_else(kept).unwrap_or_default();
    let (route, callback) = faults.callback(url, headers, body, &rules.networks);
    Some(Destination { route, callback })
}

/// The value of a field that may be absent but not `null`.
fn given<'a, T>(faults: &mut Faults, pointer: &str, field: Option<&'a Option<T>>) -> Option<&'a T> {
    if matches!(field, Some(None)) {
        faults.add(pointer, "must not be null; leave it out to keep it as it is");
    }
    field.and_then(Option::as_ref)
}
