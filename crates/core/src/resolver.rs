//! The resolver: what follows when a task comes to rest, or to its place.
//!
//! Tasks with an ordering key wait for their turn, and tasks that depend on others for those to
//! come to rest. Whatever may change that (a submission, a settlement, an edit, a re-drive)
//! leaves a note in the store in its own transaction, an *outbox*, and no more. The resolver
//! works the notes off: right after the commit on the same node ([`Resolver::left`]), and in a
//! sweep on every node. So a crash between any two lines loses nothing. Only it decides whose
//! turn it is; a change of state is made by the state machine, as any other.
//!
//! # Contract
//! Each sentence is a test of the same name in `testkit::resolver`, stamped for every
//! implementation.
//!
//! - `a_key_gives_one_turn_at_a_time`: of the tasks of a tenant with the same ordering key one can be claimed, the first
//!   by `execute_at`, then in order of submission; the next when it has come to rest. Other keys, the same key of another
//!   tenant, and tasks without one do not wait for it.
//! - `a_turn_that_has_begun_is_kept`: a retry goes before whatever is earlier by now; an attempt that was given back, or a
//!   task that nobody has claimed yet, gives its turn to what is earlier.
//! - `an_edited_time_moves_the_turn`: earlier or later, while the task has not begun.
//! - `a_dead_letter_lets_the_next_go_or_holds_them`: as its queue says. Those that are held wait until it is driven again
//!   (it is first then), removed, or its queue says otherwise.
//! - `a_queue_that_holds_no_more_lets_go_at_once`: without a review, of however many, by the steps that work off notes.
//! - `a_task_waits_for_what_it_depends_on`: it is `BLOCKED` until all of it has completed, and `PENDING` then, due at its
//!   `execute_at` or now, whichever is later. What had completed before is not waited for.
//! - `what_is_not_there_cannot_be_depended_on`: [`Inserted::UnknownDependency`](crate::store::Inserted), for a task of
//!   another tenant too; nothing is stored, neither of the task nor of those in its batch that depend on it, and its
//!   idempotency key is free.
//! - `a_replayed_member_stands_for_its_first_task`: in the dependencies of the other tasks of its batch.
//! - `a_failed_dependency_follows_the_policy`: `cancel`, `run` or `fail`, of the child, whether its parent was cancelled,
//!   failed or became a dead letter, before it was submitted or since; its trail names that one.
//! - `a_failure_goes_down_a_chain`: of any length, step by step.
//! - `a_dead_letter_may_hold_its_children`: as its queue says; they follow it when it has been driven again and completes,
//!   and its policy when it is removed, or its queue says otherwise.
//! - `a_parent_that_ends_meanwhile_wakes_its_child`: whichever of the two is first, the child's submission or the end.
//! - `resolvers_share_the_work`: of several at once each note is worked off by one; a child is released once.
//! - `notes_outlive_the_process`: what was left is resolved after a restart.
//! - `what_may_be_claimed_now_is_told`: with its lane and due instant.

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

/// Works off what transactions left to resolve (see the module's contract).
#[async_trait]
pub trait Resolver: Send + Sync {
    /// Works off some of it, the oldest first; and looks at some of what is held, if a queue has ceased to hold.
    async fn resolve(&self) -> Result<Resolved, StoreError>;

    /// Looks again at some of what is held behind dead letters, a page a call, and leaves a note where that is over.
    async fn review(&self) -> Result<(), StoreError>;

    /// Returns once a call to this store has left something to resolve, or a queue has ceased to hold.
    async fn left(&self);
}
