//! `POST /v1/schedules/{id}/backfill`, and `DELETE` to withdraw it.

use axum::http::StatusCode;
use axum::response::Response;
use punctual_client as wire;
use punctual_core::schedules::plan::{self, OccurrenceReason, Origin, Plan};
use punctual_core::schedules::{Advance, Advanced, OccurrenceOutcome, Record, ScheduleSnapshot};
use punctual_core::time::Timestamp;
use punctual_submission::Faults;
use punctual_submission::occurrences::plan_input;

use super::request::{ROUNDS, ScheduleRequest, check_version, kept_changing, write};
use crate::answer::json;
use crate::extract::{If, JsonBody};
use crate::openapi::{Conflict, IfMatch, Invalid, NotFound, SchedulePath, VersionMismatch};
use crate::problem::{Code, Problem};

/// Runs instants of the past.
///
/// Every instant from `from` to `to` that has not run yet runs now: one at a time, in order and
/// after due instants, or all at once if overlaps are allowed. At most 10,000 instants a call.
/// While the schedule is paused they wait. `max_runs` does not limit them.
#[utoipa::path(
    post, path = "/v1/schedules/{id}/backfill", tag = "schedules", operation_id = "backfill_schedule",
    params(
        SchedulePath,
        IfMatch,
    ),
    request_body = wire::Backfill,
    responses(
        (status = 202, description = "They will run", body = wire::BackfillAnswer),
        NotFound, Conflict, VersionMismatch, Invalid,
    ),
)]
pub async fn backfill_schedule(
    request: ScheduleRequest,
    condition: If,
    body: JsonBody<wire::Backfill>,
) -> Result<Response, Problem> {
    let (api, condition) = (&request.api, &condition);
    let (from, to) = body.check(|wanted, faults| range(faults, &wanted, api.clock.now()))?;
    let attempt = async |snapshot: ScheduleSnapshot, now| {
        let schedule = &snapshot.schedule;
        check_version(condition, schedule)?;
        let instants = plan::backfill(&schedule.definition.spec, from, to).map_err(too_many)?;
        // The cron loop decides the instants that are not decided yet.
        let next = schedule.progress.next_run_at;
        let past: Vec<Timestamp> = instants.into_iter().filter(|at| next.is_none_or(|next| *at < next)).collect();
        let (Some(first), Some(last)) = (past.first(), past.last()) else { return Ok(Some(0)) };
        let covering = api.schedules.covering(schedule.id, *first, *last).await?;
        let timing = &schedule.definition.spec.timing;
        let cuts = covering.iter().filter_map(|record| plan::cut(timing, record, &past)).collect();
        let records = past.into_iter().map(waiting).collect();
        let unchanged = Plan { next_run_at: next, ..Plan::default() };
        let advance = api.occurrences.advance(&snapshot, &unchanged, now);
        let advance = Advance { records, cuts, next_check_at: schedule.next_check_at(true), ..advance };
        Ok(match write(api, advance).await? {
            Advanced::Done { recorded, .. } => Some(recorded.len() as u64),
            _ => None,
        })
    };
    let instants = request.change(attempt).await?;
    Ok(json(StatusCode::ACCEPTED, &wire::BackfillAnswer { instants }))
}

/// Withdraws backfills.
///
/// Backfilled instants that still wait do not run. Their occurrences are `skipped`, with the reason
/// `withdrawn`, and can be backfilled again. Tasks that were created already stay.
#[utoipa::path(
    delete, path = "/v1/schedules/{id}/backfill", tag = "schedules", operation_id = "withdraw_backfill",
    params(
        SchedulePath,
        IfMatch,
    ),
    responses(
        (status = 200, description = "How many instants do not run; 0 if none waited", body = wire::BackfillAnswer),
        (status = 409, description = "`conflict`: other writers changed it each time, or too many other occurrences wait before them; try again", body = wire::Problem, content_type = "application/problem+json"),
        NotFound, VersionMismatch,
    ),
)]
pub async fn withdraw_backfill(request: ScheduleRequest, condition: If) -> Result<Response, Problem> {
    let api = &request.api;
    let _lock = request.lock().await?;
    let (mut instants, mut lost) = (0, 0);
    while lost < ROUNDS {
        let snapshot = request.snapshot().await?;
        check_version(&condition, &snapshot.schedule)?;
        let plan = plan::withdraw(&plan_input(&snapshot));
        if plan.decisions.is_empty() {
            if snapshot.buffered.len() >= plan::PLAN_MAX {
                return Err(crowded_out());
            }
            return Ok(json(StatusCode::OK, &wire::BackfillAnswer { instants }));
        }
        match write(api, api.occurrences.advance(&snapshot, &plan, api.clock.now())).await? {
            Advanced::Done { recorded, .. } => instants += recorded.len() as u64,
            _ => lost += 1,
        }
    }
    Err(kept_changing())
}

fn crowded_out() -> Problem {
    let detail = "too many other occurrences wait before those of the backfill; try again when fewer wait";
    Problem::new(Code::Conflict, detail).retry_after(10)
}

/// The period; none only with a fault.
fn range(faults: &mut Faults, wanted: &wire::Backfill, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
    let from = faults.instant("/from", &wanted.from);
    let to = faults.instant("/to", &wanted.to);
    if to.is_some_and(|to| to > now) {
        faults.add("/to", "must not be in the future");
    }
    if let (Some(from), Some(to)) = (from, to)
        && to < from
    {
        faults.add("/to", "must not be before from");
    }
    Some((from?, to?))
}

fn too_many(fault: plan::TooMany) -> Problem {
    Problem::invalid_at("/to", fault.to_string())
}

fn waiting(instant: Timestamp) -> Record {
    Record {
        instant,
        origin: Origin::Backfill,
        waited: false,
        outcome: OccurrenceOutcome::Buffered,
        fired: None,
        reason: OccurrenceReason::Backfilled.as_str().to_owned(),
        detail: None,
        covers: None,
    }
}
