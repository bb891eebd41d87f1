//! A store that tells the dispatcher what it wrote, so that a fresh task wakes the right worker at
//! once, and the cron loop of tasks that came to rest. Wraps any store; callers do not notice.

use std::sync::Arc;

use async_trait::async_trait;
use punctual_core::coordinator::Lease;
use punctual_core::forward_store;
use punctual_core::ids::TaskId;
use punctual_core::state::{Change, State};
use punctual_core::store::{Applied, Inserted, Store, StoreError};
use punctual_core::task::NewTask;

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

    forward_store!(inner: claim, start, extend, get, list, heads, overdue, counts, quarantined, check, close);
}
