//! `POST /v1/tasks/{id}/run`.

use axum::http::StatusCode;
use axum::response::Response;
use punctual_client as wire;
use punctual_core::state::{By, Event, State as TaskState, transition};
use punctual_core::task::Task;

use super::change::{ChangeDecision, change};
use crate::extract::{If, MaybeJsonBody, TaskRequest};
use crate::openapi::{IfMatch, NotFound, TaskPath, VersionMismatch};
use crate::problem::{Code, Problem};

/// Makes a waiting task due now.
#[utoipa::path(
    post, path = "/v1/tasks/{id}/run", tag = "tasks", operation_id = "run_task",
    params(
        TaskPath,
        IfMatch,
    ),
    request_body = Option<wire::RunTask>,
    responses(
        (status = 200, description = "It is due", body = wire::Task),
        (status = 409, description = "`not_waiting`: it has begun or finished, or waits for other tasks. A task that a pull worker waits for begins up to 20 ms before it is due", body = wire::Problem, content_type = "application/problem+json"),
        NotFound, VersionMismatch,
    ),
)]
pub async fn run_task(
    request: TaskRequest,
    condition: If,
    MaybeJsonBody(body): MaybeJsonBody<wire::RunTask>,
) -> Result<Response, Problem> {
    let wire::RunTask {} = body.finish()?;
    change(&request, &condition, decide).await
}

fn decide(task: &Task, by: &By<'_>) -> Result<ChangeDecision, Problem> {
    // A task that is due already keeps its position, which "due now" would take from it.
    if task.state() == TaskState::Pending && task.due_at <= by.now {
        return Ok(ChangeDecision::Leave(StatusCode::OK));
    }
    let change = transition(&task.position, Event::RunNow, by).map_err(|fault| {
        Problem::new(
            Code::NotWaiting,
            format!("the task is {}; only a PENDING task can be made due", fault.state.as_str()),
        )
    })?;
    Ok(ChangeDecision::Apply(Box::new(change), StatusCode::OK))
}
