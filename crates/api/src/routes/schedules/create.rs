//! `POST /v1/schedules`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use punctual_client as wire;
use punctual_core::ids::ScheduleId;
use punctual_core::schedules::plan;
use punctual_core::schedules::{Progress, Schedule, ScheduleInserted, SchedulePause};

use punctual_submission::{CheckedSchedule, Faults, ScheduleValidator};

use super::request::{answer, name_taken, require_reach, validator};
use crate::answer;
use crate::extract::{Caller, JsonBody};
use crate::openapi::Invalid;
use crate::problem::Problem;
use crate::state::Api;

/// Creates a schedule.
///
/// Its first run is the first instant after now. From then on every instant is recorded, see its
/// occurrences.
#[utoipa::path(
    post, path = "/v1/schedules", tag = "schedules", operation_id = "create_schedule",
    request_body(
        content = wire::ScheduleToMake,
        example = json!({
            "name": "nightly-report", "cron": "0 3 * * *", "timezone": "Europe/Berlin",
            "task": {"type": "report.make", "queue": "reports"},
        }),
    ),
    responses(
        (status = 201, description = "Created and durable", body = wire::Schedule,
            headers(("ETag" = String), ("Location" = String))),
        (status = 409, description = "`name_taken`: another schedule has this name", body = wire::Problem, content_type = "application/problem+json"),
        Invalid,
    ),
)]
pub async fn create_schedule(
    State(api): State<Api>,
    caller: Caller,
    body: JsonBody<wire::NewSchedule>,
) -> Result<Response, Problem> {
    let validator = validator(&api, &caller.tenant, None);
    let checked = body.check(|new, faults| check_new(&validator, faults, new))?;
    require_reach(&caller, &checked.definition)?;
    let name = checked.name.clone();
    match insert(&api, &validator, checked).await? {
        Some(schedule) => created(&schedule, &caller),
        None => Err(name_taken(&name)),
    }
}

/// Checks a schedule that is to be created. None only with a fault.
pub fn check_new(
    validator: &ScheduleValidator<'_>,
    faults: &mut Faults,
    new: wire::NewSchedule,
) -> Option<CheckedSchedule> {
    let checked = validator.check(faults, new)?;
    validator.check_instants(faults, &checked.definition.spec);
    Some(checked)
}

/// Stores a schedule; none if another one has its name.
pub async fn insert(
    api: &Api,
    validator: &ScheduleValidator<'_>,
    checked: CheckedSchedule,
) -> Result<Option<Schedule>, Problem> {
    // The time that an interval counts from.
    let now = validator.created_at;
    let next_run_at = plan::first(&checked.definition.spec, 0, now);
    let mut schedule = Schedule {
        id: ScheduleId::new(),
        tenant: validator.tenant.to_owned(),
        name: checked.name,
        version: 1,
        revision: 1,
        created_at: now,
        updated_at: now,
        definition: checked.definition,
        pause: None,
        progress: Progress { next_run_at, ..Progress::default() },
    };
    schedule.set_pause((checked.paused == Some(true)).then_some(SchedulePause { at: now, reason: None }));
    schedule.progress.next_check_at = schedule.next_check_at(false);
    match api.schedules.insert(schedule.clone()).await? {
        ScheduleInserted::Created => Ok(Some(schedule)),
        ScheduleInserted::NameTaken => Ok(None),
    }
}

/// The answer to a created schedule.
pub fn created(schedule: &Schedule, caller: &Caller) -> Result<Response, Problem> {
    let response = answer(StatusCode::CREATED, schedule, caller)?;
    Ok(answer::created(response, &format!("/v1/schedules/{}", schedule.id)))
}
