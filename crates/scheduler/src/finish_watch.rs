//! Who waits for which task to finish on this node: one watch for all of them.
//!
//! `GET /v1/tasks/{id}?wait_seconds=` waits here. The notifying store announces what this node
//! finishes. What other nodes, the resolver and claims finish is found by [`FinishWatch::run`],
//! which asks the store twice a second about all awaited tasks at once. An announcement is a hint:
//! a waiting client reads the task, and waits again if it has not finished.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use punctual_core::ids::TaskId;
use punctual_core::state::Change;
use punctual_core::store::{Store, StoreError};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

/// How often the store is asked, while a client waits.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// The maximum number of tasks in one question.
const LOOK_TASKS: usize = 1_000;

/// The tasks that are awaited (see the module). The caller bounds how many wait.
#[derive(Debug, Default)]
pub struct FinishWatch {
    awaited: Mutex<HashMap<TaskId, watch::Sender<()>>>,
    /// How many tasks are awaited, so that a write costs one atomic load while none is.
    count: AtomicUsize,
    begun: Notify,
    closed: AtomicBool,
}

/// A wait for one task, until it is dropped.
pub struct FinishWait {
    watch: Arc<FinishWatch>,
    id: TaskId,
    announced: Option<watch::Receiver<()>>,
}

impl FinishWatch {
    /// Begins a wait. Whatever is announced from now on ends [`FinishWait::announced`].
    pub fn wait_for(self: &Arc<Self>, id: TaskId) -> FinishWait {
        let mut awaited = self.awaited.lock();
        let announced = awaited.entry(id).or_insert_with(|| watch::channel(()).0).subscribe();
        self.count.store(awaited.len(), Ordering::Release);
        drop(awaited);
        self.begun.notify_one();
        FinishWait { watch: Arc::clone(self), id, announced: Some(announced) }
    }

    /// How many tasks are awaited.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Whether no task is awaited.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tasks that these changes finish, if anybody waits.
    pub(crate) fn finished_by(&self, changes: &[(TaskId, Change)]) -> Vec<TaskId> {
        if self.is_empty() {
            return Vec::new();
        }
        changes.iter().filter(|(_, change)| change.to.is_final()).map(|(id, _)| *id).collect()
    }

    /// Wakes those who wait for these tasks.
    pub(crate) fn announce(&self, ids: impl IntoIterator<Item = TaskId>) {
        let mut ids = ids.into_iter().peekable();
        if ids.peek().is_none() {
            return;
        }
        let awaited = self.awaited.lock();
        for announced in ids.filter_map(|id| awaited.get(&id)) {
            announced.send_replace(());
        }
    }

    /// Wakes all waiting clients, and those that begin to wait from now on.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        for announced in self.awaited.lock().values() {
            announced.send_replace(());
        }
    }

    /// Whether [`FinishWatch::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Finds what others finish, until `stop` is cancelled.
    pub async fn run(self: Arc<Self>, store: Arc<dyn Store>, stop: CancellationToken) {
        let mut is_failing = false;
        while !stop.is_cancelled() {
            if self.is_empty() {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = self.begun.notified() => {}
                }
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(LOOK_INTERVAL) => {}
            }
            match self.run_once(&*store).await {
                Ok(()) => is_failing = false,
                Err(error) if !std::mem::replace(&mut is_failing, true) => {
                    tracing::warn!(error = %error, "cannot see which awaited tasks have finished; retrying");
                }
                Err(_) => {}
            }
        }
    }

    /// Asks the store once, and announces what has finished.
    pub async fn run_once(&self, store: &dyn Store) -> Result<(), StoreError> {
        let ids: Vec<TaskId> = self.awaited.lock().keys().copied().collect();
        for some in ids.chunks(LOOK_TASKS) {
            let live = store.live(some.to_vec()).await?;
            let live: std::collections::HashSet<TaskId> = live.into_iter().collect();
            self.announce(some.iter().copied().filter(|id| !live.contains(id)));
        }
        Ok(())
    }
}

impl FinishWait {
    /// Returns once the task was announced since the last call.
    pub async fn announced(&mut self) {
        if self.watch.is_closed() {
            return;
        }
        if let Some(announced) = &mut self.announced {
            // The sender stays as long as this wait.
            drop(announced.changed().await);
        }
    }
}

impl Drop for FinishWait {
    fn drop(&mut self) {
        let mut awaited = self.watch.awaited.lock();
        self.announced = None;
        if awaited.get(&self.id).is_some_and(|announced| announced.receiver_count() == 0) {
            awaited.remove(&self.id);
            self.watch.count.store(awaited.len(), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_announcement_wakes_all_who_wait_for_the_task() {
        let watch = Arc::<FinishWatch>::default();
        let (one, other) = (TaskId::new(), TaskId::new());
        let (mut first, mut second, mut third) = (watch.wait_for(one), watch.wait_for(one), watch.wait_for(other));
        assert_eq!(watch.len(), 2);
        watch.announce([one, TaskId::new()]);
        first.announced().await;
        second.announced().await;
        assert!(tokio::time::timeout(Duration::ZERO, third.announced()).await.is_err(), "another task");
        assert!(tokio::time::timeout(Duration::ZERO, first.announced()).await.is_err(), "announced once");
    }

    #[test]
    fn a_wait_that_is_dropped_leaves_nothing() {
        let watch = Arc::<FinishWatch>::default();
        let id = TaskId::new();
        let (first, second) = (watch.wait_for(id), watch.wait_for(id));
        drop(first);
        assert_eq!(watch.len(), 1);
        drop(second);
        assert!(watch.is_empty());
    }

    #[tokio::test]
    async fn nobody_waits_once_it_is_closed() {
        let watch = Arc::<FinishWatch>::default();
        let mut before = watch.wait_for(TaskId::new());
        watch.close();
        before.announced().await;
        watch.wait_for(TaskId::new()).announced().await;
    }
}
