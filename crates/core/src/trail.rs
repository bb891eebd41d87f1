//! The trail of a task: every step of its life, kept in the task's own row.
//!
//! A step costs a few dozen bytes and no row of its own. The runs and the audit trail
//! that the API shows are read out of it ([`Trail::runs`], [`Trail::entries`]). The
//! encoding is postcard, a length before each entry; enums only ever grow at their end.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::ids::{NodeId, RunId, TaskId};
use crate::state::State;
use crate::time::Timestamp;

/// The code of a task that was not run because of one that it depends on.
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
    /// The scheduler, which claims what is due.
    Scheduler,
    /// A worker, by name.
    Worker(#[serde(borrow)] Cow<'a, str>),
    /// The reaper, which takes back what was lost.
    Reaper,
    /// A node that is shutting down or starting up.
    Node,
    /// A recurring schedule.
    Schedule,
    /// The resolver, which tells tasks that what they waited for has come to rest.
    Resolver,
}

/// What happened in a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step<'a> {
    /// The task was accepted.
    Submitted,
    /// Nothing that it depended on is waited for any more.
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
    /// A task it depended on did not complete, and nobody knows any more which: it was removed.
    DependencyFailed,
    /// Its submitter changed it.
    Edited,
    /// It was made due at once.
    RunNow,
    /// It was taken out of the dead letters.
    Redriven,
    /// The task was made by a schedule.
    Scheduled {
        /// The instant of the schedule that it stands for.
        instant: Timestamp,
    },
    /// The run failed, timed out or was lost while a circuit breaker was open over the task: the attempt was not counted.
    FailedUncounted {
        /// How the run ended.
        outcome: FailedHow,
        /// What went wrong.
        #[serde(borrow)]
        error: RunError<'a>,
        /// The status a webhook answered, if it was one.
        http_status: Option<u16>,
    },
    /// This task, which it depended on, did not complete.
    ParentFailed {
        /// Which.
        parent: TaskId,
        /// How it came to rest.
        ended: State,
    },
}

/// How a run that did not complete ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailedHow {
    /// The worker or the webhook said so.
    Failed,
    /// It did not end within the task's timeout.
    TimedOut,
    /// The worker was not heard of any more.
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

/// An error as it is kept: bounded texts.
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

/// One attempt, as the trail tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run<'a> {
    /// Its id.
    pub id: RunId,
    /// From 1; an attempt that was given back or not counted is counted again.
    pub attempt: u32,
    /// The fencing token its worker held.
    pub token: u64,
    /// Who ran it.
    pub worker: Cow<'a, str>,
    /// When it began.
    pub started_at: Timestamp,
    /// How and when it ended; none while it runs.
    pub end: Option<RecordedEnd<'a>>,
}

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedEnd<'a> {
    /// When.
    pub at: Timestamp,
    /// `completed`, `failed`, `timed_out`, `lost`, `released` or `cancelled`.
    pub outcome: &'static str,
    /// What went wrong, if anything.
    pub error: Option<RunError<'a>>,
    /// The status a webhook answered.
    pub http_status: Option<u16>,
    /// Why it failed and yet the attempt was not counted: [`Entry::uncounted`].
    pub uncounted: Option<&'static str>,
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

    /// The steps, oldest first. Reading stops at bytes that no entry of ours has, so that a corrupted trail
    /// shortens the history and does not lose the task.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let mut rest = self.0.as_slice();
        std::iter::from_fn(move || take_entry(&mut rest))
    }

    /// Whether all of it can be read; a task without any step there is not.
    pub fn is_whole(&self) -> bool {
        let mut rest = self.0.as_slice();
        while take_entry(&mut rest).is_some() {}
        rest.is_empty() && !self.0.is_empty()
    }

    /// The same steps, but that the first brought the task to `state`.
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

    /// The instant of its schedule that the task stands for, which the first step tells.
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

    /// The last error and when it happened. That of a task which expired after it had run tells what came of its runs.
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

    /// The attempts of `task`, oldest first.
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

/// Takes the first entry off the rest of a trail; leaves what cannot be read where it is.
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
            Step::Completed { .. } => "completed".into(),
            Step::Failed { error, .. } | Step::FailedUncounted { error, .. } => error.code.clone(),
            Step::GivenBack => "given_back".into(),
            Step::CancelRequested => "cancel_requested".into(),
            Step::Cancelled => "cancelled".into(),
            Step::Expired => "expired".into(),
            Step::DependencyFailed | Step::ParentFailed { .. } => DEPENDENCY_FAILED.into(),
            Step::Edited => "edited".into(),
            Step::RunNow => "run_now".into(),
            Step::Redriven => "redriven".into(),
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
                let message =
                    format!("{parent}, which this task depends on, did not complete: it came to rest as {ended}");
                Some(RunError { code: DEPENDENCY_FAILED.into(), message: message.into(), details: None })
            }
            _ => None,
        }
    }

    /// Why the attempt that this step ended was not counted, though the run failed: a word, none where it was.
    pub fn uncounted(&self) -> Option<&'static str> {
        matches!(self.step, Step::FailedUncounted { .. }).then_some("breaker_open")
    }

    fn run_end(&self) -> Option<RecordedEnd<'a>> {
        let (outcome, http_status) = match &self.step {
            Step::Completed { http_status } => ("completed", *http_status),
            Step::Failed { outcome, http_status, .. } | Step::FailedUncounted { outcome, http_status, .. } => {
                (outcome.as_str(), *http_status)
            }
            Step::GivenBack => ("released", None),
            Step::Cancelled => ("cancelled", None),
            _ => return None,
        };
        Some(RecordedEnd { at: self.at, outcome, error: self.error(), http_status, uncounted: self.uncounted() })
    }
}

/// The error of a task that expired after it had run, and `before` failed, if its runs did not only end by being given back.
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
mod tests {
    use super::*;

    fn entry(version: u64, to: State, step: Step<'static>) -> Entry<'static> {
        let actor = Actor::Worker("w1".into());
        Entry {
            at: Timestamp::from_millis(1_000 + i64::try_from(version).unwrap()),
            version,
            to,
            node: NodeId::new(7),
            actor,
            step,
        }
    }

    fn failed() -> Step<'static> {
        let error = RunError { code: "boom".into(), message: "it broke".into(), details: Some("{}".into()) };
        Step::Failed { outcome: FailedHow::Failed, error, http_status: Some(500) }
    }

    #[test]
    fn what_was_pushed_is_read_back_in_order() {
        let mut trail = Trail::default();
        let entries = [
            entry(1, State::Pending, Step::Submitted),
            entry(2, State::Queued, Step::Claimed),
            entry(4, State::Pending, failed()),
        ];
        for entry in &entries {
            trail.push(entry);
        }
        assert!(trail.entries().eq(entries.iter().cloned()));
        assert_eq!(trail.last_error().unwrap().1.code, "boom");
        assert_eq!(trail.at_version(2).unwrap().step, Step::Claimed);
    }

    /// What an earlier version wrote is read by their numbers.
    #[test]
    fn steps_keep_their_numbers() {
        let Step::Failed { outcome, error, http_status } = failed() else { unreachable!("it is one") };
        let instant = Timestamp::from_millis(77);
        let steps = [
            Step::Submitted,
            Step::Unblocked,
            Step::Claimed,
            Step::Started { attempt: 1 },
            Step::Completed { http_status: None },
            failed(),
            Step::GivenBack,
            Step::CancelRequested,
            Step::Cancelled,
            Step::Expired,
            Step::DependencyFailed,
            Step::Edited,
            Step::RunNow,
            Step::Redriven,
            Step::Scheduled { instant },
            Step::FailedUncounted { outcome, error, http_status },
            Step::ParentFailed { parent: TaskId::new(), ended: State::Cancelled },
        ];
        for (number, step) in (0_u8..).zip(steps) {
            assert_eq!(postcard::to_stdvec(&step).unwrap()[0], number, "{step:?}");
        }
    }

    #[test]
    fn a_failure_that_was_not_counted_is_told_as_one() {
        let Step::Failed { outcome, error, http_status } = failed() else { unreachable!("it is one") };
        let mut trail = Trail::default();
        trail.push(&entry(3, State::Running, Step::Started { attempt: 1 }));
        trail.push(&entry(4, State::Pending, Step::FailedUncounted { outcome, error, http_status }));
        trail.push(&entry(6, State::Running, Step::Started { attempt: 1 }));
        trail.push(&entry(7, State::Pending, failed()));
        assert_eq!(trail.entries().nth(1).unwrap().reason(), "boom");
        assert_eq!(trail.last_error().unwrap().1.message, "it broke");
        let runs = trail.runs(TaskId::new());
        let ends: Vec<_> = runs.iter().map(|run| run.end.as_ref().unwrap()).collect();
        assert_eq!((runs[0].attempt, ends[0].outcome, ends[0].http_status), (1, "failed", Some(500)));
        assert_eq!((ends[0].uncounted, ends[1].uncounted), (Some("breaker_open"), None));
    }

    #[test]
    fn a_task_that_expired_tells_what_came_of_its_runs() {
        let expired = |steps: Vec<Step<'static>>| {
            let mut trail = Trail::default();
            for (version, step) in (1..).zip(steps.into_iter().chain([Step::Expired])) {
                trail.push(&entry(version, State::Failed, step));
            }
            let (at, error) = trail.last_error().expect("it expired");
            assert_eq!((at, error.code.as_ref()), (trail.last().unwrap().at, "expired"));
            error.message.into_owned()
        };
        let started = || Step::Started { attempt: 1 };
        let never = "the task was not started by its expires_at";
        assert_eq!(expired(vec![Step::Submitted]), never);
        assert_eq!(expired(vec![Step::Submitted, Step::Claimed, Step::GivenBack]), never, "nobody began it");
        assert_eq!(
            expired(vec![Step::Submitted, started(), failed()]),
            "the task ran, but did not succeed by its expires_at; its last error was boom: it broke"
        );
        let Step::Failed { outcome, http_status, .. } = failed() else { unreachable!("it is one") };
        let error = RunError { code: "bad".into(), message: "".into(), details: None };
        let uncounted = Step::FailedUncounted { outcome, error, http_status };
        assert_eq!(
            expired(vec![started(), failed(), started(), uncounted, started(), Step::GivenBack]),
            "the task ran, but did not succeed by its expires_at; its last error was bad"
        );
        assert_eq!(
            expired(vec![started(), Step::GivenBack]),
            "the task was begun and given back, and was not started again by its expires_at"
        );
    }

    #[test]
    fn a_dependency_that_failed_is_named() {
        let parent = TaskId::new();
        let told = |step: Step<'static>| {
            let mut trail = Trail::default();
            trail.push(&entry(2, State::Cancelled, step));
            assert_eq!(trail.last().unwrap().reason(), "dependency_failed");
            let (_, error) = trail.last_error().expect("it says why");
            assert_eq!(error.code, "dependency_failed");
            error.message.into_owned()
        };
        assert_eq!(
            told(Step::ParentFailed { parent, ended: State::DeadLettered }),
            format!("{parent}, which this task depends on, did not complete: it came to rest as DEAD_LETTERED")
        );
        assert_eq!(told(Step::DependencyFailed), "a task that this one depends on did not complete");
    }

    #[test]
    fn the_first_state_can_be_another() {
        let mut trail = Trail::default();
        trail.push(&entry(1, State::Pending, Step::Submitted));
        trail.push(&entry(2, State::Cancelled, Step::Cancelled));
        let blocked = trail.beginning_in(State::Blocked);
        assert_eq!(blocked.entries().map(|entry| entry.to).collect::<Vec<_>>(), [State::Blocked, State::Cancelled]);
        assert_eq!(blocked.beginning_in(State::Pending), trail);
    }

    #[test]
    fn the_instant_of_a_schedule_is_told_by_the_first_step() {
        let instant = Timestamp::from_millis(77);
        let mut trail = Trail::default();
        assert_eq!(trail.scheduled_for(), None);
        trail.push(&entry(1, State::Pending, Step::Scheduled { instant }));
        trail.push(&entry(2, State::Queued, Step::Claimed));
        assert_eq!(trail.scheduled_for(), Some(instant));
        assert_eq!(trail.beginning_in(State::Blocked).scheduled_for(), Some(instant));
        assert_eq!(trail.entries().next().unwrap().reason(), "submitted");
        let mut other = Trail::default();
        other.push(&entry(1, State::Pending, Step::Submitted));
        assert_eq!(other.scheduled_for(), None);
    }

    #[test]
    fn a_torn_trail_keeps_what_can_be_read() {
        let mut trail = Trail::default();
        trail.push(&entry(1, State::Pending, Step::Submitted));
        trail.push(&entry(2, State::Pending, failed()));
        let mut bytes = trail.as_bytes().to_vec();
        bytes.truncate(bytes.len() - 3);
        let torn = Trail::from_bytes(bytes);
        assert_eq!(torn.entries().count(), 1);
        assert!(trail.is_whole() && !torn.is_whole());
        let mut later = torn.clone();
        later.push(&entry(3, State::Queued, Step::Claimed));
        assert!(!later.is_whole(), "what comes behind the tear does not mend it");
        assert!(!Trail::default().is_whole(), "every task has a first step");
    }

    #[test]
    fn runs_are_told_by_their_start_and_their_end() {
        let mut trail = Trail::default();
        trail.push(&entry(3, State::Running, Step::Started { attempt: 1 }));
        trail.push(&entry(4, State::Pending, failed()));
        trail.push(&entry(6, State::Running, Step::Started { attempt: 2 }));
        let runs = trail.runs(TaskId::new());
        assert_eq!(runs.iter().map(|run| (run.attempt, run.token)).collect::<Vec<_>>(), [(1, 3), (2, 6)]);
        assert_eq!(runs[0].end.as_ref().unwrap().outcome, "failed");
        assert_eq!(runs[1].end, None);
    }
}
