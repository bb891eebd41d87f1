//! Tasks as the API shows them.

use std::collections::BTreeMap;

use punctual_client as wire;
use punctual_core::state::State;
use punctual_core::task::Task;

/// The task on the wire. Takes the task, so that its payload and its labels are not copied.
pub fn task(task: Task) -> wire::Task {
    let retry_count = task.retry_count();
    let (updated_at, last_error) = (task.updated_at(), last_error(&task));
    let scheduled_for = task.scheduled_for();
    let state = task.state();
    let key = &task.lane.key;
    let holder = task.hold.filter(|_| state == State::Running).map(|hold| hold.worker);
    let (callback_url, callback_headers) =
        task.body.callback.map_or((None, BTreeMap::new()), |callback| (Some(callback.url), callback.headers));
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
        execute_at: task.execute_at,
        next_attempt_at: (state == State::Pending).then_some(task.due_at),
        expires_at: task.expires_at,
        idempotency_key: task.body.idempotency_key,
        ordering_key: task.body.ordering_key,
        depends_on: task.body.dependencies.ids,
        on_dependency_failure: task.body.dependencies.on_failure.into(),
        retry_policy: task.body.retry_policy.into(),
        retry_count,
        timeout_seconds: wire::Seconds::from_millis(task.body.timeout_millis),
        metadata: task.body.metadata,
        created_at: task.created_at,
        updated_at,
        started_at: task.started_at,
        completed_at: task.completed_at,
        worker_id: holder.or(task.worker),
        schedule_id: task.body.schedule_id,
        scheduled_for,
        result: task.result,
        progress: task.progress,
        last_error,
    }
}

/// Many of them.
pub fn tasks(tasks: Vec<Task>) -> Vec<wire::Task> {
    tasks.into_iter().map(task).collect()
}

fn last_error(task: &Task) -> Option<wire::LastError> {
    let (at, error) = task.trail.last_error()?;
    Some(wire::LastError { code: error.code.into_owned(), message: error.message.into_owned(), at })
}
