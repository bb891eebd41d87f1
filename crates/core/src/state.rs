//! The state machine: the one function that decides every state change.
//!
//! [`transition`] takes the position of a task and an event, and makes the [`Change`] that a store
//! applies as one conditional write. Nothing else makes a `Change`. A combination that is not in
//! its table is [`Illegal`], and leaves the task as it is.
//!
//! The fencing token of a run is the version its task had when the run began. While a run lasts
//! nothing else changes the version, except a request to stop. So `version = token` is both the
//! lock against concurrent change and the fence against a late worker, and it can only grow.

mod change;

use serde::{Deserialize, Serialize};

use crate::failure::FailureCause;
use crate::ids::{NodeId, TaskId};
use crate::json::Json;
use crate::retry::RetryPolicy;
use crate::task::{Edit, Hold, limits};
use crate::time::Timestamp;
use crate::trail::{Actor, Entry, ResultDropped, RunError, Step, Trail};

pub use change::{Change, ChangeFields, ExpectedHold};

/// The state of a task.
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
    /// Will not run (again): a client cancelled it or purged it, or a dependency did not complete.
    Cancelled,
    /// Will not run: expired, or a dependency did not complete and its policy is `fail`.
    Failed,
    /// Retries used up, or an error not worth a retry; can be re-driven.
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

    /// Whether the task has finished. Finished tasks are in the history.
    pub const fn is_final(self) -> bool {
        matches!(self, State::Completed | State::Cancelled | State::Failed | State::DeadLettered)
    }

    /// Whether a node or a worker holds the task.
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

/// The fields of a task that [`transition`] needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Its state.
    pub state: State,
    /// How often it has changed, from 1.
    pub version: u64,
    /// How many attempts were counted; each is counted when it is claimed.
    pub attempts: u32,
    /// How often its worker was lost.
    pub crashes: u32,
    /// Whether the running attempt was asked to stop.
    pub cancel_requested: bool,
}

impl Position {
    /// Whether the holder of `token` runs the task, unchanged since the run began.
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
    /// Its last dependency has finished, and it is due at the given instant.
    Unblock(Timestamp),
    /// The dispatcher claims the task. It must be started before the hold expires.
    Claim(Hold),
    /// A worker starts the run it got from the broker.
    Start(Hold),
    /// A worker claims and starts in one step: a pull worker, or the dispatcher for the webhook
    /// worker of its process.
    Lease(Hold),
    /// The run succeeded.
    Complete {
        /// What it returned.
        result: Option<Json>,
        /// The status the webhook answered.
        http_status: Option<u16>,
        /// Why what the webhook answered is not the result, if it is not.
        dropped: Option<ResultDropped>,
    },
    /// The run failed, timed out or was lost.
    Fail(Failure<'a>),
    /// The task goes back to waiting until the given instant, and the attempt is not counted.
    GiveBack(Timestamp),
    /// A client cancels it.
    Cancel,
    /// The worker of a task that was asked to stop has stopped (or was lost).
    Stopped,
    /// It was not started by its `expires_at`.
    Expire,
    /// A dependency did not complete.
    DependencyFailed {
        /// Whether the task becomes `FAILED` instead of `CANCELLED`, by its policy.
        fail: bool,
        /// The parent and its final state; none if it was pruned.
        parent: Option<(TaskId, State)>,
    },
    /// A client edits a task that has not started.
    Edit(Box<Edit>),
    /// A client makes it due now.
    RunNow,
    /// A client re-drives a dead letter, perhaps with another payload.
    Redrive(Option<Json>),
    /// A client discards a dead letter.
    Purge,
    /// The same as [`Event::Redrive`], and the tasks that finished because of it are revived.
    RedriveWithDependents(Option<Json>),
    /// A task that finished because of a parent waits again, since that parent was re-driven with
    /// its dependents. The instant is when it is due, if it waits for no parent any more.
    Revive(Option<Timestamp>),
}

/// A run that did not complete.
#[derive(Clone, Debug)]
pub struct Failure<'a> {
    /// Why.
    pub cause: FailureCause,
    /// What went wrong.
    pub error: RunError<'a>,
    /// The status the webhook answered.
    pub http_status: Option<u16>,
    /// Whether another attempt could succeed, unless the policy names what is retried.
    pub retryable: bool,
    /// The delay that the worker or the webhook asked for, instead of the policy's.
    pub retry_after_millis: Option<u64>,
    /// The task's retry policy.
    pub policy: RetryPolicy,
    /// The number of lost workers that makes a task poison; zero means never.
    pub poison_after: u32,
    /// Whether a breaker is open over the task, or about to open. Then a retryable failure does not
    /// count as an attempt.
    pub is_under_breaker: bool,
    /// A random number, for the jitter.
    pub random: u64,
}

/// The author and the time of a change.
#[derive(Clone, Debug)]
pub struct By<'a> {
    /// The instant, in the store's time.
    pub now: Timestamp,
    /// The node that writes it.
    pub node: NodeId,
    /// On whose behalf.
    pub actor: Actor<'a>,
}

/// An event that does not apply to a task in this state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a task in state {} cannot take this step", .state.as_str())]
pub struct Illegal {
    /// The state the task is in.
    pub state: State,
}

/// The least delay of a retry that uses up no attempt.
const UNCOUNTED_PAUSE_MILLIS: u64 = 1_000;

/// Decides how `event` changes a task at `position`.
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
        (Running, Event::Complete { result, http_status, dropped }) => {
            let step = match dropped {
                Some(dropped) => Step::CompletedWithoutResult { http_status, dropped },
                None => Step::Completed { http_status },
            };
            ChangeFields { result, ..draft.step(Completed, step) }
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
        (DeadLettered, Event::Redrive(payload)) => draft.redriven(payload),
        (DeadLettered, Event::RedriveWithDependents(payload)) => {
            ChangeFields { revives_dependents: true, ..draft.redriven(payload) }
        }
        // Which tasks may be revived is for the store to know: it records why a child finished.
        (Cancelled | Failed, Event::Revive(due_at)) => {
            let to = if due_at.is_some() { Pending } else { Blocked };
            // Like a re-driven task, it runs even past its expiry.
            let edit = Edit { expires_at: Some(None), ..Edit::default() };
            ChangeFields { due_at, edit: Some(Box::new(edit)), ..draft.step(to, Step::Revived) }
        }
        (DeadLettered, Event::Purge) => draft.step(Cancelled, Step::Purged),
        (state, _) => return Err(Illegal { state }),
    };
    // A version that did not grow would let a late worker's token match again.
    debug_assert!(fields.version > fields.expected_version, "the version must grow");
    // A hold without a held state would keep a finished or waiting task from being claimed.
    debug_assert!(fields.hold.is_none() || fields.to.is_held(), "only a held state has a new hold");
    // A waiting task without a due instant would keep an outdated one.
    debug_assert!(
        fields.to != Pending || fields.due_at.is_some() || matches!(fields.from, Pending),
        "a task that begins to wait is due at an instant"
    );
    debug_assert!(!fields.cancel_requested || fields.to == Running, "only a running task is asked to stop");
    debug_assert!(
        fields.from != Running || fields.attempts.is_none_or(|attempts| attempts <= position.attempts),
        "a run counts no attempt at its end"
    );
    Ok(Change::new(fields))
}

impl Change {
    /// The completion of a run by the holder of `token`, made without reading the task. It is
    /// applied only while that holder runs the task, which must belong to `tenant`.
    pub fn complete_held(tenant: &str, token: u64, result: Option<Json>, by: &By<'_>) -> Self {
        // A completion keeps the stored attempts and crashes, so any numbers will do here.
        let position =
            Position { state: State::Running, version: token, attempts: 1, crashes: 0, cancel_requested: false };
        let completed = transition(&position, Event::Complete { result, http_status: None, dropped: None }, by);
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

/// What every change has in common: one step from the current position.
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
            revives_dependents: false,
            trail,
            kept_trail: None,
        }
    }

    /// A dead letter that starts over.
    fn redriven(&self, payload: Option<Json>) -> ChangeFields {
        ChangeFields {
            attempts: Some(0),
            crashes: Some(0),
            due_at: Some(self.by.now),
            // A re-driven task runs even past the expiry that the submitter gave.
            edit: Some(Box::new(Edit { payload, expires_at: Some(None), ..Edit::default() })),
            ..self.step(State::Pending, Step::Redriven)
        }
    }

    /// Another attempt after a delay, or the dead letters.
    fn failed(&self, failure: Failure<'_>) -> ChangeFields {
        let Position { attempts, crashes, .. } = *self.position;
        let is_lost = failure.cause == FailureCause::Lost;
        let crashes = crashes.saturating_add(u32::from(is_lost));
        let poisoned = is_lost && failure.poison_after > 0 && crashes >= failure.poison_after;
        let can_retry = failure.policy.retries(failure.cause, failure.retryable) && !poisoned;
        // A task without retries is never run again, whatever the reason.
        let is_spared = failure.is_under_breaker && failure.policy.max_retries > 0;
        let uncounted = can_retry && is_spared;
        let retry = uncounted || (can_retry && failure.policy.allows_retry_after(attempts));
        let error = if poisoned {
            let times = if crashes == 1 { "time" } else { "times" };
            let last = &failure.error.message;
            let message = format!("the worker was lost {crashes} {times} while it ran this task; last: {last}");
            RunError { code: "poisoned".into(), message: message.into(), details: None }
        } else {
            failure.error
        };
        let (outcome, http_status) = (failure.cause.how(), failure.http_status);
        let step = if uncounted {
            Step::FailedUncounted { outcome, error, http_status }
        } else {
            Step::Failed { outcome, error, http_status }
        };
        let to = if retry { State::Pending } else { State::DeadLettered };
        let delay = failure.retry_after_millis.map_or_else(
            || failure.policy.delay_millis(attempts, failure.random),
            // Callers refuse longer ones, or record that they were cut.
            |asked| asked.min(limits::RETRY_DELAY_MILLIS),
        );
        // While a breaker is only about to open, its tasks are still dispatched. What uses up no
        // attempt must not go round as fast as the store can write.
        let delay = if uncounted { delay.max(UNCOUNTED_PAUSE_MILLIS) } else { delay };
        let due_at = retry.then(|| self.by.now.plus_unsigned_millis(delay));
        let attempts = uncounted.then(|| attempts.saturating_sub(1));
        ChangeFields { attempts, crashes: Some(crashes), due_at, ..self.step(to, step) }
    }
}

#[cfg(test)]
mod tests;
