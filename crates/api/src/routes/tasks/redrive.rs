//! `POST /v1/tasks/{id}/redrive`.

use axum::http::StatusCode;
use axum::response::Response;
use punctual_client as wire;
use punctual_core::state::{Event, transition};

use super::change::{ChangeDecision, change};
use crate::extract::{If, MaybeJsonBody, TaskRequest};
use crate::openapi::{IfMatch, Invalid, NotFound, TaskPath, VersionMismatch};
use crate::problem::{Code, Problem};

/// Tries a dead letter again, its retries counted from zero.
///
/// With `dependents` the tasks that were cancelled or failed because of it are revived: they wait
/// for it again, and so do those that ended because of them. That happens right after the answer,
/// step by step. A task whose idempotency key was given to another meanwhile stays as it is.
#[utoipa::path(
    post, path = "/v1/tasks/{id}/redrive", tag = "dead letters", operation_id = "redrive_task",
    params(
        TaskPath,
        IfMatch,
    ),
    request_body = Option<wire::Redrive>,
    responses(
        (status = 200, description = "It waits again", body = wire::Task),
        (status = 409, description = "`not_dead_lettered`, or `conflict`: other writers changed it each time", body = wire::Problem, content_type = "application/problem+json"),
        NotFound, VersionMismatch, Invalid,
    ),
)]
pub async fn redrive_task(
    request: TaskRequest,
    condition: If,
    MaybeJsonBody(body): MaybeJsonBody<wire::Redrive>,
) -> Result<Response, Problem> {
    let wanted = body.check(|wanted, faults| {
        if let Some(payload) = &wanted.payload {
            faults.payload(payload, request.api.config.submission.payload_bytes);
        }
        Some(wanted)
    })?;
    change(&request, &condition, |task, by| {
        let payload = wanted.payload.clone();
        let event = match wanted.dependents {
            Some(true) => Event::RedriveWithDependents(payload),
            _ => Event::Redrive(payload),
        };
        let change = transition(&task.position, event, by).map_err(|fault| {
            Problem::new(
                Code::NotDeadLettered,
                format!("the task is {}; only a DEAD_LETTERED task can be re-driven", fault.state.as_str()),
            )
        })?;
        Ok(ChangeDecision::Apply(Box::new(change), StatusCode::OK))
    })
    .await
}
