//! The one write of a schedule: its decided instants, their tasks, and its new progress.

use super::plan::{Covers, Cut, Origin};
use super::{OccurrenceOutcome, Schedule};
use crate::ids::{ScheduleId, TaskId};
use crate::task::{Idempotency, NewTask};
use crate::time::Timestamp;

/// One write of a schedule: the records of decided instants, their tasks, and the new progress.
#[derive(Clone, Debug)]
pub struct Advance {
    /// The schedule.
    pub id: ScheduleId,
    /// The revision that it was decided by.
    pub revision: u64,
    /// When it was decided.
    pub now: Timestamp,
    /// The records of the decided instants.
    pub records: Vec<Record>,
    /// The records that stand for many instants, of which `records` backfill some.
    pub cuts: Vec<Cut>,
    /// Instants whose tasks have finished, and are no longer watched.
    pub finished: Vec<Timestamp>,
    /// The first instant that is still undecided.
    pub next_run_at: Option<Timestamp>,
    /// When the cron loop has to check the schedule next.
    pub next_check_at: Option<Timestamp>,
    /// Whether it pauses or resumes the schedule.
    pub switch: Option<PauseSwitch>,
    /// The trigger under an idempotency key; such an advance is written by itself.
    pub trigger: Option<KeyedTrigger>,
    /// The edited schedule, apart from the other fields; such an advance is written by itself.
    pub edited: Option<Box<Schedule>>,
}

impl Advance {
    /// An advance of `schedule` at `now` that changes nothing; its `next_check_at` is none.
    pub fn nothing(schedule: &Schedule, now: Timestamp) -> Self {
        Self {
            id: schedule.id,
            revision: schedule.revision,
            now,
            records: Vec::new(),
            cuts: Vec::new(),
            finished: Vec::new(),
            next_run_at: schedule.progress.next_run_at,
            next_check_at: None,
            switch: None,
            trigger: None,
            edited: None,
        }
    }
}

/// A run that was triggered under an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyedTrigger {
    /// The tenant of the key.
    pub tenant: String,
    /// The key, and a digest of the request.
    pub idempotency: Idempotency,
    /// The instant of the run.
    pub instant: Timestamp,
    /// The id of its task, which is made now or after a wait.
    pub task: TaskId,
}

/// A change of a schedule's pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PauseSwitch {
    /// Pause it, for this reason.
    Pause(String),
    /// Resume it.
    Resume,
}

/// The record that an advance writes for one instant.
#[derive(Clone, Debug)]
pub struct Record {
    /// The instant.
    pub instant: Timestamp,
    /// Why there is this occurrence.
    pub origin: Origin,
    /// Whether it waited until now: then its record exists and is changed. Otherwise the record is
    /// new, or of a backfill.
    pub waited: bool,
    /// What was decided.
    pub outcome: OccurrenceOutcome,
    /// The task of an occurrence that fires; none for every other outcome.
    pub fired: Option<FiredTask>,
    /// Why, as a stable word.
    pub reason: String,
    /// More about the reason, where the word does not say everything.
    pub detail: Option<String>,
    /// The instants that this record stands for, if there are many.
    pub covers: Option<Covers>,
}

impl Record {
    /// Whether it counts among the runs of its schedule; backfills do not.
    pub fn is_run(&self) -> bool {
        self.counts() && self.fired.is_some()
    }

    /// How many instants it adds to the skipped ones of its schedule.
    pub fn skipped(&self) -> u64 {
        if self.counts() && self.outcome == OccurrenceOutcome::Skipped { self.instants() } else { 0 }
    }

    /// How many instants it adds to the missed ones of its schedule; coalesced ones are among them.
    pub fn missed(&self) -> u64 {
        let is_missed = matches!(self.outcome, OccurrenceOutcome::Missed | OccurrenceOutcome::Coalesced);
        if self.counts() && is_missed { self.instants() } else { 0 }
    }

    /// How many instants it stands for.
    pub fn instants(&self) -> u64 {
        self.covers.map_or(1, |covers| covers.at_least)
    }

    /// Whether a count of its schedule includes it. An instant that is backfilled was counted when
    /// it was due, or was before the schedule.
    fn counts(&self) -> bool {
        self.origin != Origin::Backfill
    }
}

/// The task of an occurrence that fires.
#[derive(Clone, Debug)]
pub struct FiredTask {
    /// The task to insert.
    pub task: Box<NewTask>,
    /// Whether the schedule watches it until it finishes.
    pub watched: bool,
}
