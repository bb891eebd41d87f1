//! The state machine: the one function that decides every state change.
//!
//! [`transition`] looks at where a task stands and at what happened, and makes the [`Change`] that
//! a store applies as one conditional write. Nothing else makes a `Change`. What is not in its
//! table is [`Illegal`], and leaves the task as it is.
//!
//! The fencing token of a run is the version its task had when the run began. While a run lasts
//! nobody else changes the row, except to ask it to stop, so `version = token` is at once the lock
//! against concurrent change and the fence against a late worker, and it can only grow.

use std::ops::Deref;

use serde::{Deserialize, Serialize};

use crate::ids::{NodeId, TaskId};
use crate::json::Json;
use crate::retry::RetryPolicy;
use crate::task::{Edit, Hold};
use crate::time::Timestamp;
use crate::trail::{Actor, Entry, FailedHow, RunError, Step, Trail};

/// Where in its life a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum State {
    /// Waits for the tasks it depends on.
    Blocked,
    /// Waits for its time, or for its retry.
    Pending,
    /// Claimed and dispatched.
    Queued,
    /// With a worker.
    Running,
    /// Done.
    Completed,
    /// Will not run, because somebody said so.
    Cancelled,
    /// Will not run: expired, or a dependency failed.
    Failed,
    /// Retries used up, or an error not worth retrying; can be re-driven.
    DeadLettered,
}

impl State {
    /// Every state, in the order of a task's life.
    pub const ALL: [State; 8] = [
        State::Blocked,
        State::Pending,
        State::Queued,
        State::Running,
        State::Completed,
        State::Cancelled,
        State::Failed,
        State::DeadLettered,
    ];

    /// Whether the task has come to rest. Final tasks live in the history.
    pub const fn is_final(self) -> bool {
        matches!(self, State::Completed | State::Cancelled | State::Failed | State::DeadLettered)
    }

    /// Whether somebody holds the task.
    pub const fn is_held(self) -> bool {
        matches!(self, State::Queued | State::Running)
    }

    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            State::Blocked => "BLOCKED",
            State::Pending => "PENDING",
            State::Queued => "QUEUED",
            State::Running => "RUNNING",
            State::Completed => "COMPLETED",
            State::Cancelled => "CANCELLED",
            State::Failed => "FAILED",
            State::DeadLettered => "DEAD_LETTERED",
        }
    }

    /// The state with this name on the wire.
    pub fn from_name(name: &str) -> Option<State> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// The number in the store's column.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The state with this number in the store's column.
    pub fn from_code(code: i64) -> Option<State> {
        usize::try_from(code).ok().and_then(|index| Self::ALL.get(index).copied())
    }
}

/// Where a task stands: what [`transition`] needs to know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Its state.
    pub state: State,
    /// How often it has changed, from 1.
    pub version: u64,
    /// Attempts counted so far (counted when claimed).
    pub attempts: u32,
    /// How often its worker was lost.
    pub crashes: u32,
    /// Whether the running attempt was asked to stop.
    pub cancel_requested: bool,
}

impl Position {
    /// Whether the holder of `token` runs the task, and nothing has changed since the run began.
    pub const fn is_held_by(&self, token: u64) -> bool {
        matches!(self.state, State::Running) && self.version == token
    }

    /// Whether the holder of `token` runs the task and was asked to stop. The request is the only
    /// change during a run, so it is the version right after the token.
    pub const fn is_asked_to_stop(&self, token: u64) -> bool {
        matches!(self.state, State::Running) && self.cancel_requested && self.version == token.saturating_add(1)
    }
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// Nothing that it depends on is waited for any more; it is due at the given instant.
    Unblock(Timestamp),
    /// The scheduler takes the task to dispatch it; `Hold` says until when it must have been
    /// started.
    Claim(Hold),
    /// A worker begins the run it got from the broker.
    Start(Hold),
    /// A worker claims and begins in one step.
    Lease(Hold),
    /// The run succeeded.
    Complete {
        /// What it returned.
        result: Option<Json>,
        /// The status the webhook answered.
        http_status: Option<u16>,
    },
    /// The run failed, timed out or was lost.
    Fail(Failure<'a>),
    /// The task goes back to waiting until the given instant, and the attempt is not counted.
    GiveBack(Timestamp),
    /// The caller does not want it any more.
    Cancel,
    /// The worker of a task that was asked to stop has stopped (or was lost).
    Stopped,
    /// It was not started by its `expires_at`.
    Expire,
    /// A dependency did not complete; the policy says what becomes of this task.
    DependencyFailed {
        /// `FAILED` instead of `CANCELLED`.
        fail: bool,
        /// Which it was and how it came to rest, unless it was removed and nobody knows any more.
        parent: Option<(TaskId, State)>,
    },
    /// The submitter changes what has not begun.
    Edit(Box<Edit>),
    /// The submitter wants it now.
    RunNow,
    /// The operator wants a dead letter tried again, perhaps with another payload.
    Redrive(Option<Json>),
}

/// A run that did not complete.
#[derive(Clone, Debug)]
pub struct Failure<'a> {
    /// How the run ended.
    pub how: FailedHow,
    /// What went wrong.
    pub error: RunError<'a>,
    /// The status the webhook answered.
    pub http_status: Option<u16>,
    /// Whether another attempt could succeed.
    pub retryable: bool,
    /// The delay that the worker or the webhook asked for, instead of the policy's.
    pub retry_after_millis: Option<u64>,
    /// The task's retry policy.
    pub policy: RetryPolicy,
    /// Lost workers that make a task poison; zero means never.
    pub poison_after: u32,
    /// Whether a circuit breaker is open over the task: then the attempt is not counted, if another
    /// could succeed.
    pub is_under_breaker: bool,
    /// A random number, for the jitter.
    pub random: u64,
}

/// Who makes a change, and when.
#[derive(Clone, Debug)]
pub struct By<'a> {
    /// The instant, in the store's time.
    pub now: Timestamp,
    /// The node that writes it.
    pub node: NodeId,
    /// On whose behalf.
    pub actor: Actor<'a>,
}

/// One conditional write, as [`transition`] made it. Everybody can read its [fields](ChangeFields);
/// nobody outside of this module can make one, or edit one other than by narrowing its condition.
#[derive(Clone, Debug)]
pub struct Change {
    fields: ChangeFields,
}

/// What a [`Change`] expects of a task and writes to it: applied only while the task is in `from`
/// at `expected_version` (and, where they are given, belongs to `tenant` and has the hold that was
/// judged).
#[derive(Clone, Debug)]
pub struct ChangeFields {
    /// The tenant the task must belong to, when the change was made without reading the task.
    pub tenant: Option<String>,
    /// The hold the task must still have, when the change was decided because of it: a heartbeat
    /// changes no version.
    pub expected_hold: Option<ExpectedHold>,
    /// The state the task must be in.
    pub from: State,
    /// The version the task must have.
    pub expected_version: u64,
    /// When the change was decided.
    pub at: Timestamp,
    /// The new state.
    pub to: State,
    /// The new version.
    pub version: u64,
    /// The new number of attempts; none leaves it.
    pub attempts: Option<u32>,
    /// The new number of crashes; none leaves it.
    pub crashes: Option<u32>,
    /// Whether the run is now asked to stop.
    pub cancel_requested: bool,
    /// When it is due next; none leaves it.
    pub due_at: Option<Timestamp>,
    /// Who holds it from now on, for a change to a held state; otherwise the hold is given up (a
    /// request to stop leaves it).
    pub hold: Option<Hold>,
    /// What the run returned.
    pub result: Option<Json>,
    /// What the submitter changed.
    pub edit: Option<Box<Edit>>,
    /// The steps to append to the trail.
    pub trail: Trail,
}

impl Deref for Change {
    type Target = ChangeFields;

    fn deref(&self) -> &ChangeFields {
        &self.fields
    }
}

impl Change {
    /// The same change, applied only if the task belongs to `tenant`.
    #[must_use]
    pub fn of_tenant(mut self, tenant: &str) -> Self {
        self.fields.tenant = Some(tenant.to_owned());
        self
    }

    /// The same change, applied only while the task has the hold that was judged, if one was.
    #[must_use]
    pub fn expecting_hold(mut self, hold: Option<&Hold>) -> Self {
        self.fields.expected_hold = hold.map(ExpectedHold::of);
        self
    }

    /// Its fields, to take what it wrote without a copy.
    pub fn into_fields(self) -> ChangeFields {
        self.fields
    }

    /// A change that the state machine would not make. Only for tests that show what a store
    /// refuses, and for planted bugs.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn forged(mut self, edit: impl FnOnce(&mut ChangeFields)) -> Self {
        edit(&mut self.fields);
        self
    }

    /// Where a task stands that stood at `before` and was changed by this.
    pub fn position_after(&self, before: &Position) -> Position {
        Position {
            state: self.to,
            version: self.version,
            attempts: self.attempts.unwrap_or(before.attempts),
            crashes: self.crashes.unwrap_or(before.crashes),
            cancel_requested: self.cancel_requested,
        }
    }
}

/// The hold as it was read. If it was extended or detached since, the change is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedHold {
    /// When it would run out.
    pub expires_at: Timestamp,
    /// The process it was tied to.
    pub node: Option<NodeId>,
}

impl ExpectedHold {
    /// The hold as it was read.
    fn of(hold: &Hold) -> Self {
        Self { expires_at: hold.expires_at, node: hold.node }
    }
}

/// An event that does not apply to a task in this state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a task in state {} cannot take this step", .state.as_str())]
pub struct Illegal {
    /// The state the task is in.
    pub state: State,
}

/// The delays a worker or webhook may ask for are cut to a day.
pub const MAX_RETRY_AFTER_MILLIS: u64 = 24 * 3_600_000;

/// From this version on failures under a breaker count like all others, or the trail of the only
/// task under one would grow for as long as its target is down. A run is three changes, so that is
/// more than two days of a probe a minute.
pub const COUNTED_FROM_VERSION: u64 = 10_000;

/// Decides what becomes of a task at `position` when `event` happens.
pub fn transition(position: &Position, event: Event<'_>, by: &By<'_>) -> Result<Change, Illegal> {
    use State::{Blocked, Cancelled, Completed, DeadLettered, Failed, Pending, Queued, Running};
    let draft = Draft { position, by };
    let fields = match (position.state, event) {
        (Blocked, Event::Unblock(due_at)) => {
            ChangeFields { due_at: Some(due_at), ..draft.step(Pending, Step::Unblocked) }
        }
        (Pending, Event::Claim(hold)) => {
            let claimed = draft.step(Queued, Step::Claimed);
            ChangeFields { attempts: Some(position.attempts.saturating_add(1)), hold: Some(hold), ..claimed }
        }
        (Queued, Event::Start(hold)) => {
            ChangeFields { hold: Some(hold), ..draft.step(Running, Step::Started { attempt: position.attempts }) }
        }
        (Pending, Event::Lease(hold)) => {
            let attempts = position.attempts.saturating_add(1);
            let mut leased = draft.step(Queued, Step::Claimed);
            leased.version += 1;
            leased.to = Running;
            leased.trail.push(&by.entry(leased.version, Running, Step::Started { attempt: attempts }));
            ChangeFields { attempts: Some(attempts), hold: Some(hold), ..leased }
        }
        (Running, Event::Complete { .. } | Event::Fail(_) | Event::GiveBack(_) | Event::Stopped)
            if position.cancel_requested =>
        {
            draft.step(Cancelled, Step::Cancelled)
        }
        (Running, Event::Complete { result, http_status }) => {
            ChangeFields { result, ..draft.step(Completed, Step::Completed { http_status }) }
        }
        (Running, Event::Fail(failure)) => draft.failed(failure),
        (Queued | Running, Event::GiveBack(due_at)) => ChangeFields {
            attempts: Some(position.attempts.saturating_sub(1)),
            due_at: Some(due_at),
            ..draft.step(Pending, Step::GivenBack)
        },
        (Blocked | Pending | Queued, Event::Cancel) => draft.step(Cancelled, Step::Cancelled),
        (Running, Event::Cancel) if !position.cancel_requested => {
            ChangeFields { cancel_requested: true, ..draft.step(Running, Step::CancelRequested) }
        }
        (Blocked | Pending | Queued, Event::Expire) => draft.step(Failed, Step::Expired),
        (Blocked, Event::DependencyFailed { fail, parent }) => {
            let named = parent.map(|(parent, ended)| Step::ParentFailed { parent, ended });
            draft.step(if fail { Failed } else { Cancelled }, named.unwrap_or(Step::DependencyFailed))
        }
        (state @ (Blocked | Pending), Event::Edit(edit)) => {
            ChangeFields { due_at: edit.execute_at, edit: Some(edit), ..draft.step(state, Step::Edited) }
        }
        (Pending, Event::RunNow) => {
            let edit = Edit { execute_at: Some(by.now), ..Edit::default() };
            ChangeFields { due_at: Some(by.now), edit: Some(Box::new(edit)), ..draft.step(Pending, Step::RunNow) }
        }
        (DeadLettered, Event::Redrive(payload)) => ChangeFields {
            attempts: Some(0),
            crashes: Some(0),
            due_at: Some(by.now),
            // Whoever re-drives wants it run, also past the expiry its submitter once gave.
            edit: Some(Box::new(Edit { payload, expires_at: Some(None), ..Edit::default() })),
            ..draft.step(Pending, Step::Redriven)
        },
        (state, _) => return Err(Illegal { state }),
    };
    Ok(Change { fields })
}

impl Change {
    /// The completion of a run by the holder of `token`, made without reading the task. It is
    /// applied only while that holder runs the task, which must belong to `tenant`.
    pub fn complete_held(tenant: &str, token: u64, result: Option<Json>, by: &By<'_>) -> Self {
        // A completion keeps the attempts and crashes that are stored, so any numbers will do.
        let position =
            Position { state: State::Running, version: token, attempts: 1, crashes: 0, cancel_requested: false };
        let completed = transition(&position, Event::Complete { result, http_status: None }, by);
        completed.expect("invariant: a running task can complete").of_tenant(tenant)
    }
}

impl By<'_> {
    fn entry<'a>(&'a self, version: u64, to: State, step: Step<'a>) -> Entry<'a> {
        Entry { at: self.now, version, to, node: self.node, actor: self.actor.clone(), step }
    }

    /// The trail of a task that is submitted into `state` at version 1.
    pub fn submitted(&self, state: State) -> Trail {
        let mut trail = Trail::default();
        trail.push(&self.entry(1, state, Step::Submitted));
        trail
    }

    /// The trail of a task that a schedule makes for one of its instants.
    pub fn scheduled(&self, instant: Timestamp) -> Trail {
        let mut trail = Trail::default();
        trail.push(&self.entry(1, State::Pending, Step::Scheduled { instant }));
        trail
    }
}

/// What every change has in common: one step from where the task stands.
struct Draft<'a> {
    position: &'a Position,
    by: &'a By<'a>,
}

impl Draft<'_> {
    fn step(&self, to: State, step: Step<'_>) -> ChangeFields {
        let version = self.position.version + 1;
        let mut trail = Trail::default();
        trail.push(&self.by.entry(version, to, step));
        ChangeFields {
            tenant: None,
            expected_hold: None,
            from: self.position.state,
            expected_version: self.position.version,
            at: self.by.now,
            to,
            version,
            attempts: None,
            crashes: None,
            cancel_requested: false,
            due_at: None,
            hold: None,
            result: None,
            edit: None,
            trail,
        }
    }

    /// Another attempt after a delay, or the dead letters.
    fn failed(&self, failure: Failure<'_>) -> ChangeFields {
        let Position { attempts, crashes, version, .. } = *self.position;
        let crashes = crashes.saturating_add(u32::from(failure.how == FailedHow::Lost));
        let poisoned = failure.how == FailedHow::Lost && failure.poison_after > 0 && crashes >= failure.poison_after;
        let mendable = failure.retryable && !poisoned;
        // Without any retries a task is never to be run again, whoever is to blame.
        let is_spared = failure.is_under_breaker && failure.policy.max_retries > 0 && version < COUNTED_FROM_VERSION;
        let uncounted = mendable && is_spared;
        let retry = uncounted || (mendable && failure.policy.allows_retry_after(attempts));
        let error = if poisoned {
            let times = if crashes == 1 { "time" } else { "times" };
            let last = &failure.error.message;
            let message = format!("the worker was lost {crashes} {times} while it ran this task; last: {last}");
            RunError { code: "poisoned".into(), message: message.into(), details: None }
        } else {
            failure.error
        };
        let (outcome, http_status) = (failure.how, failure.http_status);
        let step = if uncounted {
            Step::FailedUncounted { outcome, error, http_status }
        } else {
            Step::Failed { outcome, error, http_status }
        };
        let to = if retry { State::Pending } else { State::DeadLettered };
        let delay = failure.retry_after_millis.map_or_else(
            || failure.policy.delay_millis(attempts, failure.random),
            |asked| asked.min(MAX_RETRY_AFTER_MILLIS),
        );
        let due_at = retry.then(|| self.by.now.plus_unsigned_millis(delay));
        let attempts = uncounted.then(|| attempts.saturating_sub(1));
        ChangeFields { attempts, crashes: Some(crashes), due_at, ..self.step(to, step) }
    }
}

#[cfg(test)]
mod tests;
