//! A task as the model's store keeps it: what the lease protocol looks at, in small numbers.
//!
//! Time is relative: a row says how many ticks are left, and a tick takes one off everywhere. So
//! time never ends and yet the number of rows is finite. The last fields are not the store's: they
//! remember what was promised, for the laws to look at.

use std::fmt;

use punctual_core::state::{Position, State};
use punctual_core::trail::{Entry, FailedHow, RunError, Step, Trail};

/// A version, and so a fencing token.
pub type Version = u8;

/// [`Position`] in small numbers, with a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stand {
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

impl From<Stand> for Position {
    fn from(stand: Stand) -> Self {
        let Stand { state, version, attempts, crashes, cancel_requested } = stand;
        let (version, attempts, crashes) = (u64::from(version), u32::from(attempts), u32::from(crashes));
        Self { state, version, attempts, crashes, cancel_requested }
    }
}

/// A number of a bounded run in a byte.
pub(crate) fn small(number: impl TryInto<u8>) -> u8 {
    number.try_into().ok().expect("invariant: runs are bounded, and so are all their numbers")
}

/// Who holds a task, in ticks from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldLeft {
    /// Until the hold runs out; at zero it is overdue.
    pub ticks: u8,
    /// Until no sign of life extends it.
    pub deadline: u8,
    /// Whether it is good only while one of our nodes lives.
    pub of_node: bool,
}

impl HoldLeft {
    /// The hold a tick later.
    pub(crate) fn tick(&mut self) {
        self.ticks = self.ticks.saturating_sub(1);
        self.deadline = self.deadline.saturating_sub(1);
    }

    /// Whether it is still the hold that was judged, as `punctual_core::state::ExpectedHold` tells them
    /// apart.
    pub(crate) fn is_as(self, judged: HoldLeft) -> bool {
        (self.ticks, self.of_node) == (judged.ticks, judged.of_node)
    }
}

/// One of the two results that runs return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Letter {
    /// The one.
    A,
    /// The other.
    B,
}

impl Letter {
    /// Both.
    pub const ALL: [Letter; 2] = [Letter::A, Letter::B];
}

/// Why a run failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// Its worker said so, and whether another attempt could succeed.
    Told {
        /// Whether it could.
        retryable: bool,
    },
    /// It was not done by its deadline.
    TimedOut,
    /// Its worker was not heard of any more.
    Lost,
}

impl Cause {
    /// The cause that a step tells.
    fn read(outcome: FailedHow, error: &RunError<'_>) -> Self {
        match outcome {
            FailedHow::TimedOut => Cause::TimedOut,
            FailedHow::Lost => Cause::Lost,
            FailedHow::Failed => Cause::Told { retryable: error.code == Cause::Told { retryable: true }.code() },
        }
    }

    /// The code under which a worker tells its error.
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Cause::Told { retryable: true } => "again",
            Cause::Told { retryable: false } => "hopeless",
            Cause::TimedOut => "timeout",
            Cause::Lost => "worker_lost",
        }
    }
}

/// What a step of the trail was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Deed {
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
pub struct Mark {
    /// The version after it.
    pub version: Version,
    /// The state after it.
    pub to: State,
    /// What it was.
    pub deed: Deed,
}

impl Mark {
    /// The steps of a real trail.
    pub(crate) fn read(trail: &Trail) -> Vec<Mark> {
        trail.entries().map(|entry| Mark::of(&entry)).collect()
    }

    fn of(entry: &Entry<'_>) -> Mark {
        let deed = match &entry.step {
            Step::Submitted | Step::Scheduled { .. } => Deed::Submitted,
            Step::Claimed => Deed::Claimed,
            Step::Started { attempt } => Deed::Started(small(*attempt)),
            Step::Completed { .. } => Deed::Completed,
            Step::Failed { outcome, error, .. } => Deed::Failed(Cause::read(*outcome, error)),
            Step::FailedUncounted { outcome, error, .. } => Deed::Spared(Cause::read(*outcome, error)),
            Step::GivenBack => Deed::GivenBack,
            Step::CancelRequested => Deed::CancelRequested,
            Step::Cancelled => Deed::Cancelled,
            Step::Expired => Deed::Expired,
            Step::Redriven => Deed::Redriven,
            Step::Unblocked | Step::DependencyFailed | Step::ParentFailed { .. } | Step::Edited | Step::RunNow => {
                unreachable!("the model has neither dependencies nor edits")
            }
        };
        Mark { version: small(entry.version), to: entry.to, deed }
    }
}

/// What a worker says of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Said {
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

impl Said {
    /// Everything a worker can say.
    pub const ALL: [Said; 6] = [
        Said::Completed(Letter::A),
        Said::Completed(Letter::B),
        Said::Failed { retryable: true },
        Said::Failed { retryable: false },
        Said::Released,
        Said::Heartbeat,
    ];
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelRow {
    /// Where the task stands.
    pub stand: Stand,
    /// Ticks until it is due.
    pub due_in: u8,
    /// Ticks until it expires, if it does.
    pub expires_in: Option<u8>,
    /// Who holds it.
    pub hold: Option<HoldLeft>,
    /// What its run returned.
    pub result: Option<Letter>,
    /// Every step so far.
    pub trail: Vec<Mark>,
    /// Ghost: the token that was handed out last; zero before the first.
    pub handed: Version,
    /// Ghost: for how many ticks the holder of that token has been promised the task.
    pub promised: u8,
    /// Ghost: what was written and answered as accepted.
    pub accepted: Vec<(Version, Said)>,
}

impl ModelRow {
    /// A task that was just submitted, due now.
    pub fn submitted(expires_in: Option<u8>) -> Self {
        Self {
            stand: Stand { state: State::Pending, version: 1, attempts: 0, crashes: 0, cancel_requested: false },
            due_in: 0,
            expires_in,
            hold: None,
            result: None,
            trail: vec![Mark { version: 1, to: State::Pending, deed: Deed::Submitted }],
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
    pub fn times(&self, deed: Deed) -> usize {
        self.trail.iter().filter(|mark| mark.deed == deed).count()
    }

    /// How often it failed and that was not counted.
    pub fn times_spared(&self) -> usize {
        self.trail.iter().filter(|mark| matches!(mark.deed, Deed::Spared(_))).count()
    }

    /// The step that brought it to `version`.
    pub(crate) fn mark_at(&self, version: Version) -> Option<Mark> {
        self.trail.iter().copied().find(|mark| mark.version == version)
    }

    /// The versions at which runs began: the tokens.
    pub fn tokens(&self) -> impl Iterator<Item = Version> {
        self.trail.iter().filter(|mark| matches!(mark.deed, Deed::Started(_))).map(|mark| mark.version)
    }

    /// The newest token; zero before the first run.
    pub fn newest_token(&self) -> Version {
        self.tokens().last().unwrap_or(0)
    }

    /// The versions at which it was dispatched: those of the messages in the broker.
    pub(crate) fn messages(&self) -> impl Iterator<Item = Version> {
        self.trail.iter().filter(|mark| mark.deed == Deed::Claimed).map(|mark| mark.version)
    }

    /// The steps since it was submitted or last re-driven.
    pub(crate) fn generation(&self) -> &[Mark] {
        let begin = self.trail.iter().rposition(|mark| mark.deed == Deed::Redriven).unwrap_or(0);
        &self.trail[begin..]
    }
}

impl fmt::Display for ModelRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stand { state, version, attempts, cancel_requested, .. } = self.stand;
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
