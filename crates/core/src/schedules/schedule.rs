//! A schedule as it is stored, and the snapshot that decisions about it are based on.

use serde::{Deserialize, Serialize};

use super::plan::{Overlap, Spec, WaitingOccurrence};
use crate::ids::{ScheduleId, TaskId};
use crate::json::Json;
use crate::state::State;
use crate::time::Timestamp;

/// The maximum number of characters of a reason for a pause.
pub const PAUSE_REASON_MAX: usize = 255;

/// A recurring schedule as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// Its id.
    pub id: ScheduleId,
    /// Its tenant.
    pub tenant: String,
    /// Its name, unique in its tenant.
    pub name: String,
    /// How often it was edited, paused or resumed, from 1.
    pub version: u64,
    /// How often it was written at all, its advances included, from 1.
    pub revision: u64,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was last edited, paused or resumed.
    pub updated_at: Timestamp,
    /// What its owner wrote.
    pub definition: Definition,
    /// Since when it is paused, and why. `definition.spec.paused` says the same.
    pub pause: Option<SchedulePause>,
    /// How far it has come.
    pub progress: Progress,
}

impl Schedule {
    /// Pauses or resumes it.
    pub fn set_pause(&mut self, pause: Option<SchedulePause>) {
        self.definition.spec.paused = pause.is_some();
        self.pause = pause;
    }

    /// When the cron loop has to check it next. With `waits` it is checked on every pass, since it
    /// waits for a task to finish and not for an instant.
    pub fn next_check_at(&self, waits: bool) -> Option<Timestamp> {
        match self.pause {
            _ if waits => Some(EVERY_PASS),
            Some(_) => None,
            None => self.progress.next_run_at,
        }
    }

    /// Whether it has to know when its tasks end.
    pub fn watches(&self) -> bool {
        self.definition.pause_on_failure || self.definition.spec.overlap != Overlap::AllowAll
    }
}

/// The `next_check_at` of a schedule that is checked on every pass of the cron loop.
pub const EVERY_PASS: Timestamp = Timestamp::from_millis(0);

/// What the owner of a schedule wrote.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    /// What decides its occurrences.
    pub spec: Spec,
    /// Whether a task that ends `FAILED` or `DEAD_LETTERED` pauses it.
    pub pause_on_failure: bool,
    /// What every occurrence submits, in the form of a submitted task.
    pub task: Json,
}

impl Definition {
    /// The names in its task.
    pub fn task_names(&self) -> Result<TaskNames, serde_json::Error> {
        serde_json::from_str(self.task.get())
    }
}

/// The names in the task of a schedule, without the rest of it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct TaskNames {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its queue; none if it goes to the default queue.
    pub queue: Option<String>,
}

/// The pause of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulePause {
    /// Since when.
    pub at: Timestamp,
    /// Why.
    pub reason: Option<String>,
}

/// How far a schedule has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The first undecided instant; none if there is none to come.
    pub next_run_at: Option<Timestamp>,
    /// When the cron loop has to check it next.
    pub next_check_at: Option<Timestamp>,
    /// The last instant that fired, apart from backfills.
    pub last_run_at: Option<Timestamp>,
    /// How many instants have fired, apart from backfills.
    pub run_count: u64,
    /// How many instants were missed or coalesced.
    pub missed_count: u64,
    /// How many instants were skipped.
    pub skipped_count: u64,
}

/// Everything that a decision about a schedule is based on. The store reads the `revision` first,
/// so any later change moves it and the decision is lost.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduleSnapshot {
    /// The schedule.
    pub schedule: Schedule,
    /// The first [`PLAN_MAX`](super::plan::PLAN_MAX) waiting occurrences, in the order in which
    /// they leave the buffer.
    pub buffered: Vec<WaitingOccurrence>,
    /// Its tasks that are not known to have finished: the oldest
    /// [`PLAN_MAX`](super::plan::PLAN_MAX).
    pub watched: Vec<WatchedTask>,
    /// The waiting occurrences that were triggered under a key.
    pub promised: Vec<Promise>,
}

impl ScheduleSnapshot {
    /// The promise of the occurrence that waits for this instant, if it was triggered under a key.
    pub fn promise(&self, instant: Timestamp) -> Option<&Promise> {
        self.promised.iter().find(|promise| promise.instant == instant)
    }
}

/// The task that a waiting occurrence will make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    /// The instant that waits.
    pub instant: Timestamp,
    /// The id that the task will have.
    pub task: TaskId,
    /// The idempotency key of the trigger; none if an earlier version stored it, which kept no
    /// keys.
    pub key: Option<String>,
}

/// A task whose end the schedule has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchedTask {
    /// The instant it was made for.
    pub instant: Timestamp,
    /// The task.
    pub task: TaskId,
    /// Its state; none if it was removed.
    pub state: Option<State>,
    /// Whether it was asked to stop.
    pub stop_requested: bool,
}

impl WatchedTask {
    /// Whether it runs or may still run.
    pub fn is_live(&self) -> bool {
        self.state.is_some_and(|state| !state.is_final())
    }

    /// Whether it ended as a failure.
    pub fn has_failed(&self) -> bool {
        matches!(self.state, Some(State::Failed | State::DeadLettered))
    }
}
