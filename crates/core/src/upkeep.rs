//! The port of the work that a store needs beside the calls of its users: resolving and pruning.
//!
//! *Resolving:* tasks with an ordering key wait for their turn, and tasks that depend on others for
//! those to finish. Whatever may change that (a submission, a settlement, an edit, a re-drive)
//! leaves a note in the store in its own transaction, an *outbox*, and no more. The resolver works
//! the notes off: right after the commit on the same node ([`Upkeep::wait_for_notes`]), and in a
//! sweep on every node. So a crash between any two lines loses nothing. Only the resolver decides
//! whose turn it is; a change of state is made by the state machine, as any other.
//!
//! *Pruning:* what is over is removed: old history with all that hangs on it, idempotency keys that
//! no client can be retrying any more, and the rest of [`Prunable`]. The leader calls it, step by
//! step. Every step is conditional on what the rows say, so that two leaders for a moment do no
//! harm.
//!
//! # Contract of resolving
//! Each sentence is a test of the same name in `testkit::resolver`, stamped for every
//! implementation.
//!
//! - `a_key_gives_one_turn_at_a_time`: of the tasks of a tenant with the same ordering key one can
//!   be claimed, the first by `execute_at`, then in order of submission; the next when it has come
//!   to rest. Other keys, the same key of another tenant, and tasks without one do not wait for it.
//! - `a_turn_that_has_begun_is_kept`: a retry goes before whatever is earlier by now; an attempt
//!   that was given back, or a task that nobody has claimed yet, gives its turn to what is earlier.
//! - `an_edited_time_moves_the_turn`: earlier or later, while the task has not begun.
//! - `a_dead_letter_lets_the_next_go_or_holds_them`: as its queue says. Those that are held wait
//!   until it is driven again (it is first then), removed, or its queue says otherwise.
//! - `a_queue_that_stops_holding_releases_at_once`: without a review, of however many, by the steps
//!   that work off notes.
//! - `a_task_waits_for_what_it_depends_on`: it is `BLOCKED` until all of it has completed, and
//!   `PENDING` then, due at its `execute_at` or now, whichever is later. What had completed before
//!   is not waited for.
//! - `an_unknown_task_cannot_be_depended_on`:
//!   [`Inserted::UnknownDependency`](crate::store::Inserted), for a task of another tenant too;
//!   nothing is stored, neither of the task nor of those in its batch that depend on it, and its
//!   idempotency key is free.
//! - `a_replayed_member_stands_for_its_first_task`: in the dependencies of the other tasks of its
//!   batch.
//! - `a_failed_dependency_follows_the_policy`: `cancel`, `run` or `fail`, of the child, whether its
//!   parent was cancelled, failed or became a dead letter, before it was submitted or since; its
//!   trail names that one.
//! - `a_failure_goes_down_a_chain`: of any length, step by step.
//! - `a_dead_letter_may_hold_its_children`: as its queue says; they follow it when it has been
//!   driven again and completes, and its policy when it is removed, or its queue says otherwise.
//! - `a_parent_that_ends_meanwhile_wakes_its_child`: whichever of the two is first, the child's
//!   submission or the end.
//! - `resolvers_share_the_work`: of several at once each note is worked off by one; a child is
//!   released once.
//! - `notes_outlive_the_process`: what was left is resolved after a restart.
//! - `resolve_returns_what_may_be_claimed`: with its lane and due instant.
//!
//! # Contract of pruning
//! Each sentence is a test of the same name in `testkit::retention`. Occurrences, breaker counts
//! and workers are tested with their own ports.
//!
//! - `old_history_is_pruned`: step by step, until a step says that there is no more: what came
//!   to rest before the instant is neither read nor listed nor driven again. A store that keeps its
//!   history by months may keep it until all of its month is past.
//! - `younger_and_live_tasks_are_kept`: whatever came to rest at the instant or after it
//!   stays as it is, and so does every task that did not come to rest, however old it is.
//! - `a_step_is_small`: it removes as many as it may at the most (a month goes as a whole).
//! - `pruned_tasks_never_come_back`: neither by a change that was decided before nor after a
//!   restart.
//! - `old_keys_are_free_again`: a key that was used before the instant can be used for
//!   another task.
//! - `a_key_of_a_live_task_is_kept`: however old it is; and a younger key is, too.
//! - `a_key_may_outlive_its_task`: it is refused then, for the same content too: what was done is
//!   not done again.
//! - `past_minutes_are_pruned`: of the forecast, step by step; the one that lasts and those to
//!   come stay as they are.

use std::sync::Arc;

use async_trait::async_trait;

use crate::lane::Lane;
use crate::store::StoreError;
use crate::time::Timestamp;

/// What a step of the resolver did.
#[derive(Clone, Debug, Default)]
pub struct Resolved {
    /// Tasks that may be claimed from now on: their lanes and when they are due.
    pub waiting: Vec<(Arc<Lane>, Timestamp)>,
    /// How many tasks were given their turn, released, cancelled or failed.
    pub tasks: usize,
    /// Whether there may be more: the next step goes on where this one ended.
    pub more: bool,
}

/// What can be pruned, and what is over before an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prunable {
    /// Tasks that finished before it.
    History,
    /// Idempotency keys that were used before it and whose tasks are not live.
    Keys,
    /// Entries of the workers' ledger that expired by it, where the store has one.
    Ledger,
    /// Counts of the forecast whose minutes are past by it.
    Forecast,
    /// Occurrences of schedules whose instants are before it.
    Occurrences,
    /// Counts of runs for the breakers whose slots are before it. They are few: the limit does not
    /// hold for them.
    BreakerCounts,
    /// Workers last seen before it. They are few: the limit does not hold for them.
    Workers,
}

/// What a step of pruning did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// How many were removed, as far as they were counted.
    pub removed: u64,
    /// Whether there may be more: the next step goes on where this one ended.
    pub more: bool,
}

/// Resolves and prunes (see the module's contract).
#[async_trait]
pub trait Upkeep: Send + Sync {
    /// Removes at most `limit` of what is over before an instant.
    async fn prune(&self, what: Prunable, before: Timestamp, limit: usize) -> Result<Pruned, StoreError>;

    /// Works off some notes, the oldest first; and looks at some of what is held, if a queue has
    /// ceased to hold.
    async fn resolve(&self) -> Result<Resolved, StoreError>;

    /// Looks again at some of what is held behind dead letters, a page a call, and leaves a note
    /// where that is over.
    async fn review(&self) -> Result<(), StoreError>;

    /// Returns once a call to this store has left a note to resolve, or a queue has ceased to hold.
    async fn wait_for_notes(&self);
}
