//! Bugs of the claim.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use punctual_core::store::{Claim, Claimed, Store, StoreError, Taker};
use punctual_core::task::Task;

use super::spoilt::Mischief;

/// See [`super::Bug::HandedOutTwice`].
#[derive(Default)]
pub struct HandedOutTwice {
    last: Mutex<Option<Task>>,
}

#[async_trait]
impl Mischief for HandedOutTwice {
    async fn claim(&self, inner: &Arc<dyn Store>, claims: Vec<Claim>) -> Result<Vec<Claimed>, StoreError> {
        let takers: Vec<Taker> = claims.iter().map(|claim| claim.taker.clone()).collect();
        let mut claimed = inner.claim(claims).await?;
        for (taker, got) in takers.iter().zip(&mut claimed) {
            // Only a worker that got something: who asks for nothing has no place to put it.
            if let (Taker::Worker { .. }, Some(own)) = (taker, got.tasks.first().cloned()) {
                got.tasks.extend(self.last.lock().replace(own));
            }
        }
        Ok(claimed)
    }
}

/// Longer than anybody owns a partition without a word.
const DAWDLES: Duration = Duration::from_secs(4);

/// See [`super::Bug::TermsIgnored`].
pub struct TermsIgnored;

#[async_trait]
impl Mischief for TermsIgnored {
    async fn claim(&self, inner: &Arc<dyn Store>, mut claims: Vec<Claim>) -> Result<Vec<Claimed>, StoreError> {
        let mut dispatches = false;
        for claim in &mut claims {
            if let Taker::Dispatch { terms, .. } = &mut claim.taker {
                dispatches = true;
                terms.clear();
            }
        }
        if dispatches {
            tokio::time::sleep(DAWDLES).await;
        }
        inner.claim(claims).await
    }
}

/// What a worker gets of its lease.
const KEPT_MILLIS: u64 = 200;

/// See [`super::Bug::LeaseCutShort`].
pub struct LeaseCutShort;

#[async_trait]
impl Mischief for LeaseCutShort {
    async fn claim(&self, inner: &Arc<dyn Store>, mut claims: Vec<Claim>) -> Result<Vec<Claimed>, StoreError> {
        let mut cuts = Vec::with_capacity(claims.len());
        for claim in &mut claims {
            let mut cut = 0;
            if let Taker::Worker { lease_millis, .. } = &mut claim.taker {
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
