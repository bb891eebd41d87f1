//! Changes of schedules that others change too: read, decide, write if nobody was faster, else again.

use axum::extract::{FromRequestParts, Path};
use axum::http::header::ETAG;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use punctual_core::ids::ScheduleId;
use punctual_core::schedule::plan;
use punctual_core::schedules::{Definition, Pause, Replaced, Schedule, Standing, Switch, Turn, Turned};
use punctual_core::time::Timestamp;
use punctual_submission::occurrences::{Prepared, known};
use punctual_submission::{CheckedSchedule, ScheduleValidator};
use tokio::sync::OwnedMutexGuard;

use crate::answer;
use crate::extract::If;
use crate::problem::{Code, Problem};
use crate::schedules::view;
use crate::state::Api;

/// How often a lost race is run again. Each loss means that somebody else has written the schedule, on another node for
/// the most part: on this one they take turns (`crate::schedules::Doors`).
pub const ROUNDS: usize = 64;

/// What refusals call it.
pub const SCHEDULE: &str = "schedule";

/// The id of the schedule in the path. What is not an id names no schedule.
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

/// The name of a schedule in the path. What is no text names none.
pub struct NamePath(pub String);

impl<S: Send + Sync> FromRequestParts<S> for NamePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let named = Path::<String>::from_request_parts(parts, state).await;
        named
            .map(|Path(name)| Self(name))
            .map_err(|_| Problem::new(Code::NotFound, "there is no schedule with this name: the path is no text"))
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

/// A schedule that was written by others each time.
pub fn kept_changing() -> Problem {
    Problem::new(Code::Conflict, "the schedule changed each time we tried; nothing was done").retry_after(1)
}

/// Waits until nobody else on this node writes the schedule, for as long as what it gives is kept.
pub async fn take_turn(api: &Api, tenant: &str, id: ScheduleId) -> Result<OwnedMutexGuard<()>, Problem> {
    let crowded =
        || Problem::new(Code::Overloaded, "too many wait to write this schedule; nothing was done").retry_after(1);
    api.doors.pass(tenant, id).await.ok_or_else(crowded)
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

/// Reads a schedule of a tenant with all that a turn is decided by.
pub async fn find_standing(api: &Api, tenant: &str, id: ScheduleId) -> Result<Standing, Problem> {
    api.schedules.standing(tenant, id).await?.ok_or_else(no_such_schedule)
}

/// The validator of a request about a schedule that was made at `created_at`.
pub fn validator<'a>(api: &'a Api, tenant: &'a str, created_at: Option<Timestamp>) -> ScheduleValidator<'a> {
    let now = api.clock.now();
    let created_at = created_at.unwrap_or(now);
    ScheduleValidator { rules: &api.config.submission, tenant, now, node: api.node, created_at }
}

/// Writes what `wanted` says of a schedule, its pause included, in one write; `wanted` is made anew for each try. Gives the
/// schedule as it is then.
pub async fn rewrite(
    api: &Api,
    tenant: &str,
    id: ScheduleId,
    condition: &If,
    wanted: impl Fn(&Schedule) -> Result<CheckedSchedule, Problem>,
) -> Result<Schedule, Problem> {
    let _turn = take_turn(api, tenant, id).await?;
    for _ in 0..ROUNDS {
        let (standing, now) = (find_standing(api, tenant, id).await?, api.clock.now());
        let schedule = &standing.schedule;
        check_version(condition, schedule)?;
        let CheckedSchedule { name, definition, paused } = wanted(schedule)?;
        let new_timing = definition.spec.timing != schedule.definition.spec.timing;
        let edited = edited(api, schedule, name.clone(), definition, now)?;
        let is_paused = schedule.pause.is_some();
        let switches = paused.is_some_and(|paused| paused != is_paused);
        if edited.is_none() && !switches {
            return Ok(standing.schedule);
        }
        // What went by in a pause is recorded when it ends, unless it could not be told then when that was.
        if (!is_paused || new_timing) && decide_due(api, &standing, now).await? {
            continue;
        }
        let written = if switches && is_paused {
            go_on(api, standing, edited, now).await?
        } else {
            let mut edited = edited.unwrap_or_else(|| anew(schedule, now));
            if switches {
                edited.set_pause(Some(Pause { at: now, reason: None }));
                edited.progress.look_at = edited.look_at(true);
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

/// Decides what of a schedule is due at `now`, by what it is until somebody changes it: after the change nobody could tell
/// what had become of it. True if there was something; then the schedule is to be read again, whoever was faster.
async fn decide_due(api: &Api, standing: &Standing, now: Timestamp) -> Result<bool, Problem> {
    let schedule = &standing.schedule;
    if schedule.progress.next_run_at.is_none_or(|at| at > now) {
        return Ok(false);
    }
    let prepared = if schedule.pause.is_some() {
        let known = known(standing);
        let skipped = plan::resume(schedule.id, &schedule.definition.spec, &known, now);
        Prepared::Turn(Box::new(api.occurrences.turn(standing, &skipped, now)), false)
    } else {
        api.occurrences.look(None, standing, now).await?
    };
    match prepared {
        Prepared::Turn(turn, _) => write(api, *turn).await.map(|_| true),
        Prepared::Again => Ok(true),
        Prepared::Nothing | Prepared::NotLeader => Ok(false),
    }
}

/// The schedule at its next version.
fn anew(schedule: &Schedule, now: Timestamp) -> Schedule {
    Schedule { version: schedule.version + 1, updated_at: now, ..schedule.clone() }
}

/// The schedule with another name and definition; none if they are the same. If its instants are others, it goes on with
/// the first of them after now.
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
        // A greater limit lets one go on that had ended by the smaller.
        first().and(progress.next_run_at.or_else(first))
    } else {
        progress.next_run_at
    };
    let mut edited =
        Schedule { name, definition, progress, version: schedule.version + 1, updated_at: now, ..schedule.clone() };
    // The cron loop looks at it once and sees when it has to do so again.
    edited.progress.look_at = edited.look_at(true);
    Ok(Some(edited))
}

/// Pauses a schedule. One that is paused gets the reason, if there is one; it stays paused since when it was.
pub async fn pause(
    api: &Api,
    tenant: &str,
    id: ScheduleId,
    condition: &If,
    reason: Option<&str>,
) -> Result<Schedule, Problem> {
    let _turn = take_turn(api, tenant, id).await?;
    for _ in 0..ROUNDS {
        let (standing, now) = (find_standing(api, tenant, id).await?, api.clock.now());
        let schedule = &standing.schedule;
        check_version(condition, schedule)?;
        let is_same = |was: &Pause| reason.is_none() || was.reason.as_deref() == reason;
        if schedule.pause.as_ref().is_some_and(is_same) {
            return Ok(standing.schedule);
        }
        // What was due before the pause was not skipped by it.
        if schedule.pause.is_none() && decide_due(api, &standing, now).await? {
            continue;
        }
        let mut paused = anew(schedule, now);
        let at = schedule.pause.as_ref().map_or(now, |was| was.at);
        paused.set_pause(Some(Pause { at, reason: reason.map(str::to_owned) }));
        paused.progress.look_at = paused.look_at(true);
        if api.schedules.replace(paused).await? == Replaced::Done {
            return find(api, tenant, id).await;
        }
    }
    Err(kept_changing())
}

/// Lets a schedule go on, unless it is not paused. What went by meanwhile is recorded as skipped.
pub async fn resume(api: &Api, tenant: &str, id: ScheduleId, condition: &If) -> Result<Schedule, Problem> {
    let _turn = take_turn(api, tenant, id).await?;
    for _ in 0..ROUNDS {
        let standing = find_standing(api, tenant, id).await?;
        check_version(condition, &standing.schedule)?;
        if standing.schedule.pause.is_none() {
            return Ok(standing.schedule);
        }
        if go_on(api, standing, None, api.clock.now()).await? == Replaced::Done {
            return find(api, tenant, id).await;
        }
    }
    Err(kept_changing())
}

/// Lets a paused schedule go on, as `edited` if it is edited by the same write.
async fn go_on(
    api: &Api,
    mut standing: Standing,
    edited: Option<Schedule>,
    now: Timestamp,
) -> Result<Replaced, Problem> {
    let edited = edited.map(|mut edited| {
        // The turn counts the version, once for both.
        edited.version = standing.schedule.version;
        edited.set_pause(None);
        standing.schedule = edited.clone();
        Box::new(edited)
    });
    standing.schedule.set_pause(None);
    let schedule = &standing.schedule;
    let known = known(&standing);
    let plan = plan::resume(schedule.id, &schedule.definition.spec, &known, now);
    let turn = Turn { switch: Some(Switch::Resume), edited, ..api.occurrences.turn(&standing, &plan, now) };
    Ok(match write(api, turn).await? {
        Turned::Done { .. } => Replaced::Done,
        Turned::Lost => Replaced::Lost,
        Turned::NameTaken => Replaced::NameTaken,
    })
}

/// Writes a turn that somebody asked for.
pub async fn write(api: &Api, turn: Turn) -> Result<Turned, Problem> {
    let turned = api.schedules.turn(None, vec![turn]).await?.and_then(|mut turned| turned.pop());
    turned.ok_or_else(|| Problem::new(Code::Internal, "it is not known what became of the schedule"))
}
