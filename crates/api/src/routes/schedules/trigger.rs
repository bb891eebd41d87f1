//! `POST /v1/schedules/{id}/trigger`.

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use punctual_client as wire;
use punctual_core::ids::{ScheduleId, TaskId};
use punctual_core::schedule::plan::{self, Origin};
use punctual_core::schedules::{Asked, Occurrence, Outcome, Record, Recorded, Schedule, Standing, Turn, Turned};
use punctual_core::task::Idempotency;
use punctual_submission::occurrences::{Prepared, known};
use sha2::{Digest, Sha256};

use super::change::{ROUNDS, SchedulePath, check_version, find_standing, kept_changing, take_turn, write};
use crate::answer::json;
use crate::extract::{If, MaybeJsonBody, Tenant};
use crate::openapi::{Invalid, NotFound, VersionMismatch};
use crate::problem::{Code, Problem};
use crate::routes::tasks::{HeaderKey, REPLAYED};
use crate::schedules::view;
use crate::state::Api;

/// Runs a schedule now.
///
/// The time does not matter, nor a pause; the overlap policy does, so that the run may be skipped or have to wait. The
/// same call again under the same `Idempotency-Key` tells what became of the first, and runs nothing; one that was skipped
/// has used no key.
#[utoipa::path(
    post, path = "/v1/schedules/{id}/trigger", tag = "schedules", operation_id = "trigger_schedule",
    params(
        ("id" = String, Path, description = "The schedule's id"),
        ("If-Match" = Option<String>, Header, description = "Run it only at this version"),
        ("Idempotency-Key" = Option<String>, Header, description = "Run it once under this key; keys are those of tasks"),
    ),
    request_body = Option<wire::TriggerSchedule>,
    responses(
        (status = 201, description = "A task was made", body = wire::Occurrence),
        (status = 202, description = "It waits for the previous task", body = wire::Occurrence),
        (status = 200, description = "It is skipped, because of the overlap policy; or a task was made before under this key", body = wire::Occurrence,
            headers(("Idempotent-Replayed" = String, description = "`true` if it was asked for before"))),
        (status = 409, description = "`conflict`: others wrote it each time, on other nodes; nothing was run, try again", body = wire::Problem, content_type = "application/problem+json"),
        NotFound, VersionMismatch, Invalid,
    ),
)]
pub async fn trigger_schedule(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    SchedulePath(id): SchedulePath,
    condition: If,
    HeaderKey(key): HeaderKey,
    MaybeJsonBody(wire::TriggerSchedule {}): MaybeJsonBody<wire::TriggerSchedule>,
) -> Result<Response, Problem> {
    let key = key.map(|key| Idempotency { key, fingerprint: fingerprint(id) });
    let _turn = take_turn(&api, &tenant, id).await?;
    for _ in 0..ROUNDS {
        let standing = find_standing(&api, &tenant, id).await?;
        // Before anything is ended for it: the live task may be the one that was made under this key.
        if let Some(before) = asked_before(&api, &standing, key.as_ref()).await? {
            return Ok(before);
        }
        let (now, schedule) = (api.clock.now(), &standing.schedule);
        check_version(&condition, schedule)?;
        // Read after the revision that the turn needs: if it is written, nothing is newer.
        let newest = api.schedules.occurrences(id, None, 1).await?.pop().map(|newest| newest.instant);
        let plan = plan::trigger(schedule.id, &schedule.definition.spec, &known(&standing), newest, now);
        let Prepared::Turn(mut turn, _) = api.occurrences.prepare(None, &standing, plan, now).await? else { continue };
        turn.asked = key.clone().and_then(|key| asked(schedule, &mut turn, key));
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

/// What a trigger of this schedule means, for ever: it is compared with what earlier versions wrote.
fn fingerprint(id: ScheduleId) -> [u8; 32] {
    Sha256::digest(format!("trigger\n{id}")).into()
}

/// The answer to a call that was made before under this key.
async fn asked_before(api: &Api, standing: &Standing, key: Option<&Idempotency>) -> Result<Option<Response>, Problem> {
    let schedule = &standing.schedule;
    let Some(key) = key else { return Ok(None) };
    let Some(owner) = api.schedules.key_owner(&schedule.tenant, &key.key).await? else { return Ok(None) };
    if owner.fingerprint != key.fingerprint {
        let detail = "this idempotency key was used before, for something else; nothing was done";
        return Err(Problem::new(Code::IdempotencyKeyReused, detail));
    }
    let waits = standing.promised.iter().find(|promise| promise.task == owner.task).map(|promise| promise.instant);
    let instant = if waits.is_some() {
        waits
    } else {
        let task = api.store.get(&schedule.tenant, vec![owner.task]).await?.pop().flatten();
        task.and_then(|task| task.scheduled_for())
    };
    // The record of an instant is the last one before the next millisecond.
    let record = match instant {
        Some(at) => api.schedules.occurrences(schedule.id, Some(at.plus_millis(1)), 1).await?.pop(),
        None => None,
    };
    let Some(record) = record.filter(|record| Some(record.instant) == instant) else {
        let detail = "a run was asked for under this idempotency key before, and it did not come to pass or was removed \
                      since; nothing was done";
        return Err(Problem::new(Code::IdempotencyKeyReused, detail));
    };
    let status = if record.outcome == Outcome::Buffered { StatusCode::ACCEPTED } else { StatusCode::OK };
    let mut response = json(status, &view::occurrence(record));
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    Ok(Some(response))
}

/// The run that uses the key: one that fires, or waits.
fn asked(schedule: &Schedule, turn: &mut Turn, idempotency: Idempotency) -> Option<Asked> {
    let record = turn.records.iter_mut().rfind(|record| is_asked_for(record))?;
    let task = match &mut record.outcome {
        Recorded::Fired { task, .. } => {
            task.body.idempotency_key = Some(idempotency.key.clone());
            task.id
        }
        Recorded::Buffered => TaskId::new(),
        _ => return None,
    };
    Some(Asked { tenant: schedule.tenant.clone(), idempotency, instant: record.instant, task })
}

/// Whether a record is of the run that was asked for: one by hand that is new.
fn is_asked_for(record: &Record) -> bool {
    record.origin == Origin::Manual && !record.waited
}

/// What becomes of the run that was asked for.
fn told(turn: &Turn) -> Option<Occurrence> {
    let record = turn.records.iter().rfind(|record| is_asked_for(record))?;
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
