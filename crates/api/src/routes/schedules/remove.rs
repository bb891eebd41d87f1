//! `DELETE /v1/schedules/{id}`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use punctual_client as wire;

use super::change::{ROUNDS, SchedulePath, check_version, find, kept_changing, lock_schedule, shown};
use crate::extract::{If, Tenant};
use crate::openapi::{Conflict, NotFound, VersionMismatch};
use crate::problem::Problem;
use crate::state::Api;

/// Removes a schedule.
///
/// Nothing fires any more when this has answered. The tasks that it made stay as they are.
#[utoipa::path(
    delete, path = "/v1/schedules/{id}", tag = "schedules", operation_id = "delete_schedule",
    params(
        ("id" = String, Path, description = "The schedule's id"),
        ("If-Match" = Option<String>, Header, description = "Remove it only at this version"),
    ),
    responses(
        (status = 200, description = "The schedule as it was", body = wire::Schedule),
        NotFound, Conflict, VersionMismatch,
    ),
)]
pub async fn delete_schedule(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    SchedulePath(id): SchedulePath,
    condition: If,
) -> Result<Response, Problem> {
    let _lock = lock_schedule(&api, &tenant, id).await?;
    for _ in 0..ROUNDS {
        let schedule = find(&api, &tenant, id).await?;
        check_version(&condition, &schedule)?;
        if api.schedules.remove(id, schedule.revision).await? {
            return shown(StatusCode::OK, &schedule);
        }
    }
    Err(kept_changing())
}
