//! Bugs of the claim.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use punctual_core::ids::TaskId;
use punctual_core::state::By;
use punctual_core::store::{Claim, Claimant, Claimed, Store, StoreError};
use punctual_core::task::{NewTask, Task};
use punctual_core::time::Timestamp;
use punctual_core::trail::Actor;

use super::spoilt::Mischief;

/// See [`super::Bug::HandedOutTwice`].
#[derive(Default)]
pub struct HandedOutTwice {
    last: Mutex<Option<Task>>,
}

#[async_trait]
impl Mischief for HandedOutTwice {
    async fn claim(&self, inner: &Arc<dyn Store>, claims: Vec<Claim>) -> Result<Vec<Claimed>, StoreError> {
        let claimants: Vec<Claimant> = claims.iter().map(|claim| claim.claimant.clone()).collect();
        let mut claimed = inner.claim(claims).await?;
        for (claimant, got) in claimants.iter().zip(&mut claimed) {
            // Only for a worker that got a task: an empty poll may have a limit of none.
            if let (Claimant::Worker { .. }, Some(own)) = (claimant, got.tasks.first().cloned()) {
                got.tasks.extend(self.last.lock().replace(own));
            }
        }
        Ok(claimed)
    }
}

/// Longer than a node owns a partition without a renewal.
const CLAIM_DELAY: Duration = Duration::from_secs(4);

/// See [`super::Bug::TermsIgnored`].
pub struct TermsIgnored;

#[async_trait]
impl Mischief for TermsIgnored {
    async fn claim(&self, inner: &Arc<dyn Store>, mut claims: Vec<Claim>) -> Result<Vec<Claimed>, StoreError> {
        let mut dispatches = false;
        for claim in &mut claims {
            if let Claimant::Dispatch { terms, .. } = &mut claim.claimant {
                dispatches = true;
                terms.clear();
            }
        }
        if dispatches {
            tokio::time::sleep(CLAIM_DELAY).await;
        }
        inner.claim(claims).await
    }
}

/// The true length of the lease.
const KEPT_MILLIS: u64 = 200;

/// See [`super::Bug::LeaseCutShort`].
pub struct LeaseCutShort;

#[async_trait]
impl Mischief for LeaseCutShort {
    async fn claim(&self, inner: &Arc<dyn Store>, mut claims: Vec<Claim>) -> Result<Vec<Claimed>, StoreError> {
        let mut cuts = Vec::with_capacity(claims.len());
        for claim in &mut claims {
            let mut cut = 0;
            if let Claimant::Worker { lease_millis, .. } = &mut claim.claimant {
                cut = lease_millis.saturating_sub(KEPT_MILLIS);
                *lease_millis -= cut;
            }
            cuts.push(i64::try_from(cut).unwrap_or(0));
        }
        let mut claimed = inner.claim(claims).await?;
        for (cut, got) in cuts.into_iter().zip(&mut claimed) {
            for hold in got.tasks.iter_mut().filter_map(|task| task.hold.as_mut()) {
                hold.expires_at = hold.expires_at.plus_millis(cut);
            }
        }
        Ok(claimed)
    }
}

/// See [`super::Bug::FiredTwice`].
#[derive(Default)]
pub struct FiredTwice {
    fired: Mutex<HashSet<Timestamp>>,
}

#[async_trait]
impl Mischief for FiredTwice {
    async fn claim(&self, inner: &Arc<dyn Store>, claims: Vec<Claim>) -> Result<Vec<Claimed>, StoreError> {
        let claimed = inner.claim(claims).await?;
        let tasks = claimed.iter().flat_map(|got| &got.tasks);
        let twins: Vec<NewTask> = tasks.filter_map(|task| self.twin(task)).collect();
        if !twins.is_empty() {
            inner.insert(twins).await?;
        }
        Ok(claimed)
    }
}

impl FiredTwice {
    /// Another task for the instant of this one, unless there is one already.
    fn twin(&self, task: &Task) -> Option<NewTask> {
        let instant = task.scheduled_for().filter(|instant| self.fired.lock().insert(*instant))?;
        let node = task.trail.entries().next()?.node;
        Some(NewTask {
            id: TaskId::new(),
            lane: task.lane.key.clone(),
            created_at: task.created_at,
            execute_at: task.execute_at,
            due_at: task.execute_at,
            expires_at: task.expires_at,
            idempotency: None,
            body: task.body.clone(),
            trail: By { now: task.created_at, node, actor: Actor::Schedule }.scheduled(instant),
        })
    }
}
