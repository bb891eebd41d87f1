//! Bugs of writes to an existing task: outcomes, cancellations, edits, heartbeats.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use punctual_core::ids::TaskId;
use punctual_core::state::{By, Change, Event, State, transition};
use punctual_core::store::{Beat, Store, StoreError};
use punctual_core::task::{Hold, Task};

use super::spoilt::Mischief;

/// The only tenant of a trial.
const TENANT: &str = "default";

/// A task as the store has it.
pub async fn read(inner: &Arc<dyn Store>, id: TaskId) -> Result<Option<Task>, StoreError> {
    Ok(inner.get(TENANT, vec![id]).await?.pop().flatten())
}

/// Whether a run failed and will be retried.
fn is_retry(change: &Change) -> bool {
    change.from == State::Running && change.to == State::Pending && change.crashes.is_some()
}

/// See [`super::Bug::TokenIgnored`].
pub struct TokenIgnored;

#[async_trait]
impl Mischief for TokenIgnored {
    async fn change(&self, inner: &Arc<dyn Store>, id: TaskId, change: Change) -> Result<Option<Change>, StoreError> {
        if change.to != State::Completed {
            return Ok(Some(change));
        }
        let Some(task) = read(inner, id).await? else { return Ok(Some(change)) };
        let Some(entry) = change.trail.last() else { return Ok(Some(change)) };
        let by = By { now: change.at, node: entry.node, actor: entry.actor.clone() };
        let event = Event::Complete { result: change.result.clone(), http_status: None, dropped: None };
        let against_the_row = transition(&task.position, event, &by).ok();
        Ok(against_the_row.or_else(|| Some(change.clone())))
    }
}

/// See [`super::Bug::HeartbeatTokenIgnored`].
pub struct HeartbeatTokenIgnored;

#[async_trait]
impl Mischief for HeartbeatTokenIgnored {
    async fn extend(&self, inner: &Arc<dyn Store>, beats: Vec<Beat>) -> Result<Vec<Option<Hold>>, StoreError> {
        let mut spoilt = Vec::with_capacity(beats.len());
        for beat in beats {
            let token = read(inner, beat.id).await?.map_or(beat.token, |task| task.position.version);
            spoilt.push(Beat { token, ..beat });
        }
        inner.extend(spoilt).await
    }
}

/// See [`super::Bug::CompletionUnwritten`].
#[derive(Default)]
pub struct CompletionUnwritten {
    forgotten: Mutex<HashSet<TaskId>>,
}

#[async_trait]
impl Mischief for CompletionUnwritten {
    async fn change(&self, _: &Arc<dyn Store>, id: TaskId, change: Change) -> Result<Option<Change>, StoreError> {
        let forgets = change.to == State::Completed && self.forgotten.lock().insert(id);
        Ok((!forgets).then_some(change))
    }
}

/// See [`super::Bug::CancelUnwritten`].
pub struct CancelUnwritten;

#[async_trait]
impl Mischief for CancelUnwritten {
    async fn change(&self, _: &Arc<dyn Store>, _: TaskId, change: Change) -> Result<Option<Change>, StoreError> {
        Ok((change.to != State::Cancelled || change.from == State::Running).then_some(change))
    }
}

/// See [`super::Bug::StopUnwritten`].
pub struct StopUnwritten;

#[async_trait]
impl Mischief for StopUnwritten {
    async fn change(&self, _: &Arc<dyn Store>, _: TaskId, change: Change) -> Result<Option<Change>, StoreError> {
        Ok((!change.cancel_requested).then_some(change))
    }
}

/// See [`super::Bug::RescheduleIgnored`].
pub struct RescheduleIgnored;

#[async_trait]
impl Mischief for RescheduleIgnored {
    async fn change(&self, _: &Arc<dyn Store>, _: TaskId, change: Change) -> Result<Option<Change>, StoreError> {
        Ok(Some(change.forged(|fields| {
            if let (State::Pending, Some(edit)) = (fields.from, &mut fields.edit) {
                (edit.execute_at, fields.due_at) = (None, None);
            }
        })))
    }
}

/// See [`super::Bug::AttemptCountedTwice`].
pub struct AttemptCountedTwice;

#[async_trait]
impl Mischief for AttemptCountedTwice {
    async fn change(&self, inner: &Arc<dyn Store>, id: TaskId, change: Change) -> Result<Option<Change>, StoreError> {
        if !is_retry(&change) {
            return Ok(Some(change));
        }
        let attempts = read(inner, id).await?.map(|task| task.position.attempts + 1);
        Ok(Some(change.forged(|fields| fields.attempts = attempts)))
    }
}

/// See [`super::Bug::RetryAtOnce`].
pub struct RetryAtOnce;

#[async_trait]
impl Mischief for RetryAtOnce {
    async fn change(&self, _: &Arc<dyn Store>, _: TaskId, change: Change) -> Result<Option<Change>, StoreError> {
        let due_at = if is_retry(&change) { Some(change.at) } else { change.due_at };
        Ok(Some(change.forged(|fields| fields.due_at = due_at)))
    }
}

/// See [`super::Bug::RedriveKeepsAttempts`].
pub struct RedriveKeepsAttempts;

#[async_trait]
impl Mischief for RedriveKeepsAttempts {
    async fn change(&self, _: &Arc<dyn Store>, _: TaskId, change: Change) -> Result<Option<Change>, StoreError> {
        let attempts = change.attempts.filter(|_| change.from != State::DeadLettered);
        Ok(Some(change.forged(|fields| fields.attempts = attempts)))
    }
}
