//! When a breaker opens, and what a node counts for that. Pure.
//!
//! The window has five slots and slides by one of them; every node's slots begin at the same
//! instants of the store's clock, so that counts can be added together. A healthy system tells
//! nothing: only of tenants at which something failed does a node tell what it has counted. And it
//! tells what it has by now, not what came since it told last, so that telling twice does no harm.
//!
//! A breaker over a target opens by what happened at that target. One over a tenant opens by what
//! happened everywhere else: targets whose own breaker is open, or is about to be, are not counted,
//! and something must have failed with pull workers or at two targets at least. So one dead target,
//! however many tasks it has, never stops its tenant.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{BreakerKey, Runs, SlotCounts};
use crate::time::Timestamp;

/// The slots of a window.
pub const SLOTS: i64 = 5;

/// Keys that a node counts at the most; runs at targets beyond are not counted.
const KEYS_MAX: usize = 50_000;

/// When a breaker opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerRules {
    /// The length of the window.
    pub window_millis: i64,
    /// With fewer runs in the window nothing opens.
    pub minimum: u64,
    /// It opens when more than this percentage of the runs failed.
    pub failure_percent: u64,
}

impl BreakerRules {
    /// Whether these runs open a breaker.
    pub fn open(self, runs: Runs) -> bool {
        let (failed, all) = (u128::from(runs.failed), u128::from(runs.ok) + u128::from(runs.failed));
        runs.all() >= self.minimum.max(1) && failed * 100 > all * u128::from(self.failure_percent)
    }

    /// The begin of the slot that an instant is in.
    pub fn slot_at(self, now: Timestamp) -> Timestamp {
        Timestamp::from_millis(now.as_millis().div_euclid(self.slot_millis()) * self.slot_millis())
    }

    /// The begin of the window that ends at an instant: that of its first slot.
    pub fn since(self, now: Timestamp) -> Timestamp {
        self.slot_at(now).plus_millis(-self.slot_millis() * (SLOTS - 1))
    }

    fn slot_millis(self) -> i64 {
        (self.window_millis / SLOTS).max(1)
    }

    /// The keys whose breakers the counts of all nodes open, and the runs that do. The counts are
    /// those of keys without an open breaker.
    pub fn to_open(self, counts: &[(BreakerKey, Runs)]) -> Vec<(BreakerKey, Runs)> {
        let mut opening = Vec::new();
        let mut tenants: BTreeMap<&str, (Runs, usize)> = BTreeMap::new();
        for (key, runs) in counts {
            if !key.is_of_tenant() && self.open(*runs) {
                opening.push((key.clone(), *runs));
                continue;
            }
            let (sum, failing) = tenants.entry(&key.tenant).or_default();
            *sum = sum.plus(*runs);
            // What fails with pull workers has no other breaker, a single target has its own.
            *failing += if runs.failed == 0 { 0 } else { 1 + usize::from(key.is_of_tenant()) };
        }
        let whole = tenants.into_iter().filter(|(_, (runs, failing))| *failing > 1 && self.open(*runs));
        opening.extend(whole.map(|(tenant, (runs, _))| (BreakerKey::of_tenant(tenant), runs)));
        opening
    }
}

/// What a node has counted within the window.
#[derive(Debug)]
pub struct Windows {
    rules: BreakerRules,
    /// By tenant and target, then by the begin of a slot; what is pulled has an empty target.
    tenants: HashMap<String, HashMap<String, BTreeMap<Timestamp, Runs>>>,
    keys: usize,
    /// What the store has of it; none where an answer was not heard, and it may have anything.
    reported: HashMap<(BreakerKey, Timestamp), Option<Runs>>,
}

impl Windows {
    /// Nothing counted yet.
    pub fn new(rules: BreakerRules) -> Self {
        Self { rules, tenants: HashMap::new(), keys: 0, reported: HashMap::new() }
    }

    /// Whether nothing was counted within the window, nor is left to tell.
    pub fn is_empty(&self) -> bool {
        self.tenants.is_empty() && self.reported.is_empty()
    }

    /// Runs ended.
    pub fn add(&mut self, tenant: &str, target: &str, runs: Runs, now: Timestamp) {
        let slot_at = self.rules.slot_at(now);
        let known = self.tenants.get_mut(tenant).and_then(|targets| targets.get_mut(target));
        let slots = match known {
            Some(slots) => slots,
            None if self.keys >= KEYS_MAX => return,
            None => {
                self.keys += 1;
                self.tenants.entry(tenant.to_owned()).or_default().entry(target.to_owned()).or_default()
            }
        };
        let slot = slots.entry(slot_at).or_default();
        *slot = slot.plus(runs);
    }

    /// A breaker has closed: what led to it counts no more.
    pub fn forget(&mut self, key: &BreakerKey) {
        if key.is_of_tenant() {
            self.tenants.remove(&key.tenant);
        } else if let Some(targets) = self.tenants.get_mut(&key.tenant) {
            targets.remove(&key.target);
        }
        self.count_keys();
    }

    /// What is to be told at `now`: of every tenant at which something failed here, or at another
    /// node as `known` in the store says. Targets with failures are told by themselves, the others
    /// together with what is pulled.
    pub fn to_report(&mut self, now: Timestamp, known: &BTreeSet<BreakerKey>) -> Vec<SlotCounts> {
        self.slide(now);
        let mut current: BTreeMap<(BreakerKey, Timestamp), Runs> = BTreeMap::new();
        for (tenant, targets) in &self.tenants {
            let fails = |slots: &BTreeMap<Timestamp, Runs>| slots.values().any(|runs| runs.failed > 0);
            let known = known.range(BreakerKey::of_tenant(tenant)..).take_while(|key| key.tenant == *tenant);
            let known: BTreeSet<&str> = known.map(|key| key.target.as_str()).collect();
            if known.is_empty() && !targets.values().any(fails) {
                continue;
            }
            // There may be very many that are well.
            let mut rest: BTreeMap<Timestamp, Runs> = BTreeMap::new();
            for (target, slots) in targets {
                let is_reported_apart = !target.is_empty() && (fails(slots) || known.contains(target.as_str()));
                for (slot_at, runs) in slots {
                    if is_reported_apart {
                        current.insert((BreakerKey::new(tenant, target), *slot_at), *runs);
                    } else {
                        let sum = rest.entry(*slot_at).or_default();
                        *sum = sum.plus(*runs);
                    }
                }
            }
            current.extend(rest.into_iter().map(|(slot_at, runs)| ((BreakerKey::of_tenant(tenant), slot_at), runs)));
        }
        // What was told and is no more is told to be nothing, or it would count on.
        let gone = self.reported.keys().filter(|place| !current.contains_key(place)).cloned();
        let gone: Vec<_> = gone.map(|place| (place, Runs::default())).collect();
        let all = current.into_iter().chain(gone);
        let news: Vec<_> = all.filter(|(place, runs)| self.reported.get(place) != Some(&Some(*runs))).collect();
        self.reported.extend(news.iter().map(|(place, _)| (place.clone(), None)));
        news.into_iter().map(|((key, slot_at), runs)| SlotCounts { key, slot_at, runs }).collect()
    }

    /// This has been told, and that was heard.
    pub fn confirm(&mut self, counts: Vec<SlotCounts>) {
        for SlotCounts { key, slot_at, runs } in counts {
            if runs == Runs::default() {
                self.reported.remove(&(key, slot_at));
            } else {
                self.reported.insert((key, slot_at), Some(runs));
            }
        }
    }

    /// Forgets what is before the window.
    fn slide(&mut self, now: Timestamp) {
        let since = self.rules.since(now);
        self.reported.retain(|(_, slot_at), _| *slot_at >= since);
        self.tenants.retain(|_, targets| {
            targets.retain(|_, slots| {
                slots.retain(|slot_at, _| *slot_at >= since);
                !slots.is_empty()
            });
            !targets.is_empty()
        });
        self.count_keys();
    }

    fn count_keys(&mut self) {
        self.keys = self.tenants.values().map(HashMap::len).sum();
    }
}

#[cfg(test)]
mod tests;
