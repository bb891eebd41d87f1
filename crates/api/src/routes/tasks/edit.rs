//! `PATCH /v1/tasks/{id}`.

use axum::http::StatusCode;
use axum::response::Response;
use punctual_client as wire;
use punctual_core::state::{Event, State as TaskState, transition};
use punctual_submission::patch;

use super::change::{ChangeDecision, change};
use crate::extract::{If, JsonBody, TaskRequest};
use crate::openapi::{Invalid, NotFound, VersionMismatch};
use crate::problem::{Code, Problem};

/// Changes a task that has not begun.
#[utoipa::path(
    patch, path = "/v1/tasks/{id}", tag = "tasks", operation_id = "edit_task",
    params(
        ("id" = String, Path, description = "The task's id"),
        ("If-Match" = Option<String>, Header, description = "Change it only at this version"),
    ),
    request_body = wire::TaskPatch,
    responses(
        (status = 200, description = "The task as it is now", body = wire::Task, headers(("ETag" = String, description = "The task's version"))),
        (status = 409, description = "`not_editable`: it has begun or finished. A task that a pull worker waits for begins up to 20 ms before it is due", body = wire::Problem, content_type = "application/problem+json"),
        NotFound, VersionMismatch, Invalid,
    ),
)]
pub async fn edit_task(
    request: TaskRequest,
    condition: If,
    JsonBody(wanted): JsonBody<wire::TaskPatch>,
) -> Result<Response, Problem> {
    change(&request, &condition, |task, by| {
        if !matches!(task.state(), TaskState::Blocked | TaskState::Pending) {
            return Err(not_editable(task.state()));
        }
        let Some(edit) = patch::check(&wanted, task, by.now, &request.api.config.submission)? else {
            return Ok(ChangeDecision::Leave(StatusCode::OK));
        };
        let change =
            transition(&task.position, Event::Edit(Box::new(edit)), by).map_err(|fault| not_editable(fault.state))?;
        Ok(ChangeDecision::Apply(Box::new(change), StatusCode::OK))
    })
    .await
}

fn not_editable(state: TaskState) -> Problem {
    let detail = format!("the task is {}; only a BLOCKED or PENDING task can be edited", state.as_str());
    Problem::new(Code::NotEditable, detail)
}
