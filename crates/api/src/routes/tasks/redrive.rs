//! `POST /v1/tasks/{id}/redrive`.

use axum::http::StatusCode;
use axum::response::Response;
use punctual_client as wire;
use punctual_core::state::{Event, transition};
use punctual_submission::Faults;

use super::change::{ChangeDecision, change};
use crate::extract::{If, MaybeJsonBody, TaskRequest};
use crate::openapi::{NotFound, VersionMismatch};
use crate::problem::{Code, Problem};

/// Tries a dead letter again, its retries counted from zero.
#[utoipa::path(
    post, path = "/v1/tasks/{id}/redrive", tag = "tasks", operation_id = "redrive_task",
    params(
        ("id" = String, Path, description = "The task's id"),
        ("If-Match" = Option<String>, Header, description = "Only at this version"),
    ),
    request_body = Option<wire::Redrive>,
    responses(
        (status = 200, description = "It waits again", body = wire::Task),
        (status = 409, description = "`not_dead_lettered`", body = wire::Problem, content_type = "application/problem+json"),
        NotFound, VersionMismatch,
    ),
)]
pub async fn redrive_task(
    request: TaskRequest,
    condition: If,
    MaybeJsonBody(wanted): MaybeJsonBody<wire::Redrive>,
) -> Result<Response, Problem> {
    let mut faults = Faults::default();
    if let Some(payload) = &wanted.payload {
        faults.payload(payload, request.api.config.submission.payload_bytes);
    }
    faults.finish()?;
    change(&request, &condition, |task, by| {
        let change = transition(&task.position, Event::Redrive(wanted.payload.clone()), by).map_err(|fault| {
            Problem::new(
                Code::NotDeadLettered,
                format!("the task is {}; only a DEAD_LETTERED task can be re-driven", fault.state.as_str()),
            )
        })?;
        Ok(ChangeDecision::Apply(Box::new(change), StatusCode::OK))
    })
    .await
}
