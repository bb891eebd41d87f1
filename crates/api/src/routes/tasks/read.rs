//! `GET /v1/tasks/{id}`.

use std::time::Duration;

use axum::Extension;
use axum::http::StatusCode;
use axum::response::Response;
use punctual_client as wire;
use punctual_core::task::Task;
use tokio::time::Instant;

use crate::admission::Permit;
use crate::answer;
use crate::extract::TaskRequest;
use crate::extract::query::Query;
use crate::openapi::{Invalid, NotFound, NotModified, TaskPath, Unavailable};
use crate::problem::Problem;

/// The longest wait for a task to finish.
const WAIT_MAX_MILLIS: u64 = 60_000;

/// Reads a task.
///
/// With `wait_seconds` it answers when the task has finished, or after the wait with what it is
/// then.
#[utoipa::path(
    get, path = "/v1/tasks/{id}", tag = "tasks", operation_id = "get_task",
    params(
        TaskPath,
        ("wait_seconds" = Option<f64>, Query, minimum = 0, maximum = 60, description = "How long to wait for the task to finish; 0 if absent"),
    ),
    responses(
        (status = 200, description = "The task", body = wire::Task, headers(("ETag" = String))),
        NotModified, NotFound, Invalid, Unavailable,
    ),
)]
pub async fn get_task(
    request: TaskRequest,
    permit: Option<Extension<Permit>>,
    mut query: Query,
) -> Result<Response, Problem> {
    let wait = query.seconds("wait_seconds", WAIT_MAX_MILLIS).unwrap_or_default();
    query.finish()?;
    let task = if wait.is_zero() { request.find().await? } else { finished(&request, permit, wait).await? };
    Ok(answer::task(StatusCode::OK, task, request.caller.full_view()))
}

/// The task once it has finished, or as it is after the wait.
async fn finished(request: &TaskRequest, permit: Option<Extension<Permit>>, wait: Duration) -> Result<Task, Problem> {
    let api = &request.api;
    let until = Instant::now() + wait;
    // Watched before it is read, so that no end is missed in between.
    let mut watched = api.finish_watch.wait_for(request.id);
    let mut task = request.find().await?;
    if task.state().is_final() {
        return Ok(task);
    }
    let waiting = match &permit {
        Some(Extension(permit)) => Some(api.admission.wait_for_task(permit, wait)?),
        None => None,
    };
    while !task.state().is_final() && !api.finish_watch.is_closed() {
        let is_over = tokio::time::timeout_at(until, watched.announced()).await.is_err();
        task = match api.shared_reads.get(&request.caller.tenant, request.id).await? {
            Some(task) if request.caller.reaches(&task) => task,
            // The read of this task alone says why there is none.
            _ => request.find().await?,
        };
        if is_over {
            break;
        }
    }
    drop(waiting);
    if let Some(Extension(permit)) = &permit {
        permit.reserve(task.bytes())?;
    }
    Ok(task)
}

#[cfg(test)]
mod tests;
