//! `GET /v1/schedules/{id}/preview` and `POST /v1/schedules/preview`: when a schedule would run.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use punctual_client as wire;
use punctual_client::{Page, UpcomingRun};
use punctual_core::schedules::ScheduleSnapshot;
use punctual_core::schedules::plan::{Spec, reserved};
use punctual_core::time::Timestamp;
use punctual_submission::Faults;

use super::request::{ScheduleRequest, validator};
use crate::answer::json;
use crate::extract::query::Query;
use crate::extract::{Caller, JsonBody};
use crate::openapi::{Invalid, NotFound, SchedulePath};
use crate::problem::Problem;
use crate::state::Api;

/// The default number of instants.
const COUNT_DEFAULT: usize = 10;
/// The maximum number of instants.
const COUNT_MAX: usize = 1_000;

/// Shows when a schedule will run.
///
/// The instants after now, or from `from` on, as far as `ends_at` and `max_runs` allow; whether it
/// is paused does not matter. `from` may be in the past: `max_runs` counts from now on, and the
/// instants before that are shown as the schedule has them now.
#[utoipa::path(
    get, path = "/v1/schedules/{id}/preview", tag = "schedules", operation_id = "preview_schedule",
    params(
        SchedulePath,
        ("count" = Option<u16>, Query, description = "How many instants, 10 if absent", minimum = 1, maximum = 1000),
        ("from" = Option<String>, Query, format = DateTime, description = "The earliest instant; those after now if absent"),
    ),
    responses(
        (status = 200, description = "The next instants", body = wire::UpcomingRunPage),
        NotFound, Invalid,
    ),
)]
pub async fn preview_schedule(request: ScheduleRequest, query: Query) -> Result<Response, Problem> {
    let mut faults = Faults::default();
    let wanted = Wanted::read(query, &mut faults);
    faults.finish()?;
    let ScheduleSnapshot { schedule, buffered, .. } = request.snapshot().await?;
    let spec = &schedule.definition.spec;
    let left = spec.runs_left(schedule.progress.run_count, reserved(&buffered));
    Ok(wanted.answer(spec, left, request.api.clock.now()))
}

/// Shows when a schedule would run, without creating it.
///
/// The body is that of a new schedule; `name` and `task` may be left out. The same rules apply.
#[utoipa::path(
    post, path = "/v1/schedules/preview", tag = "schedules", operation_id = "preview_new_schedule",
    params(
        ("count" = Option<u16>, Query, description = "How many instants, 10 if absent", minimum = 1, maximum = 1000),
        ("from" = Option<String>, Query, format = DateTime, description = "The earliest instant; those after now if absent"),
    ),
    request_body = wire::NewSchedule,
    responses(
        (status = 200, description = "The next instants", body = wire::UpcomingRunPage),
        Invalid,
    ),
)]
pub async fn preview_new_schedule(
    State(api): State<Api>,
    caller: Caller,
    query: Query,
    body: JsonBody<wire::NewSchedule>,
) -> Result<Response, Problem> {
    let validator = validator(&api, &caller.tenant, None);
    let (wanted, spec) = body.check(|new, faults| {
        let wanted = Wanted::read(query, faults);
        let spec = validator.check_preview(faults, &new)?;
        validator.check_instants(faults, &spec);
        Some((wanted, spec))
    })?;
    Ok(wanted.answer(&spec, spec.runs_left(0, 0), validator.now))
}

/// Which instants a preview shows.
struct Wanted {
    count: usize,
    /// The earliest; those after now if none.
    from: Option<Timestamp>,
}

impl Wanted {
    fn read(mut query: Query, faults: &mut Faults) -> Self {
        let count = query.number("count", 1..=COUNT_MAX).unwrap_or(COUNT_DEFAULT);
        let from = query.instant("from");
        query.finish_into(faults);
        Self { count, from }
    }

    /// The instants of a schedule that may fire `left` more times after `now`.
    fn answer(&self, spec: &Spec, left: u64, now: Timestamp) -> Response {
        let (timing, zone) = (&spec.timing, &spec.timing.rules.zone);
        let after = self.from.map_or(now, |from| from.plus_millis(-1));
        let left = left.saturating_sub(timing.count_between(now.plus_millis(1), after));
        let past = timing.iter_between(after.plus_millis(1), now);
        let to_come = std::iter::successors(timing.next_after(after.max(now)), |at| timing.next_after(*at))
            .take(usize::try_from(left).unwrap_or(usize::MAX));
        let items: Vec<UpcomingRun> = past
            .chain(to_come)
            .take(self.count)
            .map(|run_at| UpcomingRun { run_at, local: zone.local(run_at) })
            .collect();
        json(StatusCode::OK, &Page { items, next_cursor: None })
    }
}
