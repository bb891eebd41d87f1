//! Lanes: the queues inside the queues.
//!
//! The tasks of a lane have the same tenant, queue, type, priority and route. So the same answer
//! holds for all of them: whether one may run now, and which worker takes it. The dispatcher keeps
//! one small entry per lane, not per task: the instant its first task is due. So the number of
//! lanes bounds the memory, however many tasks are due. A dead webhook target or a queue without
//! workers holds up only its own tasks.

use std::fmt;

/// The number the store gave a lane.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(i64);

impl LaneId {
    /// The lane with this number.
    pub const fn new(number: i64) -> Self {
        Self(number)
    }

    /// The bare number.
    pub const fn number(self) -> i64 {
        self.0
    }
}

impl fmt::Debug for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lane_{}", self.0)
    }
}

/// What the tasks of a lane have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LaneKey {
    /// The tenant they belong to.
    pub tenant: String,
    /// The queue they were submitted to.
    pub queue: String,
    /// The type of work (`type` on the wire).
    pub kind: String,
    /// 0 (least urgent) to 9.
    pub priority: u8,
    /// The executor that takes them.
    pub route: Route,
}

/// The executor that takes a due task.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// A pull worker polls for it.
    Pull,
    /// A webhook worker pushes it to this target (`scheme://host:port`).
    Push(String),
}

/// A lane: its number and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// The number the store gave it.
    pub id: LaneId,
    /// What its tasks have in common.
    pub key: LaneKey,
}
