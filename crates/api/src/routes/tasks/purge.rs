//! `POST /v1/tasks/{id}/purge`.

use axum::http::StatusCode;
use axum::response::Response;
use punctual_client as wire;
use punctual_core::state::{By, Event, transition};
use punctual_core::task::Task;
use punctual_core::trail::Step;

use super::change::{ChangeDecision, change};
use crate::extract::{If, MaybeJsonBody, TaskRequest};
use crate::openapi::{IfMatch, NotFound, TaskPath, VersionMismatch};
use crate::problem::{Code, Problem};

/// Discards a dead letter.
///
/// It becomes `CANCELLED` and can be read until its retention ends. Tasks that it held
/// (`on_dead_letter: hold`) no longer wait for it. Asking again changes nothing.
#[utoipa::path(
    post, path = "/v1/tasks/{id}/purge", tag = "dead letters", operation_id = "purge_task",
    params(
        TaskPath,
        IfMatch,
    ),
    request_body = Option<wire::PurgeTask>,
    responses(
        (status = 200, description = "Discarded, now or before", body = wire::Task),
        (status = 409, description = "`not_dead_lettered`, or `conflict`: other writers changed it each time", body = wire::Problem, content_type = "application/problem+json"),
        NotFound, VersionMismatch,
    ),
)]
pub async fn purge_task(
    request: TaskRequest,
    condition: If,
    MaybeJsonBody(body): MaybeJsonBody<wire::PurgeTask>,
) -> Result<Response, Problem> {
    let wire::PurgeTask {} = body.finish()?;
    change(&request, &condition, decide).await
}

fn decide(task: &Task, by: &By<'_>) -> Result<ChangeDecision, Problem> {
    if task.trail.last().is_some_and(|entry| entry.step == Step::Purged) {
        return Ok(ChangeDecision::Leave(StatusCode::OK));
    }
    let change = transition(&task.position, Event::Purge, by).map_err(|fault| {
        Problem::new(
            Code::NotDeadLettered,
            format!("the task is {}; only a DEAD_LETTERED task can be purged", fault.state.as_str()),
        )
    })?;
    Ok(ChangeDecision::Apply(Box::new(change), StatusCode::OK))
}
