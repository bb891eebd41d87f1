//! Obstacles: what keeps a task from being claimed, as far as the store has it.
//!
//! Half of the port [`Insight`](crate::insight::Insight); the API reads it to explain a task. Every
//! call is bounded, however many tasks wait. Each call shows one moment, and the next call another.
//! [`queues`](crate::queues) returns the limits and pauses of queues.
//!
//! # Contract
//! Each sentence is a test of the same name in `testkit::obstacles`.
//!
//! - `blockers_are_listed_in_the_order_of_depends_on`: the first so many of those that are
//!   still waited for, with where they stand, and how many there are in all; of a task that waits
//!   for nobody there are none.
//! - `a_dead_letter_that_holds_its_children_is_shown`: as one that does.
//! - `the_turn_of_a_key_is_shown`: who has it, and how many wait before the task, up to a bound;
//!   whoever has the turn waits for nobody, and a task without a key has no turn.
//! - `the_turn_is_shown_for_a_blocked_task`: it has none yet, and those are counted that wait and
//!   would go before it.
//! - `a_dead_letter_that_holds_its_key_is_shown`: as long as it does.
//! - `due_tasks_before_a_task_are_counted`: of its queue, those of a higher priority and those of
//!   its own that were due before it, up to a bound; not those that are not due, wait for a turn,
//!   or are in hands.
//! - `a_task_that_has_waited_counts_as_more_urgent`: where waiting raises priorities, the raised ones
//!   count.
//! - `a_queue_of_many_lanes_is_counted_from_the_own_lane_on`: lanes in which nothing waits take no
//!   part; where more have something than are looked at, those of the task's own are counted first,
//!   and it is told that there may be more.
//! - `the_bucket_is_shown_as_claims_left_it`: none before the first claim, and where there is no
//!   rate limit.
//! - `workers_that_hold_tasks_are_listed`: the pull workers of a tenant whose leases have not run
//!   out, how many tasks each has and when it was last heard of; as many leases are looked at as
//!   are asked for, and it is told whether there may be more.

use crate::ids::TaskId;
use crate::state::State;
use crate::time::Timestamp;

/// Those that a task depends on and still waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blockers {
    /// The first of them, in the order in which the task names them.
    pub first: Vec<Blocker>,
    /// How many there are in all.
    pub count: u64,
}

/// A task that another waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// Its id.
    pub id: TaskId,
    /// Where it stands; one that has come to rest is about to be resolved, unless it holds.
    pub state: State,
    /// It is a dead letter, and its queue holds those that depend on it.
    pub holds: bool,
}

/// Whose turn it is among the tasks of an ordering key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnStatus {
    /// Whether the task has it.
    pub is_own: bool,
    /// The live task that has it; none: it is about to be decided, or nobody may have it.
    pub holder: Option<(TaskId, State)>,
    /// The dead letter behind which the key is held.
    pub held_by: Option<TaskId>,
    /// Those that wait before the task, without the one that has the turn.
    pub ahead: TasksAhead,
}

/// How many tasks go before a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TasksAhead {
    /// So many.
    pub tasks: u64,
    /// Or more: nobody counted further.
    pub or_more: bool,
}

/// The pull workers of a tenant that hold tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    /// Each once, by name.
    pub workers: Vec<Holder>,
    /// Or more: there are leases that were not looked at.
    pub or_more: bool,
}

/// A pull worker that holds tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its name.
    pub worker: String,
    /// How many it holds.
    pub tasks: u64,
    /// When it last took one, or extended its lease on one: not later than it really did.
    pub seen_at: Timestamp,
}
