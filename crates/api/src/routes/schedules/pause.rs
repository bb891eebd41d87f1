//! `POST /v1/schedules/{id}/pause` and `/resume`.

use axum::http::StatusCode;
use axum::response::Response;
use punctual_client as wire;
use punctual_core::schedules::PAUSE_REASON_MAX;

use super::change::{pause, resume};
use super::request::{ScheduleRequest, answer};
use crate::extract::{If, MaybeJsonBody};
use crate::openapi::{Conflict, IfMatch, Invalid, NotFound, SchedulePath, VersionMismatch};
use crate::problem::Problem;

/// Pauses a schedule.
///
/// It fires nothing until it is resumed. Waiting instants keep waiting, and its tasks go on. A
/// paused schedule gets the reason, if one is given, and keeps the start of its pause.
#[utoipa::path(
    post, path = "/v1/schedules/{id}/pause", tag = "schedules", operation_id = "pause_schedule",
    params(
        SchedulePath,
        IfMatch,
    ),
    request_body = Option<wire::PauseSchedule>,
    responses(
        (status = 200, description = "The schedule as it is now", body = wire::Schedule, headers(("ETag" = String))),
        NotFound, Conflict, VersionMismatch, Invalid,
    ),
)]
pub async fn pause_schedule(
    request: ScheduleRequest,
    condition: If,
    MaybeJsonBody(body): MaybeJsonBody<wire::PauseSchedule>,
) -> Result<Response, Problem> {
    let is_too_long = |text: &String| text.chars().count() > PAUSE_REASON_MAX || text.chars().any(char::is_control);
    let wanted = body.check(|wanted, faults| {
        if wanted.reason.as_ref().is_some_and(is_too_long) {
            let message = format!("must have at most {PAUSE_REASON_MAX} characters, and no control characters");
            faults.add("/reason", message);
        }
        Some(wanted)
    })?;
    answer(StatusCode::OK, &pause(&request, &condition, wanted.reason.as_deref()).await?, &request.caller)
}

/// Resumes a schedule.
///
/// It continues with the first instant after now. The instants in the pause are recorded as
/// skipped. Resuming a schedule that is not paused changes nothing.
#[utoipa::path(
    post, path = "/v1/schedules/{id}/resume", tag = "schedules", operation_id = "resume_schedule",
    params(
        SchedulePath,
        IfMatch,
    ),
    request_body = Option<wire::ResumeSchedule>,
    responses(
        (status = 200, description = "The schedule as it is now", body = wire::Schedule, headers(("ETag" = String))),
        NotFound, Conflict, VersionMismatch, Invalid,
    ),
)]
pub async fn resume_schedule(
    request: ScheduleRequest,
    condition: If,
    MaybeJsonBody(body): MaybeJsonBody<wire::ResumeSchedule>,
) -> Result<Response, Problem> {
    let wire::ResumeSchedule {} = body.finish()?;
    answer(StatusCode::OK, &resume(&request, &condition).await?, &request.caller)
}
