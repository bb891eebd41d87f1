//! The store: the durable truth. Everything else is a hint.
//!
//! # Contract
//! Each sentence is a test of the same name in `testkit::store`, stamped for every
//! implementation.
//!
//! - `insert_is_durable_before_it_returns`: what `insert` returned is there after the process is
//!   killed.
//! - `insert_gives_the_first_task_again`: the same idempotency key and fingerprint in one tenant
//!   gives [`Inserted::Replayed`] with the first task; in another tenant it is another task.
//! - `insert_refuses_a_key_with_another_body`: same key, another fingerprint:
//!   [`Inserted::KeyReused`], nothing stored.
//! - `insert_handles_a_key_twice_in_one_batch`: the first creates, the second is a replay of it.
//! - `claim_takes_what_is_due_in_order`: by due instant, then in order of submission; lanes in the
//!   order given; never over a limit.
//! - `claim_is_bounded_in_bytes`: it stops at
//!   [`CLAIM_PAYLOAD`](crate::task::limits::CLAIM_PAYLOAD), but takes at least one task.
//! - `claim_takes_nothing_early`: what is due after `now` stays.
//! - `claim_for_a_worker_takes_what_is_nearly_due_if_asked_to`: what is due by the instant that it
//!   names, which may be a little ahead; such a task is `RUNNING` from its due instant on.
//! - `claim_gives_each_task_to_one`: concurrent claims never share a task.
//! - `claim_fails_what_has_expired`: a due task past its `expires_at` becomes `FAILED` and is not
//!   given out, a retry as little as the first run.
//! - `claim_returns_when_a_lane_is_due_next`: the first due instant of every visited lane that still
//!   has one.
//! - `claim_is_fenced_by_the_terms_of_its_partitions`: a dispatch that names a term which is not
//!   the partition's own any more takes nothing, of no lane, and is told which partitions it has
//!   lost.
//! - `claim_takes_nothing_due_before_its_bound`: a dispatch with a bound leaves what was due before
//!   it, and tells of its lanes when they are due next from the bound on; a later call without one
//!   takes what was left.
//! - `claim_counts_the_attempt`: attempts and token grow before anybody sees the task.
//! - `start_begins_what_is_queued_at_that_version`: anything else is left alone and answers `None`.
//! - `start_fails_what_has_expired`: a queued task past its `expires_at` becomes `FAILED` and is
//!   not begun.
//! - `apply_is_conditional_on_state_version_and_tenant`: otherwise nothing changes and the answer
//!   is [`Applied::Lost`].
//! - `apply_spares_a_hold_that_was_extended_since`: a change that judged a hold is lost if that was
//!   extended or detached.
//! - `apply_moves_final_tasks_to_the_history_and_back`: readable in both; only a re-drive comes
//!   back.
//! - `apply_answers_each_change_of_a_batch`: in order; a lost one does not stop the others; two
//!   changes of one task in a batch are applied one after the other.
//! - `apply_as_leader_is_fenced_by_the_term`: of a lease that somebody else has held since nothing
//!   is applied.
//! - `extend_needs_the_token`: an older token, a state other than `RUNNING` or a request to stop
//!   extends nothing.
//! - `extend_never_revives_a_hold_that_ran_out`: from its `expires_at` on the answer is `None` and
//!   nothing changes, even if the reaper has not come by yet; an outcome by its token is still
//!   taken until it has.
//! - `extend_never_passes_the_deadline`, and keeps progress and checkpoint for the next attempt.
//! - `extend_can_detach_a_run_from_its_node`: the death of that node then does not end the run.
//! - `get_is_bound_to_the_tenant`: another tenant's id answers `None`.
//! - `get_quarantines_a_row_without_its_lane`: it answers `None`, since nobody knows whose the task
//!   is, and moves the row out of the way. Other tasks are not affected.
//! - `list_pages_without_gap_or_repeat`: newest first or soonest first, all filters, keyset
//!   cursors.
//! - `list_ends_a_page_that_is_large`: with a cursor, once its tasks are more than [`PAGE_BYTES`].
//! - `heads_pages_every_lane_due_before`: each lane with a waiting task due before the instant,
//!   once, with its first due instant.
//! - `overdue_finds_lost_holds_and_expired_tasks`: holds past their expiry, holds of dead nodes,
//!   waiting tasks past `expires_at`.
//! - `counts_by_lane_and_state` equals what `list` would count.
//!
//! Every await may be dropped; the call then has happened or not, and nothing stays locked.

mod forwarding;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;

use crate::coordinator::LeaderLease;
use crate::ids::{NodeId, ScheduleId, TaskId};
use crate::json::Json;
use crate::lane::{Lane, LaneId};
use crate::partitions::Partition;
use crate::state::{Change, State};
use crate::task::{Hold, NewTask, Task};
use crate::time::Timestamp;

/// A page of a listing ends when its tasks are more than this many bytes.
pub const PAGE_BYTES: usize = 16 << 20;

/// Why a store did not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing was changed, or it is not known whether it was; asking again may succeed.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// The store is full: nothing was changed; asking again may succeed after somebody made room.
    #[error("the store is full: {0}")]
    Full(String),
    /// Too much is waiting to be written: nothing was changed; ask again later.
    #[error("the store is overloaded")]
    Overloaded,
    /// What is stored cannot be read; somebody has to look at it.
    #[error("the store holds something unreadable: {0}")]
    Corrupt(String),
}

impl StoreError {
    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        !matches!(self, StoreError::Corrupt(_))
    }
}

/// What a call of a store returns (see [`forward_store!`](crate::forward_store)).
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// What became of one submitted task.
#[derive(Clone, Debug)]
pub enum Inserted {
    /// It is stored.
    Created(Task),
    /// A task was submitted under this key before, with the same content: this one.
    Replayed(Task),
    /// A task was submitted under this key before, with other content, or its history was removed
    /// since.
    KeyReused(TaskId),
    /// It depends on this task, which its tenant does not have: nothing was stored.
    UnknownDependency(TaskId),
    /// Its queue has as many live tasks as it may have: nothing was stored.
    QueueFull(FullQueue),
}

/// A queue that has no room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FullQueue {
    /// Its name.
    pub name: String,
    /// How many live tasks it may have.
    pub max_depth: u64,
}

/// A claim of up to `limit` due tasks for one claimant.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The lanes to take from, in this order, and at most how many from each.
    pub lanes: Vec<(LaneId, usize)>,
    /// At most how many in all.
    pub limit: usize,
    /// Who takes them.
    pub claimant: Claimant,
}

/// Who takes claimed tasks, and how.
#[derive(Clone, Debug)]
pub enum Claimant {
    /// The scheduler, to publish them: they become `QUEUED` and must be started before the
    /// visibility ends.
    Dispatch {
        /// How long a published task may stay unstarted.
        visibility_millis: u64,
        /// The partitions of the lanes, and the terms in which the node owns them. Whoever shares
        /// the store with nobody names none.
        terms: Vec<(Partition, u64)>,
        /// Only what is due from this instant on; none means everything that is due.
        from: Option<Timestamp>,
    },
    /// A worker, to run them at once: they become `RUNNING`.
    Worker {
        /// Its name.
        name: String,
        /// For how long, unless it shows signs of life.
        lease_millis: u64,
        /// What is due by this instant, if it is a little ahead of now ([`CLAIM_AHEAD_MAX_MILLIS`]): the
        /// worker is told of it then. None means what is due by now.
        due_by: Option<Timestamp>,
    },
}

/// No claim looks further ahead than this.
pub const CLAIM_AHEAD_MAX_MILLIS: i64 = 1_000;

/// What a claim gave.
#[derive(Clone, Debug, Default)]
pub struct Claimed {
    /// The tasks, in order.
    pub tasks: Vec<Task>,
    /// For every lane that was looked at: when its next waiting task is due, if it has one.
    pub next_due: Vec<(LaneId, Option<Timestamp>)>,
    /// How many had expired and were failed instead.
    pub expired: usize,
    /// Partitions that the claimant does not own any more in the term it named; nothing was taken
    /// then.
    pub not_owned: Vec<Partition>,
    /// Lanes of which nothing more may be taken now, because of their queues (see
    /// [`queues`](crate::queues)).
    pub limited: Vec<LimitedLane>,
}

/// A lane that a claim was not given what it wanted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitedLane {
    /// The lane.
    pub lane: LaneId,
    /// What holds it.
    pub by: LimitKind,
    /// When it is worth to come again; none: when somebody does something.
    pub until: Option<Timestamp>,
}

/// What holds the tasks of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LimitKind {
    /// It is paused.
    Pause,
    /// As many run as may.
    Concurrency,
    /// As many began as may.
    Rate,
}

/// The begin of a run that came through a broker.
#[derive(Clone, Debug)]
pub struct Start {
    /// The task.
    pub id: TaskId,
    /// The version it was queued at.
    pub version: u64,
    /// The worker that begins it.
    pub worker: String,
    /// What is added to the task's timeout before its hold expires: time for the worker to tell the
    /// outcome.
    pub grace_millis: u64,
}

/// What became of a change.
#[derive(Clone, Debug)]
pub enum Applied {
    /// It was applied; a task that waits now is told with its lane and due instant.
    Done(Option<(Arc<Lane>, Timestamp)>),
    /// The task is not (any more) where the change expects it: nothing happened.
    Lost,
}

/// A sign of life from the holder of a task.
#[derive(Clone, Debug)]
pub struct Beat {
    /// The task's tenant.
    pub tenant: String,
    /// The task.
    pub id: TaskId,
    /// The holder's token.
    pub token: u64,
    /// How far it is.
    pub progress: Option<Json>,
    /// What the next attempt can resume from.
    pub checkpoint: Option<Json>,
    /// The run goes on outside of the node that began it, and outlives it. It has the rest of its
    /// task's timeout, and not the grace in which a node tells what came of a run.
    pub detach: bool,
}

/// A page of a listing.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The tasks.
    pub tasks: Vec<Task>,
    /// Where the next page begins; none at the end. A page may be short and still have a next one.
    pub next: Option<Cursor>,
}

/// Strictly after this task, in the order of the listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Its `execute_at`; only looked at when the listing is by `execute_at`.
    pub execute_at: Timestamp,
    /// Its id.
    pub id: TaskId,
}

/// Which tasks to list, all conditions together.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Whose.
    pub tenant: String,
    /// In one of these states; empty means any.
    pub states: Vec<State>,
    /// Of this type.
    pub kind: Option<String>,
    /// In this queue.
    pub queue: Option<String>,
    /// Made by this schedule.
    pub schedule_id: Option<ScheduleId>,
    /// At least this urgent.
    pub priority_min: Option<u8>,
    /// Created at or after.
    pub created_after: Option<Timestamp>,
    /// Created before.
    pub created_before: Option<Timestamp>,
    /// Wanted at or after.
    pub execute_after: Option<Timestamp>,
    /// Wanted before.
    pub execute_before: Option<Timestamp>,
    /// With these labels.
    pub metadata: BTreeMap<String, String>,
    /// Soonest `execute_at` first instead of newest first.
    pub by_execute_at: bool,
}

/// A lane with something waiting.
#[derive(Clone, Debug)]
pub struct Head {
    /// The lane.
    pub lane: Arc<Lane>,
    /// When its first waiting task is due.
    pub due_at: Timestamp,
}

/// How many tasks of a lane are in a state.
#[derive(Clone, Debug)]
pub struct Count {
    /// The lane.
    pub lane: Arc<Lane>,
    /// The state.
    pub state: State,
    /// How many.
    pub tasks: u64,
}

/// The durable truth about tasks (see the module's contract). Batch first: no call is made per
/// task.
#[async_trait]
pub trait Store: Send + Sync {
    /// Stores tasks, or recognises them by their idempotency keys. Answers in order.
    async fn insert(&self, tasks: Vec<NewTask>) -> Result<Vec<Inserted>, StoreError>;

    /// Takes due tasks for each claim, one claim after the other.
    async fn claim(&self, claims: Vec<Claim>) -> Result<Vec<Claimed>, StoreError>;

    /// Begins queued tasks. Answers in order; none where the task is not queued at that version.
    async fn start(&self, starts: Vec<Start>) -> Result<Vec<Option<Task>>, StoreError>;

    /// Applies changes, each by itself and in order. Answers in order.
    async fn apply(&self, changes: Vec<(TaskId, Change)>) -> Result<Vec<Applied>, StoreError>;

    /// Applies changes as the holder of `lease`, as [`Store::apply`] does. None: somebody else has
    /// held it since, and nothing was applied.
    async fn apply_as(
        &self,
        lease: &LeaderLease,
        changes: Vec<(TaskId, Change)>,
    ) -> Result<Option<Vec<Applied>>, StoreError>;

    /// Extends holds. Answers in order with the new hold; none where the token does not hold the
    /// task, or its hold has run out.
    async fn extend(&self, beats: Vec<Beat>) -> Result<Vec<Option<Hold>>, StoreError>;

    /// Reads tasks of one tenant. Answers in order.
    async fn get(&self, tenant: &str, ids: Vec<TaskId>) -> Result<Vec<Option<Task>>, StoreError>;

    /// Lists tasks, at most `limit`, strictly after the cursor.
    async fn list(&self, filter: Filter, after: Option<Cursor>, limit: usize) -> Result<Page, StoreError>;

    /// Lists lanes with a waiting task due before `before`, by lane number, strictly after `after`.
    async fn heads(&self, after: Option<LaneId>, before: Timestamp, limit: usize) -> Result<Vec<Head>, StoreError>;

    /// Finds held tasks whose hold ran out or whose node is in `dead`, and waiting ones that
    /// expired.
    async fn overdue(&self, dead: Vec<NodeId>, limit: usize) -> Result<Vec<Task>, StoreError>;

    /// Counts live tasks by lane and state.
    async fn counts(&self) -> Result<Vec<Count>, StoreError>;

    /// Counts the tasks that were put away because their rows cannot be read; from ten thousand on,
    /// it says just that.
    async fn quarantined(&self) -> Result<u64, StoreError>;

    /// Whether the store answers, reads and writes.
    async fn check(&self) -> Result<(), StoreError>;

    /// Writes out what it has and closes; further calls fail.
    async fn close(&self) -> Result<(), StoreError>;
}
