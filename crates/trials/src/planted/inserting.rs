//! Bugs of the submission.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use punctual_core::lane::{Lane, LaneId};
use punctual_core::state::State;
use punctual_core::store::{Inserted, Store, StoreError};
use punctual_core::task::{NewTask, Task};
use punctual_core::time::Timestamp;

use super::spoilt::Mischief;
use crate::orders::NARROW;

/// The time between the answer and the write: longer than a kill takes, and short for a trial.
const WRITTEN_AFTER: Duration = Duration::from_millis(400);

/// See [`super::Bug::AckBeforeCommit`].
pub struct AckBeforeCommit;

#[async_trait]
impl Mischief for AckBeforeCommit {
    async fn insert(&self, inner: &Arc<dyn Store>, tasks: Vec<NewTask>) -> Result<Vec<Inserted>, StoreError> {
        let promised = tasks.iter().map(|task| Inserted::Created(as_if_stored(task))).collect();
        let inner = Arc::clone(inner);
        tokio::spawn(async move {
            tokio::time::sleep(WRITTEN_AFTER).await;
            inner.insert(tasks).await
        });
        Ok(promised)
    }
}

/// The task as the store would return it.
fn as_if_stored(task: &NewTask) -> Task {
    // No lane has this number, so no dispatcher claims the task before it is stored.
    let lane = Arc::new(Lane { id: LaneId::new(i64::MAX), key: task.lane.clone() });
    Task::created(Cow::Borrowed(task), lane, State::Pending)
}

/// See [`super::Bug::KeyIgnored`].
pub struct KeyIgnored;

#[async_trait]
impl Mischief for KeyIgnored {
    async fn insert(&self, inner: &Arc<dyn Store>, tasks: Vec<NewTask>) -> Result<Vec<Inserted>, StoreError> {
        inner.insert(tasks.into_iter().map(|task| NewTask { idempotency: None, ..task }).collect()).await
    }
}

/// See [`super::Bug::DueRoundedDown`].
pub struct DueRoundedDown;

#[async_trait]
impl Mischief for DueRoundedDown {
    async fn insert(&self, inner: &Arc<dyn Store>, tasks: Vec<NewTask>) -> Result<Vec<Inserted>, StoreError> {
        let second = |at: Timestamp| Timestamp::from_millis(at.as_millis() / 1_000 * 1_000);
        let early =
            |task: NewTask| NewTask { execute_at: second(task.execute_at), due_at: second(task.due_at), ..task };
        inner.insert(tasks.into_iter().map(early).collect()).await
    }
}

/// See [`super::Bug::ExpiryForgotten`].
pub struct ExpiryForgotten;

#[async_trait]
impl Mischief for ExpiryForgotten {
    async fn insert(&self, inner: &Arc<dyn Store>, tasks: Vec<NewTask>) -> Result<Vec<Inserted>, StoreError> {
        inner.insert(tasks.into_iter().map(|task| NewTask { expires_at: None, ..task }).collect()).await
    }
}

/// See [`super::Bug::OrderForgotten`].
pub struct OrderForgotten;

#[async_trait]
impl Mischief for OrderForgotten {
    async fn insert(&self, inner: &Arc<dyn Store>, mut tasks: Vec<NewTask>) -> Result<Vec<Inserted>, StoreError> {
        for task in &mut tasks {
            task.body.ordering_key = None;
        }
        inner.insert(tasks).await
    }
}

/// See [`super::Bug::ParentForgotten`].
pub struct ParentForgotten;

#[async_trait]
impl Mischief for ParentForgotten {
    async fn insert(&self, inner: &Arc<dyn Store>, mut tasks: Vec<NewTask>) -> Result<Vec<Inserted>, StoreError> {
        for task in &mut tasks {
            task.body.dependencies.ids.pop();
        }
        inner.insert(tasks).await
    }
}

/// See [`super::Bug::LimitEvaded`].
pub struct LimitEvaded;

#[async_trait]
impl Mischief for LimitEvaded {
    async fn insert(&self, inner: &Arc<dyn Store>, mut tasks: Vec<NewTask>) -> Result<Vec<Inserted>, StoreError> {
        for task in tasks.iter_mut().filter(|task| task.body.callback.is_some() && task.lane.queue == NARROW) {
            "wide".clone_into(&mut task.lane.queue);
        }
        inner.insert(tasks).await
    }
}
