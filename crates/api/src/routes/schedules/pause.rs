//! `POST /v1/schedules/{id}/pause` and `/resume`.

use axum::http::StatusCode;
use axum::response::Response;
use punctual_client as wire;
use punctual_core::schedules::PAUSE_REASON_MAX;

use super::change::{pause, resume};
use super::request::{ScheduleRequest, answer};
use crate::extract::{If, MaybeJsonBody};
use crate::openapi::{Conflict, Invalid, NotFound, VersionMismatch};
use crate::problem::Problem;

/// Pauses a schedule.
///
/// It fires nothing until it is resumed. Waiting instants keep waiting, and its tasks go on. A
/// paused schedule gets the reason, if one is given, and keeps the start of its pause.
#[utoipa::path(
    post, path = "/v1/schedules/{id}/pause", tag = "schedules", operation_id = "pause_schedule",
    params(
        ("id" = String, Path, description = "The schedule's id"),
        ("If-Match" = Option<String>, Header, description = "Pause it only at this version"),
    ),
    request_body = Option<wire::PauseSchedule>,
    responses(
        (status = 200, description = "The schedule as it is now", body = wire::Schedule, headers(("ETag" = String, description = "The schedule's version"))),
        NotFound, Conflict, VersionMismatch, Invalid,
    ),
)]
pub async fn pause_schedule(
    request: ScheduleRequest,
    condition: If,
    MaybeJsonBody(wanted): MaybeJsonBody<wire::PauseSchedule>,
) -> Result<Response, Problem> {
    let reason = wanted.reason.as_deref();
    if reason.is_some_and(|text| text.chars().count() > PAUSE_REASON_MAX || text.chars().any(char::is_control)) {
        let message = format!("must have at most {PAUSE_REASON_MAX} characters, and no control characters");
        return Err(Problem::invalid_at("/reason", message));
    }
    answer(StatusCode::OK, &pause(&request, &condition, reason).await?)
}

/// Resumes a schedule.
///
/// It continues with the first instant after now. The instants in the pause are recorded as
/// skipped. Resuming a schedule that is not paused changes nothing.
#[utoipa::path(
    post, path = "/v1/schedules/{id}/resume", tag = "schedules", operation_id = "resume_schedule",
    params(
        ("id" = String, Path, description = "The schedule's id"),
        ("If-Match" = Option<String>, Header, description = "Resume it only at this version"),
    ),
    request_body = Option<wire::ResumeSchedule>,
    responses(
        (status = 200, description = "The schedule as it is now", body = wire::Schedule, headers(("ETag" = String, description = "The schedule's version"))),
        NotFound, Conflict, VersionMismatch, Invalid,
    ),
)]
pub async fn resume_schedule(
    request: ScheduleRequest,
    condition: If,
    MaybeJsonBody(wire::ResumeSchedule {}): MaybeJsonBody<wire::ResumeSchedule>,
) -> Result<Response, Problem> {
    answer(StatusCode::OK, &resume(&request, &condition).await?)
}
