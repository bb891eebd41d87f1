//! A task in the model's store: the fields of the lease protocol, in small numbers.
//!
//! Time is relative: a row has the ticks that are left, and a tick subtracts one everywhere. So
//! time never ends, but the number of rows is finite. The ghost fields at the end are not in the
//! store: the laws need them.

use std::fmt;

use punctual_core::state::{Position, State};
use punctual_core::trail::{Entry, FailedHow, RunError, Step, Trail};

/// A version, and so a fencing token.
pub type Version = u8;

/// [`Position`] in small numbers, with a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowPosition {
    /// Its state.
    pub state: State,
    /// Its version.
    pub version: Version,
    /// Attempts counted.
    pub attempts: u8,
    /// Workers lost.
    pub crashes: u8,
    /// Whether it was asked to stop.
    pub cancel_requested: bool,
}

impl From<RowPosition> for Position {
    fn from(position: RowPosition) -> Self {
        let RowPosition { state, version, attempts, crashes, cancel_requested } = position;
        let (version, attempts, crashes) = (u64::from(version), u32::from(attempts), u32::from(crashes));
        Self { state, version, attempts, crashes, cancel_requested }
    }
}

/// A number as a byte.
pub(crate) fn small(number: impl TryInto<u8>) -> u8 {
    number.try_into().ok().expect("invariant: runs are bounded, and so are all their numbers")
}

/// Who holds a task, in ticks from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldLeft {
    /// Until the hold runs out; at zero it is overdue.
    pub ticks: u8,
    /// Until heartbeats no longer extend it.
    pub deadline: u8,
    /// Whether it lasts only while one of our nodes lives.
    pub of_node: bool,
}

impl HoldLeft {
    /// The hold a tick later.
    pub(crate) fn tick(&mut self) {
        self.ticks = self.ticks.saturating_sub(1);
        self.deadline = self.deadline.saturating_sub(1);
    }

    /// Whether it equals the judged hold, as `punctual_core::state::ExpectedHold` compares them.
    pub(crate) fn is_as(self, judged: HoldLeft) -> bool {
        (self.ticks, self.of_node) == (judged.ticks, judged.of_node)
    }
}

/// One of the two results that runs return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Letter {
    /// The first.
    A,
    /// The second.
    B,
}

impl Letter {
    /// Both.
    pub const ALL: [Letter; 2] = [Letter::A, Letter::B];
}

/// Why a run failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// Its worker reported it.
    Reported {
        /// Whether another attempt could succeed.
        retryable: bool,
    },
    /// It had not ended by its deadline.
    TimedOut,
    /// Its worker was lost.
    Lost,
}

impl Cause {
    /// The cause in a step.
    fn read(outcome: FailedHow, error: &RunError<'_>) -> Self {
        match outcome {
            FailedHow::TimedOut => Cause::TimedOut,
            FailedHow::Lost => Cause::Lost,
            FailedHow::Failed => {
                Cause::Reported { retryable: error.code == Cause::Reported { retryable: true }.code() }
            }
        }
    }

    /// The code of the error.
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Cause::Reported { retryable: true } => "again",
            Cause::Reported { retryable: false } => "hopeless",
            Cause::TimedOut => "timeout",
            Cause::Lost => "worker_lost",
        }
    }
}

/// The kind of a step of the trail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepKind {
    /// [`Step::Submitted`].
    Submitted,
    /// [`Step::Claimed`].
    Claimed,
    /// [`Step::Started`], with the number of the attempt.
    Started(u8),
    /// [`Step::Completed`].
    Completed,
    /// [`Step::Failed`].
    Failed(Cause),
    /// [`Step::FailedUncounted`].
    Spared(Cause),
    /// [`Step::GivenBack`].
    GivenBack,
    /// [`Step::CancelRequested`].
    CancelRequested,
    /// [`Step::Cancelled`].
    Cancelled,
    /// [`Step::Expired`].
    Expired,
    /// [`Step::Redriven`].
    Redriven,
}

/// One step of the trail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepMark {
    /// The version after it.
    pub version: Version,
    /// The state after it.
    pub to: State,
    /// What it was.
    pub kind: StepKind,
}

impl StepMark {
    /// The steps of a real trail.
    pub(crate) fn read(trail: &Trail) -> Vec<StepMark> {
        trail.entries().map(|entry| StepMark::of(&entry)).collect()
    }

    fn of(entry: &Entry<'_>) -> StepMark {
        let kind = match &entry.step {
            Step::Submitted | Step::Scheduled { .. } => StepKind::Submitted,
            Step::Claimed => StepKind::Claimed,
            Step::Started { attempt } => StepKind::Started(small(*attempt)),
            Step::Completed { .. } | Step::CompletedWithoutResult { .. } => StepKind::Completed,
            Step::Failed { outcome, error, .. } => StepKind::Failed(Cause::read(*outcome, error)),
            Step::FailedUncounted { outcome, error, .. } => StepKind::Spared(Cause::read(*outcome, error)),
            Step::GivenBack => StepKind::GivenBack,
            Step::CancelRequested => StepKind::CancelRequested,
            Step::Cancelled => StepKind::Cancelled,
            Step::Expired => StepKind::Expired,
            Step::Redriven => StepKind::Redriven,
            Step::Unblocked
            | Step::DependencyFailed
            | Step::ParentFailed { .. }
            | Step::Edited
            | Step::RunNow
            | Step::Purged
            | Step::Revived
            | Step::Omitted { .. } => unreachable!("the model has no dependencies, edits, purges or long trails"),
        };
        StepMark { version: small(entry.version), to: entry.to, kind }
    }
}

/// The report of a worker about a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SettleReport {
    /// It succeeded, with this result.
    Completed(Letter),
    /// It failed.
    Failed {
        /// Whether another attempt could succeed.
        retryable: bool,
    },
    /// It gives the task back.
    Released,
    /// It goes on.
    Heartbeat,
}

impl SettleReport {
    /// All reports.
    pub const ALL: [SettleReport; 6] = [
        SettleReport::Completed(Letter::A),
        SettleReport::Completed(Letter::B),
        SettleReport::Failed { retryable: true },
        SettleReport::Failed { retryable: false },
        SettleReport::Released,
        SettleReport::Heartbeat,
    ];
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelRow {
    /// Its position.
    pub position: RowPosition,
    /// Ticks until it is due.
    pub due_in: u8,
    /// Ticks until it expires, if it does.
    pub expires_in: Option<u8>,
    /// Who holds it.
    pub hold: Option<HoldLeft>,
    /// What its run returned.
    pub result: Option<Letter>,
    /// Every step so far.
    pub trail: Vec<StepMark>,
    /// Ghost: the last token that was handed out; zero before the first.
    pub handed: Version,
    /// Ghost: for how many ticks the task is promised to the holder of that token.
    pub promised: u8,
    /// Ghost: the accepted reports.
    pub accepted: Vec<(Version, SettleReport)>,
}

impl ModelRow {
    /// A task that was just submitted, due now.
    pub fn submitted(expires_in: Option<u8>) -> Self {
        Self {
            position: RowPosition {
                state: State::Pending,
                version: 1,
                attempts: 0,
                crashes: 0,
                cancel_requested: false,
            },
            due_in: 0,
            expires_in,
            hold: None,
            result: None,
            trail: vec![StepMark { version: 1, to: State::Pending, kind: StepKind::Submitted }],
            handed: 0,
            promised: 0,
            accepted: Vec::new(),
        }
    }

    /// The row a tick later.
    pub(crate) fn tick(&mut self) {
        self.due_in = self.due_in.saturating_sub(1);
        self.expires_in = self.expires_in.map(|ticks| ticks.saturating_sub(1));
        self.promised = self.promised.saturating_sub(1);
        if let Some(hold) = &mut self.hold {
            hold.tick();
        }
    }

    /// How often a step was taken.
    pub fn times(&self, kind: StepKind) -> usize {
        self.trail.iter().filter(|mark| mark.kind == kind).count()
    }

    /// How many failures were not counted.
    pub fn times_spared(&self) -> usize {
        self.trail.iter().filter(|mark| matches!(mark.kind, StepKind::Spared(_))).count()
    }

    /// The step that brought it to `version`.
    pub(crate) fn mark_at(&self, version: Version) -> Option<StepMark> {
        self.trail.iter().copied().find(|mark| mark.version == version)
    }

    /// The versions at which runs began: the tokens.
    pub fn tokens(&self) -> impl Iterator<Item = Version> {
        self.trail.iter().filter(|mark| matches!(mark.kind, StepKind::Started(_))).map(|mark| mark.version)
    }

    /// The newest token; zero before the first run.
    pub fn newest_token(&self) -> Version {
        self.tokens().last().unwrap_or(0)
    }

    /// The versions at which it was dispatched: those of the messages in the broker.
    pub(crate) fn messages(&self) -> impl Iterator<Item = Version> {
        self.trail.iter().filter(|mark| mark.kind == StepKind::Claimed).map(|mark| mark.version)
    }

    /// The steps since it was submitted or last re-driven.
    pub(crate) fn generation(&self) -> &[StepMark] {
        let begin = self.trail.iter().rposition(|mark| mark.kind == StepKind::Redriven).unwrap_or(0);
        &self.trail[begin..]
    }
}

impl fmt::Display for ModelRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RowPosition { state, version, attempts, cancel_requested, .. } = self.position;
        write!(f, "{} v{version}, {attempts} attempts", state.as_str())?;
        if cancel_requested {
            f.write_str(", asked to stop")?;
        }
        if let Some(hold) = self.hold {
            write!(f, ", held for {} of {} ticks, promised {}", hold.ticks, hold.deadline, self.promised)?;
        }
        match self.result {
            Some(letter) => write!(f, ", result {letter:?}"),
            None => Ok(()),
        }
    }
}
