//! What the parts of the dispatcher share: its ports, the lanes and the claims under way.
//!
//! The dispatcher owns it and lends it to pull, push, probes and the sweep, one at a time.

use std::sync::Arc;

use punctual_core::backoff::ExponentialBackoff;
use punctual_core::lane::Lane;
use punctual_core::state::{By, Event, transition};
use punctual_core::store::{CLAIM_AHEAD_MAX_MILLIS, Claim, Claimed, StoreError};
use punctual_core::time::{Timestamp, signed_millis};
use punctual_core::trail::Actor;
use std::time::Duration;
use tokio::time::Instant;

use super::calls::{ClaimCall, ClaimCalls, ClaimPurpose};
use super::{Config, Deps};
use crate::breakers::EndedRun;
use crate::fairness::Aging;
use crate::lanes::{ClaimScope, Lanes};
use crate::polls::UntakenTask;

/// Pauses after claims that took nothing although a task was due.
pub(super) const FUTILE_CLAIMS: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(4), Duration::from_millis(1_024)).with_jitter(0.0);

/// The ports, the lanes and the claims under way (see the module).
pub(super) struct DispatchCore {
    pub deps: Deps,
    pub config: Config,
    pub lanes: Lanes,
    pub calls: ClaimCalls,
    pub aging: Aging,
    /// How many claims in a row took nothing although a task was due, and when to try again.
    futile_claims: u32,
    retry_at: Option<Instant>,
}

impl DispatchCore {
    pub fn new(deps: Deps, config: Config) -> Self {
        let ahead = signed_millis(config.claim_ahead).min(CLAIM_AHEAD_MAX_MILLIS);
        Self {
            lanes: Lanes::new(signed_millis(config.prefetch_window), ahead),
            calls: ClaimCalls::default(),
            aging: Aging::new(config.fairness.aging),
            futile_claims: 0,
            retry_at: None,
            deps,
            config,
        }
    }

    /// The store's time.
    pub fn now(&self) -> Timestamp {
        self.deps.clock.now()
    }

    /// Launches claims in one call.
    pub fn launch(&mut self, scope: ClaimScope, purpose: ClaimPurpose, claims: Vec<Claim>) {
        let store = Arc::clone(&self.deps.store);
        self.launch_call(scope, purpose, async move { store.claim(claims).await });
    }

    /// Launches a call that claims.
    pub fn launch_call(
        &mut self,
        scope: ClaimScope,
        purpose: ClaimPurpose,
        claim: impl Future<Output = Result<Vec<Claimed>, StoreError>> + Send + 'static,
    ) {
        self.lanes.begin_claim(&scope);
        self.calls.launch(ClaimCall { scope, purpose }, claim);
    }

    /// Takes a hint: a task of this lane is due at `due_at`. While a claim is at the lane, the hint
    /// waits, since the claim's answer may be older.
    pub fn take_hint(&mut self, lane: &Arc<Lane>, due_at: Timestamp) {
        if !self.lanes.defer(lane, due_at) && self.deps.owned.concerns(&lane.key) {
            self.lanes.note(lane, due_at, self.deps.clock.now());
        }
    }

    /// Corrects the lanes by a claim's answer; returns whether a task or a lane has moved.
    pub fn correct_lanes(&mut self, answer: &Claimed) -> bool {
        let now = self.now();
        let mut moved = !answer.tasks.is_empty();
        for (lane, head) in &answer.next_due {
            self.lanes.correct(*lane, *head, now);
            moved |= !self.lanes.is_ready(*lane);
        }
        self.limit(answer, now);
        moved |= !answer.limited.is_empty();
        if moved {
            self.futile_claims = 0;
        } else if !answer.next_due.is_empty() {
            // Another node is claiming the tasks, or they became due during the claim.
            self.futile_claims = self.futile_claims.saturating_add(1);
            self.retry_at = Some(Instant::now() + FUTILE_CLAIMS.longest_pause(self.futile_claims));
        }
        moved
    }

    /// Limits the lanes whose queues let no more tasks through.
    pub fn limit(&mut self, answer: &Claimed, now: Timestamp) {
        for limited in &answer.limited {
            self.lanes.limit(limited.lane, limited.until, now);
        }
    }

    /// How long until a claim that took nothing is tried again.
    pub fn until_retry(&self) -> Option<Duration> {
        self.retry_at.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Forgets the retry if it is due: this pass is the retry.
    pub fn retry(&mut self) {
        self.retry_at = self.retry_at.filter(|at| *at > Instant::now());
    }

    /// How long until a lane becomes ready or a limited one is tried again.
    pub fn until_due(&self) -> Option<Duration> {
        self.lanes.next_wakeup().map(|at| at.duration_from(self.now()))
    }

    /// Gives back claimed tasks that no worker takes. They are not counted as attempts.
    pub async fn give_back(&self, tasks: Vec<UntakenTask>, due_at: Timestamp) {
        if tasks.is_empty() {
            return;
        }
        let now = self.now();
        let give_back = |task: &UntakenTask| {
            // A task that was claimed ahead keeps its due time, and its run does not end before it
            // began.
            let by = By { now: now.max(task.due_at), node: self.deps.node, actor: Actor::Scheduler };
            let event = Event::GiveBack(due_at.max(task.due_at));
            Some((task.id, transition(&task.position, event, &by).ok()?))
        };
        let changes = tasks.iter().filter_map(give_back).collect();
        if let Err(error) = self.deps.store.apply(changes).await {
            tracing::warn!(error = %error, tasks = tasks.len(), "cannot give tasks back; the reaper will take them back");
            return;
        }
        self.deps.circuits.count(tasks.iter().map(EndedRun::given_back));
    }
}
