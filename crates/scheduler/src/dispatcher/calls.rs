//! The claim calls under way.
//!
//! A claim is a call to the store. While it lasts the dispatcher goes on with everybody else: a
//! tenant that wants one task does not wait for another's thousand. Each call's scope is marked in
//! [`Lanes`](crate::lanes::Lanes) until its answer is taken in.

use std::collections::HashMap;

use punctual_core::store::{Claimed, StoreError};
use tokio::task::{Id, JoinSet};

use super::bands::BandSplit;
use crate::lanes::ClaimScope;
use crate::waiting_polls::PollNumber;

/// Calls that are under way at a time, at most, before none is made for pull workers.
const CALLS_MAX: usize = 32;

/// A call: which lanes it may touch, and for whom it claims.
pub(super) struct ClaimCall {
    pub scope: ClaimScope,
    pub purpose: ClaimPurpose,
}

/// For whom a call claims.
pub(super) enum ClaimPurpose {
    /// Pull workers: one claim for each poll.
    Pull { splits: Vec<BandSplit>, polls: Vec<PollNumber> },
    /// Webhooks that came due since this node owns them.
    Push(Vec<BandSplit>),
    /// Webhooks of the backlog.
    Backlog(Vec<BandSplit>),
    /// The probe of a breaker; for this poll if its lane is pulled.
    Probe { poll: Option<PollNumber> },
}

/// A call and its answer.
pub(super) struct ClaimResult {
    pub call: ClaimCall,
    pub answers: Result<Vec<Claimed>, StoreError>,
}

/// The calls under way, and those that were answered and not taken in yet.
#[derive(Default)]
pub(super) struct ClaimCalls {
    calls: JoinSet<Result<Vec<Claimed>, StoreError>>,
    under_way: HashMap<Id, ClaimCall>,
    answered: Vec<ClaimResult>,
}

impl ClaimCalls {
    /// Makes a call.
    pub fn launch(
        &mut self,
        call: ClaimCall,
        claim: impl Future<Output = Result<Vec<Claimed>, StoreError>> + Send + 'static,
    ) {
        let claim = self.calls.spawn(claim);
        self.under_way.insert(claim.id(), call);
    }

    /// Returns when a call has been answered; never while none is under way. Dropping this loses
    /// nothing.
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

    /// The calls that were answered since the last time.
    pub fn take_answered(&mut self) -> Vec<ClaimResult> {
        std::mem::take(&mut self.answered)
    }

    /// Whether no call is under way, and none was answered and not taken in.
    pub fn is_empty(&self) -> bool {
        self.under_way.is_empty() && self.answered.is_empty()
    }

    /// Whether an answer is there to be taken in.
    pub fn has_answer(&self) -> bool {
        !self.answered.is_empty()
    }

    /// Whether no further call may be made for pull workers.
    pub fn is_full(&self) -> bool {
        self.under_way.len() >= CALLS_MAX
    }
}
