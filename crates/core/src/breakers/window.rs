//! Decides when a breaker opens, and counts the runs of a node for that. Pure.
//!
//! The window has five intervals and slides by one of them. They begin at the same instants of the
//! store's clock on all nodes, so their counts can be added together. A node reports counts only
//! of tenants with failures, so a healthy system reports nothing. A report has the whole count of a
//! interval, not the difference to the last report, so reporting twice does no harm.
//!
//! The runs at a target decide whether its breaker opens. A tenant's other runs decide about the
//! breaker over the tenant: targets whose own breaker is open or opens now do not count, and at
//! least pull workers or two targets must have failures. So one dead target, however many tasks it
//! has, never stops its tenant.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{BreakerKey, IntervalCounts, Runs};
use crate::time::Timestamp;

/// The number of intervals in a window.
pub const INTERVALS: i64 = 5;

/// The maximum number of keys that a node counts. Runs of further targets are not counted.
const KEYS_MAX: usize = 50_000;

/// When a breaker opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerRules {
    /// The length of the window.
    pub window_millis: i64,
    /// The minimum number of runs in the window that can open a breaker.
    pub minimum: u64,
    /// A breaker opens when more than this percentage of the runs failed.
    pub failure_percent: u64,
}

impl BreakerRules {
    /// Whether these runs open a breaker.
    pub fn open(self, runs: Runs) -> bool {
        let (failed, all) = (u128::from(runs.failed), u128::from(runs.ok) + u128::from(runs.failed));
        runs.all() >= self.minimum.max(1) && failed * 100 > all * u128::from(self.failure_percent)
    }

    /// When the interval of an instant begins.
    pub fn slot_at(self, now: Timestamp) -> Timestamp {
        Timestamp::from_millis(now.as_millis().div_euclid(self.interval_millis()) * self.interval_millis())
    }

    /// When the window that ends at `now` begins: its first interval.
    pub fn since(self, now: Timestamp) -> Timestamp {
        self.slot_at(now).plus_millis(-self.interval_millis() * (INTERVALS - 1))
    }

    fn interval_millis(self) -> i64 {
        (self.window_millis / INTERVALS).max(1)
    }

    /// The keys whose breakers open by the counts of all nodes, each with its runs. `counts` has
    /// the keys without an open breaker.
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
            // Failures of pull workers have no other breaker. Those of a single target have their
            // own.
            *failing += if runs.failed == 0 { 0 } else { 1 + usize::from(key.is_of_tenant()) };
        }
        let whole = tenants.into_iter().filter(|(_, (runs, failing))| *failing > 1 && self.open(*runs));
        opening.extend(whole.map(|(tenant, (runs, _))| (BreakerKey::of_tenant(tenant), runs)));
        opening
    }
}

/// The runs that a node has counted within the window.
#[derive(Debug)]
pub struct Windows {
    rules: BreakerRules,
    /// By tenant, target (empty for pull tasks) and interval.
    tenants: HashMap<String, HashMap<String, BTreeMap<Timestamp, Runs>>>,
    keys: usize,
    /// The counts that the store has. None after a call without an answer: it may have the old or
    /// the new count.
    reported: HashMap<(BreakerKey, Timestamp), Option<Runs>>,
}

impl Windows {
    /// Empty windows.
    pub fn new(rules: BreakerRules) -> Self {
        Self { rules, tenants: HashMap::new(), keys: 0, reported: HashMap::new() }
    }

    /// Whether nothing was counted within the window, and nothing is left to report.
    pub fn is_empty(&self) -> bool {
        self.tenants.is_empty() && self.reported.is_empty()
    }

    /// Counts runs that ended at `now`.
    pub fn add(&mut self, tenant: &str, target: &str, runs: Runs, now: Timestamp) {
        let slot_at = self.rules.slot_at(now);
        let known = self.tenants.get_mut(tenant).and_then(|targets| targets.get_mut(target));
        let intervals = match known {
            Some(intervals) => intervals,
            None if self.keys >= KEYS_MAX => return,
            None => {
                self.keys += 1;
                self.tenants.entry(tenant.to_owned()).or_default().entry(target.to_owned()).or_default()
            }
        };
        let interval = intervals.entry(slot_at).or_default();
        *interval = interval.plus(runs);
    }

    /// Forgets the counts under a breaker that has closed.
    pub fn forget(&mut self, key: &BreakerKey) {
        if key.is_of_tenant() {
            self.tenants.remove(&key.tenant);
        } else if let Some(targets) = self.tenants.get_mut(&key.tenant) {
            targets.remove(&key.target);
        }
        self.count_keys();
    }

    /// Forgets the successes at a target where `minimum` runs in a row have failed since. A target
    /// that broke a moment ago is judged by what it does now, however well it was before.
    pub fn forget_successes(&mut self, key: &BreakerKey) {
        let targets = self.tenants.get_mut(&key.tenant);
        if let Some(intervals) = targets.and_then(|targets| targets.get_mut(&key.target)) {
            for runs in intervals.values_mut() {
                runs.ok = 0;
            }
        }
    }

    /// The counts to report at `now`: of every tenant with a failure here, or at another node (a
    /// key in `known`, which the store has). Targets with failures are reported each by itself, the
    /// others together with the pull tasks, since there may be very many of them.
    pub fn to_report(&mut self, now: Timestamp, known: &BTreeSet<BreakerKey>) -> Vec<IntervalCounts> {
        self.slide(now);
        let mut current: BTreeMap<(BreakerKey, Timestamp), Runs> = BTreeMap::new();
        for (tenant, targets) in &self.tenants {
            let fails = |intervals: &BTreeMap<Timestamp, Runs>| intervals.values().any(|runs| runs.failed > 0);
            let known = known.range(BreakerKey::of_tenant(tenant)..).take_while(|key| key.tenant == *tenant);
            let known: BTreeSet<&str> = known.map(|key| key.target.as_str()).collect();
            if known.is_empty() && !targets.values().any(fails) {
                continue;
            }
            let mut rest: BTreeMap<Timestamp, Runs> = BTreeMap::new();
            for (target, intervals) in targets {
                let is_reported_apart = !target.is_empty() && (fails(intervals) || known.contains(target.as_str()));
                for (slot_at, runs) in intervals {
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
        // Counts that were reported and have gone since are reported as zero. Otherwise the store
        // would keep them.
        let gone = self.reported.keys().filter(|interval| !current.contains_key(interval)).cloned();
        let gone: Vec<_> = gone.map(|interval| (interval, Runs::default())).collect();
        let all = current.into_iter().chain(gone);
        let news: Vec<_> = all.filter(|(interval, runs)| self.reported.get(interval) != Some(&Some(*runs))).collect();
        self.reported.extend(news.iter().map(|(interval, _)| (interval.clone(), None)));
        news.into_iter().map(|((key, slot_at), runs)| IntervalCounts { key, slot_at, runs }).collect()
    }

    /// Notes that the store has recorded these counts.
    pub fn confirm(&mut self, counts: Vec<IntervalCounts>) {
        for IntervalCounts { key, slot_at, runs } in counts {
            if runs == Runs::default() {
                self.reported.remove(&(key, slot_at));
            } else {
                self.reported.insert((key, slot_at), Some(runs));
            }
        }
    }

    /// Forgets the intervals before the window.
    fn slide(&mut self, now: Timestamp) {
        let since = self.rules.since(now);
        self.reported.retain(|(_, slot_at), _| *slot_at >= since);
        self.tenants.retain(|_, targets| {
            targets.retain(|_, intervals| {
                intervals.retain(|slot_at, _| *slot_at >= since);
                !intervals.is_empty()
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
