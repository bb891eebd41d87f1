//! `GET /v1/schedules/{id}/preview` and `POST /v1/schedules/preview`: when a schedule would run.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use punctual_client as wire;
use punctual_client::{Page, UpcomingRun};
use punctual_core::schedules::ScheduleSnapshot;
use punctual_core::schedules::plan::{Spec, reserved};
use punctual_core::time::Timestamp;

use super::request::{ScheduleRequest, validator};
use crate::answer::json;
use crate::extract::query::Query;
use crate::extract::{JsonBody, Tenant};
use crate::openapi::{Invalid, NotFound};
use crate::problem::Problem;
use crate::state::Api;

/// The default number of instants.
const COUNT_DEFAULT: usize = 10;
/// The maximum number of instants.
const COUNT_MAX: usize = 1_000;

/// Shows when a schedule will run.
///
/// The next instants from now on, as far as `ends_at` and `max_runs` allow; whether it is paused
/// does not matter.
#[utoipa::path(
    get, path = "/v1/schedules/{id}/preview", tag = "schedules", operation_id = "preview_schedule",
    params(
        ("id" = String, Path, description = "The schedule's id"),
        ("count" = Option<u16>, Query, description = "How many instants, 10 if absent", minimum = 1, maximum = 1000),
    ),
    responses(
        (status = 200, description = "The next instants", body = wire::UpcomingRunPage),
        NotFound, Invalid,
    ),
)]
pub async fn preview_schedule(request: ScheduleRequest, query: Query) -> Result<Response, Problem> {
    let count = count(query)?;
    let ScheduleSnapshot { schedule, buffered, .. } = request.snapshot().await?;
    let spec = &schedule.definition.spec;
    let left = spec.runs_left(schedule.progress.run_count, reserved(&buffered));
    Ok(upcoming(spec, left, request.api.clock.now(), count))
}

/// Shows when a schedule would run, without creating it.
///
/// The body is that of a new schedule; `name` and `task` may be left out. The same rules apply.
#[utoipa::path(
    post, path = "/v1/schedules/preview", tag = "schedules", operation_id = "preview_new_schedule",
    params(("count" = Option<u16>, Query, description = "How many instants, 10 if absent", minimum = 1, maximum = 1000)),
    request_body = wire::NewSchedule,
    responses(
        (status = 200, description = "The next instants", body = wire::UpcomingRunPage),
        Invalid,
    ),
)]
pub async fn preview_new_schedule(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    query: Query,
    JsonBody(new): JsonBody<wire::NewSchedule>,
) -> Result<Response, Problem> {
    let count = count(query)?;
    let validator = validator(&api, &tenant, None);
    let spec = validator.check_preview(&new)?;
    validator.check_instants(&spec)?;
    Ok(upcoming(&spec, spec.runs_left(0, 0), validator.now, count))
}

fn count(mut query: Query) -> Result<usize, Problem> {
    let count = query.number("count", 1..=COUNT_MAX).unwrap_or(COUNT_DEFAULT);
    query.finish()?;
    Ok(count)
}

fn upcoming(spec: &Spec, left: u64, now: Timestamp, count: usize) -> Response {
    let count = count.min(usize::try_from(left).unwrap_or(usize::MAX));
    let zone = &spec.timing.rules.zone;
    let instants = std::iter::successors(spec.timing.next_after(now), |at| spec.timing.next_after(*at));
    let items: Vec<UpcomingRun> =
        instants.take(count).map(|run_at| UpcomingRun { run_at, local: zone.local(run_at) }).collect();
    json(StatusCode::OK, &Page { items, next_cursor: None })
}
