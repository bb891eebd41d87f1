//! A store that tells the dispatcher what it wrote, so that a fresh task wakes the
//! right worker at once, and the cron loop of tasks that came to rest. Wraps any store; callers do not notice.

use std::sync::Arc;

use async_trait::async_trait;
use punctual_core::coordinator::Lease;
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::lane::LaneId;
use punctual_core::state::{Change, State};
use punctual_core::store::{
    Applied, Beat, Claim, Claimed, Count, Cursor, Filter, Head, Inserted, Page, Start, Store, StoreError,
};
use punctual_core::task::{Hold, NewTask, Task};
use punctual_core::time::Timestamp;

use crate::cron_call::CronCall;
use crate::hints::Hints;

/// See the module.
pub struct WakingStore {
    inner: Arc<dyn Store>,
    hints: Arc<Hints>,
    cron: Arc<CronCall>,
}

impl WakingStore {
    /// Writes to `inner` and tells `hints` and `cron`.
    pub fn new(inner: Arc<dyn Store>, hints: Arc<Hints>, cron: Arc<CronCall>) -> Self {
        Self { inner, hints, cron }
    }

    fn tell(&self, applied: &[Applied], rest: bool) {
        if rest {
            self.cron.rested();
        }
        self.hints.add(applied.iter().filter_map(|applied| match applied {
            Applied::Done(Some((lane, due_at))) => Some((lane, *due_at)),
            _ => None,
        }));
    }
}

/// Whether a change brings a task to rest.
fn any_rest(changes: &[(TaskId, Change)]) -> bool {
    changes.iter().any(|(_, change)| change.to.is_final())
}

#[async_trait]
impl Store for WakingStore {
    async fn insert(&self, tasks: Vec<NewTask>) -> Result<Vec<Inserted>, StoreError> {
        let inserted = self.inner.insert(tasks).await?;
        self.hints.add(inserted.iter().filter_map(|inserted| match inserted {
            Inserted::Created(task) if task.state() == State::Pending => Some((&task.lane, task.due_at)),
            _ => None,
        }));
        Ok(inserted)
    }

    async fn apply(&self, changes: Vec<(TaskId, Change)>) -> Result<Vec<Applied>, StoreError> {
        let rest = any_rest(&changes);
        let applied = self.inner.apply(changes).await?;
        self.tell(&applied, rest);
        Ok(applied)
    }

    async fn apply_as(
        &self,
        lease: &Lease,
        changes: Vec<(TaskId, Change)>,
    ) -> Result<Option<Vec<Applied>>, StoreError> {
        let rest = any_rest(&changes);
        let applied = self.inner.apply_as(lease, changes).await?;
        self.tell(applied.as_deref().unwrap_or_default(), rest);
        Ok(applied)
    }

    async fn claim(&self, claims: Vec<Claim>) -> Result<Vec<Claimed>, StoreError> {
        self.inner.claim(claims).await
    }
    async fn start(&self, starts: Vec<Start>) -> Result<Vec<Option<Task>>, StoreError> {
        self.inner.start(starts).await
    }
    async fn extend(&self, beats: Vec<Beat>) -> Result<Vec<Option<Hold>>, StoreError> {
        self.inner.extend(beats).await
    }
    async fn get(&self, tenant: &str, ids: Vec<TaskId>) -> Result<Vec<Option<Task>>, StoreError> {
        self.inner.get(tenant, ids).await
    }
    async fn list(&self, filter: Filter, after: Option<Cursor>, limit: usize) -> Result<Page, StoreError> {
        self.inner.list(filter, after, limit).await
    }
    async fn heads(&self, after: Option<LaneId>, before: Timestamp, limit: usize) -> Result<Vec<Head>, StoreError> {
        self.inner.heads(after, before, limit).await
    }
    async fn overdue(&self, dead: Vec<NodeId>, limit: usize) -> Result<Vec<Task>, StoreError> {
        self.inner.overdue(dead, limit).await
    }
    async fn counts(&self) -> Result<Vec<Count>, StoreError> {
        self.inner.counts().await
    }
    async fn quarantined(&self) -> Result<u64, StoreError> {
        self.inner.quarantined().await
    }
    async fn check(&self) -> Result<(), StoreError> {
        self.inner.check().await
    }
    async fn close(&self) -> Result<(), StoreError> {
        self.inner.close().await
    }
}
