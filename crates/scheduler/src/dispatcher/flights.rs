//! Claims under way.
//!
//! A claim is a call to the store, and while it lasts the dispatcher goes on with everybody else:
//! a tenant that wants one task does not wait for another's thousand. Of one tenant's pull workers
//! one call is under way at a time, and one of everything that is pushed, so that what a claim tells
//! of its lanes is never older than what was heard of them before; what is heard meanwhile waits
//! until the claim has landed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use punctual_core::lane::{Lane, LaneId, LaneKey, Route};
use punctual_core::store::{Claim, Claimed, Store, StoreError};
use tokio::task::{Id, JoinSet};

use crate::fairness::Band;

/// Calls that are under way at a time at the most.
const MOST: usize = 32;

/// Whom a call is for.
pub(super) enum Flight {
    /// Pull workers of these tenants: one claim for each worker.
    Pull { tenants: Vec<String>, claims: Vec<Split>, workers: Vec<u64> },
    /// Webhooks.
    Push(Vec<Split>),
    /// Webhooks of the found backlog.
    Backlog(Vec<Split>),
    /// The probe of a breaker, at a lane under it; of one that is pulled, for this worker.
    Probe { lane: Arc<Lane>, worker: Option<u64> },
}

/// How a claim is split between the bands of its tenant.
pub(super) struct Split {
    pub tenant: String,
    /// The lanes of the claim and their bands.
    pub bands: HashMap<LaneId, Band>,
    /// None: all lanes are of one band, and there is nothing to split.
    pub shares: Option<[usize; 3]>,
}

/// What came of a call.
pub(super) type Landed = (Flight, Result<Vec<Claimed>, StoreError>);

/// See the module.
#[derive(Default)]
pub(super) struct Flights {
    calls: JoinSet<Result<Vec<Claimed>, StoreError>>,
    under_way: HashMap<Id, Flight>,
    pulling: HashSet<String>,
    is_pushing: bool,
    /// Lanes with pushed tasks at which probes are.
    probing: HashMap<LaneId, LaneKey>,
}

impl Flights {
    /// Makes claims.
    pub fn launch(&mut self, store: &Arc<dyn Store>, flight: Flight, claims: Vec<Claim>) {
        let store = Arc::clone(store);
        self.launch_call(flight, async move { store.claim(claims).await });
    }

    /// Makes a call that claims.
    pub fn launch_call(
        &mut self,
        flight: Flight,
        call: impl Future<Output = Result<Vec<Claimed>, StoreError>> + Send + 'static,
    ) {
        match &flight {
            Flight::Pull { tenants, .. } => self.pulling.extend(tenants.iter().cloned()),
            Flight::Push(_) | Flight::Backlog(_) => self.is_pushing = true,
            Flight::Probe { lane, .. } => self.begin_probe(lane),
        }
        let call = self.calls.spawn(call);
        self.under_way.insert(call.id(), flight);
    }

    /// A pulled lane is under the breaker of its tenant, for whom nothing else is under way then.
    fn begin_probe(&mut self, lane: &Lane) {
        match lane.key.route {
            Route::Pull => drop(self.pulling.insert(lane.key.tenant.clone())),
            Route::Push(_) => drop(self.probing.insert(lane.id, lane.key.clone())),
        }
    }

    /// Returns when the next call has landed; never while none is under way. Dropping it loses nothing.
    pub async fn next(&mut self) -> Landed {
        loop {
            let (id, answer) = match self.calls.join_next_with_id().await {
                Some(Ok((id, answer))) => (id, answer),
                Some(Err(fault)) => (fault.id(), Err(StoreError::Unavailable(format!("a claim failed: {fault}")))),
                None => std::future::pending().await,
            };
            let Some(flight) = self.under_way.remove(&id) else { continue };
            match &flight {
                Flight::Pull { tenants, .. } => self.pulling.retain(|tenant| !tenants.contains(tenant)),
                Flight::Push(_) | Flight::Backlog(_) => self.is_pushing = false,
                Flight::Probe { lane, .. } if lane.key.route == Route::Pull => {
                    self.pulling.remove(&lane.key.tenant);
                }
                Flight::Probe { lane, .. } => drop(self.probing.remove(&lane.id)),
            }
            return (flight, answer);
        }
    }

    /// Whether nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Whether no further call may be made for pull workers.
    pub fn is_full(&self) -> bool {
        self.under_way.len() >= MOST
    }

    /// Whether a call for pull workers of this tenant is under way.
    pub fn is_pulling(&self, tenant: &str) -> bool {
        self.pulling.contains(tenant)
    }

    /// The tenants for whose pull workers calls are under way.
    pub fn pulling(&self) -> Vec<&str> {
        self.pulling.iter().map(String::as_str).collect()
    }

    /// Whether a call for webhooks is under way.
    pub fn is_pushing(&self) -> bool {
        self.is_pushing
    }

    /// Whether a call may be at this lane.
    pub fn is_at(&self, lane: &LaneKey) -> bool {
        match lane.route {
            Route::Pull => self.is_pulling(&lane.tenant),
            Route::Push(_) => self.is_pushing || self.is_probing(lane),
        }
    }

    /// Whether a probe is at a lane of the same tenant and target.
    pub fn is_probing(&self, lane: &LaneKey) -> bool {
        match lane.route {
            // Of the others nothing is claimed but probes, while the breaker of their tenant is open.
            Route::Pull => self.is_pulling(&lane.tenant),
            Route::Push(_) => {
                self.probing.values().any(|probed| probed.tenant == lane.tenant && probed.route == lane.route)
            }
        }
    }

    /// How many probes are under way.
    pub fn probes(&self) -> usize {
        self.under_way.values().filter(|flight| matches!(flight, Flight::Probe { .. })).count()
    }
}
