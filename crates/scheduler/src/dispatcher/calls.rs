//! The claim calls under way.
//!
//! A claim is a call to the store. The dispatcher continues meanwhile, so a tenant that wants one
//! task does not wait for another tenant's thousand. Invariant: the scope of a call is marked in
//! [`Lanes`](crate::lanes::Lanes) until its answer is handled.

use std::collections::HashMap;

use punctual_core::store::{Claimed, StoreError};
use tokio::task::{Id, JoinSet};

use super::bands::BandSplit;
use crate::lanes::ClaimScope;
use crate::waiting_polls::PollNumber;

/// The maximum number of calls under way before none is launched for pull workers.
const CALLS_MAX: usize = 32;

/// A call: the lanes it may touch, and its purpose.
pub(super) struct ClaimCall {
    pub scope: ClaimScope,
    pub purpose: ClaimPurpose,
}

/// What a call claims for.
pub(super) enum ClaimPurpose {
    /// Pull workers: one claim for each poll.
    Pull { splits: Vec<BandSplit>, polls: Vec<PollNumber> },
    /// Webhooks that came due since this node owns them.
    Push(Vec<BandSplit>),
    /// Webhooks of the backlog.
    Backlog(Vec<BandSplit>),
    /// The probe of a breaker, for this poll if its lane is pulled.
    Probe { poll: Option<PollNumber> },
}

/// A call and its answer.
pub(super) struct ClaimResult {
    pub call: ClaimCall,
    pub answers: Result<Vec<Claimed>, StoreError>,
}

/// The calls under way, and those that were answered and not handled yet.
#[derive(Default)]
pub(super) struct ClaimCalls {
    calls: JoinSet<Result<Vec<Claimed>, StoreError>>,
    under_way: HashMap<Id, ClaimCall>,
    answered: Vec<ClaimResult>,
}

impl ClaimCalls {
    /// Launches a call.
    pub fn launch(
        &mut self,
        call: ClaimCall,
        claim: impl Future<Output = Result<Vec<Claimed>, StoreError>> + Send + 'static,
    ) {
        let claim = self.calls.spawn(claim);
        self.under_way.insert(claim.id(), call);
    }

    /// Returns when a call has been answered; never while none is under way. Dropping the future
    /// loses nothing.
    pub async fn wait(&mut self) {
        if !self.answered.is_empty() {
            return;
        }
        loop {
            let (id, answers) = match self.calls.join_next_with_id().await {
                Some(Ok((id, answers))) => (id, answers),
                Some(Err(fault)) => (fault.id(), Err(StoreError::Unavailable(format!("a claim failed: {fault}")))),
                None => std::future::pending().await,
            };
            if let Some(call) = self.under_way.remove(&id) {
                return self.answered.push(ClaimResult { call, answers });
            }
        }
    }

    /// The calls that were answered since the last call of this.
    pub fn take_answered(&mut self) -> Vec<ClaimResult> {
        std::mem::take(&mut self.answered)
    }

    /// Whether no call is under way, and no answer is left to handle.
    pub fn is_empty(&self) -> bool {
        self.under_way.is_empty() && self.answered.is_empty()
    }

    /// Whether an answer is left to handle.
    pub fn has_answer(&self) -> bool {
        !self.answered.is_empty()
    }

    /// Whether no further call may be launched for pull workers.
    pub fn is_full(&self) -> bool {
        self.under_way.len() >= CALLS_MAX
    }
}
