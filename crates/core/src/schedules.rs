//! The port of recurring schedules: their definitions, their progress, and the records of their
//! instants.
//!
//! The API writes and edits schedules. The leader's cron loop reads which of them are due, lets
//! [`plan`] decide, and writes an [`Advance`]. Every write of a schedule is conditional on its
//! `revision`, and raises it. So if two decisions are based on the same revision, one is lost. The
//! leader's term fences the cron loop's writes too. An occurrence is (schedule, instant), a primary
//! key, so no instant can fire twice.
//!
//! # Contract
//! Each sentence is a test of the same name in `testkit::schedules`.
//!
//! - `a_name_is_given_once_in_a_tenant`: a second schedule of the name is refused; another tenant
//!   has its own names.
//! - `replace_needs_the_revision`: otherwise nothing changes. Everything written is read back.
//! - `a_name_that_is_taken_is_not_given_by_a_replace`: and nothing of it is written.
//! - `remove_needs_the_revision_and_frees_the_name`: the tasks that it made stay.
//! - `a_schedule_is_bound_to_its_tenant`: another tenant can neither read nor list it.
//! - `list_pages_by_name`: without gap or repeat.
//! - `due_lists_the_schedules_to_check`: those whose `next_check_at` has come, in that order, page
//!   by page. `next_check` returns when the next one comes.
//! - `an_advance_is_one_write`: tasks, records, counters and `next_run_at`, all or nothing. The
//!   tasks can be claimed.
//! - `an_advance_whose_task_is_refused_leaves_nothing`: and neither do the other advances of the
//!   call. They can be written once the reason is gone.
//! - `an_advance_needs_the_revision`: of two that were decided by the same read, one is written and
//!   the other leaves nothing.
//! - `an_advance_is_fenced_by_the_term`: nothing is written for a lease that another node has held
//!   since.
//! - `an_instant_fires_once`: an instant whose record says fired gets no second task or record.
//! - `a_waiting_occurrence_changes_its_record`: and no other record changes.
//! - `a_backfill_fires_instants_that_did_not_run`: it overwrites the record of a skipped or missed
//!   instant.
//! - `a_cut_keeps_what_a_backfill_does_not_run`: of a record that stands for many instants, the
//!   parts before and after are written with the backfill. Each is as the record was, apart from
//!   what it covers.
//! - `covering_lists_the_records_of_many_instants`: those that may stand for an instant of the
//!   range, and no others.
//! - `only_written_records_are_counted`: a record that is not written, or is of a backfill, adds
//!   nothing to the counts of skipped and missed instants; one that covers many adds them all.
//! - `waiting_occurrences_are_listed_in_order`: those that came due or were triggered before those
//!   of a backfill, each by instant.
//! - `a_fired_task_is_watched_until_it_finishes`: with its state, until an advance says that it has
//!   finished.
//! - `an_advance_of_a_removed_schedule_is_lost`: and no task is made.
//! - `a_backfill_does_not_count_as_a_run`: its tasks count towards neither `run_count` nor
//!   `max_runs`, and its instants never become the last run.
//! - `a_key_triggers_one_run`: an advance whose key stands for something else is lost. The key is
//!   freed if its instant has a record already.
//! - `a_waiting_occurrence_knows_the_task_of_its_key`: and the key, until it has fired or is
//!   skipped.
//! - `an_advance_edits_in_the_same_write`: the version grows by one. A name that is taken leaves
//!   everything as it was.
//! - `occurrences_page_from_the_newest`: without gap or repeat.
//! - `old_occurrences_are_pruned`: in small steps; waiting and watched ones stay.
//!
//! Every await may be dropped: the call then happens or not, and nothing stays locked.

mod advance;
mod occurrence;
pub mod plan;
mod schedule;

use std::sync::Arc;

use async_trait::async_trait;

use crate::coordinator::LeaderLease;
use crate::ids::{ScheduleId, TaskId};
use crate::lane::Lane;
use crate::store::StoreError;
use crate::time::Timestamp;
use plan::CoveringRecord;

pub use advance::{Advance, FiredTask, KeyedTrigger, PauseSwitch, Record};
pub use occurrence::{Occurrence, OccurrenceOutcome, origin_code, origin_from_code};
pub use schedule::{
    Definition, EVERY_PASS, PAUSE_REASON_MAX, Progress, Promise, Schedule, SchedulePause, ScheduleSnapshot, TaskNames,
    WatchedTask,
};

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

    /// Lists the records of a schedule that stand for many instants, of which some may be from
    /// `from` to `to`: at most [`BACKFILL_MAX`](plan::BACKFILL_MAX), by instant.
    async fn covering(&self, id: ScheduleId, from: Timestamp, to: Timestamp)
    -> Result<Vec<CoveringRecord>, StoreError>;
}
