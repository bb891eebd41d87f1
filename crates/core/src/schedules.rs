//! The port to recurring schedules: their definitions, their progress, and the records of their
//! instants.
//!
//! The API writes and edits schedules. The leader's cron loop reads which of them are due, lets
//! [`plan`] decide, and writes an [`Advance`]. Every write of a schedule is conditional on its
//! `revision`, and every write moves the revision: of two decisions that were based on the same
//! revision, one is lost. The leader's term fences the cron loop's writes too. An occurrence is
//! (schedule, instant), a primary key, so no instant can fire twice.
//!
//! # Contract
//! Each sentence is a test of the same name in `testkit::schedules`.
//!
//! - `a_name_is_given_once_in_a_tenant`: a second one is refused and nothing is stored; another
//!   tenant has its own names.
//! - `replace_needs_the_revision`: otherwise nothing changes; what is written is read back in full.
//! - `a_name_that_is_taken_is_not_given_by_a_replace`: and nothing of it is written.
//! - `remove_needs_the_revision_and_frees_the_name`: the tasks that it made stay.
//! - `a_schedule_is_bound_to_its_tenant`: another tenant can neither read nor list it.
//! - `list_pages_by_name`: without gap or repeat.
//! - `due_lists_the_schedules_to_check`: the schedules whose `next_check_at` has come, in that
//!   order, page by page; and when the next one comes.
//! - `an_advance_is_one_write`: tasks, records, counters and `next_run_at`, all or nothing; the
//!   tasks can be claimed.
//! - `an_advance_whose_task_is_refused_leaves_nothing`: nor do the others of the same call; they
//!   can be written once the reason is gone.
//! - `an_advance_needs_the_revision`: of two that were decided by the same reading one is written,
//!   and the other leaves nothing.
//! - `an_advance_is_fenced_by_the_term`: nothing is written for a lease that another node has held
//!   since.
//! - `an_instant_fires_once`: an instant whose record says fired gets no second task or record.
//! - `a_waiting_occurrence_changes_its_record`: and no other record changes.
//! - `a_backfill_fires_instants_that_did_not_run`: it overwrites the record of a skipped or missed instant.
//! - `waiting_occurrences_are_listed_in_order`: occurrences that came due or were triggered before those of
//!   a backfill, each by instant.
//! - `a_fired_task_is_watched_until_it_finishes`: with the state of its task, until an advance says that
//!   the task has finished.
//! - `an_advance_of_a_removed_schedule_is_lost`: and no task is made.
//! - `a_backfill_is_none_of_the_runs`: its tasks count neither towards `run_count` nor `max_runs`,
//!   and none of its instants is the last run.
//! - `a_key_triggers_one_run`: an advance whose key stands for something else is lost; the key
//!   of one whose instant has a record already is freed.
//! - `a_waiting_occurrence_knows_the_task_of_its_key`: and the key, until it has fired or is skipped.
//! - `an_advance_edits_in_the_same_write`: the version grows by one; a name that is taken leaves
//!   everything as it was.
//! - `occurrences_page_from_the_newest`: without gap or repeat.
//! - `old_occurrences_are_pruned`: in small steps; waiting and watched ones stay.
//!
//! Every await may be dropped; the call then has happened or not, and nothing stays locked.

pub mod plan;

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::coordinator::LeaderLease;
use crate::ids::{ScheduleId, TaskId};
use crate::json::Json;
use crate::lane::Lane;
use crate::schedules::plan::{Covers, Origin, Overlap, Spec, WaitingOccurrence};
use crate::state::State;
use crate::store::StoreError;
use crate::task::{Idempotency, NewTask};
use crate::time::Timestamp;

/// The most characters of a reason for a pause.
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

    /// Whether the end of its tasks matters to it.
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
    /// The occurrences that wait: the first [`PLAN_MAX`](plan::PLAN_MAX), in the order in which
    /// they leave.
    pub buffered: Vec<WaitingOccurrence>,
    /// Its tasks that are not known to have finished: the oldest [`PLAN_MAX`](plan::PLAN_MAX).
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

/// A task of a schedule whose end matters.
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
    /// Instants whose tasks have finished, and are no longer watched.
    pub finished: Vec<Timestamp>,
    /// The first instant that is still undecided.
    pub next_run_at: Option<Timestamp>,
    /// When the cron loop has to check the schedule next.
    pub next_check_at: Option<Timestamp>,
    /// To be added to the count of skipped instants.
    pub skipped: u64,
    /// To be added to the count of missed instants.
    pub missed: u64,
    /// Whether it pauses or resumes the schedule.
    pub switch: Option<PauseSwitch>,
    /// The trigger under an idempotency key; such an advance is written by itself.
    pub trigger: Option<KeyedTrigger>,
    /// The edited schedule, apart from what the other fields say; such an advance is written by
    /// itself.
    pub edited: Option<Box<Schedule>>,
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
        self.origin != Origin::Backfill && self.fired.is_some()
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

/// What was decided about an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OccurrenceOutcome {
    /// It waits for the previous task.
    Buffered,
    /// A task is made.
    Fired,
    /// It does not run, because of the overlap policy, a pause or the limit of runs.
    Skipped,
    /// It does not run, because no leader was there at its time.
    Missed,
    /// It does not run by itself, because a later one runs for it.
    Coalesced,
}

impl OccurrenceOutcome {
    /// Every outcome, in the order of their codes.
    pub const ALL: [OccurrenceOutcome; 5] = [
        OccurrenceOutcome::Buffered,
        OccurrenceOutcome::Fired,
        OccurrenceOutcome::Skipped,
        OccurrenceOutcome::Missed,
        OccurrenceOutcome::Coalesced,
    ];

    /// The word on the wire and in the metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            OccurrenceOutcome::Buffered => "buffered",
            OccurrenceOutcome::Fired => "fired",
            OccurrenceOutcome::Skipped => "skipped",
            OccurrenceOutcome::Missed => "missed",
            OccurrenceOutcome::Coalesced => "coalesced",
        }
    }

    /// The number in the store's column; statements know those of the first two.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The outcome with this number.
    pub fn from_code(code: i64) -> Option<Self> {
        usize::try_from(code).ok().and_then(|index| Self::ALL.get(index).copied())
    }
}

/// The number of an origin in the store's column; statements know that of a backfill.
pub const fn origin_code(origin: Origin) -> u8 {
    match origin {
        Origin::Due => 0,
        Origin::Manual => 1,
        Origin::Backfill => 2,
    }
}

/// The origin with this number.
pub const fn origin_from_code(code: i64) -> Option<Origin> {
    match code {
        0 => Some(Origin::Due),
        1 => Some(Origin::Manual),
        2 => Some(Origin::Backfill),
        _ => None,
    }
}

/// The stored record of an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occurrence {
    /// Its instant.
    pub instant: Timestamp,
    /// Why there is this occurrence.
    pub origin: Origin,
    /// What was decided.
    pub outcome: OccurrenceOutcome,
    /// Why, as a stable word.
    pub reason: String,
    /// More about the reason.
    pub detail: Option<String>,
    /// The task that was made.
    pub task: Option<TaskId>,
    /// The instants that it stands for, if there are many.
    pub covers: Option<Covers>,
    /// When this was decided.
    pub decided_at: Timestamp,
}

/// The result of [`Schedules::insert`].
#[derive(Clone, Debug, PartialEq)]
pub enum ScheduleInserted {
    /// It is stored.
    Created,
    /// Another schedule has this name.
    NameTaken,
}

/// The result of [`Schedules::replace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// It is written.
    Done,
    /// The schedule is at another revision, or removed: nothing happened.
    Lost,
    /// Another schedule has that name: nothing happened.
    NameTaken,
}

/// The result of one advance.
#[derive(Clone, Debug)]
pub enum Advanced {
    /// It is written.
    Done {
        /// The lanes of the tasks that were made and wait, and when those are due.
        waiting: Vec<(Arc<Lane>, Timestamp)>,
        /// The instants that were recorded; those missing had a record already.
        recorded: Vec<Timestamp>,
    },
    /// The schedule is at another revision or removed, or the trigger's key is taken: nothing
    /// happened.
    Lost,
    /// The edit gives it a name that another schedule has: nothing happened.
    NameTaken,
}

/// What an idempotency key stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyOwner {
    /// The task that was, or will be, made under it.
    pub task: TaskId,
    /// A digest of the request.
    pub fingerprint: [u8; 32],
}

/// A page of schedules that are due for a check.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DueSchedules {
    /// The schedules of the page. One that cannot be read is left out.
    pub snapshots: Vec<ScheduleSnapshot>,
    /// Where the next page begins; none at the end.
    pub next: Option<CheckCursor>,
}

/// Where a page of due schedules ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckCursor {
    /// The `next_check_at` of its last schedule.
    pub next_check_at: Timestamp,
    /// The id of that schedule.
    pub id: ScheduleId,
}

/// The store of schedules (see the module's contract).
#[async_trait]
pub trait Schedules: Send + Sync {
    /// Stores a schedule.
    async fn insert(&self, schedule: Schedule) -> Result<ScheduleInserted, StoreError>;

    /// Writes a schedule whose stored revision is still that of `schedule`; the revision grows by
    /// one.
    async fn replace(&self, schedule: Schedule) -> Result<Replaced, StoreError>;

    /// Removes a schedule that is at this revision. False if it is not.
    async fn remove(&self, id: ScheduleId, revision: u64) -> Result<bool, StoreError>;

    /// Reads a schedule of a tenant.
    async fn get(&self, tenant: &str, id: ScheduleId) -> Result<Option<Schedule>, StoreError>;

    /// Reads the schedule of this name.
    async fn named(&self, tenant: &str, name: &str) -> Result<Option<Schedule>, StoreError>;

    /// Lists the schedules of a tenant by name, strictly after `after`.
    async fn list(&self, tenant: &str, after: Option<String>, limit: usize) -> Result<Vec<Schedule>, StoreError>;

    /// Reads what a tenant's idempotency key stands for.
    async fn key_owner(&self, tenant: &str, key: &str) -> Result<Option<KeyOwner>, StoreError>;

    /// Reads everything that a decision about a schedule is based on.
    async fn snapshot(&self, tenant: &str, id: ScheduleId) -> Result<Option<ScheduleSnapshot>, StoreError>;

    /// Lists the schedules whose `next_check_at` is not after `now`, in that order, strictly after
    /// `after`.
    async fn due(&self, now: Timestamp, after: Option<CheckCursor>, limit: usize) -> Result<DueSchedules, StoreError>;

    /// The first `next_check_at` after `now`.
    async fn next_check(&self, now: Timestamp) -> Result<Option<Timestamp>, StoreError>;

    /// Writes advances, each by itself, in the order of the answers. With a `lease` it writes
    /// nothing and returns none if another node has held that lease since.
    async fn advance(
        &self,
        lease: Option<&LeaderLease>,
        advances: Vec<Advance>,
    ) -> Result<Option<Vec<Advanced>>, StoreError>;

    /// Lists the records of a schedule's instants, the newest first, strictly before `before`.
    async fn occurrences(
        &self,
        id: ScheduleId,
        before: Option<Timestamp>,
        limit: usize,
    ) -> Result<Vec<Occurrence>, StoreError>;
}
