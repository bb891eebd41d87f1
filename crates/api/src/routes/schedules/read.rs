//! `GET /v1/schedules/{id}` and `GET /v1/schedules/by-name/{name}`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use punctual_client as wire;
use punctual_submission::fields::is_name;

use super::request::{NamePath, ScheduleRequest, answer};
use crate::extract::Tenant;
use crate::openapi::NotFound;
use crate::problem::{Code, Problem};
use crate::state::Api;

/// Reads a schedule.
#[utoipa::path(
    get, path = "/v1/schedules/{id}", tag = "schedules", operation_id = "get_schedule",
    params(("id" = String, Path, description = "The schedule's id")),
    responses(
        (status = 200, description = "The schedule", body = wire::Schedule, headers(("ETag" = String, description = "The schedule's version"))),
        NotFound,
    ),
)]
pub async fn get_schedule(request: ScheduleRequest) -> Result<Response, Problem> {
    answer(StatusCode::OK, &request.find().await?)
}

/// Reads the schedule of this name.
#[utoipa::path(
    get, path = "/v1/schedules/by-name/{name}", tag = "schedules", operation_id = "get_schedule_by_name",
    params(("name" = String, Path, description = "The schedule's name; a `/` in it is written `%2F`")),
    responses(
        (status = 200, description = "The schedule", body = wire::Schedule, headers(("ETag" = String, description = "The schedule's version"))),
        NotFound,
    ),
)]
pub async fn get_schedule_by_name(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    NamePath(name): NamePath,
) -> Result<Response, Problem> {
    // The store may not be able to compare a text that is no name.
    let found = if is_name(&name) { api.schedules.named(&tenant, &name).await? } else { None };
    let there = found.ok_or_else(|| Problem::new(Code::NotFound, "there is no schedule with this name"))?;
    answer(StatusCode::OK, &there)
}
