//! The schedule that a request is about, and the loop around every write of one: read, decide,
//! write on the condition that nothing changed, and start again if something did.
//!
//! Called by every route of schedules.

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use punctual_core::ids::ScheduleId;
use punctual_core::schedules::{Advance, Advanced, Schedule, ScheduleSnapshot};
use punctual_core::time::Timestamp;
use punctual_submission::ScheduleValidator;
use tokio::sync::OwnedMutexGuard;

use crate::answer;
use crate::extract::{If, Tenant, path_text};
use crate::problem::{Code, Problem};
use crate::schedules::view;
use crate::state::Api;

/// How often a write that lost a race is retried. The other writer is usually on another node: a
/// lock (`crate::schedules::KeyedMutex`) serialises those of this one.
pub const ROUNDS: usize = 64;

/// A request about one schedule.
pub struct ScheduleRequest {
    /// The interface.
    pub api: Api,
    /// The tenant.
    pub tenant: String,
    /// The id in the path.
    pub id: ScheduleId,
}

impl FromRequestParts<Api> for ScheduleRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let Tenant(tenant) = Tenant::from_headers(&parts.headers)?;
        // A text that is no id names no schedule.
        let id = path_text(parts).await.and_then(|text| text.parse().ok()).ok_or_else(no_such_schedule)?;
        Ok(Self { api: api.clone(), tenant, id })
    }
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
        self.api.schedules.get(&self.tenant, self.id).await?.ok_or_else(no_such_schedule)
    }

    /// Reads the schedule with everything that an advance is based on.
    pub async fn snapshot(&self) -> Result<ScheduleSnapshot, Problem> {
        self.api.schedules.snapshot(&self.tenant, self.id).await?.ok_or_else(no_such_schedule)
    }

    /// Locks the schedule against other requests on this node, until the guard is dropped.
    pub async fn lock(&self) -> Result<OwnedMutexGuard<()>, Problem> {
        let crowded = "too many requests wait to write this schedule; nothing was done";
        let lock = self.api.schedule_locks.lock(&self.tenant, self.id).await;
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
pub fn answer(status: StatusCode, schedule: &Schedule) -> Result<Response, Problem> {
    Ok(answer::versioned(status, schedule.version, &view::schedule(schedule)?))
}

fn no_such_schedule() -> Problem {
    Problem::new(Code::NotFound, "there is no schedule with this id")
}

/// The refusal of a name that another schedule has.
pub fn name_taken(name: &str) -> Problem {
    Problem::new(Code::NameTaken, format!("there is already a schedule named {name}; nothing was changed"))
}

/// The refusal after too many lost races.
pub fn kept_changing() -> Problem {
    Problem::new(Code::Conflict, "the schedule changed each time we tried; nothing was done").retry_after(1)
}
