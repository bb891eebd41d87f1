//! A token bucket: so many tokens a second, and a second's worth of them at once.
//!
//! Pure: it is told the time. The backlog is its only caller. Tokens are given out in portions
//! of a twentieth of a second's worth, so that a trickle of tokens does not become a trickle of
//! claims, each of which costs the store as much as a full one.
//!
//! Invariant: within any time no more is taken than a second's worth and what has flowed in
//! meanwhile, unless somebody took more than there was, which those after it wait for.

use std::time::Duration;

use tokio::time::Instant;

/// One second in nanoseconds: also the size of the bucket, whose tokens are kept as the time that they take to flow in.
const SECOND: u128 = 1_000_000_000;
/// Portions of tokens in a second.
const PORTIONS: u32 = 20;

/// See the module.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// Zero: there are always more.
    per_second: u32,
    /// When it is full again, unless more is taken.
    full_at: Instant,
}

impl Bucket {
    /// A full bucket into which so many tokens flow in a second; zero means that it is never empty.
    pub fn new(per_second: u32, now: Instant) -> Self {
        Self { per_second, full_at: now }
    }

    /// Whether it is never empty.
    pub fn is_endless(&self) -> bool {
        self.per_second == 0
    }

    /// How many tokens there are, from a portion on.
    pub fn tokens(&self, now: Instant) -> usize {
        if self.is_endless() {
            return usize::MAX;
        }
        let missing = self.full_at.saturating_duration_since(now).as_nanos();
        let tokens = SECOND.saturating_sub(missing) * u128::from(self.per_second) / SECOND;
        let tokens = usize::try_from(tokens).unwrap_or(usize::MAX);
        if tokens < self.portion() { 0 } else { tokens }
    }

    /// Takes tokens. Who takes more than there are makes those after it wait.
    pub fn take(&mut self, tokens: usize, now: Instant) {
        if !self.is_endless() {
            let cost = tokens as u128 * SECOND / u128::from(self.per_second);
            self.full_at = self.full_at.max(now) + nanoseconds(cost);
        }
    }

    /// How long it takes until there is a portion.
    pub fn wait(&self, now: Instant) -> Duration {
        if self.is_endless() {
            return Duration::ZERO;
        }
        let needed = (self.portion() as u128 * SECOND).div_ceil(u128::from(self.per_second));
        let missing = self.full_at.saturating_duration_since(now).as_nanos();
        nanoseconds(missing.saturating_sub(SECOND - needed))
    }

    fn portion(&self) -> usize {
        usize::try_from(self.per_second / PORTIONS).unwrap_or(usize::MAX).max(1)
    }
}

fn nanoseconds(nanos: u128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_seconds_worth_at_once_and_then_as_it_flows_in() {
        let start = Instant::now();
        let mut bucket = Bucket::new(200, start);
        assert_eq!((bucket.tokens(start), bucket.wait(start)), (200, Duration::ZERO));
        bucket.take(200, start);
        assert_eq!((bucket.tokens(start), bucket.wait(start)), (0, Duration::from_millis(50)));
        let later = start + Duration::from_millis(49);
        assert_eq!((bucket.tokens(later), bucket.wait(later)), (0, Duration::from_millis(1)), "not a portion yet");
        assert_eq!(bucket.tokens(start + Duration::from_millis(50)), 10);
        assert_eq!(bucket.tokens(start + Duration::from_mins(1)), 200, "no more than a second's worth");
    }

    #[test]
    fn what_was_taken_too_much_is_waited_for() {
        let start = Instant::now();
        let mut bucket = Bucket::new(10, start);
        bucket.take(30, start);
        assert_eq!(bucket.wait(start), Duration::from_millis(2_100));
        assert_eq!(bucket.tokens(start + Duration::from_secs(2)), 0);
        assert_eq!(bucket.tokens(start + Duration::from_secs(3)), 10);
    }

    #[test]
    fn an_endless_one_is_never_empty() {
        let start = Instant::now();
        let mut bucket = Bucket::new(0, start);
        bucket.take(1_000_000, start);
        assert_eq!((bucket.tokens(start), bucket.wait(start)), (usize::MAX, Duration::ZERO));
    }

    proptest! {
        #[test]
        fn within_any_time_no_more_is_taken_than_flows_in(
            per_second in 1_u32..5_000,
            turns in proptest::collection::vec((0_u64..400, 1_usize..2_000), 1..200),
        ) {
            let start = Instant::now();
            let mut bucket = Bucket::new(per_second, start);
            let mut now = start;
            let mut taken: Vec<(Instant, u32)> = Vec::new();
            for (pause, wish) in turns {
                now += Duration::from_millis(pause);
                let tokens = bucket.tokens(now).min(wish);
                bucket.take(tokens, now);
                taken.push((now, u32::try_from(tokens).unwrap()));
            }
            for first in 0..taken.len() {
                let mut sum = 0;
                for (at, tokens) in &taken[first..] {
                    sum += tokens;
                    let flowed = at.duration_since(taken[first].0).as_secs_f64() * f64::from(per_second);
                    prop_assert!(f64::from(sum) <= f64::from(per_second) + flowed + 1.0, "{sum} within {flowed}");
                }
            }
        }

        #[test]
        fn who_waits_as_told_finds_a_portion_and_never_waits_long(
            per_second in 1_u32..5_000,
            wishes in proptest::collection::vec(1_usize..2_000, 1..100),
        ) {
            let mut now = Instant::now();
            let mut bucket = Bucket::new(per_second, now);
            for wish in wishes {
                let wait = bucket.wait(now);
                prop_assert!(wait <= Duration::from_secs(1));
                now += wait;
                let tokens = bucket.tokens(now);
                prop_assert!(tokens >= bucket.portion());
                bucket.take(tokens.min(wish), now);
            }
        }
    }
}
