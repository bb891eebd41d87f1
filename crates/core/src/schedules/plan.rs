//! Decides which instants of a schedule fire now, and what happens to the others. Pure.
//!
//! The leader's cron loop calls [`plan`] with what the store knows and writes the [`Plan`] in one
//! transaction. The API calls [`trigger`], [`backfill`], [`resume`] and [`withdraw`].
//!
//! An occurrence is (schedule, instant). It gets exactly one [`Decision`]. An occurrence that has
//! to wait gets two: first that it is buffered, later that it fires or is skipped. A plan decides
//! at most [`PLAN_MAX`] instants, and at most as many that a later one supersedes. If many instants
//! do not fire, one record covers all beyond the first ones (see [`Covers`]). So neither a long
//! outage nor a clock in the year 2200 makes a plan long.
//!
//! A new decision (`waited` is false) is written only if its occurrence has no record yet. A
//! decision about an occurrence that waited overwrites its record, provided the record still says
//! buffered.
//!
//! Waiting occurrences are ordered by [`Origin`], then by instant. So a backfill never delays due
//! occurrences.
//!
//! # Rules
//!
//! - An instant more than [`GRACE_MILLIS`] before now is *late*. Catch-up `none`: late instants are
//!   missed. `last`: only the last of all due instants fires, the late ones before it are coalesced
//!   into it, and late ones before the window are missed. `all`: late ones within the window fire,
//!   the others are missed.
//! - The overlap policy then decides about the instants that catch-up lets through, in order. A
//!   task is live until it has finished, also while it waits for its jitter or its retry.
//! - If several are due at once under `cancel_other` or `terminate_other`, the last goes through.
//!   It supersedes the others and everything that still waits.
//! - `max_runs` counts every run, manual ones too, but no backfills. It stops only occurrences that
//!   come due; a waiting one has its run reserved. When the limit is reached, `next_run_at` is none
//!   and no further occurrence is recorded.
//! - While the schedule is paused, only manual runs fire and only they are decided; [`resume`]
//!   records the instants that went by.
//! - `next_run_at` only grows, and the stored one is pinned: it fires even if another release of
//!   the time zone database would put it elsewhere.

mod covering;
mod planner;
mod reason;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::cron::Timing;
use crate::ids::TaskId;
use crate::schedules::OccurrenceOutcome;
use crate::time::Timestamp;

pub use covering::{CoveringRecord, Cut, cut};
pub use planner::{backfill, first, plan, resume, trigger, withdraw};
pub use reason::OccurrenceReason;

/// The maximum number of occurrences that one plan decides. As many may wait, apart from backfills.
pub const PLAN_MAX: usize = 1_000;

/// The maximum number of instants of one backfill.
pub const BACKFILL_MAX: usize = 10_000;

/// An instant at most this far in the past is on time.
pub const GRACE_MILLIS: i64 = 1_000;

/// The maximum number of consecutive instants without a fired one that are all recorded. If there
/// are more, the first [`PLAN_MAX`] are recorded, and one record covers the rest.
pub const LISTED_MAX: usize = 10_000;

/// What happens to an occurrence whose predecessor is still live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// It does not run.
    #[default]
    Skip,
    /// It waits, if no other one does; otherwise it does not run.
    BufferOne,
    /// It waits. Waiting occurrences run one at a time, in order.
    BufferAll,
    /// The live task is asked to stop. The occurrence runs as soon as that task has finished.
    CancelOther,
    /// The live task is ended at once, and the occurrence runs now.
    TerminateOther,
    /// It runs beside the live task.
    AllowAll,
}

/// What happens to instants at which no leader was there.
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

/// The rules that decide a schedule's occurrences, as its owner wrote them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// Its instants.
    pub timing: Timing,
    /// What happens while the previous task is still live.
    pub overlap: Overlap,
    /// What happens to instants at which no leader was there.
    pub catchup: CatchUp,
    /// How far back catching up goes.
    pub catchup_window_millis: u64,
    /// A task is due up to this much after its instant; every node computes the same delay.
    pub jitter_millis: u64,
    /// The schedule ends after this many runs.
    pub max_runs: Option<u64>,
    /// Whether it is paused; then it fires only by hand.
    pub paused: bool,
}

impl Spec {
    /// How many more instants may fire, after `made` runs and with `reserved` runs [`reserved`].
    pub fn runs_left(&self, made: u64, reserved: u64) -> u64 {
        self.max_runs.map_or(u64::MAX, |max| max.saturating_sub(made.saturating_add(reserved)))
    }
}

/// How many of the waiting occurrences have a run reserved; backfills have none.
pub fn reserved(buffered: &[WaitingOccurrence]) -> u64 {
    buffered.iter().filter(|waiting| waiting.origin != Origin::Backfill).count() as u64
}

/// The stored facts that a plan is based on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanInput {
    /// The first undecided instant; none if there is none to come.
    pub next_run_at: Option<Timestamp>,
    /// How many instants have fired, apart from backfills.
    pub run_count: u64,
    /// The waiting occurrences, in the module's order; the first [`PLAN_MAX`] are enough.
    pub buffered: Vec<WaitingOccurrence>,
    /// Its live tasks of every origin; the first [`PLAN_MAX`] are enough, and `allow_all` needs
    /// none.
    pub live: Vec<LiveTask>,
}

/// An occurrence that waits until the previous task has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WaitingOccurrence {
    /// Its instant.
    pub instant: Timestamp,
    /// Why there is this occurrence.
    pub origin: Origin,
}

/// A task of the schedule that has not finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LiveTask {
    /// The task.
    pub task: TaskId,
    /// Whether it was asked to stop already.
    pub stop_requested: bool,
}

/// Why there is an occurrence. The order is the one in which they leave the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Its time came.
    Due,
    /// A client triggered a run.
    Manual,
    /// A client asked for the instants of a past time.
    Backfill,
}

/// The decisions about a schedule at one time, to be written in one transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The decisions, in the order in which they were made. No instant is there twice.
    pub decisions: Vec<Decision>,
    /// The first instant that is still undecided; none if there is none to come.
    pub next_run_at: Option<Timestamp>,
    /// How many of the decisions fire.
    pub fired: u64,
    /// Live tasks to ask to stop.
    pub stop: Vec<TaskId>,
    /// Live tasks to end at once, before the new tasks are stored.
    pub end: Vec<TaskId>,
    /// Whether another plan has something to decide at once, without waiting for time or a task.
    pub more: bool,
}

impl Plan {
    /// Whether there is nothing to write.
    pub fn is_empty(&self, known: &PlanInput) -> bool {
        self.decisions.is_empty()
            && self.stop.is_empty()
            && self.end.is_empty()
            && self.next_run_at == known.next_run_at
    }
}

/// The decision about one occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Its instant: with the schedule, its identity.
    pub instant: Timestamp,
    /// Why there is this occurrence.
    pub origin: Origin,
    /// Whether it waited until now: then its record exists, as buffered, and is changed.
    pub waited: bool,
    /// What was decided.
    pub outcome: OccurrenceOutcome,
    /// When its task is due, set exactly if it fires: the instant and its jitter, and not before
    /// now if the occurrence had to wait.
    pub execute_at: Option<Timestamp>,
    /// Why.
    pub reason: OccurrenceReason,
    /// The instants that this one record stands for, if there are many.
    pub covers: Option<Covers>,
}

/// The instants that one record stands for, itself included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Covers {
    /// They are before this instant.
    pub until: Timestamp,
    /// There are this many. Only records of earlier builds stand for more: those stopped counting.
    pub at_least: u64,
}

impl Covers {
    /// Of a record that stands for `count` instants before `until`; none if it stands for itself
    /// alone.
    pub fn of(until: Timestamp, count: u64) -> Option<Self> {
        (count > 1).then_some(Self { until, at_least: count })
    }
}

/// A backfill of more instants than [`BACKFILL_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("has more than {BACKFILL_MAX} instants; ask for a shorter time, the first {BACKFILL_MAX} are up to {until}")]
pub struct TooMany {
    /// The last instant that one backfill could have.
    pub until: Timestamp,
}
