//! `DELETE /v1/tasks/{id}`.

use axum::http::StatusCode;
use axum::response::Response;
use punctual_client as wire;
use punctual_core::state::{By, Event, State as TaskState, transition};
use punctual_core::task::Task;

use super::change::{ChangeDecision, change};
use crate::extract::{If, TaskRequest};
use crate::openapi::{IfMatch, NotFound, TaskPath, VersionMismatch};
use crate::problem::{Code, Problem};

/// Cancels a task.
///
/// A waiting task is cancelled at once. A running task is asked to stop: its worker learns it at
/// its next heartbeat, and the outcome of the run is discarded. Asking again changes nothing.
#[utoipa::path(
    delete, path = "/v1/tasks/{id}", tag = "tasks", operation_id = "cancel_task",
    params(
        TaskPath,
        IfMatch,
    ),
    responses(
        (status = 200, description = "Cancelled, now or before", body = wire::Task),
        (status = 202, description = "Running, and asked to stop. A task that a pull worker waits for runs up to 20 ms before it is due", body = wire::Task),
        (status = 409, description = "`already_final`, or `conflict`: other writers changed it each time", body = wire::Problem, content_type = "application/problem+json"),
        NotFound, VersionMismatch,
    ),
)]
pub async fn cancel_task(request: TaskRequest, condition: If) -> Result<Response, Problem> {
    change(&request, &condition, decide).await
}

fn decide(task: &Task, by: &By<'_>) -> Result<ChangeDecision, Problem> {
    let state = task.state();
    let status = match state {
        TaskState::Cancelled => return Ok(ChangeDecision::Leave(StatusCode::OK)),
        TaskState::Running if task.position.cancel_requested => return Ok(ChangeDecision::Leave(StatusCode::ACCEPTED)),
        TaskState::Running => StatusCode::ACCEPTED,
        _ => StatusCode::OK,
    };
    let change = transition(&task.position, Event::Cancel, by)
        .map_err(|_| Problem::new(Code::AlreadyFinal, format!("the task is already {}", state.as_str())))?;
    Ok(ChangeDecision::Apply(Box::new(change), status))
}
