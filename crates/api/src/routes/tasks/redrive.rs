//! `POST /v1/tasks/{id}/redrive`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use punctual_client as wire;
use punctual_core::state::{Event, transition};
use punctual_submission::Faults;

use super::change::{ChangeDecision, change};
use crate::extract::{If, MaybeJsonBody, TaskPath, Tenant};
use crate::openapi::{NotFound, VersionMismatch};
use crate::problem::{Code, Problem};
use crate::state::Api;

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
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    TaskPath(id): TaskPath,
    condition: If,
    MaybeJsonBody(wanted): MaybeJsonBody<wire::Redrive>,
) -> Result<Response, Problem> {
    let mut faults = Faults::default();
    if let Some(payload) = &wanted.payload {
        faults.payload(payload, api.config.submission.payload_bytes);
    }
    faults.finish()?;
    change(&api, &tenant, id, &condition, |task, by| {
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
