//! `GET /v1/tasks/{id}/explain`: why a task has not run yet.

use axum::http::StatusCode;
use axum::response::Response;
use punctual_client as wire;

use crate::answer;
use crate::explain::{explain, gather};
use crate::extract::TaskRequest;
use crate::openapi::{NotFound, TaskPath};
use crate::problem::Problem;

/// Explains why a task has not run yet.
///
/// Shows every reason, in the order in which a task passes them. A reason with `comes_next` holds
/// the task only after those before it. Codes: `expires_first`, `waiting_for_dependencies`,
/// `not_due_yet`, `waiting_for_retry`, `waiting_for_turn`, `queue_paused`, `breaker_open`,
/// `queue_concurrency`, `queue_rate`, `no_worker_polling`, `no_partition_owner`, `found_backlog`,
/// `webhook_places`, `workers_busy`, `due_waiting_for_worker`; and for a task that no longer waits
/// `queued`, `running`, `stopping`, `final`.
#[utoipa::path(
    get, path = "/v1/tasks/{id}/explain", tag = "tasks", operation_id = "explain_task",
    params(TaskPath),
    responses(
        (status = 200, description = "Why", body = wire::Explanation),
        NotFound,
    ),
)]
pub async fn explain_task(request: TaskRequest) -> Result<Response, Problem> {
    let facts = gather(&request.api, request.find().await?).await?;
    Ok(answer::json(StatusCode::OK, &explain(&facts)))
}

#[cfg(test)]
mod tests;
