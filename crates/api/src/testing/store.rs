//! A store that can be made to fail, and counts its calls. It wraps the real one and stops a paused
//! clock during its calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use async_trait::async_trait;
use punctual_core::coordinator::LeaderLease;
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::lane::LaneId;
use punctual_core::queues::LiveCounts;
use punctual_core::state::Change;
use punctual_core::store::{
    Applied, Beat, Claim, Claimed, Count, Cursor, Filter, Head, Inserted, Page, Start, Store, StoreError, TaskResult,
};
use punctual_core::task::{Hold, NewTask, Task};
use punctual_core::time::Timestamp;

/// See the module.
pub(crate) struct FailingStore {
    inner: Arc<dyn Store>,
    pub broken: AtomicBool,
    pub extended: AtomicUsize,
    pub got: AtomicUsize,
    pub checked: AtomicUsize,
    pub counted: AtomicUsize,
    /// How long it takes to count the live tasks.
    pub count_millis: AtomicU64,
}

impl FailingStore {
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self {
            inner,
            broken: AtomicBool::new(false),
            extended: AtomicUsize::new(0),
            got: AtomicUsize::new(0),
            checked: AtomicUsize::new(0),
            counted: AtomicUsize::new(0),
            count_millis: AtomicU64::new(0),
        }
    }

    /// Returns the wrapped store, or an error if it is set to fail. Hold it during the call.
    fn working(&self) -> Result<Working<'_>, StoreError> {
        if self.broken.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable("the disk at /dev/secret is gone".into()));
        }
        Ok(Working { store: &*self.inner, _still: hold_time_still() })
    }
}

struct Working<'a> {
    store: &'a dyn Store,
    _still: Sender<()>,
}

/// Stops the runtime's paused clock until the returned sender is dropped.
///
/// The clock advances when the runtime is idle. The runtime does not see the store's threads, but a
/// blocking task of its own keeps it busy.
fn hold_time_still() -> Sender<()> {
    let (held, dropped) = channel();
    drop(tokio::task::spawn_blocking(move || dropped.recv()));
    held
}

#[async_trait]
impl Store for FailingStore {
    async fn insert(&self, tasks: Vec<NewTask>) -> Result<Vec<Inserted>, StoreError> {
        self.working()?.store.insert(tasks).await
    }
    async fn insert_all(&self, tasks: Vec<NewTask>) -> Result<Vec<Inserted>, StoreError> {
        self.working()?.store.insert_all(tasks).await
    }
    async fn claim(&self, claims: Vec<Claim>) -> Result<Vec<Claimed>, StoreError> {
        self.working()?.store.claim(claims).await
    }
    async fn start(&self, starts: Vec<Start>) -> Result<Vec<Option<Task>>, StoreError> {
        self.working()?.store.start(starts).await
    }
    async fn apply(&self, changes: Vec<(TaskId, Change)>) -> Result<Vec<Applied>, StoreError> {
        self.working()?.store.apply(changes).await
    }
    async fn apply_as(
        &self,
        lease: &LeaderLease,
        changes: Vec<(TaskId, Change)>,
    ) -> Result<Option<Vec<Applied>>, StoreError> {
        self.working()?.store.apply_as(lease, changes).await
    }
    async fn extend(&self, beats: Vec<Beat>) -> Result<Vec<Option<Hold>>, StoreError> {
        self.extended.fetch_add(beats.len(), Ordering::SeqCst);
        self.working()?.store.extend(beats).await
    }
    async fn get(&self, tenant: &str, ids: Vec<TaskId>) -> Result<Vec<Option<Task>>, StoreError> {
        self.got.fetch_add(1, Ordering::SeqCst);
        self.working()?.store.get(tenant, ids).await
    }
    async fn live(&self, ids: Vec<TaskId>) -> Result<Vec<TaskId>, StoreError> {
        self.working()?.store.live(ids).await
    }
    async fn results(&self, ids: Vec<TaskId>, max_bytes: usize) -> Result<Vec<Option<TaskResult>>, StoreError> {
        self.working()?.store.results(ids, max_bytes).await
    }
    async fn list(&self, filter: Filter, after: Option<Cursor>, limit: usize) -> Result<Page, StoreError> {
        self.working()?.store.list(filter, after, limit).await
    }
    async fn heads(&self, after: Option<LaneId>, before: Timestamp, limit: usize) -> Result<Vec<Head>, StoreError> {
        self.working()?.store.heads(after, before, limit).await
    }
    async fn overdue(&self, dead: Vec<NodeId>, limit: usize) -> Result<Vec<Task>, StoreError> {
        self.working()?.store.overdue(dead, limit).await
    }
    async fn counts(&self) -> Result<Vec<Count>, StoreError> {
        self.working()?.store.counts().await
    }
    async fn live_counts(&self) -> Result<LiveCounts, StoreError> {
        self.counted.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(self.count_millis.load(Ordering::SeqCst))).await;
        self.working()?.store.live_counts().await
    }
    async fn quarantined(&self) -> Result<u64, StoreError> {
        self.working()?.store.quarantined().await
    }
    async fn check(&self) -> Result<(), StoreError> {
        self.checked.fetch_add(1, Ordering::SeqCst);
        self.working()?.store.check().await
    }
    async fn close(&self) -> Result<(), StoreError> {
        self.inner.close().await
    }
}
