//! `POST /v1/schedules/{id}/trigger`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use punctual_client as wire;
use punctual_core::schedule::plan::{self, Origin};
use punctual_core::schedules::{Occurrence, Outcome, Record, Turn, Turned};
use punctual_scheduler::occurrences::{Prepared, known};

use super::change::{ROUNDS, SchedulePath, find_standing, kept_changing, write};
use crate::answer::json;
use crate::extract::Tenant;
use crate::openapi::NotFound;
use crate::problem::Problem;
use crate::schedules::view;
use crate::state::Api;

/// Runs a schedule now.
///
/// The time does not matter, nor a pause; the overlap policy does, so that the run may be skipped or have to wait.
#[utoipa::path(
    post, path = "/v1/schedules/{id}/trigger", tag = "schedules", operation_id = "trigger_schedule",
    params(("id" = String, Path, description = "The schedule's id")),
    responses(
        (status = 201, description = "A task was made", body = wire::Occurrence),
        (status = 202, description = "It waits for the previous task", body = wire::Occurrence),
        (status = 200, description = "It is skipped, because of the overlap policy", body = wire::Occurrence),
        (status = 404, response = NotFound),
    ),
)]
pub async fn trigger_schedule(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    SchedulePath(id): SchedulePath,
) -> Result<Response, Problem> {
    for _ in 0..ROUNDS {
        let standing = find_standing(&api, &tenant, id).await?;
        let (now, schedule) = (api.clock.now(), &standing.schedule);
        let plan = plan::trigger(schedule.id, &schedule.definition.spec, &known(&standing), now);
        let Prepared::Turn(turn, _) = api.occurrences.prepare(None, &standing, plan, now).await? else { continue };
        let Some(told) = told(&turn) else { continue };
        if let Turned::Done { recorded, .. } = write(&api, *turn).await?
            && recorded.contains(&told.instant)
        {
            let status = match told.outcome {
                Outcome::Fired => StatusCode::CREATED,
                Outcome::Buffered => StatusCode::ACCEPTED,
                _ => StatusCode::OK,
            };
            api.metrics.occurrences(told.outcome, 1);
            return Ok(json(status, &view::occurrence(told)));
        }
    }
    Err(kept_changing())
}

/// What becomes of the run that was asked for: the last one by hand that is new.
fn told(turn: &Turn) -> Option<Occurrence> {
    let asked = |record: &&Record| record.origin == Origin::Manual && !record.waited;
    let record = turn.records.iter().rfind(asked)?;
    Some(Occurrence {
        instant: record.instant,
        origin: record.origin,
        outcome: record.outcome.outcome(),
        reason: record.reason.clone(),
        detail: record.detail.clone(),
        task: record.outcome.task().map(|(task, _)| task.id),
        covers: record.covers,
        decided_at: turn.now,
    })
}
