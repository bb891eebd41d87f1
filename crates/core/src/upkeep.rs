//! The port of the store's own work: resolving and pruning.
//!
//! *Resolving:* tasks with an ordering key wait for their turn, and tasks with dependencies wait
//! for those to finish. Every write that may end such a wait (a submission, a settlement, an edit,
//! a re-drive, a purge) only leaves a note in the *outbox*, in its own transaction. The resolver
//! works off the notes: right after the commit on the same node ([`Upkeep::wait_for_notes`]), and
//! in a sweep on every node. So a crash loses nothing. Only the resolver decides turns and
//! dependencies; the state machine makes the changes, as always.
//!
//! *Pruning:* the leader removes old history with everything that belongs to it, idempotency keys
//! that no client can still retry, and the rest of [`Prunable`], in small steps. Every step is
//! conditional on the rows, so two leaders at once do no harm.
//!
//! # Contract of resolving
//! Each sentence is a test of the same name in `testkit::resolver`, stamped for every
//! implementation.
//!
//! - `a_key_gives_one_turn_at_a_time`: one task of a tenant with the same ordering key can be
//!   claimed, the first by `execute_at`, then in order of submission; the next when it has
//!   finished. Tasks with another key, of another tenant or without a key do not wait.
//! - `a_turn_that_has_begun_is_kept`: a retry keeps its turn, even if a task is earlier by now. A
//!   task that was given back or not yet claimed gives its turn to an earlier task.
//! - `a_claim_waits_for_an_earlier_task_of_the_key`: a task that has not begun is not claimed once
//!   an earlier one was stored, even before that is resolved. Tasks behind it in its lane do not
//!   wait, and it stays the head of its lane.
//! - `an_edited_time_moves_the_turn`: earlier or later, while the task has not started.
//! - `an_edited_key_moves_the_turn`: the task gives up the turn of its old key and waits for that
//!   of its new one, or for none.
//! - `a_dead_letter_lets_the_next_go_or_holds_them`: as its queue says. Held tasks wait until it is
//!   re-driven (then it is first) or removed, or its queue says otherwise.
//! - `a_purged_dead_letter_holds_nothing`: the next task of its key goes on, and its children
//!   follow their policy.
//! - `a_queue_that_stops_holding_releases_at_once`: without a review, however many tasks it held,
//!   by the steps that work off notes.
//! - `a_task_waits_for_what_it_depends_on`: it is `BLOCKED` until all its dependencies have
//!   completed. Then it is `PENDING`, due at its `execute_at` or now, whichever is later. It does
//!   not wait for tasks that had completed before.
//! - `an_unknown_task_cannot_be_depended_on`:
//!   [`Inserted::UnknownDependency`](crate::store::Inserted), also for a task of another tenant.
//!   Neither the task nor its dependents in the batch are stored, and its idempotency key is free.
//! - `a_replayed_member_stands_for_its_first_task`: in the dependencies of the other tasks of its
//!   batch.
//! - `a_failed_dependency_follows_the_policy`: the child's policy `cancel`, `run` or `fail`,
//!   whether its parent was cancelled, failed or became a dead letter, before its submission or
//!   since. Its trail names the parent.
//! - `a_failure_goes_down_a_chain`: of any length, step by step.
//! - `a_dead_letter_may_hold_its_children`: as its queue says. They run when it was re-driven and
//!   completed. They follow their policy when it is removed, or its queue says otherwise.
//! - `a_redrive_revives_its_dependents_if_asked_to`: the tasks that finished because of the dead
//!   letter wait again, and those that finished because of them, step by step. Tasks that finished
//!   for another reason stay as they are.
//! - `a_revived_task_waits_for_all_its_parents`: also for those that finished without completing
//!   since, and fails again if one of these is not revived.
//! - `a_revived_task_forgets_the_parents_it_waited_for`: the end of a parent that it does not wait
//!   for any more, resolved late, does not release it.
//! - `a_replaced_task_is_not_revived`: its idempotency key belongs to another task by now.
//! - `a_parent_that_ends_meanwhile_wakes_its_child`: whether the child's submission or the parent's
//!   end is first.
//! - `resolvers_share_the_work`: each note is worked off by one of them, and a child is released
//!   once.
//! - `notes_outlive_the_process`: the notes that were left are resolved after a restart.
//! - `resolve_returns_what_may_be_claimed`: the lane and due instant.
//!
//! # Contract of pruning
//! Each sentence is a test of the same name in `testkit::retention`. Occurrences, breaker counts,
//! workers and nonces are tested with their own ports.
//!
//! - `old_history_is_pruned`: step by step, until a step says that there is no more. Tasks that
//!   finished before the instant can no longer be read, listed or re-driven. A store that keeps its
//!   history by months may keep it until the whole month is past.
//! - `younger_and_live_tasks_are_kept`: tasks that finished at the instant or later stay, and so
//!   does every live task, however old it is.
//! - `a_step_is_small`: it removes at most its limit (a month is removed as a whole).
//! - `pruned_tasks_never_come_back`: neither by a change that was decided before, nor after a
//!   restart.
//! - `old_keys_are_free_again`: a key that was used before the instant can be used for another
//!   task.
//! - `a_key_of_a_live_task_is_kept`: however old it is. A younger key is kept too.
//! - `a_key_may_outlive_its_task`: then it is refused, even for the same content, since the work
//!   must not be done again.
//! - `past_minutes_are_pruned`: of the forecast, step by step. The current minute and later ones
//!   stay.
//! - `empty_lanes_are_removed`: step by step, by the second round that finds them without a task. A
//!   round ends when a step says that there is no more.
//! - `lanes_in_use_are_kept`: those with a live task, with one since the last round, and those that
//!   a finished task names, as long as it can be read.
//! - `a_removed_lane_is_made_again`: by the next task that needs it, also in a process that has
//!   used the lane before. Nothing is refused or lost.

use std::sync::Arc;

use async_trait::async_trait;

use crate::lane::Lane;
use crate::store::StoreError;
use crate::time::Timestamp;

/// The result of a step of the resolver.
#[derive(Clone, Debug, Default)]
pub struct Resolved {
    /// The lanes and due instants of tasks that may be claimed from now on.
    pub waiting: Vec<(Arc<Lane>, Timestamp)>,
    /// How many tasks were given their turn, released, cancelled or failed.
    pub tasks: usize,
    /// Whether there may be more: the next step continues where this one ended.
    pub more: bool,
}

/// What can be pruned, by an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prunable {
    /// Tasks that finished before it.
    History,
    /// Idempotency keys that were used before it and whose tasks are not live.
    Keys,
    /// Entries of the workers' ledger that expired by it, where the store has one.
    Ledger,
    /// Counts of the forecast whose minutes are over by it.
    Forecast,
    /// Occurrences of schedules whose instants are before it.
    Occurrences,
    /// Counts of runs for breakers whose intervals are before it. They are few, so the limit does
    /// not apply.
    BreakerCounts,
    /// Workers last seen before it. They are few, so the limit does not apply.
    Workers,
    /// Nonces of signed requests that ended before it.
    Nonces,
    /// Lanes that no task is in or names, neither at it nor when they were looked at before.
    Lanes,
}

/// The result of a step of pruning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// How many rows were removed, as far as they were counted.
    pub removed: u64,
    /// Whether there may be more: the next step continues where this one ended.
    pub more: bool,
}

/// Resolves and prunes (see the module's contract).
#[async_trait]
pub trait Upkeep: Send + Sync {
    /// Removes at most `limit` of the rows that [`Prunable`] describes for the instant `before`.
    async fn prune(&self, what: Prunable, before: Timestamp, limit: usize) -> Result<Pruned, StoreError>;

    /// Works off some notes, the oldest first, and some held tasks of a queue that stopped holding.
    async fn resolve(&self) -> Result<Resolved, StoreError>;

    /// Reviews a page of the tasks that are held behind dead letters, and leaves a note for each
    /// that is held no longer.
    async fn review(&self) -> Result<(), StoreError>;

    /// Waits until a call to this store has left a note, or a queue has stopped holding.
    async fn wait_for_notes(&self);
}
