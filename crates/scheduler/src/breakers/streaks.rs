//! How many runs in a row have failed at each webhook target, as this node saw it.
//!
//! [`Circuits::count`](super::Circuits::count) adds to the streaks. A streak of `minimum` has the
//! watch forget the successes before it, so that a target which broke a moment ago is judged by
//! what it does now. And until the breaker has opened, failures at the target use up no attempts
//! ([`Streaks::spares`]): fast retries would be used up before the nodes have added up their
//! counts. A node that runs a third of the webhooks sees about a third of the failures. So it
//! spares attempts from a third of `minimum` on, its *share*, and again once all nodes have counted
//! `minimum` failures. Invariant: each of the two ends after [`SPARED_FOR`], and the number of
//! streaks is bounded.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use punctual_core::breakers::BreakerKey;
use punctual_core::breakers::window::BreakerRules;
use tokio::time::Instant;

use crate::ownership::OwnedPartitions;

/// How long a streak spares attempts. A breaker that has not opened by then does not open by this
/// streak: other nodes reach the target.
const SPARED_FOR: Duration = Duration::from_secs(10);
/// A node's share of the minimum is no smaller, so that one task that fails does not spare its own
/// attempts on a node of many.
const SHARE_MIN: u64 = 5;
/// The maximum number of streaks; further ones are not noticed.
const STREAKS_MAX: usize = 10_000;

/// The streaks (see the module).
#[derive(Debug)]
pub(super) struct Streaks {
    rules: BreakerRules,
    /// Says which part of the webhooks this node runs.
    owned: Arc<OwnedPartitions>,
    by_target: HashMap<BreakerKey, Streak>,
}

#[derive(Debug)]
struct Streak {
    failures: u64,
    last_at: Instant,
    /// When it reached this node's share of the minimum.
    share_at: Option<Instant>,
    /// When the minimum was reached, by this streak or by what all nodes have counted.
    minimum_at: Option<Instant>,
}

impl Streak {
    fn begun(now: Instant) -> Self {
        Self { failures: 0, last_at: now, share_at: None, minimum_at: None }
    }
}

impl Streaks {
    pub(super) fn new(rules: BreakerRules, owned: Arc<OwnedPartitions>) -> Self {
        Self { rules, owned, by_target: HashMap::new() }
    }

    /// Counts a run that went to a target.
    pub(super) fn add(&mut self, tenant: &str, target: &str, is_success: bool) {
        // A pull worker has no target; and while nothing fails there is nothing to end.
        if target.is_empty() || (is_success && self.by_target.is_empty()) {
            return;
        }
        let key = BreakerKey::new(tenant, target);
        if is_success {
            self.by_target.remove(&key);
            return;
        }
        if self.by_target.len() >= STREAKS_MAX && !self.by_target.contains_key(&key) {
            return;
        }
        let (now, share) = (Instant::now(), self.share());
        let streak = self.by_target.entry(key).or_insert_with(|| Streak::begun(now));
        streak.failures += 1;
        streak.last_at = now;
        if streak.failures >= share {
            streak.share_at.get_or_insert(now);
        }
        if streak.failures >= self.rules.minimum {
            streak.minimum_at.get_or_insert(now);
        }
    }

    /// How many failures this node sees, about, when all nodes see the minimum. A node that owns
    /// nothing at the moment counts alone.
    fn share(&self) -> u64 {
        let minimum = self.rules.minimum;
        self.owned.share_of(minimum).map_or(minimum, |share| share.max(SHARE_MIN).min(minimum))
    }

    /// Notes that all nodes together have counted the minimum at a target. That concerns this node
    /// if the last run that it saw there has failed.
    pub(super) fn reach(&mut self, key: &BreakerKey) {
        if let Some(streak) = self.by_target.get_mut(key) {
            streak.minimum_at.get_or_insert_with(Instant::now);
        }
    }

    /// Whether failures at a target use up no attempts for now.
    pub(super) fn spares(&self, tenant: &str, target: &str) -> bool {
        if self.by_target.is_empty() {
            return false;
        }
        let streak = self.by_target.get(&BreakerKey::new(tenant, target));
        let mut since = streak.into_iter().flat_map(|streak| [streak.share_at, streak.minimum_at]).flatten();
        since.any(|since| since.elapsed() < SPARED_FOR)
    }

    /// The targets whose streaks have reached the minimum by themselves.
    pub(super) fn reached(&self) -> Vec<BreakerKey> {
        let reached = self.by_target.iter().filter(|(_, streak)| streak.failures >= self.rules.minimum);
        reached.map(|(key, _)| key.clone()).collect()
    }

    /// Forgets streaks without a failure within the window, and those under open breakers.
    pub(super) fn prune(&mut self, is_open: impl Fn(&BreakerKey) -> bool) {
        let window = Duration::from_millis(self.rules.window_millis.unsigned_abs());
        self.by_target.retain(|key, streak| streak.last_at.elapsed() < window && !is_open(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: &str = "http://dead.example:80";

    fn streaks_of(minimum: u64, owned: OwnedPartitions) -> Streaks {
        Streaks::new(BreakerRules { window_millis: 300_000, minimum, failure_percent: 90 }, Arc::new(owned))
    }

    fn streaks() -> Streaks {
        streaks_of(3, OwnedPartitions::everything())
    }

    fn fail(streaks: &mut Streaks, times: usize) {
        for _ in 0..times {
            streaks.add("t", TARGET, false);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_streak_spares_attempts_for_a_while() {
        let mut streaks = streaks();
        fail(&mut streaks, 2);
        assert!(!streaks.spares("t", TARGET) && streaks.reached().is_empty());
        fail(&mut streaks, 1);
        assert!(streaks.spares("t", TARGET));
        assert!(!streaks.spares("u", TARGET) && !streaks.spares("t", ""), "no other tenant, no pull worker");
        tokio::time::advance(SPARED_FOR).await;
        fail(&mut streaks, 1);
        assert!(!streaks.spares("t", TARGET), "however long it goes on");
    }

    /// How many failures in a row a node sees, with so many of 64 partitions, until it spares.
    fn spares_from(minimum: u64, owned: usize) -> usize {
        let mut streaks = streaks_of(minimum, OwnedPartitions::first(owned, 64));
        let fails = |_: &usize| {
            fail(&mut streaks, 1);
            streaks.spares("t", TARGET)
        };
        (1..=100).find(fails).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_of_many_spares_from_its_share_on() {
        assert_eq!(spares_from(20, 64), 20, "a lone node");
        assert_eq!((spares_from(20, 32), spares_from(20, 22), spares_from(20, 21)), (10, 6, 6));
        assert_eq!(spares_from(20, 1), 5, "not by a single task");
        assert_eq!(spares_from(3, 21), 3, "not later than a lone node");
        assert_eq!(spares_from(20, 0), 20, "it shares no work with others at the moment");
    }

    #[tokio::test(start_paused = true)]
    async fn the_minimum_of_all_nodes_spares_once_more() {
        let key = BreakerKey::new("t", TARGET);
        let mut streaks = streaks_of(20, OwnedPartitions::first(21, 64));
        streaks.reach(&key);
        assert!(!streaks.spares("t", TARGET), "nothing has failed here");
        fail(&mut streaks, 6);
        tokio::time::advance(SPARED_FOR).await;
        assert!(!streaks.spares("t", TARGET), "its share has spared for long enough");
        streaks.reach(&key);
        assert!(streaks.spares("t", TARGET));
        assert!(streaks.reached().is_empty(), "other nodes' failures end no success here");
        tokio::time::advance(SPARED_FOR).await;
        fail(&mut streaks, 14);
        streaks.reach(&key);
        assert!(!streaks.spares("t", TARGET), "however long it goes on");
        assert_eq!(streaks.reached(), [key]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_success_ends_a_streak() {
        let mut streaks = streaks();
        fail(&mut streaks, 2);
        streaks.add("t", TARGET, true);
        fail(&mut streaks, 2);
        assert!(!streaks.spares("t", TARGET));
        fail(&mut streaks, 1);
        assert!(streaks.spares("t", TARGET));
    }

    #[tokio::test(start_paused = true)]
    async fn streaks_are_bounded() {
        let mut streaks = streaks();
        for target in 0..STREAKS_MAX + 10 {
            streaks.add("t", &target.to_string(), false);
        }
        streaks.add("t", "", false);
        assert_eq!(streaks.by_target.len(), STREAKS_MAX);
        streaks.prune(|key| key.target == "7");
        assert_eq!(streaks.by_target.len(), STREAKS_MAX - 1, "its breaker is open");
        tokio::time::advance(Duration::from_mins(5)).await;
        streaks.prune(|_| false);
        assert_eq!(streaks.by_target.len(), 0);
    }
}
