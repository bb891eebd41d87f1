//! `DELETE /v1/schedules/{id}`.

use axum::http::StatusCode;
use axum::response::Response;
use punctual_client as wire;

use super::request::{ROUNDS, ScheduleRequest, answer, check_version, kept_changing};
use crate::extract::If;
use crate::openapi::{Conflict, IfMatch, NotFound, SchedulePath, VersionMismatch};
use crate::problem::Problem;

/// Removes a schedule.
///
/// After the answer it fires nothing more. Its tasks stay as they are.
#[utoipa::path(
    delete, path = "/v1/schedules/{id}", tag = "schedules", operation_id = "delete_schedule",
    params(
        SchedulePath,
        IfMatch,
    ),
    responses(
        (status = 200, description = "The schedule as it was", body = wire::Schedule),
        NotFound, Conflict, VersionMismatch,
    ),
)]
pub async fn delete_schedule(request: ScheduleRequest, condition: If) -> Result<Response, Problem> {
    let _lock = request.lock().await?;
    for _ in 0..ROUNDS {
        let schedule = request.find().await?;
        check_version(&condition, &schedule)?;
        if request.api.schedules.remove(request.id, schedule.revision).await? {
            return answer(StatusCode::OK, &schedule, &request.caller);
        }
    }
    Err(kept_changing())
}
