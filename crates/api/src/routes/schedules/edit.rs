//! `PATCH /v1/schedules/{id}`.

use axum::http::StatusCode;
use axum::response::Response;
use punctual_client as wire;
use punctual_client::{NewSchedule, SchedulePatch, ScheduledTaskPatch};
use punctual_core::json::Json;
use punctual_core::schedules::Schedule;
use punctual_core::time::Timestamp;
use punctual_submission::{CheckedSchedule, Faults, reading};

use super::change::rewrite;
use super::request::{ScheduleRequest, answer, validator};
use crate::extract::{If, JsonBody};
use crate::openapi::{IfMatch, Invalid, NotFound, SchedulePath, VersionMismatch};
use crate::problem::Problem;
use crate::schedules::view;

/// Changes a schedule.
///
/// The body is a merge patch (RFC 7396), also of the `task`: what it does not name stays. If its
/// instants change, it continues with the first new one after now. Waiting instants still run.
#[utoipa::path(
    patch, path = "/v1/schedules/{id}", tag = "schedules", operation_id = "edit_schedule",
    params(
        SchedulePath,
        IfMatch,
    ),
    request_body = wire::SchedulePatch,
    responses(
        (status = 200, description = "The schedule as it is now", body = wire::Schedule, headers(("ETag" = String))),
        (status = 409, description = "`name_taken`: another schedule has that name; `conflict`: other writers changed it each time, try again", body = wire::Problem, content_type = "application/problem+json"),
        NotFound, VersionMismatch, Invalid,
    ),
)]
pub async fn edit_schedule(
    request: ScheduleRequest,
    condition: If,
    body: JsonBody<SchedulePatch>,
) -> Result<Response, Problem> {
    let wanted = |schedule: &Schedule| -> Result<CheckedSchedule, Problem> {
        let was = view::schedule(schedule)?;
        let validator = validator(&request.api, &request.caller.tenant, Some(schedule.created_at));
        body.check_ref(|patch, faults| {
            no_nulls(faults, patch);
            let task = match &patch.task {
                Some(Some(changes)) => merged(faults, &schedule.definition.task, changes)?,
                _ => was.task.clone(),
            };
            validator.check(faults, patched(was, patch.clone(), task))
        })
    };
    answer(StatusCode::OK, &rewrite(&request, &condition, wanted).await?, &request.caller)
}

/// The task after a merge patch; none only with a fault. Its faults are those of the patch: the
/// stored task has none.
fn merged(faults: &mut Faults, task: &Json, changes: &ScheduledTaskPatch) -> Option<wire::NewTask> {
    match reading::read(task.merged(&changes.0).get()) {
        Ok(sent) => faults.part("/task", sent),
        Err(fault) => {
            faults.add("/task", format!("cannot be merged: {fault}"));
            None
        }
    }
}

/// Refuses `null` in the fields that it cannot reset.
fn no_nulls(faults: &mut Faults, patch: &SchedulePatch) {
    fn is_null<T>(field: Option<&Option<T>>) -> bool {
        matches!(field, Some(None))
    }
    fn is_given<T>(field: Option<&Option<T>>) -> bool {
        matches!(field, Some(Some(_)))
    }
    let fields = [
        ("/name", is_null(patch.name.as_ref())),
        // Each replaces the other, so a caller that sets one may null the other.
        ("/cron", is_null(patch.cron.as_ref()) && !is_given(patch.interval_seconds.as_ref())),
        ("/interval_seconds", is_null(patch.interval_seconds.as_ref()) && !is_given(patch.cron.as_ref())),
        ("/timezone", is_null(patch.timezone.as_ref())),
        ("/task", is_null(patch.task.as_ref())),
        ("/overlap_policy", is_null(patch.overlap_policy.as_ref())),
        ("/catchup", is_null(patch.catchup.as_ref())),
        ("/catchup_window_seconds", is_null(patch.catchup_window_seconds.as_ref())),
        ("/dst_gap", is_null(patch.dst_gap.as_ref())),
        ("/dst_fold", is_null(patch.dst_fold.as_ref())),
        ("/day_overflow", is_null(patch.day_overflow.as_ref())),
        ("/jitter_seconds", is_null(patch.jitter_seconds.as_ref())),
        ("/pause_on_failure", is_null(patch.pause_on_failure.as_ref())),
        ("/paused", is_null(patch.paused.as_ref())),
    ];
    for (pointer, _) in fields.iter().filter(|(_, is_null)| *is_null) {
        faults.add(*pointer, "must not be null; leave it out to keep it as it is");
    }
}

/// The schedule that the owner of `was` would write, with what the patch changes, and this task. A
/// pause is not part of it.
fn patched(was: wire::Schedule, patch: SchedulePatch, task: wire::NewTask) -> NewSchedule {
    let (cron, interval_seconds) = match (patch.cron, patch.interval_seconds) {
        (None, None) => (was.cron, was.interval_seconds),
        (cron, interval) => (cron.flatten(), interval.flatten()),
    };
    let instant = |at: Timestamp| at.to_string();
    NewSchedule {
        name: patch.name.flatten().or(Some(was.name)),
        cron,
        interval_seconds,
        timezone: patch.timezone.flatten().or(Some(was.timezone)),
        task: Some(task),
        overlap_policy: patch.overlap_policy.flatten().or(Some(was.overlap_policy)),
        catchup: patch.catchup.flatten().or(Some(was.catchup)),
        catchup_window_seconds: patch.catchup_window_seconds.flatten().or(Some(was.catchup_window_seconds)),
        dst_gap: patch.dst_gap.flatten().or(Some(was.dst_gap)),
        dst_fold: patch.dst_fold.flatten().or(Some(was.dst_fold)),
        day_overflow: patch.day_overflow.flatten().or(Some(was.day_overflow)),
        jitter_seconds: patch.jitter_seconds.flatten().or(Some(was.jitter_seconds)),
        starts_at: patch.starts_at.unwrap_or_else(|| was.starts_at.map(instant)),
        ends_at: patch.ends_at.unwrap_or_else(|| was.ends_at.map(instant)),
        max_runs: patch.max_runs.unwrap_or(was.max_runs),
        pause_on_failure: patch.pause_on_failure.flatten().or(Some(was.pause_on_failure)),
        paused: patch.paused.flatten(),
    }
}
