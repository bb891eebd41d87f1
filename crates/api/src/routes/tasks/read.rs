//! `GET /v1/tasks/{id}`.

use axum::http::StatusCode;
use axum::response::Response;
use punctual_client as wire;

use crate::answer;
use crate::extract::TaskRequest;
use crate::openapi::NotFound;
use crate::problem::Problem;

/// Reads a task.
#[utoipa::path(
    get, path = "/v1/tasks/{id}", tag = "tasks", operation_id = "get_task",
    params(("id" = String, Path, description = "The task's id")),
    responses(
        (status = 200, description = "The task", body = wire::Task, headers(("ETag" = String, description = "The task's version"))),
        NotFound,
    ),
)]
pub async fn get_task(request: TaskRequest) -> Result<Response, Problem> {
    Ok(answer::task(StatusCode::OK, request.find().await?))
}
