//! `GET /v1/schedules/{id}`.

use axum::http::StatusCode;
use axum::response::Response;
use punctual_client as wire;

use super::request::{ScheduleRequest, answer};
use crate::openapi::{NotFound, SchedulePath};
use crate::problem::Problem;

/// Reads a schedule.
#[utoipa::path(
    get, path = "/v1/schedules/{id}", tag = "schedules", operation_id = "get_schedule",
    params(SchedulePath),
    responses(
        (status = 200, description = "The schedule", body = wire::Schedule, headers(("ETag" = String))),
        NotFound,
    ),
)]
pub async fn get_schedule(request: ScheduleRequest) -> Result<Response, Problem> {
    answer(StatusCode::OK, &request.find().await?, &request.caller)
}
