//! `GET /v1/schedules/{id}`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use punctual_client as wire;

use super::change::{SchedulePath, find, shown};
use crate::extract::Tenant;
use crate::openapi::NotFound;
use crate::problem::Problem;
use crate::state::Api;

/// Reads a schedule.
#[utoipa::path(
    get, path = "/v1/schedules/{id}", tag = "schedules", operation_id = "get_schedule",
    params(("id" = String, Path, description = "The schedule's id")),
    responses(
        (status = 200, description = "The schedule", body = wire::Schedule, headers(("ETag" = String, description = "The schedule's version"))),
        (status = 404, response = NotFound),
    ),
)]
pub async fn get_schedule(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    SchedulePath(id): SchedulePath,
) -> Result<Response, Problem> {
    shown(StatusCode::OK, &find(&api, &tenant, id).await?)
}
