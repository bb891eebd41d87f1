//! A store that notifies the loops of this node of its writes: the dispatcher of tasks that wait,
//! the cron loop of finished tasks and of schedules, and those who wait for a task to finish.
//!
//! All services write through it, so a fresh task wakes a waiting worker at once. Invariant: it
//! notifies after the write, and nothing depends on the notification.

use std::sync::Arc;

use async_trait::async_trait;
use punctual_core::coordinator::LeaderLease;
use punctual_core::forward_store;
use punctual_core::ids::{ScheduleId, TaskId};
use punctual_core::schedules::plan::CoveringRecord;
use punctual_core::schedules::{
    Advance, Advanced, CheckCursor, DueSchedules, KeyOwner, Occurrence, Replaced, Schedule, ScheduleInserted,
    ScheduleSnapshot, Schedules,
};
use punctual_core::state::{Change, State};
use punctual_core::store::{Applied, Inserted, Store, StoreError};
use punctual_core::task::NewTask;
use punctual_core::time::Timestamp;

use crate::cron_waker::CronWaker;
use crate::finish_watch::FinishWatch;
use crate::hints::Hints;

/// Tasks and schedules that notify after each write (see the module).
pub struct NotifyingStore {
    tasks: Arc<dyn Store>,
    schedules: Arc<dyn Schedules>,
    hints: Arc<Hints>,
    cron: Arc<CronWaker>,
    finishes: Arc<FinishWatch>,
}

impl NotifyingStore {
    /// Writes to `tasks` and `schedules`, and notifies `hints` and `cron`.
    pub fn new(tasks: Arc<dyn Store>, schedules: Arc<dyn Schedules>, hints: Arc<Hints>, cron: Arc<CronWaker>) -> Self {
        Self { tasks, schedules, hints, cron, finishes: Arc::default() }
    }

    /// The same, which also announces finished tasks to those who wait for them.
    #[must_use]
    pub fn announcing(self, finishes: Arc<FinishWatch>) -> Self {
        Self { finishes, ..self }
    }

    fn notify_of_new(&self, inserted: &[Inserted]) {
        self.hints.add(inserted.iter().filter_map(|inserted| match inserted {
            Inserted::Created(task) if task.state() == State::Pending => Some((&task.lane, task.due_at)),
            _ => None,
        }));
    }

    fn notify(&self, applied: &[Applied], any_finished: bool, finished: Vec<TaskId>) {
        self.finishes.announce(finished);
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
        let inserted = self.tasks.insert(tasks).await?;
        self.notify_of_new(&inserted);
        Ok(inserted)
    }

    async fn insert_all(&self, tasks: Vec<NewTask>) -> Result<Vec<Inserted>, StoreError> {
        let inserted = self.tasks.insert_all(tasks).await?;
        self.notify_of_new(&inserted);
        Ok(inserted)
    }

    async fn apply(&self, changes: Vec<(TaskId, Change)>) -> Result<Vec<Applied>, StoreError> {
        let (any_finished, finished) = (finishes_any(&changes), self.finishes.finished_by(&changes));
        let applied = self.tasks.apply(changes).await?;
        self.notify(&applied, any_finished, finished);
        Ok(applied)
    }

    async fn apply_as(
        &self,
        lease: &LeaderLease,
        changes: Vec<(TaskId, Change)>,
    ) -> Result<Option<Vec<Applied>>, StoreError> {
        let (any_finished, finished) = (finishes_any(&changes), self.finishes.finished_by(&changes));
        let applied = self.tasks.apply_as(lease, changes).await?;
        self.notify(applied.as_deref().unwrap_or_default(), any_finished, finished);
        Ok(applied)
    }

    forward_store!(tasks: claim, start, extend, get, live, results, list, heads, overdue, counts, live_counts, quarantined, check, close);
}

#[async_trait]
impl Schedules for NotifyingStore {
    async fn insert(&self, schedule: Schedule) -> Result<ScheduleInserted, StoreError> {
        let inserted = self.schedules.insert(schedule).await?;
        self.cron.schedule_written();
        Ok(inserted)
    }

    async fn replace(&self, schedule: Schedule) -> Result<Replaced, StoreError> {
        let replaced = self.schedules.replace(schedule).await?;
        self.cron.schedule_written();
        Ok(replaced)
    }

    async fn advance(
        &self,
        lease: Option<&LeaderLease>,
        advances: Vec<Advance>,
    ) -> Result<Option<Vec<Advanced>>, StoreError> {
        let advanced = self.schedules.advance(lease, advances).await?;
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
        self.schedules.remove(id, revision).await
    }
    async fn get(&self, tenant: &str, id: ScheduleId) -> Result<Option<Schedule>, StoreError> {
        self.schedules.get(tenant, id).await
    }
    async fn named(&self, tenant: &str, name: &str) -> Result<Option<Schedule>, StoreError> {
        self.schedules.named(tenant, name).await
    }
    async fn list(&self, tenant: &str, after: Option<String>, limit: usize) -> Result<Vec<Schedule>, StoreError> {
        self.schedules.list(tenant, after, limit).await
    }
    async fn key_owner(&self, tenant: &str, key: &str) -> Result<Option<KeyOwner>, StoreError> {
        self.schedules.key_owner(tenant, key).await
    }
    async fn snapshot(&self, tenant: &str, id: ScheduleId) -> Result<Option<ScheduleSnapshot>, StoreError> {
        self.schedules.snapshot(tenant, id).await
    }
    async fn due(&self, now: Timestamp, after: Option<CheckCursor>, limit: usize) -> Result<DueSchedules, StoreError> {
        self.schedules.due(now, after, limit).await
    }
    async fn next_check(&self, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        self.schedules.next_check(now).await
    }
    async fn occurrences(
        &self,
        id: ScheduleId,
        before: Option<Timestamp>,
        limit: usize,
    ) -> Result<Vec<Occurrence>, StoreError> {
        self.schedules.occurrences(id, before, limit).await
    }
    async fn covering(
        &self,
        id: ScheduleId,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<CoveringRecord>, StoreError> {
        self.schedules.covering(id, from, to).await
    }
}
