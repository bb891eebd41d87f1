//! Which instants of a schedule fire now, and what becomes of the others. Pure: the leader's cron loop reads what is
//! known of a schedule, asks [`plan`], and writes the [`Plan`] in one transaction; the API asks [`trigger`],
//! [`backfill`] and [`resume`].
//!
//! An occurrence is (schedule, instant) and gets exactly one [`Decision`], or two when it had to wait: `Buffered` and
//! later what became of it. A turn decides at most [`TURN`] instants (and what a later one supersedes, as many at the
//! most), and of many that do not fire the rest is one record, see [`Covers`]: neither a long outage nor a clock in the
//! year 2200 makes a turn long.
//!
//! A decision that is new (`waited` is false) is written if its occurrence has no record yet, and changes nothing
//! otherwise; one that waited is written over its record, as long as that says buffered.
//!
//! What waits stands in the order of [`Origin`] and then of instants. So a backfill never holds up what is due.
//!
//! # Rules
//!
//! - *Late* is an instant more than [`GRACE_MILLIS`] before now. Catch-up `none`: late ones are missed. `last`: of
//!   everything that is due only the last fires, the late ones before it are coalesced into it; late ones before the
//!   window are missed. `all`: late ones within the window fire, the others are missed.
//! - What catch-up lets through comes, in order, under the overlap policy. A task is live until it has come to rest; one
//!   that waits for its jitter or its retry is live.
//! - Of several that are due at once under `cancel_other` or `terminate_other` the last is let through; the others, and
//!   what still waits, are superseded by it.
//! - `max_runs` is held against every run there was, also one asked for by hand, but for those of a backfill; and only
//!   occurrences by their time are held back by it, those that wait having their run already reserved. When it is reached nothing comes any more
//!   (`next_run_at` is none) and no further occurrence is recorded.
//! - While it is paused nothing fires and nothing is decided but what somebody asked for by hand; [`resume`] records what
//!   went by.
//! - `next_run_at` only grows, and the stored one is pinned: it fires also if another release of the time zone
//!   database would put it elsewhere by now.

mod turn;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use super::Timing;
use crate::ids::TaskId;
use crate::time::Timestamp;

pub use turn::{backfill, first, plan, resume, trigger, withdraw};

/// The most occurrences that one turn decides, and the most that wait in a buffer (those of a backfill apart).
pub const TURN: usize = 1_000;

/// The most instants that one backfill may have.
pub const BACKFILL: usize = 10_000;

/// An instant that is not further in the past than this is on time.
pub const GRACE_MILLIS: i64 = 1_000;

/// Of instants that will not fire at all, more than this many in a row are not listed one by one: the first [`TURN`]
/// are, the rest is one record.
pub const LISTED: usize = 10_000;

/// What becomes of an occurrence whose predecessor is still live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// It does not run.
    #[default]
    Skip,
    /// It waits, but only one does; further ones do not run.
    BufferOne,
    /// It waits; those that wait run one at a time, in order.
    BufferAll,
    /// The live task is asked to stop, and it runs as soon as that has come to rest.
    CancelOther,
    /// The live task is ended at once, and it runs now.
    TerminateOther,
    /// It runs beside it.
    AllowAll,
}

/// What becomes of instants at which nobody was there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CatchUp {
    /// They are missed.
    None,
    /// The last of them runs, if it is within the window.
    #[default]
    Last,
    /// All within the window run.
    All,
}

/// What decides the occurrences of a schedule: the part of it that its owner writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// Its instants.
    pub timing: Timing,
    /// When the previous one is still live.
    pub overlap: Overlap,
    /// When nobody was there.
    pub catchup: CatchUp,
    /// How far back catching up goes.
    pub catchup_window_millis: u64,
    /// A task is due up to this much after its instant, the same for whoever computes it.
    pub jitter_millis: u64,
    /// After so many runs the schedule has ended.
    pub max_runs: Option<u64>,
    /// Nothing fires while it is.
    pub paused: bool,
}

impl Spec {
    /// How many runs may come by their time yet, when so many were made and so many are [`reserved`].
    pub fn runs_left(&self, made: u64, reserved: u64) -> u64 {
        self.max_runs.map_or(u64::MAX, |max| max.saturating_sub(made.saturating_add(reserved)))
    }
}

/// How many of those that wait have a run reserved for them: what a backfill put there is none of the runs.
pub fn reserved(buffered: &[Buffered]) -> u64 {
    buffered.iter().filter(|waiting| waiting.origin != Origin::Backfill).count() as u64
}

/// What is known of a schedule when its turn begins, as it stands in the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The first instant that is not yet decided; none when nothing is to come.
    pub next_run_at: Option<Timestamp>,
    /// How many have fired, those of backfills apart.
    pub run_count: u64,
    /// What waits, in the module's order; the first [`TURN`] are enough.
    pub buffered: Vec<Buffered>,
    /// Its live tasks, however they came to be; the first [`TURN`] are enough, and none are needed for `allow_all`.
    pub live: Vec<Live>,
}

/// An occurrence that waits until the previous task has come to rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Buffered {
    /// Its instant.
    pub instant: Timestamp,
    /// Why there is this occurrence.
    pub origin: Origin,
}

/// A task of the schedule that has not come to rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Live {
    /// The task.
    pub task: TaskId,
    /// Whether it was asked to stop already.
    pub stop_asked: bool,
}

/// Why there is an occurrence. The order is the one in which they leave the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Its time came.
    Due,
    /// Somebody asked for one now.
    Manual,
    /// Somebody asked for those of a time that is past.
    Backfill,
}

/// What one turn decides, to be written in one transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// What became of which instant, in the order in which it was decided. No instant is there twice.
    pub decisions: Vec<Decision>,
    /// The first instant that is not decided now either; none when the schedule has nothing more to come.
    pub next_run_at: Option<Timestamp>,
    /// The decisions that fired.
    pub fired: u64,
    /// To be added to its count of skipped ones.
    pub skipped: u64,
    /// To be added to its count of missed ones; those coalesced are among them.
    pub missed: u64,
    /// Live tasks that are to be asked to stop.
    pub stop: Vec<TaskId>,
    /// Live tasks that are ended at once, before what fires is stored.
    pub end: Vec<TaskId>,
    /// Whether another turn has something to decide at once, without waiting for time or for a task.
    pub more: bool,
}

impl Plan {
    /// Whether there is nothing to write: the schedule stays as it is.
    pub fn is_empty(&self, known: &Known) -> bool {
        self.decisions.is_empty()
            && self.stop.is_empty()
            && self.end.is_empty()
            && self.next_run_at == known.next_run_at
    }
}

/// What became of one occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Its instant: with the schedule, its identity.
    pub instant: Timestamp,
    /// Why there is this occurrence.
    pub origin: Origin,
    /// Whether it waited so far: its record stands already, as buffered, and is changed.
    pub waited: bool,
    /// What becomes of it.
    pub outcome: Outcome,
    /// Why.
    pub reason: Reason,
    /// Set when this one record stands for many instants.
    pub covers: Option<Covers>,
}

/// The instants that one record stands for, itself included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Covers {
    /// They are before this instant.
    pub until: Timestamp,
    /// There are at least so many; the rest was not counted.
    pub at_least: u64,
}

/// What becomes of an occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// A task is made.
    Fired {
        /// When it is due: the instant and its jitter, and not before now if the occurrence had to wait.
        execute_at: Timestamp,
    },
    /// It waits for the previous task.
    Buffered,
    /// It does not run, because of the overlap policy, a pause or the limit of runs.
    Skipped,
    /// It does not run, because nobody was there at its time.
    Missed,
    /// It does not run by itself, because a later one runs for it.
    Coalesced,
}

impl Outcome {
    /// The word in the store and on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Outcome::Fired { .. } => "fired",
            Outcome::Buffered => "buffered",
            Outcome::Skipped => "skipped",
            Outcome::Missed => "missed",
            Outcome::Coalesced => "coalesced",
        }
    }
}

/// Why an occurrence had its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Fired: its time came.
    OnTime,
    /// Fired: its time had passed, and catch-up made up for it.
    CaughtUp,
    /// Fired: the task it waited for came to rest.
    PreviousEnded,
    /// Fired: it waited, and need not any more.
    OverlapAllowed,
    /// Fired: somebody asked for it now.
    Triggered,
    /// Fired or buffered: somebody asked for the instants of the past.
    Backfilled,
    /// Buffered: the previous task is live.
    WaitsForPrevious,
    /// Buffered: the previous task was asked to stop.
    WaitsForStop,
    /// Skipped: the previous task was still live.
    PreviousLive,
    /// Skipped: one waits already.
    OneWaits,
    /// Skipped: as many wait as may.
    BufferFull,
    /// Skipped: a later one took its place.
    Superseded,
    /// Skipped: the schedule was paused.
    Paused,
    /// Skipped: the limit of runs was reached before its turn came.
    RunsUsedUp,
    /// Skipped: somebody withdrew the backfill that it was part of.
    Withdrawn,
    /// Missed: late, and there is no catching up.
    NoCatchUp,
    /// Missed: further back than catching up goes.
    OutsideWindow,
    /// Coalesced: of those that were due only the last one was let through.
    LeftToLast,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Reason; 18] = [
        Reason::OnTime,
        Reason::CaughtUp,
        Reason::PreviousEnded,
        Reason::OverlapAllowed,
        Reason::Triggered,
        Reason::Backfilled,
        Reason::WaitsForPrevious,
        Reason::WaitsForStop,
        Reason::PreviousLive,
        Reason::OneWaits,
        Reason::BufferFull,
        Reason::Superseded,
        Reason::Paused,
        Reason::RunsUsedUp,
        Reason::Withdrawn,
        Reason::NoCatchUp,
        Reason::OutsideWindow,
        Reason::LeftToLast,
    ];

    /// The word in the store and on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Reason::OnTime => "on_time",
            Reason::CaughtUp => "caught_up",
            Reason::PreviousEnded => "previous_ended",
            Reason::OverlapAllowed => "overlap_allowed",
            Reason::Triggered => "triggered",
            Reason::Backfilled => "backfilled",
            Reason::WaitsForPrevious => "waits_for_previous",
            Reason::WaitsForStop => "waits_for_stop",
            Reason::PreviousLive => "previous_live",
            Reason::OneWaits => "one_waits",
            Reason::BufferFull => "buffer_full",
            Reason::Superseded => "superseded",
            Reason::Paused => "paused",
            Reason::RunsUsedUp => "runs_used_up",
            Reason::Withdrawn => "withdrawn",
            Reason::NoCatchUp => "no_catch_up",
            Reason::OutsideWindow => "outside_window",
            Reason::LeftToLast => "left_to_last",
        }
    }

    /// The reason with this word.
    pub fn from_name(name: &str) -> Option<Reason> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == name)
    }

    /// A sentence for people.
    pub const fn sentence(self) -> &'static str {
        match self {
            Reason::OnTime => "Its time came.",
            Reason::CaughtUp => "Nobody was there at its time, and catchup made up for it.",
            Reason::PreviousEnded => "The task it waited for came to rest.",
            Reason::OverlapAllowed => "It waited for a task that is still live, and overlap_policy is allow_all now.",
            Reason::Triggered => "Somebody asked for a run now.",
            Reason::Backfilled => "Somebody asked for the instants of a time that is past.",
            Reason::WaitsForPrevious => "A task of this schedule is still live; it runs after that.",
            Reason::WaitsForStop => "The live task of this schedule was asked to stop; it runs after that.",
            Reason::PreviousLive => "A task of this schedule was still live, and overlap_policy is skip.",
            Reason::OneWaits => "Another one waited already, and overlap_policy is buffer_one.",
            Reason::BufferFull => "As many waited already as may.",
            Reason::Superseded => "A later one took its place.",
            Reason::Paused => "The schedule was paused.",
            Reason::RunsUsedUp => "max_runs was reached before its turn came.",
            Reason::Withdrawn => "Somebody withdrew the backfill before its turn came.",
            Reason::NoCatchUp => "Nobody was there at its time, and catchup is none.",
            Reason::OutsideWindow => "Nobody was there at its time, and it was over before catchup_window_seconds.",
            Reason::LeftToLast => {
                "Nobody was there at its time; of those that were due only the last counts, and its own record says what became of it."
            }
        }
    }
}

/// A backfill of more instants than [`BACKFILL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("has more than {BACKFILL} instants; ask for a shorter time, the first {BACKFILL} are up to {until}")]
pub struct TooMany {
    /// The last instant that one backfill could have.
    pub until: Timestamp,
}
