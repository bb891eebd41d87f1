//! The result of a read of tasks, in both stores. `R` names a row: its number in SQLite, its id in
//! PostgreSQL.

use std::sync::Arc;

use punctual_core::ids::TaskId;
use punctual_core::lane::Lane;
use punctual_core::task::Task;

use crate::columns::Unreadable;

/// A row that exists but cannot be read.
#[derive(Clone, Debug)]
pub(crate) struct BadRow<R> {
    pub row: R,
    pub is_live: bool,
    pub lane: Option<Arc<Lane>>,
    pub fault: Unreadable,
}

impl<R> BadRow<R> {
    /// Whether the task belongs to this tenant, as far as its lane can be read.
    pub(crate) fn is_of(&self, tenant: &str) -> bool {
        is_of(self.lane.as_ref(), tenant)
    }

    /// The fault, for the caller that asked for this task alone.
    pub(crate) fn describe(&self, id: TaskId) -> String {
        format!("{id}: its {} cannot be read", self.fault.0)
    }
}

/// The task that was found, or the row that could not be read.
pub(crate) type FoundTask<R> = Result<Task, BadRow<R>>;

/// The tasks that a call found.
#[derive(Debug)]
pub(crate) struct FoundTasks<T, R> {
    pub tasks: Vec<T>,
    /// The unreadable live rows that were left out.
    pub unreadable: Vec<R>,
}

impl<T, R> Default for FoundTasks<T, R> {
    fn default() -> Self {
        Self { tasks: Vec::new(), unreadable: Vec::new() }
    }
}

/// Whether a lane is one of this tenant.
pub(crate) fn is_of(lane: Option<&Arc<Lane>>, tenant: &str) -> bool {
    lane.is_some_and(|lane| lane.key.tenant == tenant)
}
