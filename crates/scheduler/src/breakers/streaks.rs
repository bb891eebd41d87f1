//! How many runs in a row have failed at each webhook target, as this node saw it.
//!
//! [`Circuits::count`](super::Circuits::count) adds to the streaks. A streak of `minimum` does two
//! things. The watch forgets the successes before it, so that a target which broke a moment ago is
//! judged by what it does now. And until the breaker has opened, failures at the target use up no
//! attempts ([`Streaks::spares`]): fast retries would be used up before the nodes have added up
//! their counts. Invariant: both end after [`SPARED_FOR`], and the number of streaks is bounded.

use std::collections::HashMap;
use std::time::Duration;

use punctual_core::breakers::BreakerKey;
use punctual_core::breakers::window::BreakerRules;
use tokio::time::Instant;

/// How long a streak spares attempts. A breaker that has not opened by then does not open by this
/// streak: other nodes reach the target.
const SPARED_FOR: Duration = Duration::from_secs(10);
/// The maximum number of streaks; further ones are not noticed.
const STREAKS_MAX: usize = 10_000;

/// The streaks (see the module).
#[derive(Debug)]
pub(super) struct Streaks {
    rules: BreakerRules,
    streaks: HashMap<BreakerKey, Streak>,
}

#[derive(Debug)]
struct Streak {
    failures: u64,
    last_at: Instant,
    /// When it reached the minimum.
    reached_at: Option<Instant>,
}

impl Streaks {
    pub(super) fn new(rules: BreakerRules) -> Self {
        Self { rules, streaks: HashMap::new() }
    }

    /// Counts a run that went to a target.
    pub(super) fn add(&mut self, tenant: &str, target: &str, is_success: bool) {
        // A pull worker has no target; and while nothing fails there is nothing to end.
        if target.is_empty() || (is_success && self.streaks.is_empty()) {
            return;
        }
        let key = BreakerKey::new(tenant, target);
        if is_success {
            self.streaks.remove(&key);
            return;
        }
        if self.streaks.len() >= STREAKS_MAX && !self.streaks.contains_key(&key) {
            return;
        }
        let now = Instant::now();
        let streak = self.streaks.entry(key).or_insert(Streak { failures: 0, last_at: now, reached_at: None });
        streak.failures += 1;
        streak.last_at = now;
        if streak.failures >= self.rules.minimum {
            streak.reached_at.get_or_insert(now);
        }
    }

    /// Whether failures at a target use up no attempts for now.
    pub(super) fn spares(&self, tenant: &str, target: &str) -> bool {
        if self.streaks.is_empty() {
            return false;
        }
        let streak = self.streaks.get(&BreakerKey::new(tenant, target));
        streak.and_then(|streak| streak.reached_at).is_some_and(|since| since.elapsed() < SPARED_FOR)
    }

    /// The targets whose streaks have reached the minimum.
    pub(super) fn reached(&self) -> Vec<BreakerKey> {
        let reached = self.streaks.iter().filter(|(_, streak)| streak.reached_at.is_some());
        reached.map(|(key, _)| key.clone()).collect()
    }

    /// Forgets streaks without a failure within the window, and those under open breakers.
    pub(super) fn prune(&mut self, is_open: impl Fn(&BreakerKey) -> bool) {
        let window = Duration::from_millis(self.rules.window_millis.unsigned_abs());
        self.streaks.retain(|key, streak| streak.last_at.elapsed() < window && !is_open(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: &str = "http://dead.example:80";

    fn streaks() -> Streaks {
        Streaks::new(BreakerRules { window_millis: 300_000, minimum: 3, failure_percent: 90 })
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
        assert_eq!(streaks.streaks.len(), STREAKS_MAX);
        streaks.prune(|key| key.target == "7");
        assert_eq!(streaks.streaks.len(), STREAKS_MAX - 1, "its breaker is open");
        tokio::time::advance(Duration::from_mins(5)).await;
        streaks.prune(|_| false);
        assert_eq!(streaks.streaks.len(), 0);
    }
}
