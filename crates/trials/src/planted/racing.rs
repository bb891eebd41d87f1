//! Bugs that show only when another call comes at the same instant: the row has changed between the
//! read and the write.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use punctual_core::clock::{Clock, SystemClock};
use punctual_core::ids::TaskId;
use punctual_core::lane::LaneId;
use punctual_core::state::{Change, State};
use punctual_core::store::{Applied, Beat, Claim, Claimant, Claimed, Inserted, Store, StoreError};
use punctual_core::task::{Body, Hold, NewTask, Task};

use super::settling::read;
use super::spoilt::Mischief;

/// A lost change is answered as if it had been applied. The function selects the changes.
pub struct LostTaken(pub fn(&Change) -> bool);

#[async_trait]
impl Mischief for LostTaken {
    fn applied(&self, change: &Change, applied: Applied) -> Applied {
        if (self.0)(change) { Applied::Done(None) } else { applied }
    }
}

/// A completion.
pub fn completes(change: &Change) -> bool {
    change.to == State::Completed
}

/// A cancellation, or a request to stop.
pub fn cancels(change: &Change) -> bool {
    change.cancel_requested || (change.to == State::Cancelled && change.from != State::Running)
}

/// An edit.
pub fn edits(change: &Change) -> bool {
    change.from == State::Pending && change.edit.is_some()
}

/// A re-drive.
pub fn redrives(change: &Change) -> bool {
    change.from == State::DeadLettered
}

/// The time between the lookup of a key and its use.
const GAP: Duration = Duration::from_millis(1);

/// See [`super::Bug::KeyUnlocked`].
#[derive(Default)]
pub struct KeyUnlocked {
    keys: Mutex<HashMap<String, (TaskId, [u8; 32])>>,
}

#[async_trait]
impl Mischief for KeyUnlocked {
    async fn insert(&self, inner: &Arc<dyn Store>, tasks: Vec<NewTask>) -> Result<Vec<Inserted>, StoreError> {
        let mut answers = Vec::with_capacity(tasks.len());
        for mut task in tasks {
            let Some(wanted) = task.idempotency.take() else {
                answers.extend(inner.insert(vec![task]).await?);
                continue;
            };
            let known = self.keys.lock().get(&wanted.key).copied();
            let first = match known {
                Some((id, _)) => read(inner, id).await?,
                None => None,
            };
            match (known, first) {
                (Some((_, fingerprint)), Some(first)) if wanted.is_repeat_of(&fingerprint) => {
                    answers.push(Inserted::Replayed(first));
                }
                (Some((id, _)), _) => answers.push(Inserted::KeyReused(id)),
                (None, _) => {
                    tokio::time::sleep(GAP).await;
                    self.keys.lock().insert(wanted.key, (task.id, wanted.fingerprint));
                    answers.extend(inner.insert(vec![task]).await?);
                }
            }
        }
        Ok(answers)
    }
}

/// See [`super::Bug::CancelledHandedOut`].
#[derive(Default)]
pub struct CancelledHandedOut {
    cancelled: Mutex<HashMap<LaneId, Task>>,
}

#[async_trait]
impl Mischief for CancelledHandedOut {
    async fn change(&self, inner: &Arc<dyn Store>, id: TaskId, change: Change) -> Result<Option<Change>, StoreError> {
        if change.to == State::Cancelled
            && let Some(task) = read(inner, id).await?.filter(|task| task.state() == State::Pending)
        {
            self.cancelled.lock().insert(task.lane.id, task);
        }
        Ok(Some(change))
    }

    async fn claim(&self, inner: &Arc<dyn Store>, claims: Vec<Claim>) -> Result<Vec<Claimed>, StoreError> {
        let asked = claims.clone();
        let mut claimed = inner.claim(claims).await?;
        for (claim, got) in asked.iter().zip(&mut claimed) {
            let Claimant::Worker { name, lease_millis, .. } = &claim.claimant else { continue };
            let mut cancelled = self.cancelled.lock();
            if let Some(mut task) = claim.lanes.iter().find_map(|(lane, _)| cancelled.remove(lane)) {
                task.position.state = State::Running;
                task.position.version += 2;
                task.position.attempts += 1;
                task.hold = Some(hold(name, *lease_millis));
                got.tasks.push(task);
            }
        }
        Ok(claimed)
    }
}

fn hold(worker: &str, lease_millis: u64) -> Hold {
    let since = SystemClock.now();
    let expires_at = since.plus_millis(i64::try_from(lease_millis).unwrap_or(i64::MAX / 2));
    Hold { worker: worker.to_owned(), node: None, since, expires_at, deadline_at: expires_at, lease_millis }
}

/// See [`super::Bug::LeaseRevived`].
pub struct LeaseRevived;

#[async_trait]
impl Mischief for LeaseRevived {
    async fn extend(&self, inner: &Arc<dyn Store>, beats: Vec<Beat>) -> Result<Vec<Option<Hold>>, StoreError> {
        let tokens: Vec<(TaskId, u64)> = beats.iter().map(|beat| (beat.id, beat.token)).collect();
        let mut extended = inner.extend(beats).await?;
        for ((id, token), answer) in tokens.into_iter().zip(&mut extended) {
            let task = if answer.is_none() { read(inner, id).await? } else { None };
            let held = task.filter(|task| task.state() == State::Running && task.position.version == token);
            if let Some(Hold { worker, lease_millis, .. }) = held.and_then(|task| task.hold) {
                *answer = Some(hold(&worker, lease_millis));
            }
        }
        Ok(extended)
    }
}

/// See [`super::Bug::StaleBody`].
#[derive(Default)]
pub struct StaleBody {
    bodies: Mutex<HashMap<TaskId, Body>>,
}

#[async_trait]
impl Mischief for StaleBody {
    async fn insert(&self, inner: &Arc<dyn Store>, tasks: Vec<NewTask>) -> Result<Vec<Inserted>, StoreError> {
        self.bodies.lock().extend(tasks.iter().map(|task| (task.id, task.body.clone())));
        inner.insert(tasks).await
    }

    async fn claim(&self, inner: &Arc<dyn Store>, claims: Vec<Claim>) -> Result<Vec<Claimed>, StoreError> {
        let mut claimed = inner.claim(claims).await?;
        let mut bodies = self.bodies.lock();
        for task in claimed.iter_mut().flat_map(|got| &mut got.tasks) {
            if let Some(body) = bodies.remove(&task.id) {
                task.body = body;
            }
        }
        Ok(claimed)
    }
}
