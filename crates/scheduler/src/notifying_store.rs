//! A store that notifies the dispatcher of what it wrote, and the cron loop of finished tasks.
//!
//! The server wraps the store of all services in it, so that a fresh task wakes a waiting worker at
//! once. Invariant: it notifies after the write, and nothing depends on the notification.

use std::sync::Arc;

use async_trait::async_trait;
use punctual_core::coordinator::Lease;
use punctual_core::forward_store;
use punctual_core::ids::TaskId;
use punctual_core::state::{Change, State};
use punctual_core::store::{Applied, Inserted, Store, StoreError};
use punctual_core::task::NewTask;

use crate::cron_waker::CronWaker;
use crate::hints::Hints;

/// A store that notifies after each write (see the module).
pub struct NotifyingStore {
    inner: Arc<dyn Store>,
    hints: Arc<Hints>,
    cron: Arc<CronWaker>,
}

impl NotifyingStore {
    /// Writes to `inner` and notifies `hints` and `cron`.
    pub fn new(inner: Arc<dyn Store>, hints: Arc<Hints>, cron: Arc<CronWaker>) -> Self {
        Self { inner, hints, cron }
    }

    fn notify(&self, applied: &[Applied], any_finished: bool) {
        if any_finished {
            self.cron.task_finished();
        }
        self.hints.add(applied.iter().filter_map(|applied| match applied {
            Applied::Done(Some((lane, due_at))) => Some((lane, *due_at)),
            _ => None,
        }));
    }
}

/// Whether a change finishes a task.
fn finishes_any(changes: &[(TaskId, Change)]) -> bool {
    changes.iter().any(|(_, change)| change.to.is_final())
}

#[async_trait]
impl Store for NotifyingStore {
    async fn insert(&self, tasks: Vec<NewTask>) -> Result<Vec<Inserted>, StoreError> {
        let inserted = self.inner.insert(tasks).await?;
        self.hints.add(inserted.iter().filter_map(|inserted| match inserted {
            Inserted::Created(task) if task.state() == State::Pending => Some((&task.lane, task.due_at)),
            _ => None,
        }));
        Ok(inserted)
    }

    async fn apply(&self, changes: Vec<(TaskId, Change)>) -> Result<Vec<Applied>, StoreError> {
        let any_finished = finishes_any(&changes);
        let applied = self.inner.apply(changes).await?;
        self.notify(&applied, any_finished);
        Ok(applied)
    }

    async fn apply_as(
        &self,
        lease: &Lease,
        changes: Vec<(TaskId, Change)>,
    ) -> Result<Option<Vec<Applied>>, StoreError> {
        let any_finished = finishes_any(&changes);
        let applied = self.inner.apply_as(lease, changes).await?;
        self.notify(applied.as_deref().unwrap_or_default(), any_finished);
        Ok(applied)
    }

    forward_store!(inner: claim, start, extend, get, list, heads, overdue, counts, quarantined, check, close);
}
