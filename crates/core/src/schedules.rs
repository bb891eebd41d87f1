//! The port to recurring schedules: what they are, where they stand, and what became of their instants.
//!
//! The API writes and edits them; the leader's cron loop asks what is due, lets [`plan`](crate::schedule::plan) decide,
//! and writes what was decided in one transaction. Every write of a schedule is conditional on its `revision`, which every
//! write moves: of two that decided by the same reading one is lost. The cron loop's are fenced by the leader's term too.
//! An occurrence is (schedule, instant), a primary key, so that an instant cannot fire twice whatever else goes wrong.
//!
//! # Contract
//! Each sentence is a test of the same name in `testkit::schedules`.
//!
//! - `a_name_is_given_once_in_a_tenant`: a second one is refused and nothing is stored; another tenant has its own names.
//! - `replace_needs_the_revision`: otherwise nothing changes; what is written is read again in full.
//! - `a_name_that_is_taken_is_not_given_by_a_replace`: and nothing of it is written.
//! - `remove_needs_the_revision_and_frees_the_name`: the tasks that it made stay.
//! - `a_schedule_is_bound_to_its_tenant`: another tenant neither reads, names nor lists it.
//! - `list_pages_by_name`: without gap or repeat.
//! - `due_tells_what_is_to_be_looked_at`: whose `look_at` has come, by it, page by page; and when the next comes.
//! - `a_turn_is_one_write`: tasks, records, counters and `next_run_at`, all or nothing; the tasks can be claimed.
//! - `a_turn_whose_task_is_refused_leaves_nothing`: nor do those in the same call; they are written when it is not any more.
//! - `a_turn_needs_the_revision`: of two that were decided by the same reading one is written, the other leaves nothing.
//! - `a_turn_is_fenced_by_the_term`: of a lease that somebody else has held since nothing is written.
//! - `an_instant_fires_once`: what has a record of having fired gets neither another task nor another record.
//! - `what_waited_changes_its_record`: and only what waited does.
//! - `a_backfill_fires_what_did_not_run`: the record of an instant that was skipped or missed is written anew.
//! - `what_waits_is_told_in_its_order`: occurrences by their time before those of a backfill, each by instant.
//! - `what_fired_is_watched_until_it_rests`: with the state of its task, until a turn says that it has come to rest.
//! - `a_turn_of_a_removed_schedule_is_lost`: and no task is made.
//! - `a_backfill_is_none_of_the_runs`: its tasks are not counted among them, so that `max_runs` is for the others, and none of
//!   its instants is that of the last run.
//! - `a_key_is_asked_under_once`: of a turn whose key stands for something else already nothing is written; the key of one
//!   whose instant has a record already is given back.
//! - `what_waits_knows_the_task_of_its_key`: and the key, until it has fired, or will not.
//! - `a_turn_edits_in_the_same_write`: the version grows by one; a name that is taken leaves everything as it was.
//! - `occurrences_page_from_the_newest`: without gap or repeat.
//! - `occurrences_past_their_time_go`: in small steps; what waits and what is watched stays.
//!
//! Every await may be dropped; the call then has happened or not, and nothing stays locked.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::coordinator::Lease;
use crate::ids::{ScheduleId, TaskId};
use crate::json::Json;
use crate::lane::Lane;
use crate::schedule::plan::{Buffered, Covers, Origin, Overlap, Spec};
use crate::state::State;
use crate::store::StoreError;
use crate::task::{Idempotency, NewTask};
use crate::time::Timestamp;

/// Characters of a reason for a pause.
pub const PAUSE_REASON: usize = 255;

/// A recurring schedule as the store has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// Its id.
    pub id: ScheduleId,
    /// Whose it is.
    pub tenant: String,
    /// Its name, unique in its tenant.
    pub name: String,
    /// How often it was edited, paused or resumed, from 1.
    pub version: u64,
    /// How often it was written at all, its turns included, from 1.
    pub revision: u64,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was edited, paused or resumed last.
    pub updated_at: Timestamp,
    /// What its owner wrote.
    pub definition: Definition,
    /// Since when it is paused, and why. `definition.spec.paused` says the same.
    pub pause: Option<Pause>,
    /// Where it stands.
    pub progress: Progress,
}

impl Schedule {
    /// Pauses it, or lets it go on.
    pub fn set_pause(&mut self, pause: Option<Pause>) {
        self.definition.spec.paused = pause.is_some();
        self.pause = pause;
    }

    /// When the cron loop has to look at it next. `waits` for something that no instant tells: a task to come to rest.
    pub fn look_at(&self, waits: bool) -> Option<Timestamp> {
        match self.pause {
            _ if waits => Some(AT_EVERY_LOOK),
            Some(_) => None,
            None => self.progress.next_run_at,
        }
    }

    /// Whether what becomes of its tasks matters to it.
    pub fn watches(&self) -> bool {
        self.definition.pause_on_failure || self.definition.spec.overlap != Overlap::AllowAll
    }
}

/// The `look_at` of a schedule that waits for a task and not for an instant.
pub const AT_EVERY_LOOK: Timestamp = Timestamp::from_millis(0);

/// What the owner of a schedule wrote.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    /// What decides its occurrences.
    pub spec: Spec,
    /// A task of it that ends `FAILED` or `DEAD_LETTERED` pauses it.
    pub pause_on_failure: bool,
    /// What every occurrence submits, as the API reads a task.
    pub task: Json,
}

/// A schedule that is paused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Since when.
    pub at: Timestamp,
    /// Why.
    pub reason: Option<String>,
}

/// Where a schedule stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The first instant that is not decided; none when nothing is to come.
    pub next_run_at: Option<Timestamp>,
    /// When the cron loop has to look at it next.
    pub look_at: Option<Timestamp>,
    /// The last instant that fired, those of backfills apart.
    pub last_run_at: Option<Timestamp>,
    /// How many have fired, those of backfills apart.
    pub run_count: u64,
    /// How many were missed or coalesced.
    pub missed_count: u64,
    /// How many were skipped.
    pub skipped_count: u64,
}

/// What a look at a schedule finds: read after its `revision`, so that whatever changed since moves that.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// The schedule.
    pub schedule: Schedule,
    /// What waits, the first [`TURN`](crate::schedule::plan::TURN) in the order in which it leaves.
    pub buffered: Vec<Buffered>,
    /// Its tasks that are not known to have come to rest, the oldest [`TURN`](crate::schedule::plan::TURN).
    pub watched: Vec<Watched>,
    /// What waits and was asked for under a key.
    pub promised: Vec<Promise>,
}

impl Standing {
    /// The task that what waits for this instant will be, if it was asked for under a key.
    pub fn promise(&self, instant: Timestamp) -> Option<&Promise> {
        self.promised.iter().find(|promise| promise.instant == instant)
    }
}

/// The task that something which waits will be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    /// The instant that waits.
    pub instant: Timestamp,
    /// The task.
    pub task: TaskId,
    /// The idempotency key that it was asked for under; none if that was an earlier version, which did not keep it.
    pub key: Option<String>,
}

/// A task of a schedule whose end matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// The instant it was made for.
    pub instant: Timestamp,
    /// The task.
    pub task: TaskId,
    /// Its state; none if it is gone.
    pub state: Option<State>,
    /// Whether it was asked to stop.
    pub stop_asked: bool,
}

impl Watched {
    /// Whether it may run, now or later.
    pub fn is_live(&self) -> bool {
        self.state.is_some_and(|state| !state.is_final())
    }

    /// Whether it ended otherwise than its owner wished.
    pub fn has_failed(&self) -> bool {
        matches!(self.state, Some(State::Failed | State::DeadLettered))
    }
}

/// What a turn writes of one schedule, in one transaction.
#[derive(Clone, Debug)]
pub struct Turn {
    /// The schedule.
    pub id: ScheduleId,
    /// The revision that it was decided by.
    pub revision: u64,
    /// When it was decided.
    pub now: Timestamp,
    /// What became of which instant.
    pub records: Vec<Record>,
    /// Instants whose tasks have come to rest: they are not watched any more.
    pub rested: Vec<Timestamp>,
    /// The first instant that is not decided now either.
    pub next_run_at: Option<Timestamp>,
    /// When the cron loop has to look at it next.
    pub look_at: Option<Timestamp>,
    /// To be added to the count of those skipped.
    pub skipped: u64,
    /// To be added to the count of those missed.
    pub missed: u64,
    /// It is paused from now on, or goes on.
    pub switch: Option<Switch>,
    /// The run that somebody asked for under a key; such a turn is written by itself.
    pub asked: Option<Asked>,
    /// The schedule as it is to be, as far as the rest of the turn does not say; such a turn is written by itself.
    pub edited: Option<Box<Schedule>>,
}

/// A run that somebody asked for under an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Whose key it is.
    pub tenant: String,
    /// The key, and a digest of what was asked for.
    pub idempotency: Idempotency,
    /// The instant of the run.
    pub instant: Timestamp,
    /// The task that it is, or will be when it has waited.
    pub task: TaskId,
}

/// Whether a schedule is paused from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Switch {
    /// It is, for this reason.
    Pause(String),
    /// It goes on.
    Resume,
}

/// What becomes of one instant.
#[derive(Clone, Debug)]
pub struct Record {
    /// The instant.
    pub instant: Timestamp,
    /// Why there is this occurrence.
    pub origin: Origin,
    /// Whether it waited so far: its record says so, and is changed. One that did not is new, or of a backfill.
    pub waited: bool,
    /// What becomes of it.
    pub outcome: Recorded,
    /// Why, as a stable word.
    pub reason: String,
    /// More about it, where the word does not say everything.
    pub detail: Option<String>,
    /// The instants that it stands for, where they are many.
    pub covers: Option<Covers>,
}

impl Record {
    /// Whether it counts among the runs of its schedule: a backfill is what somebody wants beside them.
    pub fn is_run(&self) -> bool {
        self.origin != Origin::Backfill && self.outcome.task().is_some()
    }
}

/// The outcome of an occurrence as it is written, with the task of one that fires.
#[derive(Clone, Debug)]
pub enum Recorded {
    /// It waits.
    Buffered,
    /// This task is made; `watched` if what becomes of it matters.
    Fired {
        /// The task.
        task: Box<NewTask>,
        /// Whether it is to be watched.
        watched: bool,
    },
    /// It does not run, by the rules of the schedule.
    Skipped,
    /// Nobody was there.
    Missed,
    /// It is left to a later one.
    Coalesced,
}

impl Recorded {
    /// The word for it.
    pub const fn outcome(&self) -> Outcome {
        match self {
            Recorded::Buffered => Outcome::Buffered,
            Recorded::Fired { .. } => Outcome::Fired,
            Recorded::Skipped => Outcome::Skipped,
            Recorded::Missed => Outcome::Missed,
            Recorded::Coalesced => Outcome::Coalesced,
        }
    }

    /// The task of one that fires, and whether it is watched.
    pub fn task(&self) -> Option<(&NewTask, bool)> {
        match self {
            Recorded::Fired { task, watched } => Some((task, *watched)),
            _ => None,
        }
    }
}

/// What became of an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It waits for the previous task.
    Buffered,
    /// A task was made.
    Fired,
    /// It did not run, by the rules of the schedule.
    Skipped,
    /// Nobody was there at its time.
    Missed,
    /// It was left to a later one.
    Coalesced,
}

impl Outcome {
    /// Every outcome, in the order of their codes.
    pub const ALL: [Outcome; 5] =
        [Outcome::Buffered, Outcome::Fired, Outcome::Skipped, Outcome::Missed, Outcome::Coalesced];

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

/// An occurrence as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occurrence {
    /// Its instant.
    pub instant: Timestamp,
    /// Why there is this occurrence.
    pub origin: Origin,
    /// What became of it.
    pub outcome: Outcome,
    /// Why, as a stable word.
    pub reason: String,
    /// More about it.
    pub detail: Option<String>,
    /// The task that was made.
    pub task: Option<TaskId>,
    /// The instants that it stands for, where they are many.
    pub covers: Option<Covers>,
    /// When this was decided.
    pub decided_at: Timestamp,
}

/// What became of a new schedule.
#[derive(Clone, Debug, PartialEq)]
pub enum Inserted {
    /// It is stored.
    Created,
    /// There is one of this name.
    NameTaken,
}

/// What became of an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// It is written.
    Done,
    /// The schedule is at another revision, or gone: nothing happened.
    Lost,
    /// Another one has that name: nothing happened.
    NameTaken,
}

/// What became of a turn.
#[derive(Clone, Debug)]
pub enum Turned {
    /// It is written.
    Done {
        /// The lanes of the tasks that were made and wait, and when those are due.
        waiting: Vec<(Arc<Lane>, Timestamp)>,
        /// The instants that were recorded; those missing had a record already.
        recorded: Vec<Timestamp>,
    },
    /// The schedule is at another revision, or gone, or the key of what was asked for is taken: nothing happened.
    Lost,
    /// The edit gives it a name that another one has: nothing happened.
    NameTaken,
}

/// What a key stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyOwner {
    /// The task that was, or will be, made under it.
    pub task: TaskId,
    /// A digest of what was asked for.
    pub fingerprint: [u8; 32],
}

/// A page of what is due.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Due {
    /// Those that can be read; one that cannot stops no other.
    pub standings: Vec<Standing>,
    /// Where the next page begins; none at the end.
    pub next: Option<LookedAt>,
}

/// Where a page of what is due ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookedAt {
    /// The `look_at` of its last schedule.
    pub look_at: Timestamp,
    /// That schedule.
    pub id: ScheduleId,
}

/// The durable truth about schedules (see the module's contract).
#[async_trait]
pub trait Schedules: Send + Sync {
    /// Stores a schedule.
    async fn insert(&self, schedule: Schedule) -> Result<Inserted, StoreError>;

    /// Writes a schedule whose stored revision is still that of `schedule`; the revision grows by one.
    async fn replace(&self, schedule: Schedule) -> Result<Replaced, StoreError>;

    /// Removes a schedule that is at this revision. False: it is not.
    async fn remove(&self, id: ScheduleId, revision: u64) -> Result<bool, StoreError>;

    /// Reads a schedule of a tenant.
    async fn get(&self, tenant: &str, id: ScheduleId) -> Result<Option<Schedule>, StoreError>;

    /// Reads the schedule of this name.
    async fn named(&self, tenant: &str, name: &str) -> Result<Option<Schedule>, StoreError>;

    /// Lists the schedules of a tenant by name, strictly after `after`.
    async fn list(&self, tenant: &str, after: Option<String>, limit: usize) -> Result<Vec<Schedule>, StoreError>;

    /// What a tenant's idempotency key stands for.
    async fn key_owner(&self, tenant: &str, key: &str) -> Result<Option<KeyOwner>, StoreError>;

    /// What of a schedule a turn is decided by.
    async fn standing(&self, tenant: &str, id: ScheduleId) -> Result<Option<Standing>, StoreError>;

    /// The schedules whose `look_at` is not after `now`, by it, strictly after `after`.
    async fn due(&self, now: Timestamp, after: Option<LookedAt>, limit: usize) -> Result<Due, StoreError>;

    /// The first `look_at` after `now`.
    async fn next_look(&self, now: Timestamp) -> Result<Option<Timestamp>, StoreError>;

    /// Writes turns, each by itself: for the holder of `lease` if there is one. None: somebody else has held it since,
    /// and nothing was written. Answers in order.
    async fn turn(&self, lease: Option<&Lease>, turns: Vec<Turn>) -> Result<Option<Vec<Turned>>, StoreError>;

    /// Lists what became of a schedule's instants, the newest first, strictly before `before`.
    async fn occurrences(
        &self,
        id: ScheduleId,
        before: Option<Timestamp>,
        limit: usize,
    ) -> Result<Vec<Occurrence>, StoreError>;
}
