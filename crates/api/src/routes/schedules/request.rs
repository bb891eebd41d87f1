//! The schedule that a request is about, and the loop around every write of one: read, decide,
//! write on the condition that nothing changed, and start again if something did.
//!
//! Called by every route of schedules.

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use punctual_core::ids::ScheduleId;
use punctual_core::schedules::{Advance, Advanced, Definition, Schedule, ScheduleSnapshot};
use punctual_core::time::Timestamp;
use punctual_submission::fields::is_name;
use punctual_submission::{DEFAULT_QUEUE, ScheduleValidator};
use tokio::sync::OwnedMutexGuard;

use crate::answer;
use crate::extract::{Caller, If, path_text};
use crate::problem::{Code, Problem};
use crate::schedules::view;
use crate::state::Api;

/// How often a write that lost a race is retried. The other writer is usually on another node: a
/// lock (`crate::schedules::KeyedMutex`) serialises those of this one.
pub const ROUNDS: usize = 64;

/// The beginning of the paths that have the name of a schedule instead of its id.
pub const BY_NAME: &str = "/v1/schedules/by-name/";

/// A request about one schedule.
pub struct ScheduleRequest {
    /// The interface.
    pub api: Api,
    /// Who makes it.
    pub caller: Caller,
    /// The id in the path, or that of the schedule with the name in the path.
    pub id: ScheduleId,
    /// The name in the path. Every read makes sure that the schedule still has it, and every write
    /// that nothing changed since the read.
    pub name: Option<String>,
}

impl FromRequestParts<Api> for ScheduleRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let caller = Caller::of(&parts.extensions, &parts.headers)?;
        if parts.uri.path().starts_with(BY_NAME) {
            let NamePath(name) = NamePath::from_request_parts(parts, api).await?;
            let there = find_named(api, &caller, &name).await?.ok_or_else(no_such_name)?;
            return Ok(Self { api: api.clone(), caller, id: there.id, name: Some(name) });
        }
        // A text that is no id names no schedule.
        let id = path_text(parts).await.and_then(|text| text.parse().ok()).ok_or_else(no_such_id)?;
        Ok(Self { api: api.clone(), caller, id, name: None })
    }
}

/// Reads the schedule of this name. One that the caller does not reach is not there.
pub async fn find_named(api: &Api, caller: &Caller, name: &str) -> Result<Option<Schedule>, Problem> {
    // The store may not be able to compare a text that is no name.
    let found = if is_name(name) { api.schedules.named(&caller.tenant, name).await? } else { None };
    Ok(found.filter(|schedule| caller.reaches_schedule(schedule)))
}

/// The name of a schedule in the path.
pub struct NamePath(pub String);

impl<S: Send + Sync> FromRequestParts<S> for NamePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        path_text(parts).await.map(Self).ok_or_else(|| {
            Problem::new(Code::NotFound, "there is no schedule with this name: the name in the path is not valid UTF-8")
        })
    }
}

impl ScheduleRequest {
    /// Reads the schedule.
    pub async fn find(&self) -> Result<Schedule, Problem> {
        let found = self.api.schedules.get(&self.caller.tenant, self.id).await?;
        found.filter(|schedule| self.is_meant(schedule)).ok_or_else(|| self.not_found())
    }

    /// Reads the schedule after this request has written it, which may have renamed it.
    pub async fn find_written(&self) -> Result<Schedule, Problem> {
        self.api.schedules.get(&self.caller.tenant, self.id).await?.ok_or_else(|| self.not_found())
    }

    /// Reads the schedule with everything that an advance is based on.
    pub async fn snapshot(&self) -> Result<ScheduleSnapshot, Problem> {
        let found = self.api.schedules.snapshot(&self.caller.tenant, self.id).await?;
        found.filter(|snapshot| self.is_meant(&snapshot.schedule)).ok_or_else(|| self.not_found())
    }

    /// Whether the path names this schedule, which another request may have renamed, and the caller
    /// reaches it.
    fn is_meant(&self, schedule: &Schedule) -> bool {
        self.name.as_ref().is_none_or(|name| *name == schedule.name) && self.caller.reaches_schedule(schedule)
    }

    fn not_found(&self) -> Problem {
        if self.name.is_some() { no_such_name() } else { no_such_id() }
    }

    /// Locks the schedule against other requests on this node, until the guard is dropped.
    pub async fn lock(&self) -> Result<OwnedMutexGuard<()>, Problem> {
        let crowded = "too many requests wait to write this schedule; nothing was done";
        let lock = self.api.schedule_locks.lock(&self.caller.tenant, self.id).await;
        lock.ok_or_else(|| Problem::new(Code::Overloaded, crowded).retry_after(1))
    }

    /// Calls `attempt` with the schedule as it is now until it returns a result. It returns none
    /// after a lost race.
    pub async fn change<T, F>(&self, attempt: impl Fn(ScheduleSnapshot, Timestamp) -> F) -> Result<T, Problem>
    where
        F: Future<Output = Result<Option<T>, Problem>>,
    {
        let _lock = self.lock().await?;
        for _ in 0..ROUNDS {
            let snapshot = self.snapshot().await?;
            if let Some(done) = attempt(snapshot, self.api.clock.now()).await? {
                return Ok(done);
            }
        }
        Err(kept_changing())
    }
}

/// Writes an advance that a request asked for.
pub async fn write(api: &Api, advance: Advance) -> Result<Advanced, Problem> {
    let advanced = api.schedules.advance(None, vec![advance]).await?.and_then(|mut advanced| advanced.pop());
    advanced.ok_or_else(|| Problem::new(Code::Internal, "it is not known what became of the schedule"))
}

/// The validator of a request about a schedule that was made at `created_at`.
pub fn validator<'a>(api: &'a Api, tenant: &'a str, created_at: Option<Timestamp>) -> ScheduleValidator<'a> {
    let now = api.clock.now();
    let created_at = created_at.unwrap_or(now);
    ScheduleValidator { rules: &api.config.submission, tenant, now, node: api.node, created_at }
}

/// Refuses a schedule at another version.
pub fn check_version(condition: &If, schedule: &Schedule) -> Result<(), Problem> {
    condition.check("schedule", Some(schedule.version))
}

/// The answer that shows a schedule, with its version as `ETag`.
pub fn answer(status: StatusCode, schedule: &Schedule, caller: &Caller) -> Result<Response, Problem> {
    Ok(answer::viewed(status, schedule.version, &view::schedule(schedule)?, caller.full_view()))
}

/// Refuses a schedule whose tasks the caller would not reach.
pub fn require_reach(caller: &Caller, definition: &Definition) -> Result<(), Problem> {
    match definition.task_names() {
        Ok(names) => caller.require(&names.kind, names.queue.as_deref().unwrap_or(DEFAULT_QUEUE)),
        Err(_) => caller.require_all(),
    }
}

fn no_such_id() -> Problem {
    Problem::new(Code::NotFound, "there is no schedule with this id")
}

fn no_such_name() -> Problem {
    Problem::new(Code::NotFound, "there is no schedule with this name")
}

/// The refusal of a name that another schedule has.
pub fn name_taken(name: &str) -> Problem {
    Problem::new(Code::NameTaken, format!("there is already a schedule named {name}; nothing was changed"))
}

/// The refusal after too many lost races.
pub fn kept_changing() -> Problem {
    Problem::new(Code::Conflict, "the schedule changed each time we tried; nothing was done").retry_after(1)
}
