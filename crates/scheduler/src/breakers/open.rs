//! The open breakers, by tenant and target. Pure.
//!
//! The watch makes the set, the dispatcher sorts its lanes by it. Invariant: a tenant without open
//! breakers has no entry.

use std::collections::{BTreeMap, HashMap};

use punctual_core::breakers::{BreakerKey, OpenBreaker, target_of};
use punctual_core::lane::LaneKey;
use punctual_core::time::Timestamp;

/// The open breakers (see the module).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenBreakers {
    tenants: HashMap<String, BTreeMap<String, OpenBreaker>>,
}

impl OpenBreakers {
    /// Whether none is open.
    pub fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }

    /// How many are open.
    pub fn len(&self) -> usize {
        self.tenants.values().map(BTreeMap::len).sum()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &OpenBreaker> {
        self.tenants.values().flat_map(BTreeMap::values)
    }

    /// The breaker with this key.
    pub fn get(&self, key: &BreakerKey) -> Option<&OpenBreaker> {
        self.tenants.get(&key.tenant)?.get(&key.target)
    }

    /// The breakers over a tenant's tasks to a target, or over its pulled tasks if `target` is
    /// empty: the tenant's, and the target's own.
    pub fn over<'a>(&'a self, tenant: &str, target: &str) -> impl Iterator<Item = &'a OpenBreaker> + use<'a> {
        let of_tenant = self.tenants.get(tenant);
        let own = of_tenant.filter(|_| !target.is_empty()).and_then(|targets| targets.get(target));
        of_tenant.and_then(|targets| targets.get("")).into_iter().chain(own)
    }

    /// Whether a breaker is over a lane.
    pub fn is_over(&self, lane: &LaneKey) -> bool {
        self.over(&lane.tenant, target_of(lane)).next().is_some()
    }

    /// Whether the tenant's own breaker is open.
    pub fn is_over_tenant(&self, tenant: &str) -> bool {
        self.over(tenant, "").next().is_some()
    }

    /// Whether the same breakers are open in both, whatever their probes.
    pub fn has_keys_of(&self, other: &OpenBreakers) -> bool {
        self.len() == other.len() && other.iter().all(|breaker| self.get(&breaker.key).is_some())
    }

    /// When the next probe may be made.
    pub fn next_probe_at(&self) -> Option<Timestamp> {
        self.iter().map(|breaker| breaker.next_probe_at).min()
    }

    /// The breakers whose probe has been possible since before an instant, and was not made.
    pub fn idle_since(&self, before: Timestamp) -> impl Iterator<Item = &OpenBreaker> {
        self.iter().filter(move |breaker| breaker.next_probe_at < before)
    }

    pub(crate) fn insert(&mut self, breaker: OpenBreaker) {
        let targets = self.tenants.entry(breaker.key.tenant.clone()).or_default();
        targets.insert(breaker.key.target.clone(), breaker);
    }

    pub(super) fn remove(&mut self, key: &BreakerKey) {
        if let Some(targets) = self.tenants.get_mut(&key.tenant) {
            targets.remove(&key.target);
            if targets.is_empty() {
                self.tenants.remove(&key.tenant);
            }
        }
    }
}
