//! Schedules that notify the dispatcher of the tasks that fired, and the cron loop of writes.
//!
//! The server wraps the store's schedules in it, so that neither loop waits for its next pass.
//! Invariant: it notifies after the write, and nothing depends on the notification.

use std::sync::Arc;

use async_trait::async_trait;
use punctual_core::coordinator::Lease;
use punctual_core::ids::ScheduleId;
use punctual_core::schedules::{
    Advance, Advanced, CheckCursor, DueSchedules, KeyOwner, Occurrence, Replaced, Schedule, ScheduleInserted,
    ScheduleSnapshot, Schedules,
};
use punctual_core::store::StoreError;
use punctual_core::time::Timestamp;

use crate::cron_waker::CronWaker;
use crate::hints::Hints;

/// Schedules that notify after each write (see the module).
pub struct NotifyingSchedules {
    inner: Arc<dyn Schedules>,
    hints: Arc<Hints>,
    cron: Arc<CronWaker>,
}

impl NotifyingSchedules {
    /// Writes to `inner`; notifies `hints` of tasks and `cron` of schedules.
    pub fn new(inner: Arc<dyn Schedules>, hints: Arc<Hints>, cron: Arc<CronWaker>) -> Self {
        Self { inner, hints, cron }
    }
}

#[async_trait]
impl Schedules for NotifyingSchedules {
    async fn insert(&self, schedule: Schedule) -> Result<ScheduleInserted, StoreError> {
        let inserted = self.inner.insert(schedule).await?;
        self.cron.schedule_written();
        Ok(inserted)
    }

    async fn replace(&self, schedule: Schedule) -> Result<Replaced, StoreError> {
        let replaced = self.inner.replace(schedule).await?;
        self.cron.schedule_written();
        Ok(replaced)
    }

    async fn advance(
        &self,
        lease: Option<&Lease>,
        advances: Vec<Advance>,
    ) -> Result<Option<Vec<Advanced>>, StoreError> {
        let advanced = self.inner.advance(lease, advances).await?;
        for advanced in advanced.iter().flatten() {
            if let Advanced::Done { waiting, .. } = advanced {
                self.hints.add(waiting.iter().map(|(lane, due_at)| (lane, *due_at)));
            }
        }
        // The cron loop knows what it wrote itself.
        if lease.is_none() {
            self.cron.schedule_written();
        }
        Ok(advanced)
    }

    async fn remove(&self, id: ScheduleId, revision: u64) -> Result<bool, StoreError> {
        self.inner.remove(id, revision).await
    }
    async fn get(&self, tenant: &str, id: ScheduleId) -> Result<Option<Schedule>, StoreError> {
        self.inner.get(tenant, id).await
    }
    async fn named(&self, tenant: &str, name: &str) -> Result<Option<Schedule>, StoreError> {
        self.inner.named(tenant, name).await
    }
    async fn list(&self, tenant: &str, after: Option<String>, limit: usize) -> Result<Vec<Schedule>, StoreError> {
        self.inner.list(tenant, after, limit).await
    }
    async fn key_owner(&self, tenant: &str, key: &str) -> Result<Option<KeyOwner>, StoreError> {
        self.inner.key_owner(tenant, key).await
    }
    async fn snapshot(&self, tenant: &str, id: ScheduleId) -> Result<Option<ScheduleSnapshot>, StoreError> {
        self.inner.snapshot(tenant, id).await
    }
    async fn due(&self, now: Timestamp, after: Option<CheckCursor>, limit: usize) -> Result<DueSchedules, StoreError> {
        self.inner.due(now, after, limit).await
    }
    async fn next_check(&self, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        self.inner.next_check(now).await
    }
    async fn occurrences(
        &self,
        id: ScheduleId,
        before: Option<Timestamp>,
        limit: usize,
    ) -> Result<Vec<Occurrence>, StoreError> {
        self.inner.occurrences(id, before, limit).await
    }
}
