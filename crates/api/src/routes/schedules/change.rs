//! Changes of schedules under concurrency: read, decide, write on the condition that nothing
//! changed, and start again if something did.
//!
//! Called by every verb that changes a schedule. Invariant: before an edit or a pause, what is due
//! is decided by the schedule as it was.

use axum::extract::{FromRequestParts, Path};
use axum::http::header::ETAG;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use punctual_core::ids::ScheduleId;
use punctual_core::schedules::plan;
use punctual_core::schedules::{
    Advance, Advanced, Definition, PauseSwitch, Replaced, Schedule, SchedulePause, ScheduleSnapshot,
};
use punctual_core::time::Timestamp;
use punctual_submission::occurrences::{Prepared, plan_input};
use punctual_submission::{CheckedSchedule, ScheduleValidator};
use tokio::sync::OwnedMutexGuard;

use crate::answer;
use crate::extract::If;
use crate::problem::{Code, Problem};
use crate::schedules::view;
use crate::state::Api;

/// How often a lost race is run again. After a loss another writer has succeeded, mostly on another
/// node: on this one a lock serialises them (`crate::schedules::KeyedMutex`).
pub const ROUNDS: usize = 64;

/// The word for it in errors.
pub const SCHEDULE: &str = "schedule";

/// The id of the schedule in the path. Text that is no id names no schedule.
pub struct SchedulePath(pub ScheduleId);

impl<S: Send + Sync> FromRequestParts<S> for SchedulePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Ok(Path(text)) = Path::<String>::from_request_parts(parts, state).await else {
            return Err(no_such_schedule());
        };
        text.parse().map(Self).map_err(|_| no_such_schedule())
    }
}

/// The name of a schedule in the path. A path that is not valid UTF-8 names none.
pub struct NamePath(pub String);

impl<S: Send + Sync> FromRequestParts<S> for NamePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let named = Path::<String>::from_request_parts(parts, state).await;
        named.map(|Path(name)| Self(name)).map_err(|_| {
            Problem::new(Code::NotFound, "there is no schedule with this name: the name in the path is not valid UTF-8")
        })
    }
}

/// A schedule that does not exist, or not for this tenant.
pub fn no_such_schedule() -> Problem {
    Problem::new(Code::NotFound, "there is no schedule with this id")
}

/// A name that another schedule has.
pub fn name_taken(name: &str) -> Problem {
    Problem::new(Code::NameTaken, format!("there is a schedule named {name} already; nothing was changed"))
}

/// A schedule that another writer changed on each try.
pub fn kept_changing() -> Problem {
    Problem::new(Code::Conflict, "the schedule changed each time we tried; nothing was done").retry_after(1)
}

/// Locks the schedule against other requests on this node, until the guard is dropped.
pub async fn lock_schedule(api: &Api, tenant: &str, id: ScheduleId) -> Result<OwnedMutexGuard<()>, Problem> {
    let crowded =
        || Problem::new(Code::Overloaded, "too many wait to write this schedule; nothing was done").retry_after(1);
    api.schedule_locks.lock(tenant, id).await.ok_or_else(crowded)
}

/// Refuses a schedule at another version.
pub fn check_version(condition: &If, schedule: &Schedule) -> Result<(), Problem> {
    condition.check(SCHEDULE, Some(schedule.version))
}

/// The answer that shows a schedule, with its version as `ETag`.
pub fn shown(status: StatusCode, schedule: &Schedule) -> Result<Response, Problem> {
    let tag = HeaderValue::try_from(format!("\"{}\"", schedule.version));
    let mut response = answer::json(status, &view::schedule(schedule)?);
    response.headers_mut().insert(ETAG, tag.expect("invariant: a number in quotes is a header value"));
    Ok(response)
}

/// Reads a schedule of a tenant.
pub async fn find(api: &Api, tenant: &str, id: ScheduleId) -> Result<Schedule, Problem> {
    api.schedules.get(tenant, id).await?.ok_or_else(no_such_schedule)
}

/// Reads a schedule of a tenant with everything that an advance is based on.
pub async fn find_snapshot(api: &Api, tenant: &str, id: ScheduleId) -> Result<ScheduleSnapshot, Problem> {
    api.schedules.snapshot(tenant, id).await?.ok_or_else(no_such_schedule)
}

/// The validator of a request about a schedule that was made at `created_at`.
pub fn validator<'a>(api: &'a Api, tenant: &'a str, created_at: Option<Timestamp>) -> ScheduleValidator<'a> {
    let now = api.clock.now();
    let created_at = created_at.unwrap_or(now);
    ScheduleValidator { rules: &api.config.submission, tenant, now, node: api.node, created_at }
}

/// Replaces a schedule, its pause included, in one write, and returns it as it is then. `wanted`
/// makes the new schedule of the current one, once for each try.
pub async fn rewrite(
    api: &Api,
    tenant: &str,
    id: ScheduleId,
    condition: &If,
    wanted: impl Fn(&Schedule) -> Result<CheckedSchedule, Problem>,
) -> Result<Schedule, Problem> {
    let _lock = lock_schedule(api, tenant, id).await?;
    for _ in 0..ROUNDS {
        let (snapshot, now) = (find_snapshot(api, tenant, id).await?, api.clock.now());
        let schedule = &snapshot.schedule;
        check_version(condition, schedule)?;
        let CheckedSchedule { name, definition, paused } = wanted(schedule)?;
        let new_timing = definition.spec.timing != schedule.definition.spec.timing;
        let edited = edited(api, schedule, name.clone(), definition, now)?;
        let is_paused = schedule.pause.is_some();
        let switches = paused.is_some_and(|paused| paused != is_paused);
        if edited.is_none() && !switches {
            return Ok(snapshot.schedule);
        }
        // Instants that went by in a pause are recorded when it ends, unless the edit changes the
        // timing.
        if (!is_paused || new_timing) && decide_due(api, &snapshot, now).await? {
            continue;
        }
        let written = if switches && is_paused {
            write_resume(api, snapshot, edited, now).await?
        } else {
            let mut edited = edited.unwrap_or_else(|| next_version(schedule, now));
            if switches {
                edited.set_pause(Some(SchedulePause { at: now, reason: None }));
                edited.progress.next_check_at = edited.next_check_at(true);
            }
            api.schedules.replace(edited).await?
        };
        match written {
            Replaced::Done => return find(api, tenant, id).await,
            Replaced::NameTaken => return Err(name_taken(&name)),
            Replaced::Lost => {}
        }
    }
    Err(kept_changing())
}

/// Decides what is due at `now` by the schedule as it is before its change. True if something was
/// due: then the caller reads the schedule again, whether or not this write won.
async fn decide_due(api: &Api, snapshot: &ScheduleSnapshot, now: Timestamp) -> Result<bool, Problem> {
    let schedule = &snapshot.schedule;
    if schedule.progress.next_run_at.is_none_or(|at| at > now) {
        return Ok(false);
    }
    let prepared = if schedule.pause.is_some() {
        let known = plan_input(snapshot);
        let skipped = plan::resume(schedule.id, &schedule.definition.spec, &known, now);
        Prepared::Advance(Box::new(api.occurrences.advance(snapshot, &skipped, now)), false)
    } else {
        api.occurrences.check(None, snapshot, now).await?
    };
    match prepared {
        Prepared::Advance(advance, _) => write(api, *advance).await.map(|_| true),
        Prepared::Again => Ok(true),
        Prepared::Nothing | Prepared::NotLeader => Ok(false),
    }
}

/// The schedule at its next version.
fn next_version(schedule: &Schedule, now: Timestamp) -> Schedule {
    Schedule { version: schedule.version + 1, updated_at: now, ..schedule.clone() }
}

/// The schedule with another name and definition; none if they are the same. If its instants
/// change, it continues with the first of them after now.
fn edited(
    api: &Api,
    schedule: &Schedule,
    name: String,
    mut definition: Definition,
    now: Timestamp,
) -> Result<Option<Schedule>, Problem> {
    definition.spec.paused = schedule.pause.is_some();
    if name == schedule.name && definition == schedule.definition {
        return Ok(None);
    }
    let (old, spec) = (&schedule.definition.spec, &definition.spec);
    let validator = validator(api, &schedule.tenant, Some(schedule.created_at));
    let mut progress = schedule.progress;
    let first = || plan::first(spec, progress.run_count, now);
    progress.next_run_at = if spec.timing != old.timing {
        validator.check_instants(spec)?;
        first()
    } else if spec.max_runs != old.max_runs {
        // A greater limit continues a schedule that had ended by the smaller one.
        first().and(progress.next_run_at.or_else(first))
    } else {
        progress.next_run_at
    };
    let mut edited =
        Schedule { name, definition, progress, version: schedule.version + 1, updated_at: now, ..schedule.clone() };
    // The cron loop checks it once and computes the next check.
    edited.progress.next_check_at = edited.next_check_at(true);
    Ok(Some(edited))
}

/// Pauses a schedule. If it is paused already, it gets the new reason, if there is one, and keeps
/// the start of its pause.
pub async fn pause(
    api: &Api,
    tenant: &str,
    id: ScheduleId,
    condition: &If,
    reason: Option<&str>,
) -> Result<Schedule, Problem> {
    let _lock = lock_schedule(api, tenant, id).await?;
    for _ in 0..ROUNDS {
        let (snapshot, now) = (find_snapshot(api, tenant, id).await?, api.clock.now());
        let schedule = &snapshot.schedule;
        check_version(condition, schedule)?;
        let is_same = |was: &SchedulePause| reason.is_none() || was.reason.as_deref() == reason;
        if schedule.pause.as_ref().is_some_and(is_same) {
            return Ok(snapshot.schedule);
        }
        // The pause does not skip what was due before it.
        if schedule.pause.is_none() && decide_due(api, &snapshot, now).await? {
            continue;
        }
        let mut paused = next_version(schedule, now);
        let at = schedule.pause.as_ref().map_or(now, |was| was.at);
        paused.set_pause(Some(SchedulePause { at, reason: reason.map(str::to_owned) }));
        paused.progress.next_check_at = paused.next_check_at(true);
        if api.schedules.replace(paused).await? == Replaced::Done {
            return find(api, tenant, id).await;
        }
    }
    Err(kept_changing())
}

/// Resumes a schedule, if it is paused. The instants that went by are recorded as skipped.
pub async fn resume(api: &Api, tenant: &str, id: ScheduleId, condition: &If) -> Result<Schedule, Problem> {
    let _lock = lock_schedule(api, tenant, id).await?;
    for _ in 0..ROUNDS {
        let snapshot = find_snapshot(api, tenant, id).await?;
        check_version(condition, &snapshot.schedule)?;
        if snapshot.schedule.pause.is_none() {
            return Ok(snapshot.schedule);
        }
        if write_resume(api, snapshot, None, api.clock.now()).await? == Replaced::Done {
            return find(api, tenant, id).await;
        }
    }
    Err(kept_changing())
}

/// Resumes a paused schedule, as `edited` if the same write edits it.
async fn write_resume(
    api: &Api,
    mut snapshot: ScheduleSnapshot,
    edited: Option<Schedule>,
    now: Timestamp,
) -> Result<Replaced, Problem> {
    let edited = edited.map(|mut edited| {
        // The advance increments the version, once for both.
        edited.version = snapshot.schedule.version;
        edited.set_pause(None);
        snapshot.schedule = edited.clone();
        Box::new(edited)
    });
    snapshot.schedule.set_pause(None);
    let schedule = &snapshot.schedule;
    let known = plan_input(&snapshot);
    let plan = plan::resume(schedule.id, &schedule.definition.spec, &known, now);
    let advance =
        Advance { switch: Some(PauseSwitch::Resume), edited, ..api.occurrences.advance(&snapshot, &plan, now) };
    Ok(match write(api, advance).await? {
        Advanced::Done { .. } => Replaced::Done,
        Advanced::Lost => Replaced::Lost,
        Advanced::NameTaken => Replaced::NameTaken,
    })
}

/// Writes an advance that a request asked for.
pub async fn write(api: &Api, advance: Advance) -> Result<Advanced, Problem> {
    let advanced = api.schedules.advance(None, vec![advance]).await?.and_then(|mut advanced| advanced.pop());
    advanced.ok_or_else(|| Problem::new(Code::Internal, "it is not known what became of the schedule"))
}
