//! Obstacles: what the store knows to keep a task from being claimed.
//!
//! Half of the port [`Insight`](crate::insight::Insight); the API reads it to explain a task. Every
//! call is bounded, however many tasks wait. Each call reads the state of its own moment.
//! [`queues`](crate::queues) returns the limits and pauses of queues.
//!
//! # Contract
//! Each sentence is a test of the same name in `testkit::obstacles`.
//!
//! - `blockers_are_listed_in_the_order_of_depends_on`: the first few that the task still waits for,
//!   with their states, and how many there are. A task that waits for none has no blockers.
//! - `a_dead_letter_that_holds_its_children_is_shown`: with the mark that it holds them.
//! - `the_turn_of_a_key_is_shown`: the task that has it, and how many wait before the given task,
//!   up to a bound. For the task that has the turn no task waits before it, and a task without a
//!   key has no turn.
//! - `the_turn_is_shown_for_a_blocked_task`: it has no turn yet, and the waiting tasks that would
//!   go before it are counted.
//! - `a_dead_letter_that_holds_its_key_is_shown`: as long as it does.
//! - `due_tasks_before_a_task_are_counted`: those of its queue with a higher priority, and those of
//!   its own priority that were due before it, up to a bound. Tasks that are not due, wait for a
//!   turn or are held do not count.
//! - `a_task_that_has_waited_counts_as_more_urgent`: if waiting raises priorities, the raised
//!   priority counts.
//! - `a_queue_of_many_lanes_is_counted_from_the_own_lane_on`: lanes without waiting tasks do not
//!   count. If more lanes have waiting tasks than are read, the task's own lane is read first, and
//!   the answer says that there may be more.
//! - `the_bucket_is_shown_as_claims_left_it`: there is none before the first claim or without a
//!   rate limit.
//! - `the_places_of_a_key_are_counted`: how many tasks of its queue with its concurrency key are
//!   held, up to a bound; none for a task without a key.
//! - `workers_that_hold_tasks_are_listed`: the pull workers of a tenant whose leases have not run
//!   out, how many tasks each holds and when it was last seen. The number of leases that are read
//!   is bounded, and the answer says whether there may be more.

use crate::ids::TaskId;
use crate::state::State;
use crate::time::Timestamp;

/// The tasks that a task still waits for.
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
    /// Its state. A final one is about to be resolved, unless it holds.
    pub state: State,
    /// Whether it is a dead letter whose queue holds its dependents.
    pub holds: bool,
}

/// The turn at an ordering key, as one of its tasks sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnStatus {
    /// Whether the task has the turn.
    pub is_own: bool,
    /// The live task that has the turn; none if the turn is not decided yet, or the key is held.
    pub holder: Option<(TaskId, State)>,
    /// The dead letter that holds the key.
    pub held_by: Option<TaskId>,
    /// The tasks that wait before this one, without the one that has the turn.
    pub ahead: TasksAhead,
}

/// How many tasks go before a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TasksAhead {
    /// The number that was counted.
    pub tasks: u64,
    /// Whether there may be more: the count stopped at its bound.
    pub or_more: bool,
}

/// The pull workers of a tenant that hold tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    /// Each once, by name.
    pub workers: Vec<Holder>,
    /// Whether there may be more: there are leases that were not read.
    pub or_more: bool,
}

/// A pull worker that holds tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its name.
    pub worker: String,
    /// How many tasks it holds.
    pub tasks: u64,
    /// A lower bound of when it last took a task or extended a lease.
    pub seen_at: Timestamp,
}
