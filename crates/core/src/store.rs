//! The port of the store: the durable truth about tasks. Everything else is a hint.
//!
//! The API, the dispatcher, the workers and the leader call it. Each adapter is in `crates/store`.
//!
//! # Contract
//! Each sentence is a test of the same name in `testkit::store`, stamped for every implementation.
//!
//! - `insert_is_durable_before_it_returns`: a task that `insert` returned survives `kill -9`.
//! - `insert_gives_the_first_task_again`: the same idempotency key and fingerprint in one tenant
//!   give [`Inserted::Replayed`] with the first task. In another tenant they give another task.
//! - `insert_refuses_a_key_with_another_body`: the same key with another fingerprint gives
//!   [`Inserted::KeyReused`], and nothing is stored.
//! - `insert_knows_the_digests_of_earlier_builds`: a key whose stored digest is the `earlier` one
//!   of a submission gives the first task again.
//! - `insert_handles_a_key_twice_in_one_batch`: the first creates, the second is a replay of it.
//! - `insert_replaces_a_final_task_if_asked_to`: with `replace_final` a task takes its key from one
//!   that is `CANCELLED` or `FAILED`. If it is refused after all, the key stays where it was.
//! - `insert_all_stores_all_or_nothing`: if one task cannot be stored, none is, and the others
//!   answer [`Inserted::Withheld`]. Tasks that were submitted before do not stop the others.
//! - `insert_bounds_the_lanes_of_a_tenant`: a task that needs one more lane than its tenant may
//!   have gives [`Inserted::TooManyLanes`] and is not stored. Tasks of its existing lanes and of
//!   other tenants are.
//! - `claim_takes_what_is_due_in_order`: by due instant, then in order of submission. Lanes are
//!   visited in the order given, and no limit is exceeded.
//! - `claim_is_bounded_in_bytes`: it stops at
//!   [`CLAIM_PAYLOAD`](crate::task::limits::CLAIM_PAYLOAD), but takes at least one task.
//! - `claim_takes_nothing_early`: tasks that are due after `now` stay.
//! - `claim_for_a_worker_takes_what_is_nearly_due_if_asked_to`: tasks due by the instant that the
//!   claim names, which may be a little ahead. Such a task is `RUNNING` from its due instant on.
//! - `claim_for_the_webhook_worker_starts_the_run`: such a task is `RUNNING` at once, held by this
//!   node for its timeout and the grace, and is settled by its token.
//! - `claim_gives_each_task_to_one`: concurrent claims never share a task.
//! - `claim_fails_what_has_expired`: a due task past its `expires_at` becomes `FAILED` instead,
//!   whether it waits for its first run or for a retry.
//! - `claim_returns_when_a_lane_is_due_next`: the first due instant of every visited lane that
//!   still has a waiting task.
//! - `claim_is_fenced_by_the_terms_of_its_partitions`: a dispatch that names an outdated term takes
//!   nothing from any lane, and the answer names the lost partitions.
//! - `claim_takes_nothing_due_before_its_bound`: a dispatch with a bound leaves tasks that were due
//!   before it, and returns when its lanes are due next from the bound on. A later call without a
//!   bound takes the tasks that were left.
//! - `claim_shortens_a_long_trail`: to its first and last steps and a count of the others, also in
//!   the task that it returns.
//! - `claim_counts_the_attempt`: attempts and token grow before any worker sees the task.
//! - `start_begins_what_is_queued_at_that_version`: any other task is left alone and answers
//!   `None`.
//! - `start_fails_what_has_expired`: a queued task past its `expires_at` becomes `FAILED` and is
//!   not started.
//! - `apply_is_conditional_on_state_version_and_tenant`: otherwise nothing changes and the answer
//!   is [`Applied::Lost`].
//! - `apply_spares_a_hold_that_was_extended_since`: a change that expects a hold is lost if that
//!   hold was extended or detached.
//! - `apply_moves_final_tasks_to_the_history_and_back`: readable in both; only a re-drive comes
//!   back.
//! - `apply_purges_a_dead_letter_in_the_history`: it is `CANCELLED` there, keeps what it was and
//!   can no longer be re-driven.
//! - `apply_keeps_what_a_change_keeps_of_the_trail`: whether the task is changed or edited.
//! - `apply_answers_each_change_of_a_batch`: in order. A lost change does not stop the others, and
//!   two changes of one task are applied one after the other.
//! - `apply_moves_an_edited_task_to_its_new_lane`: whether its priority, its queue or its
//!   destination is new. A new queue or destination that needs a lane beyond those that its tenant
//!   may have gives [`Applied::TooManyLanes`], and nothing changes.
//! - `apply_as_leader_is_fenced_by_the_term`: nothing is applied for a lease that another node has
//!   held since.
//! - `extend_needs_the_token`: an older token, a state other than `RUNNING` or a request to stop
//!   extends nothing.
//! - `extend_never_revives_a_hold_that_ran_out`: from its `expires_at` on the answer is `None` and
//!   nothing changes, even before the reaper has taken the task back. Until then a settlement by
//!   its token is still accepted.
//! - `extend_never_passes_the_deadline`, and keeps progress and checkpoint for the next attempt.
//! - `extend_can_detach_a_run_from_its_node`: the death of that node then does not end the run.
//! - `get_is_bound_to_the_tenant`: another tenant's id answers `None`.
//! - `get_quarantines_a_row_without_its_lane`: it answers `None`, since the tenant is not known,
//!   and moves the row to the quarantine. Other tasks are not affected.
//! - `live_names_the_tasks_that_have_not_finished`: in any order. A dead letter has finished; one
//!   that is re-driven is live again. Unknown tasks are not.
//! - `results_end_before_what_has_no_room`: they are answered in the order of the ids, of any
//!   tenant; `None` for a task that is not known. The answers end before the first result that
//!   would make all of them larger than the caller's bound.
//! - `list_pages_without_gap_or_repeat`: newest first or soonest first, all filters, keyset
//!   cursors.
//! - `list_finds_few_tasks_among_many`: the tasks of a tenant that has few are on one page, however
//!   many others have, and in the same order.
//! - `list_ends_a_page_that_is_large`: with a cursor, once its tasks are more than [`PAGE_BYTES`].
//! - `heads_pages_every_lane_due_before`: each lane with a waiting task due before the instant,
//!   once, with its first due instant.
//! - `overdue_finds_lost_holds_and_expired_tasks`: holds past their expiry, holds of dead nodes,
//!   waiting tasks past `expires_at`.
//! - `counts_by_lane_and_state` equals what `list` would count.
//! - `live_counts_are_the_sum_of_all_lanes`: of all tenants.
//!
//! Every await may be dropped: the call then happens or not, and nothing stays locked.

mod forwarding;
mod matching;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::coordinator::LeaderLease;
use crate::ids::{NodeId, ScheduleId, TaskId};
use crate::json::Json;
use crate::lane::{Lane, LaneId};
use crate::name_pattern::NamePattern;
use crate::partitions::Partition;
use crate::queues::LiveCounts;
use crate::state::{Change, State};
use crate::task::{Hold, NewTask, Task};
use crate::time::Timestamp;

/// A page of a listing ends when its tasks are more than this many bytes.
pub const PAGE_BYTES: usize = 1 << 20;

/// Why a call of the store failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Whether anything changed is not known. The same call may succeed later.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// The disk is full. Nothing changed; the call may succeed after the operator has freed space.
    #[error("the store is full: {0}")]
    Full(String),
    /// Too many writes wait. Nothing changed; the same call may succeed later.
    #[error("the store is overloaded")]
    Overloaded,
    /// Stored data cannot be read. An operator has to repair it.
    #[error("the store holds something unreadable: {0}")]
    Corrupt(String),
}

impl StoreError {
    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        !matches!(self, StoreError::Corrupt(_))
    }
}

/// The future that a forwarded call returns (see [`forward_store!`](crate::forward_store)).
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// The result of inserting one task.
#[derive(Clone, Debug)]
pub enum Inserted {
    /// It is stored.
    Created(Task),
    /// This task was submitted under the same key before, with the same content.
    Replayed(Task),
    /// The key belongs to this task, which has other content or was pruned since.
    KeyReused(TaskId),
    /// It depends on this task, which its tenant does not have. Nothing was stored.
    UnknownDependency(TaskId),
    /// Its queue has as many live tasks as it may have. Nothing was stored.
    QueueFull(FullQueue),
    /// It needs a new lane, and its tenant has as many as it may have: this many. Nothing was
    /// stored.
    TooManyLanes(u64),
    /// It could be stored, but another task of its [`Store::insert_all`] could not. Nothing was
    /// stored.
    Withheld,
}

/// A queue at its depth limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FullQueue {
    /// Its name.
    pub name: String,
    /// The maximum number of its live tasks.
    pub max_depth: u64,
}

/// A claim of up to `limit` due tasks for one claimant.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The lanes to take from, in this order, and the maximum number of tasks from each.
    pub lanes: Vec<(LaneId, usize)>,
    /// The maximum number of tasks in all.
    pub limit: usize,
    /// On whose behalf.
    pub claimant: Claimant,
}

/// On whose behalf a claim is made.
#[derive(Clone, Debug)]
pub enum Claimant {
    /// The dispatcher, for webhooks.
    Dispatch {
        /// Where the tasks go.
        to: DispatchTo,
        /// The partitions of the lanes, and the terms in which the node owns them. Empty if no
        /// other node shares the store.
        terms: Vec<(Partition, u64)>,
        /// The earliest due instant to take; none for everything that is due.
        from: Option<Timestamp>,
    },
    /// A pull worker, which runs the tasks at once. They become `RUNNING`.
    Worker {
        /// Its name.
        name: String,
        /// How long it may hold them without a heartbeat.
        lease_millis: u64,
        /// The latest due instant to take, at most [`CLAIM_AHEAD_MAX_MILLIS`] ahead of now. None
        /// means now.
        due_by: Option<Timestamp>,
    },
}

/// Where the dispatcher's tasks go.
#[derive(Clone, Debug)]
pub enum DispatchTo {
    /// To a broker. They become `QUEUED`, and must be started before the visibility ends.
    Broker {
        /// How long a published task may stay unstarted.
        visibility_millis: u64,
    },
    /// To the webhook worker of this process, which runs them at once. They become `RUNNING`.
    Worker {
        /// Its name.
        name: String,
        /// How long the hold outlasts the task's timeout, so that the worker can still settle.
        grace_millis: u64,
    },
}

/// The furthest ahead of now that a claim for a worker may take tasks.
pub const CLAIM_AHEAD_MAX_MILLIS: i64 = 1_000;

/// The result of a claim.
#[derive(Clone, Debug, Default)]
pub struct Claimed {
    /// The tasks, in order.
    pub tasks: Vec<Task>,
    /// For every lane that the claim visited: when its next waiting task is due, if it has one.
    pub next_due: Vec<(LaneId, Option<Timestamp>)>,
    /// How many tasks had expired and were failed instead.
    pub expired: usize,
    /// Partitions that the claimant no longer owns in the term it named. If there is one, nothing
    /// was taken.
    pub not_owned: Vec<Partition>,
    /// Lanes from which nothing more may be taken now, because of a limit of their queues (see
    /// [`queues`](crate::queues)).
    pub limited: Vec<LimitedLane>,
}

/// A lane from which a claim got less than it wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitedLane {
    /// The lane.
    pub lane: LaneId,
    /// The limit.
    pub by: LimitKind,
    /// When the next claim is worthwhile; none until the queue or its tasks change.
    pub until: Option<Timestamp>,
}

/// The kind of limit that keeps the tasks of a queue from being claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LimitKind {
    /// The queue is paused.
    Pause,
    /// The maximum number of tasks runs already.
    Concurrency,
    /// The rate limit allows no further start now.
    Rate,
}

/// The start of a run that came through a broker.
#[derive(Clone, Debug)]
pub struct Start {
    /// The task.
    pub id: TaskId,
    /// The version it was queued at.
    pub version: u64,
    /// The worker that starts it.
    pub worker: String,
    /// How long the hold outlasts the task's timeout, so that the worker can still settle.
    pub grace_millis: u64,
}

/// The result of applying a change.
#[derive(Clone, Debug)]
pub enum Applied {
    /// It was applied. If the task waits now: its lane and due instant.
    Done(Option<(Arc<Lane>, Timestamp)>),
    /// The task is no longer in the state, version or hold that the change expects. Nothing
    /// happened.
    Lost,
    /// It is an edit that moves the task to a new lane, and its tenant has as many as it may have:
    /// this many. Nothing happened.
    TooManyLanes(u64),
}

/// A heartbeat of the holder of a task.
#[derive(Clone, Debug)]
pub struct Beat {
    /// The task's tenant.
    pub tenant: String,
    /// The task.
    pub id: TaskId,
    /// The holder's token.
    pub token: u64,
    /// The progress that the worker reports.
    pub progress: Option<Json>,
    /// What the next attempt can resume from.
    pub checkpoint: Option<Json>,
    /// Whether the run goes on outside of the node that started it, and outlives it. The hold then
    /// ends with the task's timeout, without the grace for settling.
    pub detach: bool,
}

/// How a task stands, and what its run returned.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskResult {
    /// Its state.
    pub state: State,
    /// The result of its run, if it is `COMPLETED` and has one.
    pub result: Option<Json>,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// Its `execute_at`; only used if the listing is by `execute_at`.
    pub execute_at: Timestamp,
    /// Its id.
    pub id: TaskId,
}

/// Which tasks to list, all conditions together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
// A node that does not know a condition must not change what it excludes.
#[serde(default, deny_unknown_fields)]
pub struct Filter {
    /// Of this tenant.
    pub tenant: String,
    /// In one of these states; empty means any.
    pub states: Vec<State>,
    /// Of such a type.
    pub kind: Option<NamePattern>,
    /// In such a queue.
    pub queue: Option<NamePattern>,
    /// Made by this schedule.
    pub schedule_id: Option<ScheduleId>,
    /// At least this urgent.
    pub priority_min: Option<u8>,
    /// Created at or after.
    pub created_after: Option<Timestamp>,
    /// Created before.
    pub created_before: Option<Timestamp>,
    /// To be executed at or after.
    pub execute_after: Option<Timestamp>,
    /// To be executed before.
    pub execute_before: Option<Timestamp>,
    /// Finished at or after.
    pub completed_after: Option<Timestamp>,
    /// Finished before.
    pub completed_before: Option<Timestamp>,
    /// With this ordering key.
    pub ordering_key: Option<String>,
    /// With this concurrency key.
    pub concurrency_key: Option<String>,
    /// Submitted under this idempotency key.
    pub idempotency_key: Option<String>,
    /// With this worker, or run last by it.
    pub worker_id: Option<String>,
    /// Whose last error has this code.
    pub error_code: Option<String>,
    /// With these labels.
    pub metadata: BTreeMap<String, String>,
    /// Soonest `execute_at` first instead of newest first.
    pub by_execute_at: bool,
}

/// A lane with a waiting task.
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

/// The durable truth about tasks (see the module's contract). Every call takes a batch.
#[async_trait]
pub trait Store: Send + Sync {
    /// Stores tasks, or recognises them by their idempotency keys. Answers in order.
    async fn insert(&self, tasks: Vec<NewTask>) -> Result<Vec<Inserted>, StoreError>;

    /// Stores tasks as [`Store::insert`] does, but all of them or none.
    async fn insert_all(&self, tasks: Vec<NewTask>) -> Result<Vec<Inserted>, StoreError>;

    /// Claims due tasks, one claim after the other. Answers in order.
    async fn claim(&self, claims: Vec<Claim>) -> Result<Vec<Claimed>, StoreError>;

    /// Starts queued tasks. Answers in order; none where the task is not queued at that version.
    async fn start(&self, starts: Vec<Start>) -> Result<Vec<Option<Task>>, StoreError>;

    /// Applies changes, each by itself and in order. Answers in order.
    async fn apply(&self, changes: Vec<(TaskId, Change)>) -> Result<Vec<Applied>, StoreError>;

    /// Applies changes as the holder of `lease`, as [`Store::apply`] does. None if another node has
    /// held the lease since: then nothing was applied.
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

    /// Which of these tasks, of any tenant, have not finished. Costs little for each.
    async fn live(&self, ids: Vec<TaskId>) -> Result<Vec<TaskId>, StoreError>;

    /// Reads how these tasks stand, of any tenant, and their results: of the first ids in order, as
    /// many as have results of at most `max_bytes` together. It reads no payloads.
    async fn results(&self, ids: Vec<TaskId>, max_bytes: usize) -> Result<Vec<Option<TaskResult>>, StoreError>;

    /// Lists tasks, at most `limit`, strictly after the cursor.
    async fn list(&self, filter: Filter, after: Option<Cursor>, limit: usize) -> Result<Page, StoreError>;

    /// Lists lanes with a waiting task due before `before`, by lane number, strictly after `after`.
    async fn heads(&self, after: Option<LaneId>, before: Timestamp, limit: usize) -> Result<Vec<Head>, StoreError>;

    /// Finds held tasks whose hold ran out or whose node is in `dead`, and waiting tasks that
    /// expired.
    async fn overdue(&self, dead: Vec<NodeId>, limit: usize) -> Result<Vec<Task>, StoreError>;

    /// Counts live tasks by lane and state.
    async fn counts(&self) -> Result<Vec<Count>, StoreError>;

    /// Counts live tasks by state. It costs the same however many there are, and however many
    /// lanes.
    async fn live_counts(&self) -> Result<LiveCounts, StoreError>;

    /// Counts the tasks in quarantine, up to ten thousand.
    async fn quarantined(&self) -> Result<u64, StoreError>;

    /// Whether the store answers, reads and writes.
    async fn check(&self) -> Result<(), StoreError>;

    /// Finishes the writes under way and closes. Further calls fail.
    async fn close(&self) -> Result<(), StoreError>;
}
