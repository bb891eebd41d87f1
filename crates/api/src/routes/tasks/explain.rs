//! `GET /v1/tasks/{id}/explain`: why a task has not run yet.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use punctual_client as wire;
use punctual_core::lane::Route;
use punctual_core::state::State as TaskState;
use punctual_core::store::StoreError;
use punctual_core::task::Task;
use punctual_core::time::Timestamp;
use punctual_core::workers::WorkerSighting;

use super::change::find;
use crate::answer;
use crate::extract::{TaskPath, Tenant};
use crate::openapi::NotFound;
use crate::problem::Problem;
use crate::state::Api;

/// A worker that has not asked for longer than this does not count as polling. A long poll lasts at most as long.
const POLLING_MILLIS: i64 = 60_000;
/// Workers looked at, at a time.
const PAGE: usize = 1_000;
/// At most so many pages of them: the answer may then say that nobody polls where the 20,001st does.
const PAGES: usize = 20;

/// Explains why a task has not run yet.
///
/// Codes: `not_due_yet`, `waiting_for_retry`, `due_waiting_for_worker`, `no_worker_polling`,
/// `waiting_for_dependencies`, `queued`, `running`, `stopping`, `final`.
#[utoipa::path(
    get, path = "/v1/tasks/{id}/explain", tag = "tasks", operation_id = "explain_task",
    params(("id" = String, Path, description = "The task's id")),
    responses(
        (status = 200, description = "Why", body = wire::Explanation),
        (status = 404, response = NotFound),
    ),
)]
pub async fn explain_task(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    TaskPath(id): TaskPath,
) -> Result<Response, Problem> {
    let task = find(&api, &tenant, id).await?;
    let now = api.clock.now();
    let waits_for_worker =
        task.state() == TaskState::Pending && task.due_at <= now && task.lane.key.route == Route::Pull;
    let polled = waits_for_worker && is_polled(&api, &task, now).await?;
    Ok(answer::json(StatusCode::OK, &explain(&task, now, polled)))
}

/// Whether a worker asked lately for tasks such as this one.
async fn is_polled(api: &Api, task: &Task, now: Timestamp) -> Result<bool, StoreError> {
    let tenant = task.tenant();
    let suits = |worker: &WorkerSighting| {
        now.millis_since(worker.last_seen_at) <= POLLING_MILLIS
            && (worker.queues.contains(&task.lane.key.queue) || worker.kinds.contains(&task.lane.key.kind))
    };
    if api.sightings.of(tenant, None, usize::MAX).iter().any(suits) {
        return Ok(true);
    }
    let mut after = None;
    for _ in 0..PAGES {
        let workers = api.registry.workers(tenant, after, PAGE).await?;
        if workers.iter().any(suits) {
            return Ok(true);
        }
        match workers.last() {
            Some(last) if workers.len() == PAGE => after = Some(last.name.clone()),
            _ => break,
        }
    }
    Ok(false)
}

/// The explanation; `polled` says whether a worker asks for tasks such as this one.
fn explain(task: &Task, now: Timestamp, polled: bool) -> wire::Explanation {
    let reason = reason(task, now, polled);
    let eta = match task.state() {
        TaskState::Pending if task.due_at > now => Some(task.due_at),
        _ => None,
    };
    wire::Explanation { state: task.state().into(), reasons: vec![reason], eta }
}

fn reason(task: &Task, now: Timestamp, polled: bool) -> wire::Reason {
    let says = |code: &str, message: String| wire::Reason { code: code.to_owned(), message, ..wire::Reason::default() };
    let key = &task.lane.key;
    match task.state() {
        TaskState::Blocked => says("waiting_for_dependencies", "it waits for the tasks it depends on".to_owned()),
        TaskState::Pending if task.due_at > now => {
            let until = Some(task.due_at);
            match task.trail.last_error() {
                Some((_, error)) if task.position.attempts > 0 => {
                    let attempts = task.position.attempts;
                    let message =
                        format!("attempt {attempts} failed ({}); the next is due at {}", error.code, task.due_at);
                    wire::Reason { until, ..says("waiting_for_retry", message) }
                }
                _ => wire::Reason { until, ..says("not_due_yet", format!("it is due at {}", task.due_at)) },
            }
        }
        TaskState::Pending => match &key.route {
            Route::Push(target) => says(
                "due_waiting_for_worker",
                format!("it is due and waits until a webhook worker has a place for {target}"),
            ),
            Route::Pull if polled => says(
                "due_waiting_for_worker",
                format!("it is due and waits for a pull worker of queue {} to take it", key.queue),
            ),
            Route::Pull => says(
                "no_worker_polling",
                format!(
                    "it is due, but no worker has asked for queue {} or type {} in the last minute",
                    key.queue, key.kind
                ),
            ),
        },
        TaskState::Queued => held(task, "queued", "it was handed to the webhook workers and is about to start"),
        TaskState::Running if task.position.cancel_requested => {
            held(task, "stopping", "it runs, and was asked to stop")
        }
        TaskState::Running => held(task, "running", "it runs"),
        state => says("final", format!("it is {} and will not run again by itself", state.as_str())),
    }
}

/// A reason that names who holds the task, and until when.
fn held(task: &Task, code: &str, message: &str) -> wire::Reason {
    let (code, message) = (code.to_owned(), message.to_owned());
    let hold = task.hold.as_ref();
    let (until, worker_id) = (hold.map(|hold| hold.expires_at), hold.map(|hold| hold.worker.clone()));
    wire::Reason { code, message, until, worker_id }
}
