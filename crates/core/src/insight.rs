//! The port of reads that explain: what keeps a task from being claimed, and what will be due.
//!
//! The API calls it to answer people. Nothing that decides anything calls it, so an answer may be a
//! moment old. Its contract is in [`obstacles`](crate::obstacles) and
//! [`forecast`](crate::forecast).

use async_trait::async_trait;

use crate::forecast::{Minute, UpcomingPage};
use crate::obstacles::{Blockers, Holders, TasksAhead, TurnStatus};
use crate::queues::Bucket;
use crate::store::StoreError;
use crate::task::Task;

/// Explains what waits and what will be due (see the module's contract).
#[async_trait]
pub trait Insight: Send + Sync {
    /// Whom a task waits for: the first `first` of them, and how many.
    async fn blockers(&self, task: &Task, first: usize) -> Result<Blockers, StoreError>;

    /// Whose turn it is among the tasks of the key of a task that waits or is blocked; none: it has
    /// no key, or is neither. At most `most` are counted.
    async fn key_turn(&self, task: &Task, most: usize) -> Result<Option<TurnStatus>, StoreError>;

    /// How many due tasks of its queue go before a task, where waiting for `aging_millis` counts as
    /// one priority more, up to the highest; zero: it does not count. At most `most` are counted.
    async fn ahead(&self, task: &Task, aging_millis: i64, most: usize) -> Result<TasksAhead, StoreError>;

    /// The bucket of a queue with a rate limit, if anybody has taken from it.
    async fn bucket(&self, tenant: &str, queue: &str) -> Result<Option<Bucket>, StoreError>;

    /// The pull workers of a tenant that hold tasks; at most `most` leases are looked at, of all
    /// tenants.
    async fn holders(&self, tenant: &str, most: usize) -> Result<Holders, StoreError>;

    /// The minutes from `from` to before `to` in which waiting tasks of a tenant are due, in order,
    /// and how many. The minute that lasts and those before it are not counted.
    async fn waiting(&self, tenant: &str, from: Minute, to: Minute) -> Result<Vec<(Minute, u64)>, StoreError>;

    /// The schedules of a tenant that will fire, by name, strictly after `after`.
    async fn upcoming(&self, tenant: &str, after: Option<String>, limit: usize) -> Result<UpcomingPage, StoreError>;

    /// How many schedules of a tenant will fire.
    async fn upcoming_count(&self, tenant: &str) -> Result<u64, StoreError>;
}
