//! The port of bulk operations: one change for every task that a filter matches.
//!
//! The API stores an operation. The leader works it off, page by page, and records after each page
//! how far it is. So an operation goes on after a crash: at most one page is looked at again, whose
//! tasks no longer match.
//!
//! # Contract
//! Each sentence is a test of the same name in `testkit::bulk`.
//!
//! - `an_operation_outlives_the_process`: with all that it says.
//! - `an_operation_belongs_to_its_tenant`: another tenant reads `None`, and lists nothing of it.
//! - `operations_are_listed_newest_first`: page by page, running or not.
//! - `running_operations_are_found_oldest_first`: the oldest of every tenant, then the second of
//!   every tenant, and so on. Those that have ended are not.
//! - `an_operation_is_written_at_its_revision_only`: a write that was decided by an older revision
//!   changes nothing and answers false.
//! - `only_the_leader_advances_an_operation`: at its revision too. A write of an older term changes
//!   nothing and answers false.
//! - `old_operations_are_pruned`: once they ended before the given instant. Running ones stay.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::coordinator::LeaderLease;
use crate::ids::OperationId;
use crate::state::{Event, State};
use crate::store::{Cursor, Filter, Page, StoreError};
use crate::task::Task;
use crate::time::Timestamp;

/// What an operation does with each task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BulkKind {
    /// Cancels it, or asks it to stop.
    Cancel,
    /// Brings a dead letter back.
    Redrive,
    /// Discards a dead letter.
    Purge,
}

impl BulkKind {
    /// The states of the tasks that it changes.
    pub fn states(self) -> Vec<State> {
        match self {
            Self::Cancel => vec![State::Blocked, State::Pending, State::Queued, State::Running],
            Self::Redrive | Self::Purge => vec![State::DeadLettered],
        }
    }

    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Redrive => "redrive",
            Self::Purge => "purge",
        }
    }
}

/// How far an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BulkState {
    /// The leader works it off.
    Running,
    /// Every matching task was looked at.
    Done,
    /// A client ended it. What was done stays done.
    Cancelled,
    /// It cannot go on.
    Failed,
}

impl BulkState {
    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }
}

/// An operation as the store has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BulkOperation {
    /// Its id.
    pub id: OperationId,
    /// What it does.
    pub kind: BulkKind,
    /// Whether a re-drive revives the tasks that ended because of each dead letter.
    #[serde(default)]
    pub dependents: bool,
    /// Which tasks it changes. It names the tenant and the states.
    pub filter: Filter,
    /// How far it is.
    pub state: BulkState,
    /// How often its row has changed, from 1.
    pub revision: u64,
    /// The last task that it looked at.
    pub after: Option<Cursor>,
    /// How many tasks it changed.
    pub done: u64,
    /// How many it could not change, because others changed them each time.
    pub failed: u64,
    /// How many tasks matched when it began, if they could be counted in time.
    pub total: Option<u64>,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// Why it failed.
    pub error: Option<String>,
}

/// What became of one page of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BulkProgress {
    /// Tasks that were changed.
    pub done: u64,
    /// Tasks that could not be changed.
    pub failed: u64,
    /// Where the next page begins; none at the end.
    pub next: Option<Cursor>,
}

impl BulkOperation {
    /// An operation that begins now. `filter` names the tenant and the states. Tasks that are
    /// submitted later, or become dead letters later, are not in it: the leader may come to it
    /// only after a while.
    pub fn begun(kind: BulkKind, filter: Filter, total: Option<u64>, now: Timestamp) -> Self {
        let until = now.plus_millis(1);
        let earlier = |given: Option<Timestamp>| Some(given.map_or(until, |given| given.min(until)));
        let filter = match kind {
            BulkKind::Cancel => Filter { created_before: earlier(filter.created_before), ..filter },
            BulkKind::Redrive | BulkKind::Purge => {
                Filter { completed_before: earlier(filter.completed_before), ..filter }
            }
        };
        Self {
            id: OperationId::new(),
            kind,
            dependents: false,
            filter,
            state: BulkState::Running,
            revision: 1,
            after: None,
            done: 0,
            failed: 0,
            total,
            started_at: now,
            finished_at: None,
            error: None,
        }
    }

    /// The same re-drive, which also revives the tasks that ended because of each dead letter.
    #[must_use]
    pub fn with_dependents(mut self) -> Self {
        debug_assert!(self.kind == BulkKind::Redrive, "only a re-drive has dependents to revive");
        self.dependents = true;
        self
    }

    /// What happens to each task.
    pub fn event(&self) -> Event<'static> {
        match self.kind {
            BulkKind::Cancel => Event::Cancel,
            BulkKind::Redrive if self.dependents => Event::RedriveWithDependents(None),
            BulkKind::Redrive => Event::Redrive(None),
            BulkKind::Purge => Event::Purge,
        }
    }

    /// Its tenant.
    pub fn tenant(&self) -> &str {
        &self.filter.tenant
    }

    /// The same operation after a page. One that was ended meanwhile counts the page and stays
    /// ended.
    #[must_use]
    pub fn after_page(mut self, page: BulkProgress, now: Timestamp) -> Self {
        self.revision += 1;
        self.done += page.done;
        self.failed += page.failed;
        if self.state == BulkState::Running {
            self.after = page.next;
            if page.next.is_none() {
                (self.state, self.finished_at) = (BulkState::Done, Some(now));
            }
        }
        self
    }

    /// The same operation, ended. None if it has ended before.
    #[must_use]
    pub fn ended(mut self, state: BulkState, error: Option<String>, now: Timestamp) -> Option<Self> {
        if self.state != BulkState::Running {
            return None;
        }
        self.revision += 1;
        (self.state, self.error, self.finished_at) = (state, error, Some(now));
        Some(self)
    }

    /// Whether it still wants to change a task, which may have changed since it was listed.
    pub fn wants(&self, task: &Task) -> bool {
        self.filter.matches(task) && !task.position.cancel_requested
    }
}

/// Keeps bulk operations (see the module's contract).
#[async_trait]
pub trait BulkOperations: Send + Sync {
    /// Stores a new operation.
    async fn insert_operation(&self, operation: BulkOperation) -> Result<(), StoreError>;

    /// Writes an operation, if the stored one is at the revision before. False if it is not.
    async fn write_operation(&self, operation: BulkOperation) -> Result<bool, StoreError>;

    /// The same as the holder of the leader's lease. False too if another node has held it since.
    async fn advance_operation(&self, lease: &LeaderLease, operation: BulkOperation) -> Result<bool, StoreError>;

    /// Reads an operation of a tenant.
    async fn operation(&self, tenant: &str, id: OperationId) -> Result<Option<BulkOperation>, StoreError>;

    /// Lists the operations of a tenant, newest first, strictly after `after`.
    async fn list_operations(
        &self,
        tenant: &str,
        after: Option<OperationId>,
        limit: usize,
    ) -> Result<Vec<BulkOperation>, StoreError>;

    /// The running operations: the oldest of every tenant, then the second of every tenant, and so
    /// on.
    async fn running_operations(&self, limit: usize) -> Result<Vec<BulkOperation>, StoreError>;

    /// Lists tasks that a filter matches as [`Store::list`](crate::store::Store::list) does, but
    /// never from a copy that may be behind: an operation would miss tasks.
    async fn list_current(&self, filter: Filter, after: Option<Cursor>, limit: usize) -> Result<Page, StoreError>;

    /// Removes operations that ended before `before`, at most `limit`. Returns how many.
    async fn prune_operations(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_about_what_is_there_when_it_begins() {
        let now = Timestamp::from_millis(5_000);
        let begun = |kind, filter| BulkOperation::begun(kind, filter, None, now).filter;
        let cancel = begun(BulkKind::Cancel, Filter::default());
        assert_eq!((cancel.created_before, cancel.completed_before), (Some(now.plus_millis(1)), None));
        for kind in [BulkKind::Redrive, BulkKind::Purge] {
            let filter = begun(kind, Filter::default());
            assert_eq!((filter.created_before, filter.completed_before), (None, Some(now.plus_millis(1))));
        }
    }

    #[test]
    fn an_earlier_bound_of_the_filter_stays() {
        let (now, earlier) = (Timestamp::from_millis(5_000), Timestamp::from_millis(4_000));
        let filter = Filter { created_before: Some(earlier), ..Filter::default() };
        let begun = BulkOperation::begun(BulkKind::Cancel, filter, None, now);
        assert_eq!(begun.filter.created_before, Some(earlier));
    }
}
