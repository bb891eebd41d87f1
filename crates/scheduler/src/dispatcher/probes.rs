//! Probes of open breakers: at intervals, one task of a lane under a breaker is claimed.
//!
//! The dispatcher calls it in every pass. A probe is a claim call of its own. It asks the store for
//! permission, claims one task and records which one. Any lane under the breaker with a due task
//! will do. A tenant's breaker is preferably probed at a target whose own breaker is closed.

use std::sync::Arc;
use std::time::Duration;

use punctual_core::breakers::{BreakerKey, target_of};
use punctual_core::lane::{Lane, Route};
use punctual_core::store::{Claim, Claimant, Claimed};
use punctual_core::time::Timestamp;
use tokio::time::Instant;

use super::calls::ClaimPurpose;
use super::dispatch_core::{DispatchCore, FUTILE_CLAIMS};
use super::pull::Pull;
use super::push::Push;
use crate::breakers::OpenBreakers;
use crate::lanes::{ClaimScope, PollKey};

/// How often to check whether a probe can be made.
const PROBE_INTERVAL: Duration = Duration::from_millis(250);
/// The maximum number of probes under way.
const PROBES_MAX: usize = 4;

/// When to check for probes next.
pub(super) struct BreakerProbes {
    next_at: Instant,
    /// How many probes in a row got nothing because of their queues.
    futile: u32,
}

impl BreakerProbes {
    pub fn new() -> Self {
        Self { next_at: Instant::now(), futile: 0 }
    }

    /// Notes that a poll has arrived, which may take a probe.
    pub fn poll_arrived(&mut self, tenant: &str, breakers: &OpenBreakers) {
        if breakers.is_over_tenant(tenant) {
            self.hurry();
        }
    }

    /// Has the next pass check for probes.
    pub fn hurry(&mut self) {
        self.next_at = Instant::now();
    }

    /// How long until the next check that may make a probe; none while no breaker is open.
    pub fn until_due(&self, core: &DispatchCore) -> Option<Duration> {
        let due = core.lanes.breakers().next_probe_at()?.duration_from(core.now());
        Some(due.max(self.next_at.saturating_duration_since(Instant::now())))
    }

    /// Probes the breakers that are due for it, if there is a task and a claimant.
    pub async fn launch(&mut self, core: &mut DispatchCore, pull: &mut Pull, push: &Push) {
        if core.lanes.breakers().is_empty() || Instant::now() < self.next_at {
            return;
        }
        self.next_at = Instant::now() + PROBE_INTERVAL;
        let now = core.now();
        let due = core.lanes.breakers().iter().filter(|breaker| breaker.next_probe_at <= now);
        let due: Vec<BreakerKey> = due.map(|breaker| breaker.key.clone()).collect();
        for key in due {
            if core.lanes.claims().probes() >= PROBES_MAX {
                return;
            }
            if let Some((lane, keys)) = lane_to_probe(core, pull, &key, now) {
                launch_probe(core, pull, push, lane, keys, now).await;
            }
        }
    }

    /// Corrects the lanes by the answer of a probe at `lane`.
    pub fn take_answer(&mut self, core: &mut DispatchCore, lane: &Lane, answer: &Claimed) {
        let now = core.now();
        for limited in &answer.limited {
            core.lanes.avoid_in_probes(&lane.key, limited.until, now);
        }
        if !answer.tasks.is_empty() || answer.limited.is_empty() {
            self.futile = 0;
        } else {
            self.futile = self.futile.saturating_add(1);
            self.next_at = Instant::now() + FUTILE_CLAIMS.longest_pause(self.futile).min(PROBE_INTERVAL);
        }
        for (lane, head) in &answer.next_due {
            core.lanes.correct_probed(*lane, *head, now);
        }
    }
}

/// A lane to probe a breaker at, and all breakers over that lane.
fn lane_to_probe(
    core: &DispatchCore,
    pull: &mut Pull,
    key: &BreakerKey,
    now: Timestamp,
) -> Option<(Arc<Lane>, Vec<BreakerKey>)> {
    let mut lanes = core.lanes.probe_candidates(key, now);
    lanes.retain(|lane| !core.lanes.claims().is_probing(&lane.key));
    if lanes.is_empty() {
        return None;
    }
    let start = rand::random_range(0..lanes.len());
    lanes.rotate_left(start);
    let over = |lane: &Lane| core.lanes.breakers().over(&lane.key.tenant, target_of(&lane.key));
    lanes.sort_by_key(|lane| over(lane).count());
    lanes.retain(|lane| over(lane).all(|breaker| breaker.next_probe_at <= now));
    let lane = lanes.into_iter().find(|lane| has_claimant(core, pull, lane))?;
    let keys = over(&lane).map(|breaker| breaker.key.clone()).collect();
    Some((lane, keys))
}

fn has_claimant(core: &DispatchCore, pull: &mut Pull, lane: &Lane) -> bool {
    match lane.key.route {
        Route::Pull => pull.poll_for(&PollKey::of(&lane.key)).is_some(),
        Route::Push(_) => core.deps.owned.term_of(&lane.key).is_some(),
    }
}

async fn launch_probe(
    core: &mut DispatchCore,
    pull: &mut Pull,
    push: &Push,
    lane: Arc<Lane>,
    keys: Vec<BreakerKey>,
    now: Timestamp,
) {
    let (claimant, poll) = match lane.key.route {
        Route::Pull => {
            let Some(poll) = pull.poll_for(&PollKey::of(&lane.key)) else { return };
            let Some(claimant) = pull.claimant(poll) else { return };
            (claimant, Some(poll))
        }
        Route::Push(_) => {
            let Some(term) = core.deps.owned.term_of(&lane.key) else { return };
            if core.deps.webhooks.room().await == 0 {
                return;
            }
            let terms = term.fence.into_iter().collect();
            (Claimant::Dispatch { to: push.claims_to(), terms, from: None }, None)
        }
    };
    let claim = Claim { lanes: vec![(lane.id, 1)], limit: 1, claimant };
    let (circuits, store) = (Arc::clone(&core.deps.circuits), Arc::clone(&core.deps.store));
    let call = async move { circuits.probe(&keys, now, store.claim(vec![claim])).await };
    core.launch_call(ClaimScope::Probe(lane), ClaimPurpose::Probe { poll }, call);
}
