//! The port of reads that explain what keeps a task from being claimed, and what will be due.
//!
//! The API calls it to answer people. Nothing decides by it, so an answer may be slightly out of
//! date. Its contract is in [`obstacles`](crate::obstacles) and [`forecast`](crate::forecast).

use async_trait::async_trait;

use crate::forecast::{Minute, UpcomingPage, UpcomingTask};
use crate::obstacles::{Blockers, Holders, TasksAhead, TurnStatus};
use crate::queues::Bucket;
use crate::store::StoreError;
use crate::task::Task;
use crate::time::Timestamp;

/// Explains what waits and what will be due (see the module's contract).
#[async_trait]
pub trait Insight: Send + Sync {
    /// The first `first` tasks that a task waits for, and how many there are in all.
    async fn blockers(&self, task: &Task, first: usize) -> Result<Blockers, StoreError>;

    /// The turn at the ordering key of a task that waits or is blocked. None if the task has no key
    /// or does not wait. At most `most` tasks are counted.
    async fn key_turn(&self, task: &Task, most: usize) -> Result<Option<TurnStatus>, StoreError>;

    /// How many tasks of its queue with its concurrency key are held, counted up to `most`.
    async fn key_places(&self, task: &Task, most: u32) -> Result<u64, StoreError>;

    /// How many due tasks of its queue go before a task. Each `aging_millis` of waiting raises a
    /// task's priority by one, up to the highest; zero turns that off. At most `most` tasks are
    /// counted.
    async fn ahead(&self, task: &Task, aging_millis: i64, most: usize) -> Result<TasksAhead, StoreError>;

    /// The bucket of a queue with a rate limit; none before its first claim.
    async fn bucket(&self, tenant: &str, queue: &str) -> Result<Option<Bucket>, StoreError>;

    /// The pull workers of a tenant that hold tasks. At most `most` leases, of all tenants, are
    /// read.
    async fn holders(&self, tenant: &str, most: usize) -> Result<Holders, StoreError>;

    /// How many waiting tasks of a tenant are due in each minute from `from` to before `to`, in
    /// order. The current minute and those before it have no counts.
    async fn waiting(&self, tenant: &str, from: Minute, to: Minute) -> Result<Vec<(Minute, u64)>, StoreError>;

    /// Lists the schedules of a tenant that will fire before `until`, by name, strictly after
    /// `after`.
    async fn upcoming(
        &self,
        tenant: &str,
        until: Timestamp,
        after: Option<String>,
        limit: usize,
    ) -> Result<UpcomingPage, StoreError>;

    /// How many schedules of a tenant will fire before `until`.
    async fn upcoming_count(&self, tenant: &str, until: Timestamp) -> Result<u64, StoreError>;

    /// Lists the waiting tasks of a tenant that are due before `until`, by due instant and number,
    /// strictly after `after`.
    async fn upcoming_tasks(
        &self,
        tenant: &str,
        after: (Timestamp, i64),
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<UpcomingTask>, StoreError>;
}
