//! Tasks and queues as the API shows them. Called by the routes.

use std::collections::BTreeMap;

use punctual_client as wire;
use punctual_core::name_pattern::NamePattern;
use punctual_core::queues::QueueWithCounts;
use punctual_core::state::State;
use punctual_core::task::{Callback, Task};
use punctual_core::time::Timestamp;
use serde::Serialize;
use serde_json::Value;

/// The task on the wire. Takes the task, so that its payload and its labels are not copied.
pub fn task(task: Task) -> wire::Task {
    let retry_count = task.retry_count();
    let (updated_at, last_error) = (task.updated_at(), last_error(&task));
    let (scheduled_for, cancel_requested_at) = (task.scheduled_for(), task.cancel_requested_at());
    let state = task.state();
    let key = &task.lane.key;
    let holder = task.hold.filter(|_| state == State::Running).map(|hold| hold.worker);
    let (callback_url, callback_headers, callback_body) = callback(task.body.callback);
    wire::Task {
        task_id: task.id,
        tenant: key.tenant.clone(),
        kind: key.kind.clone(),
        queue: key.queue.clone(),
        status: state.into(),
        version: task.position.version,
        priority: key.priority,
        payload: task.body.payload,
        callback_url,
        callback_headers,
        callback_body,
        execute_at: task.execute_at,
        next_attempt_at: (state == State::Pending).then_some(task.due_at),
        expires_at: task.expires_at,
        idempotency_key: task.body.idempotency_key,
        ordering_key: task.body.ordering_key,
        concurrency_key: task.body.concurrency_key,
        depends_on: task.body.dependencies.ids,
        on_dependency_failure: task.body.dependencies.on_failure.into(),
        retry_policy: task.body.retry_policy.into(),
        retry_count,
        timeout_seconds: wire::Seconds::from_millis(task.body.timeout_millis),
        metadata: task.body.metadata,
        created_at: task.created_at,
        updated_at,
        started_at: task.started_at,
        cancel_requested_at,
        completed_at: task.completed_at,
        worker_id: holder.or(task.worker),
        schedule_id: task.body.schedule_id,
        scheduled_for,
        result: task.result,
        progress: task.progress,
        last_error,
    }
}

/// Many tasks on the wire.
pub fn tasks(tasks: Vec<Task>) -> Vec<wire::Task> {
    tasks.into_iter().map(task).collect()
}

/// An item of a list without what can be large: its payload, result, headers and checkpoint, and
/// those of the task that a schedule makes.
pub fn summary(item: &impl Serialize) -> Value {
    let mut item = serde_json::to_value(item).expect("invariant: every item can be written as JSON");
    let without = |fields: &mut Value| {
        if let Value::Object(fields) = fields {
            fields.retain(|name, _| !matches!(&**name, "payload" | "result" | "callback_headers" | "checkpoint"));
        }
    };
    without(&mut item);
    item.get_mut("task").map(without);
    item
}

/// The queue on the wire, with its pause if that holds at `now`.
pub fn queue(QueueWithCounts { queue, live }: QueueWithCounts, now: Timestamp) -> wire::Queue {
    let pause = queue.paused(now).map(|pause| wire::Pause {
        paused_at: pause.since,
        paused_by: pause.by.clone(),
        reason: pause.reason.clone(),
        until: pause.until,
    });
    let settings = queue.settings;
    let (callback_url, callback_headers, callback_body) = callback(settings.callback);
    wire::Queue {
        name: queue.name,
        max_concurrency: settings.max_concurrency,
        max_per_key: settings.max_per_key,
        rate_limit: settings
            .rate_limit
            .map(|limit| wire::RateLimit { per_second: limit.per_second, burst: limit.burst }),
        max_depth: settings.max_depth,
        retry_policy: settings.retry_policy.map(Into::into),
        timeout_seconds: settings.timeout_millis.map(wire::Seconds::from_millis),
        dispatch_jitter_seconds: wire::Seconds::from_millis(settings.dispatch_jitter_millis),
        on_dead_letter: settings.on_dead_letter.into(),
        callback_url,
        callback_headers,
        callback_body,
        paused: pause.is_some(),
        pause,
        version: queue.version,
        counts: wire::QueueCounts {
            blocked: live.blocked,
            pending: live.pending,
            queued: live.queued,
            running: live.running,
        },
    }
}

/// The URL, the headers and the body of a callback, if there is one.
fn callback(callback: Option<Callback>) -> (Option<String>, BTreeMap<String, String>, wire::CallbackBody) {
    match callback {
        Some(Callback { url, headers, body }) => (Some(url), headers, body.into()),
        None => (None, BTreeMap::new(), wire::CallbackBody::default()),
    }
}

fn last_error(task: &Task) -> Option<wire::LastError> {
    let (at, error) = task.trail.last_error()?;
    Some(wire::LastError { code: error.code.into_owned(), message: error.message.into_owned(), at })
}

/// Patterns of names as they were given.
pub fn patterns(patterns: &[NamePattern]) -> Vec<String> {
    patterns.iter().map(ToString::to_string).collect()
}
