//! The trail of a task: the steps of its life, stored in the task's own row.
//!
//! The state machine writes it; the API reads runs and the audit trail from it ([`Trail::runs`],
//! [`Trail::entries`]). A step costs a few dozen bytes and no row of its own. The encoding is
//! postcard, with a length before each entry. Enums grow at their end only, because stored trails
//! contain their numbers. A trail has a bound: see [`Trail::shortened`].

mod shortened;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::ids::{NodeId, OperationId, RunId, TaskId};
use crate::state::State;
use crate::time::Timestamp;

/// The error code of a task that did not run because a dependency did not complete.
const DEPENDENCY_FAILED: &str = "dependency_failed";

/// The encoded steps of a task, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trail(Vec<u8>);

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry<'a> {
    /// When, in the store's time.
    pub at: Timestamp,
    /// The version of the task after this step.
    pub version: u64,
    /// The state of the task after this step.
    pub to: State,
    /// The node that wrote it.
    pub node: NodeId,
    /// On whose behalf.
    #[serde(borrow)]
    pub actor: Actor<'a>,
    /// What happened.
    #[serde(borrow)]
    pub step: Step<'a>,
}

/// On whose behalf a step was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Actor<'a> {
    /// A caller of the API.
    Client,
    /// The dispatcher, which claims due tasks.
    Scheduler,
    /// A worker, by name.
    Worker(#[serde(borrow)] Cow<'a, str>),
    /// The reaper, which takes back lost tasks.
    Reaper,
    /// A node that is shutting down or starting up.
    Node,
    /// A recurring schedule.
    Schedule,
    /// The resolver, which unblocks tasks when their parents have finished.
    Resolver,
    /// A role of the database, which submitted the task by SQL.
    Sql,
    /// A bulk operation of a caller of the API.
    Operation(OperationId),
}

/// What happened in a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step<'a> {
    /// The task was accepted.
    Submitted,
    /// It does not wait for a parent any more.
    Unblocked,
    /// It was claimed for dispatch; this counts the attempt.
    Claimed,
    /// A run began.
    Started {
        /// From 1.
        attempt: u32,
    },
    /// The run succeeded.
    Completed {
        /// The status a webhook answered, if it was one.
        http_status: Option<u16>,
    },
    /// The run failed, timed out or was lost.
    Failed {
        /// How the run ended.
        outcome: FailedHow,
        /// What went wrong.
        #[serde(borrow)]
        error: RunError<'a>,
        /// The status a webhook answered, if it was one.
        http_status: Option<u16>,
    },
    /// The task went back to waiting and the attempt was not counted.
    GivenBack,
    /// A running task was asked to stop.
    CancelRequested,
    /// The task will not run (again).
    Cancelled,
    /// It was not started by its `expires_at`.
    Expired,
    /// A parent did not complete. Which one is not known any more, since it was removed.
    DependencyFailed,
    /// Its submitter changed it.
    Edited,
    /// It was made due at once.
    RunNow,
    /// It was taken out of the dead letters.
    Redriven,
    /// The task was made by a schedule.
    Scheduled {
        /// The instant of the schedule that it was made for.
        instant: Timestamp,
    },
    /// The run failed, timed out or was lost while a breaker was open over the task. The attempt
    /// was not counted.
    FailedUncounted {
        /// How the run ended.
        outcome: FailedHow,
        /// What went wrong.
        #[serde(borrow)]
        error: RunError<'a>,
        /// The status a webhook answered, if it was one.
        http_status: Option<u16>,
    },
    /// This parent did not complete.
    ParentFailed {
        /// The parent.
        parent: TaskId,
        /// Its final state.
        ended: State,
    },
    /// It was a dead letter and was discarded.
    Purged,
    /// This stands for steps that are not kept, up to this version.
    Omitted {
        /// How many they were.
        steps: u64,
    },
    /// It had finished because of a parent, which was re-driven with its dependents.
    Revived,
    /// The run succeeded, and what the webhook answered was not kept as the result.
    CompletedWithoutResult {
        /// The status the webhook answered.
        http_status: Option<u16>,
        /// Why its answer was not kept.
        dropped: ResultDropped,
    },
}

/// Why the answer of a webhook was not kept as the result of its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResultDropped {
    /// It is larger than a result may be.
    TooLarge,
    /// It is not UTF-8.
    NotUtf8,
    /// It is not JSON, or not JSON that is accepted as a payload.
    NotJson,
    /// It is nested too deep.
    TooDeep,
}

impl ResultDropped {
    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            ResultDropped::TooLarge => "too_large",
            ResultDropped::NotUtf8 => "not_utf8",
            ResultDropped::NotJson => "not_json",
            ResultDropped::TooDeep => "too_deep",
        }
    }
}

/// How a run that did not complete ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailedHow {
    /// The worker or the webhook reported it.
    Failed,
    /// It did not end within the task's timeout.
    TimedOut,
    /// The worker was lost.
    Lost,
}

impl FailedHow {
    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            FailedHow::Failed => "failed",
            FailedHow::TimedOut => "timed_out",
            FailedHow::Lost => "lost",
        }
    }
}

/// How a run ended, as its end is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnded {
    /// It succeeded.
    Completed,
    /// It failed.
    Failed,
    /// It did not end within the task's timeout.
    TimedOut,
    /// The worker was lost.
    Lost,
    /// The worker gave the task back.
    Released,
    /// The task was cancelled.
    Cancelled,
}

impl From<FailedHow> for RunEnded {
    fn from(how: FailedHow) -> Self {
        match how {
            FailedHow::Failed => Self::Failed,
            FailedHow::TimedOut => Self::TimedOut,
            FailedHow::Lost => Self::Lost,
        }
    }
}

/// An error as it is stored: its texts are bounded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunError<'a> {
    /// A stable word for programs.
    #[serde(borrow)]
    pub code: Cow<'a, str>,
    /// A sentence for people.
    #[serde(borrow)]
    pub message: Cow<'a, str>,
    /// JSON text that the worker added.
    #[serde(borrow)]
    pub details: Option<Cow<'a, str>>,
}

impl RunError<'_> {
    /// The same error with its own texts.
    pub fn into_owned(self) -> RunError<'static> {
        RunError {
            code: Cow::Owned(self.code.into_owned()),
            message: Cow::Owned(self.message.into_owned()),
            details: self.details.map(|text| Cow::Owned(text.into_owned())),
        }
    }
}

/// One run, read from the trail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run<'a> {
    /// Its id.
    pub id: RunId,
    /// The number of its attempt, from 1. After an attempt that was not counted the next one has
    /// the same number.
    pub attempt: u32,
    /// The fencing token its worker held.
    pub token: u64,
    /// The worker.
    pub worker: Cow<'a, str>,
    /// When it began.
    pub started_at: Timestamp,
    /// How and when it ended; none while it runs.
    pub end: Option<RecordedEnd<'a>>,
}

/// The end of a run, read from the trail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedEnd<'a> {
    /// When.
    pub at: Timestamp,
    /// How.
    pub outcome: RunEnded,
    /// What went wrong, if anything.
    pub error: Option<RunError<'a>>,
    /// The status a webhook answered.
    pub http_status: Option<u16>,
    /// Why its attempt was not counted, if it failed: [`Entry::uncounted`].
    pub uncounted: Option<&'static str>,
    /// Why what the webhook answered was not kept as the result, if it was not.
    pub result_dropped: Option<ResultDropped>,
}

impl Trail {
    /// The trail whose encoding is `bytes`.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The encoding.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Adds a step.
    pub fn push(&mut self, entry: &Entry<'_>) {
        let encoded = postcard::to_stdvec(entry).expect("invariant: a trail entry has no type postcard cannot write");
        let length = u32::try_from(encoded.len()).expect("invariant: texts in a trail are bounded far below 4 GiB");
        self.0.extend_from_slice(&length.to_le_bytes());
        self.0.extend_from_slice(&encoded);
    }

    /// Adds the steps of `later`.
    pub fn extend(&mut self, later: &Trail) {
        self.0.extend_from_slice(&later.0);
    }

    /// The steps, oldest first. Reading stops at bytes that are not an entry: a damaged trail
    /// shortens the history and does not lose the task.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let mut rest = self.0.as_slice();
        std::iter::from_fn(move || take_entry(&mut rest))
    }

    /// Whether all of it can be read, and there is at least one step.
    pub fn is_whole(&self) -> bool {
        let mut rest = self.0.as_slice();
        while take_entry(&mut rest).is_some() {}
        rest.is_empty() && !self.0.is_empty()
    }

    /// The same steps, with `state` as the state after the first one.
    #[must_use]
    pub fn beginning_in(&self, state: State) -> Self {
        let mut trail = Self::default();
        for (place, entry) in self.entries().enumerate() {
            trail.push(&if place == 0 { Entry { to: state, ..entry } } else { entry });
        }
        trail
    }

    /// The last step.
    pub fn last(&self) -> Option<Entry<'_>> {
        self.entries().last()
    }

    /// Whether the task was submitted by SQL, from the first step.
    pub fn is_submitted_by_sql(&self) -> bool {
        self.entries().next().is_some_and(|entry| entry.actor == Actor::Sql)
    }

    /// The instant of its schedule that the task was made for, from the first step.
    pub fn scheduled_for(&self) -> Option<Timestamp> {
        match self.entries().next()?.step {
            Step::Scheduled { instant } => Some(instant),
            _ => None,
        }
    }

    /// The step that brought the task to `version`.
    pub fn at_version(&self, version: u64) -> Option<Entry<'_>> {
        self.entries().find(|entry| entry.version == version)
    }

    /// How often workers have released the task in a row: since its submission, or since something
    /// else became of a run.
    pub fn releases_in_a_row(&self) -> u32 {
        self.entries().fold(0, |releases, entry| match (&entry.step, &entry.actor) {
            (Step::GivenBack, Actor::Worker(_)) => releases.saturating_add(1),
            (Step::GivenBack | Step::Claimed | Step::Started { .. } | Step::Edited | Step::Omitted { .. }, _) => {
                releases
            }
            _ => 0,
        })
    }

    /// The last error and when it happened. If the task expired after it had run, the message
    /// includes the error of its last run.
    pub fn last_error(&self) -> Option<(Timestamp, RunError<'_>)> {
        let mut has_run = false;
        let mut last: Option<(Timestamp, RunError<'_>)> = None;
        for entry in self.entries() {
            has_run |= matches!(entry.step, Step::Started { .. });
            let Some(error) = entry.error() else { continue };
            let error = match entry.step {
                Step::Expired if has_run => expired_after(last.map(|(_, before)| before), error),
                _ => error,
            };
            last = Some((entry.at, error));
        }
        last
    }

    /// The runs of `task`, oldest first.
    pub fn runs(&self, task: TaskId) -> Vec<Run<'_>> {
        let mut runs: Vec<Run<'_>> = Vec::new();
        for entry in self.entries() {
            if let Step::Started { attempt } = entry.step {
                let worker = match entry.actor {
                    Actor::Worker(name) => name,
                    _ => Cow::Borrowed(""),
                };
                let id = RunId::of(task, entry.version, entry.at);
                runs.push(Run { id, attempt, token: entry.version, worker, started_at: entry.at, end: None });
            } else if let (Some(end), Some(run)) = (entry.run_end(), runs.last_mut())
                && run.end.is_none()
            {
                run.end = Some(end);
            }
        }
        runs
    }
}

/// Takes the first entry off the rest of a trail. Leaves the rest unchanged if it is unreadable.
fn take_entry<'a>(rest: &mut &'a [u8]) -> Option<Entry<'a>> {
    let (length, tail) = rest.split_first_chunk::<4>()?;
    let (encoded, tail) = tail.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    let entry = postcard::from_bytes(encoded).ok()?;
    *rest = tail;
    Some(entry)
}

impl<'a> Entry<'a> {
    /// A word for the step, as the audit trail shows it.
    pub fn reason(&self) -> Cow<'a, str> {
        match &self.step {
            Step::Submitted | Step::Scheduled { .. } => "submitted".into(),
            Step::Unblocked => "unblocked".into(),
            Step::Claimed => "claimed".into(),
            Step::Started { .. } => "started".into(),
            Step::Completed { .. } | Step::CompletedWithoutResult { .. } => "completed".into(),
            Step::Failed { error, .. } | Step::FailedUncounted { error, .. } => error.code.clone(),
            Step::GivenBack => "given_back".into(),
            Step::CancelRequested => "cancel_requested".into(),
            Step::Cancelled => "cancelled".into(),
            Step::Expired => "expired".into(),
            Step::DependencyFailed | Step::ParentFailed { .. } => DEPENDENCY_FAILED.into(),
            Step::Edited => "edited".into(),
            Step::RunNow => "run_now".into(),
            Step::Redriven => "redriven".into(),
            Step::Purged => "purged".into(),
            Step::Omitted { .. } => "omitted".into(),
            Step::Revived => "revived".into(),
        }
    }

    /// The error this step recorded.
    pub fn error(&self) -> Option<RunError<'a>> {
        let fixed = |code: &'static str, message: &'static str| {
            Some(RunError { code: Cow::Borrowed(code), message: Cow::Borrowed(message), details: None })
        };
        match &self.step {
            Step::Failed { error, .. } | Step::FailedUncounted { error, .. } => Some(error.clone()),
            Step::Expired => fixed("expired", "the task was not started by its expires_at"),
            Step::DependencyFailed => fixed(DEPENDENCY_FAILED, "a task that this one depends on did not complete"),
            Step::ParentFailed { parent, ended } => {
                let ended = ended.as_str();
                let message = format!("{parent}, which this task depends on, did not complete: it finished as {ended}");
                Some(RunError { code: DEPENDENCY_FAILED.into(), message: message.into(), details: None })
            }
            _ => None,
        }
    }

    /// How many steps this one stands for; none if it stands for itself.
    pub fn omitted(&self) -> Option<u64> {
        if let Step::Omitted { steps } = self.step { Some(steps) } else { None }
    }

    /// Why the attempt of a failed run was not counted, as a word; none if it was counted.
    pub fn uncounted(&self) -> Option<&'static str> {
        matches!(self.step, Step::FailedUncounted { .. }).then_some("breaker_open")
    }

    fn run_end(&self) -> Option<RecordedEnd<'a>> {
        let (outcome, http_status) = match &self.step {
            Step::Completed { http_status } | Step::CompletedWithoutResult { http_status, .. } => {
                (RunEnded::Completed, *http_status)
            }
            Step::Failed { outcome, http_status, .. } | Step::FailedUncounted { outcome, http_status, .. } => {
                ((*outcome).into(), *http_status)
            }
            Step::GivenBack => (RunEnded::Released, None),
            Step::Cancelled => (RunEnded::Cancelled, None),
            _ => return None,
        };
        let result_dropped = match self.step {
            Step::CompletedWithoutResult { dropped, .. } => Some(dropped),
            _ => None,
        };
        let (error, uncounted) = (self.error(), self.uncounted());
        Some(RecordedEnd { at: self.at, outcome, error, http_status, uncounted, result_dropped })
    }
}

/// The error of a task that expired after it had run. `before` is the error of its last failure, if
/// a run failed.
fn expired_after<'a>(before: Option<RunError<'a>>, expired: RunError<'a>) -> RunError<'a> {
    let message = match before {
        Some(RunError { code, message, .. }) if message.is_empty() => {
            format!("the task ran, but did not succeed by its expires_at; its last error was {code}")
        }
        Some(RunError { code, message, .. }) => {
            format!("the task ran, but did not succeed by its expires_at; its last error was {code}: {message}")
        }
        None => "the task was begun and given back, and was not started again by its expires_at".to_owned(),
    };
    RunError { message: Cow::Owned(message), ..expired }
}

#[cfg(test)]
mod tests;
