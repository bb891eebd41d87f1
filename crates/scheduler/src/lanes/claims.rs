//! Which lanes a claim is under way at, and the hints that wait for its answer. Pure.
//!
//! [`Lanes`](super::Lanes) keeps this beside the homes: a lane keeps its home during a claim.
//! Claims are marked by scope, not by lane. At most one call at a time claims for the pull workers
//! of a tenant, and one for all pushed lanes.
//!
//! Invariant: a claim's answer is never older than the hints that were handled before it. Hints
//! about a lane in a claim wait here until the answer is handled.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use punctual_core::lane::{Lane, LaneId, LaneKey, Route};
use punctual_core::time::Timestamp;

/// The lanes that a claim may touch.
#[derive(Clone, Debug)]
pub(crate) enum ClaimScope {
    /// The lanes that the workers of these tenants pull from.
    Pull(Vec<String>),
    /// All pushed lanes.
    Push,
    /// The lane of a probe.
    Probe(Arc<Lane>),
}

/// The claims under way (see the module).
#[derive(Debug, Default)]
pub(crate) struct LaneClaims {
    pulling: HashSet<String>,
    is_pushing: bool,
    /// The pushed lanes with a probe under way.
    probed: HashMap<LaneId, LaneKey>,
    probes: usize,
    count: usize,
    deferred: HashMap<LaneId, (Arc<Lane>, Timestamp)>,
}

impl LaneClaims {
    /// Whether no claim is under way.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether a claim for pull workers of this tenant is under way.
    pub fn is_pulling(&self, tenant: &str) -> bool {
        self.pulling.contains(tenant)
    }

    /// The tenants with a claim for their pull workers under way.
    pub fn pulling(&self) -> Vec<&str> {
        self.pulling.iter().map(String::as_str).collect()
    }

    /// Whether a claim of pushed tasks is under way, probes apart.
    pub fn is_pushing(&self) -> bool {
        self.is_pushing
    }

    /// How many probes are under way.
    pub fn probes(&self) -> usize {
        self.probes
    }

    /// Whether a claim may touch this lane.
    pub fn is_at(&self, lane: &LaneKey) -> bool {
        match lane.route {
            Route::Pull => self.is_pulling(&lane.tenant),
            Route::Push(_) => self.is_pushing || self.is_probing(lane),
        }
    }

    /// Whether a probe is under way at a lane of the same tenant and target.
    pub fn is_probing(&self, lane: &LaneKey) -> bool {
        match lane.route {
            // While a tenant's breaker is open, its pull workers get probes only.
            Route::Pull => self.is_pulling(&lane.tenant),
            Route::Push(_) => {
                self.probed.values().any(|probed| probed.tenant == lane.tenant && probed.route == lane.route)
            }
        }
    }

    pub(super) fn begin(&mut self, scope: &ClaimScope) {
        self.count += 1;
        match scope {
            ClaimScope::Pull(tenants) => {
                for tenant in tenants {
                    let is_first = self.pulling.insert(tenant.clone());
                    debug_assert!(is_first, "two claims for the pull workers of {tenant}");
                }
            }
            ClaimScope::Push => {
                debug_assert!(!self.is_pushing, "two claims of pushed tasks");
                self.is_pushing = true;
            }
            ClaimScope::Probe(lane) => {
                self.probes += 1;
                match lane.key.route {
                    Route::Pull => drop(self.pulling.insert(lane.key.tenant.clone())),
                    Route::Push(_) => drop(self.probed.insert(lane.id, lane.key.clone())),
                }
            }
        }
    }

    pub(super) fn end(&mut self, scope: &ClaimScope) {
        debug_assert!(self.count > 0, "a claim ends that never began");
        self.count -= 1;
        match scope {
            ClaimScope::Pull(tenants) => {
                for tenant in tenants {
                    self.pulling.remove(tenant);
                }
            }
            ClaimScope::Push => self.is_pushing = false,
            ClaimScope::Probe(lane) => {
                self.probes -= 1;
                match lane.key.route {
                    Route::Pull => drop(self.pulling.remove(&lane.key.tenant)),
                    Route::Push(_) => drop(self.probed.remove(&lane.id)),
                }
            }
        }
    }

    /// Keeps a hint if a claim may touch its lane; returns whether it kept it.
    pub(super) fn defer(&mut self, lane: &Arc<Lane>, due_at: Timestamp) -> bool {
        let is_claimed = self.is_at(&lane.key);
        if is_claimed {
            let earliest = |(_, known): &mut (Arc<Lane>, Timestamp)| *known = due_at.min(*known);
            self.deferred.entry(lane.id).and_modify(earliest).or_insert_with(|| (Arc::clone(lane), due_at));
        }
        is_claimed
    }

    pub(super) fn take_deferred(&mut self) -> impl Iterator<Item = (Arc<Lane>, Timestamp)> + use<> {
        std::mem::take(&mut self.deferred).into_values()
    }
}
