//! The token bucket: pure arithmetic over tokens and instants.
//!
//! The stores keep a [`Bucket`] for each queue with a [`RateLimit`], and the dispatcher keeps one
//! for its backlog. Both use the same [`TokenFlow`]. The caller says what time it is.
//!
//! A queue's bucket holds the burst and the tokens of 40 ms more. Claims come a little late, and
//! would fall behind the rate if the tokens of that delay were lost. So in any second a queue gets
//! at most its rate, its burst and a twenty-fifth of its rate.

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// How long tokens are kept beyond the burst, in seconds.
const GRACE_SECONDS: f64 = 0.04;

/// The maximum number of claims in a second on a queue at its rate limit. Each takes the tokens
/// that have flowed in.
const CLAIMS_PER_SECOND_MAX: f64 = 100.0;

/// The rounding error that sums of fractions may have.
const EPSILON: f64 = 1e-6;

/// How fast tasks may start.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateLimit {
    /// The maximum number of tasks in a second.
    pub per_second: f64,
    /// The maximum number of tasks at once after an idle time; at least one.
    pub burst: u32,
}

/// The tokens that are left: one for each task that may start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// The number of tokens, with a fraction. Negative after a caller took too many.
    pub tokens: f64,
    /// The instant as of which this is true.
    pub refilled_at: Timestamp,
}

/// How tokens flow into a bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenFlow {
    /// How many tokens flow in, in a second.
    pub per_second: f64,
    /// The maximum number of tokens in the bucket.
    pub capacity: f64,
    /// The number of tokens that make a claim worthwhile.
    pub portion: f64,
}

impl RateLimit {
    /// A full bucket.
    pub fn full(&self, now: Timestamp) -> Bucket {
        Bucket { tokens: f64::from(self.burst), refilled_at: now }
    }

    /// The bucket at `now`.
    #[must_use]
    pub fn refill(&self, bucket: Bucket, now: Timestamp) -> Bucket {
        self.flow().refill(bucket, now)
    }

    /// When the next claim is worthwhile, for a bucket without a whole token.
    pub fn next(&self, bucket: Bucket) -> Timestamp {
        self.flow().next(bucket)
    }

    fn flow(&self) -> TokenFlow {
        let capacity = f64::from(self.burst) + self.per_second * GRACE_SECONDS;
        let portion = (self.per_second / CLAIMS_PER_SECOND_MAX).floor().clamp(1.0, capacity.max(1.0));
        TokenFlow { per_second: self.per_second, capacity, portion }
    }
}

impl TokenFlow {
    /// The bucket at `now`. A clock that goes back fills nothing twice.
    #[must_use]
    pub fn refill(&self, bucket: Bucket, now: Timestamp) -> Bucket {
        #[expect(clippy::cast_precision_loss, reason = "a bucket that was not refilled for years is full anyway")]
        let millis = (now.as_millis().saturating_sub(bucket.refilled_at.as_millis())).max(0) as f64;
        // A rate that is not positive would never fill the bucket, and `next` would divide by zero.
        debug_assert!(self.per_second > 0.0, "tokens flow in");
        let tokens = (bucket.tokens + millis * self.per_second / 1_000.0).min(self.capacity);
        // NaN would let every claim pass the comparison with a number of tasks.
        debug_assert!(tokens.is_finite(), "tokens are a number");
        Bucket { tokens, refilled_at: bucket.refilled_at.max(now) }
    }

    /// When the bucket will hold a portion; at least a millisecond after its last refill.
    pub fn next(&self, bucket: Bucket) -> Timestamp {
        let missing = (self.portion - bucket.tokens).max(0.0);
        let millis = (missing / self.per_second * 1_000.0 - EPSILON).ceil();
        #[expect(clippy::cast_possible_truncation, reason = "a rate has a minimum, and the cast saturates")]
        bucket.refilled_at.plus_millis(millis.max(1.0) as i64)
    }
}

impl Bucket {
    /// How many tasks may start.
    pub fn whole(&self) -> usize {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and saturating")]
        let whole = (self.tokens + EPSILON).max(0.0) as usize;
        whole
    }

    /// Takes a token for each task. A caller that takes too many makes later callers wait.
    #[must_use]
    pub fn take(self, tasks: usize) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a double counts every number of tasks that a claim can take")]
        let tokens = self.tokens - tasks as f64;
        Self { tokens, ..self }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// Takes all tokens whenever a claim is worthwhile, `late` milliseconds late, until `millis`.
    /// Returns when each token was taken.
    fn drain(limit: RateLimit, mut late: impl FnMut() -> i64, millis: i64) -> Vec<i64> {
        let (mut now, mut taken) = (0, Vec::new());
        let mut bucket = limit.full(at(0));
        while now < millis {
            bucket = limit.refill(bucket, at(now));
            let whole = bucket.whole();
            taken.extend(std::iter::repeat_n(now, whole));
            bucket = bucket.take(whole);
            now = limit.next(bucket).as_millis() + late();
        }
        taken
    }

    fn number(count: usize) -> f64 {
        f64::from(u32::try_from(count).unwrap())
    }

    fn most_in_a_second(taken: &[i64]) -> usize {
        let in_second =
            |(at, from): (usize, &i64)| taken[at..].iter().take_while(|taken| **taken < from + 1_000).count();
        taken.iter().enumerate().map(in_second).max().unwrap_or(0)
    }

    #[test]
    fn the_burst_comes_at_once_and_then_one_by_one() {
        let limit = RateLimit { per_second: 10.0, burst: 3 };
        assert_eq!(drain(limit, || 0, 500), [0, 0, 0, 100, 200, 300, 400]);
        let slow = RateLimit { per_second: 0.5, burst: 1 };
        assert_eq!(drain(slow, || 0, 5_000), [0, 2_000, 4_000]);
    }

    #[test]
    fn a_fast_rate_is_taken_a_few_tokens_at_a_time() {
        let limit = RateLimit { per_second: 1_000.0, burst: 1 };
        let taken = drain(limit, || 0, 1_000);
        let mut claims = taken.clone();
        claims.dedup();
        assert!(claims.len() <= 101, "{}", claims.len());
        assert!((985..=1_001).contains(&taken.len()), "{}", taken.len());
    }

    #[test]
    fn a_clock_that_goes_back_fills_nothing_twice() {
        let limit = RateLimit { per_second: 10.0, burst: 1 };
        let empty = limit.full(at(1_000)).take(1);
        let back = limit.refill(empty, at(0));
        assert_eq!((back.whole(), back.refilled_at), (0, at(1_000)));
        assert_eq!(limit.refill(back, at(1_099)).whole(), 0);
        assert_eq!(limit.refill(back, at(1_100)).whole(), 1);
    }

    #[test]
    fn nothing_overflows() {
        let limit = RateLimit { per_second: 1_000_000.0, burst: 1_000_000 };
        let bucket = limit.refill(limit.full(at(i64::MIN)).take(usize::MAX), at(i64::MAX));
        assert!(bucket.tokens.is_finite());
        assert!(limit.next(bucket) <= Timestamp::MAX);
        let slow = RateLimit { per_second: super::super::limits::RATE_MIN, burst: 1 };
        assert_eq!(slow.next(slow.full(at(0)).take(1)), at(10_000_000));
        assert_eq!(slow.next(slow.full(at(i64::MAX)).take(1)), Timestamp::MAX);
    }

    proptest! {
        #[test]
        fn no_second_has_more_than_the_rate_and_the_burst(
            per_second in 1.0..2_000.0_f64,
            burst in 1..100_u32,
            late in proptest::collection::vec(0..40_i64, 1..50),
        ) {
            let limit = RateLimit { per_second, burst };
            let mut late = late.iter().copied().cycle();
            let taken = drain(limit, || late.next().unwrap_or(0), 5_000);
            let most = (per_second + f64::from(burst)) * 1.05;
            prop_assert!(number(most_in_a_second(&taken)) <= most.max(per_second + f64::from(burst) + 1.0));
        }

        #[test]
        fn a_claim_that_comes_a_little_late_does_not_fall_behind(per_second in 5.0..1_000.0_f64, late in 0..20_i64) {
            let limit = RateLimit { per_second, burst: 1 };
            let taken = drain(limit, || late, 20_000);
            prop_assert!(number(taken.len()) >= per_second * 20.0 * 0.97, "{} of {}", taken.len(), per_second * 20.0);
        }
    }
}
