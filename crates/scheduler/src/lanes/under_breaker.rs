//! The lanes under open breakers, by target. Pure.
//!
//! Only probes are claimed from these lanes. A probe avoids queues at their limit: otherwise one
//! full queue would keep its breaker from being probed at the other queues.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use punctual_core::breakers::{BreakerKey, target_of};
use punctual_core::lane::{Lane, LaneId, LaneKey};
use punctual_core::time::Timestamp;

use super::{Home, LaneEntry, Lanes};
use crate::breakers::OpenBreakers;

/// The maximum number of lanes, and of targets, that are considered for a probe.
const PROBE_LANES_MAX: usize = 1_000;

impl Lanes {
    /// Moves lanes to where these open breakers want them.
    pub fn set_breakers(&mut self, open: Arc<OpenBreakers>, now: Timestamp) {
        if Arc::ptr_eq(&open, &self.breakers) {
            return;
        }
        let is_same = open.has_keys_of(&self.breakers);
        self.breakers = open;
        if is_same {
            return;
        }
        for id in self.ids(|entry| self.is_misplaced(entry)) {
            let Some(entry) = self.entries.get(&id) else { continue };
            let lane = Arc::clone(&entry.lane);
            match entry.home {
                Home::UnderBreaker { head } => self.place(&lane, head, now),
                home => {
                    let head = home.head().into_iter().chain(entry.backlog).min().unwrap_or(now);
                    self.set_home(&lane, Home::UnderBreaker { head });
                    self.clear_backlog(id);
                }
            }
        }
    }

    /// Whether an entry is not where the open breakers want it. A limited lane stays until it is
    /// released.
    fn is_misplaced(&self, entry: &LaneEntry) -> bool {
        let is_under = matches!(entry.home, Home::UnderBreaker { .. });
        !matches!(entry.home, Home::Limited { .. }) && is_under != self.breakers.is_over(&entry.lane.key)
    }

    /// The lanes under a breaker that have a due task and whose queues probes do not avoid.
    pub fn probe_candidates(&self, key: &BreakerKey, now: Timestamp) -> Vec<Arc<Lane>> {
        let lanes = self.index.under_breaker.under(key, PROBE_LANES_MAX).filter_map(|id| self.entries.get(&id));
        let due = lanes
            .take(PROBE_LANES_MAX)
            .filter(|entry| matches!(entry.home, Home::UnderBreaker { head } if head <= now));
        due.map(|entry| &entry.lane)
            .filter(|lane| !self.index.under_breaker.is_avoided(&lane.key, now))
            .cloned()
            .collect()
    }
}

/// The lanes under breakers, and the queues that a probe avoids (see the module).
#[derive(Debug, Default)]
pub(crate) struct BreakerLanes {
    /// By tenant and target; lanes that are pulled have an empty target.
    by_target: BTreeMap<BreakerKey, BTreeSet<LaneId>>,
    len: usize,
    /// Until when a probe avoids a queue, by tenant and queue.
    avoided: HashMap<String, HashMap<String, Timestamp>>,
}

impl BreakerLanes {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn contains(&self, lane: &Lane) -> bool {
        self.by_target.get(&target_key(&lane.key)).is_some_and(|lanes| lanes.contains(&lane.id))
    }

    pub(super) fn insert(&mut self, lane: &Lane) {
        self.len += usize::from(self.by_target.entry(target_key(&lane.key)).or_default().insert(lane.id));
    }

    pub(super) fn remove(&mut self, lane: &Lane) {
        let key = target_key(&lane.key);
        if let Some(lanes) = self.by_target.get_mut(&key) {
            self.len -= usize::from(lanes.remove(&lane.id));
            if lanes.is_empty() {
                self.by_target.remove(&key);
            }
        }
    }

    /// The lanes under a breaker, of at most `targets_max` targets. A tenant's breaker is over all
    /// its targets.
    pub(super) fn under(&self, key: &BreakerKey, targets_max: usize) -> impl Iterator<Item = LaneId> {
        let of_tenant = self.by_target.range(key.clone()..).take_while(move |(target, _)| target.tenant == key.tenant);
        let targets = of_tenant.filter(move |(target, _)| key.is_of_tenant() || *target == key).take(targets_max);
        targets.flat_map(|(_, lanes)| lanes).copied()
    }

    /// Has probes avoid the queue of a lane until then, or until its limits change.
    pub(super) fn avoid(&mut self, lane: &LaneKey, until: Timestamp, now: Timestamp) {
        // Forget entries that have run out: the map has only queues that were tried recently.
        self.avoided.retain(|_, queues| {
            queues.retain(|_, until| *until > now);
            !queues.is_empty()
        });
        self.avoided.entry(lane.tenant.clone()).or_default().insert(lane.queue.clone(), until);
    }

    pub(super) fn is_avoided(&self, lane: &LaneKey, now: Timestamp) -> bool {
        let until = self.avoided.get(&lane.tenant).and_then(|queues| queues.get(&lane.queue));
        until.is_some_and(|until| *until > now)
    }

    /// Has probes try a queue again; returns whether they avoided it.
    pub(super) fn free(&mut self, tenant: &str, queue: &str) -> bool {
        self.avoided.get_mut(tenant).is_some_and(|queues| queues.remove(queue).is_some())
    }

    /// Has probes try all queues again; returns whether they avoided any.
    pub(super) fn free_all(&mut self) -> bool {
        !std::mem::take(&mut self.avoided).is_empty()
    }
}

fn target_key(lane: &LaneKey) -> BreakerKey {
    BreakerKey::new(&lane.tenant, target_of(lane))
}
