//! `POST /v1/schedules/{id}/trigger`.

use axum::http::StatusCode;
use axum::response::Response;
use punctual_client as wire;
use punctual_core::ids::{ScheduleId, TaskId};
use punctual_core::schedules::plan::{self, Origin};
use punctual_core::schedules::{
    Advance, Advanced, FiredTask, KeyedTrigger, Occurrence, OccurrenceOutcome, Record, Schedule, ScheduleSnapshot,
};
use punctual_core::task::Idempotency;
use punctual_submission::occurrences::{Prepared, plan_input};
use sha2::{Digest, Sha256};

use super::request::{ScheduleRequest, check_version, write};
use crate::answer::{self, json};
use crate::extract::{If, MaybeJsonBody};
use crate::openapi::{Conflict, IdempotencyKey, IfMatch, Invalid, NotFound, SchedulePath, VersionMismatch};
use crate::problem::{Code, Problem};
use crate::routes::tasks::HeaderKey;
use crate::schedules::view;
use crate::state::Api;

/// Runs a schedule now.
///
/// Neither the time nor a pause matters. The overlap policy does: the run may be skipped or have to
/// wait. The same call under the same `Idempotency-Key` shows the outcome of the first and runs
/// nothing; a skipped run uses up no key.
#[utoipa::path(
    post, path = "/v1/schedules/{id}/trigger", tag = "schedules", operation_id = "trigger_schedule",
    params(
        SchedulePath,
        IfMatch,
        IdempotencyKey,
    ),
    request_body = Option<wire::TriggerSchedule>,
    responses(
        (status = 201, description = "A task was created", body = wire::Occurrence),
        (status = 202, description = "It waits for the previous task", body = wire::Occurrence),
        (status = 200, description = "It is skipped, because of the overlap policy; or a task was created before under this key", body = wire::Occurrence,
            headers(("Idempotent-Replayed" = String))),
        Conflict, NotFound, VersionMismatch, Invalid,
    ),
)]
pub async fn trigger_schedule(
    request: ScheduleRequest,
    condition: If,
    HeaderKey(key): HeaderKey,
    MaybeJsonBody(body): MaybeJsonBody<wire::TriggerSchedule>,
) -> Result<Response, Problem> {
    let wire::TriggerSchedule {} = body.finish()?;
    let (api, condition) = (&request.api, &condition);
    let key = &key.map(|key| Idempotency::new(key, fingerprint(request.id)));
    let attempt = async |snapshot: ScheduleSnapshot, now| {
        // Before any task is ended for it: the live task may be the one created under this key.
        if let Some(before) = replayed(api, &snapshot, key.as_ref()).await? {
            return Ok(Some(before));
        }
        let schedule = &snapshot.schedule;
        check_version(condition, schedule)?;
        // Read after the revision: if the advance is written, no record is newer.
        let newest = api.schedules.occurrences(schedule.id, None, 1).await?.pop().map(|newest| newest.instant);
        let plan = plan::trigger(schedule.id, &schedule.definition.spec, &plan_input(&snapshot), newest, now);
        let Prepared::Advance(mut advance, _) = api.occurrences.prepare(None, &snapshot, plan, now).await? else {
            return Ok(None);
        };
        advance.trigger = key.clone().and_then(|key| keyed_trigger(schedule, &mut advance, key));
        let Some(occurrence) = triggered(&advance) else { return Ok(None) };
        if let Advanced::Done { recorded, .. } = write(api, *advance).await?
            && recorded.contains(&occurrence.instant)
        {
            let status = match occurrence.outcome {
                OccurrenceOutcome::Fired => StatusCode::CREATED,
                OccurrenceOutcome::Buffered => StatusCode::ACCEPTED,
                _ => StatusCode::OK,
            };
            api.operations.metrics.occurrences(occurrence.outcome, 1);
            return Ok(Some(json(status, &view::occurrence(occurrence))));
        }
        Ok(None)
    };
    request.change(attempt).await
}

/// The digest of a trigger of this schedule. It never changes: earlier versions stored it with
/// keys.
fn fingerprint(id: ScheduleId) -> [u8; 32] {
    Sha256::digest(format!("trigger\n{id}")).into()
}

/// The answer to a call under a key that was used before.
async fn replayed(
    api: &Api,
    snapshot: &ScheduleSnapshot,
    key: Option<&Idempotency>,
) -> Result<Option<Response>, Problem> {
    let schedule = &snapshot.schedule;
    let Some(key) = key else { return Ok(None) };
    let Some(owner) = api.schedules.key_owner(&schedule.tenant, &key.key).await? else { return Ok(None) };
    if owner.fingerprint != key.fingerprint {
        let detail = "this idempotency key was used for something else; nothing was done";
        return Err(Problem::new(Code::IdempotencyKeyReused, detail));
    }
    let waits = snapshot.promised.iter().find(|promise| promise.task == owner.task).map(|promise| promise.instant);
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
        let detail = "the run under this idempotency key did not happen, or was removed since; nothing was done";
        return Err(Problem::new(Code::IdempotencyKeyReused, detail));
    };
    let status = if record.outcome == OccurrenceOutcome::Buffered { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok(Some(answer::replayed(json(status, &view::occurrence(record)))))
}

/// The trigger under a key, if its run fires or waits.
fn keyed_trigger(schedule: &Schedule, advance: &mut Advance, idempotency: Idempotency) -> Option<KeyedTrigger> {
    let record = advance.records.iter_mut().rfind(|record| is_of_trigger(record))?;
    let task = match (&mut record.fired, record.outcome) {
        (Some(FiredTask { task, .. }), _) => {
            task.body.idempotency_key = Some(idempotency.key.clone());
            task.id
        }
        (None, OccurrenceOutcome::Buffered) => TaskId::new(),
        (None, _) => return None,
    };
    Some(KeyedTrigger { tenant: schedule.tenant.clone(), idempotency, instant: record.instant, task })
}

/// Whether a record is of the triggered run: manual and new.
fn is_of_trigger(record: &Record) -> bool {
    record.origin == Origin::Manual && !record.waited
}

/// The occurrence of the triggered run.
fn triggered(advance: &Advance) -> Option<Occurrence> {
    let record = advance.records.iter().rfind(|record| is_of_trigger(record))?;
    Some(Occurrence {
        instant: record.instant,
        origin: record.origin,
        outcome: record.outcome,
        reason: record.reason.clone(),
        detail: record.detail.clone(),
        task: record.fired.as_ref().map(|fired| fired.task.id),
        covers: record.covers,
        decided_at: advance.now,
    })
}
