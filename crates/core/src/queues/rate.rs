//! The token bucket of a rate limit. Pure; the stores keep it and tell it the time.
//!
//! A bucket holds the burst, and beyond it what comes in a few hundredths of a second: whoever
//! takes from it comes a little late each time, and would fall behind the rate if what has come
//! meanwhile were lost. So in any second no more are taken than the rate and the burst and a
//! twenty-fifth of the rate.

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// How long tokens are kept beyond the burst, as a part of a second.
const GRACE: f64 = 0.04;

/// Whoever was held back is asked to come again so often in a second at the most, and takes what has come since.
const TURNS: f64 = 100.0;

/// What sums of fractions may miss of a whole.
const HAIR: f64 = 1e-6;

/// How fast tasks may begin.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateLimit {
    /// So many in a second.
    pub per_second: f64,
    /// So many at once, after a while in which none did; at least one.
    pub burst: u32,
}

/// How many may begin now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// So many, and a part.
    pub tokens: f64,
    /// As of this instant.
    pub refilled_at: Timestamp,
}

impl RateLimit {
    /// A bucket that nobody has taken from.
    pub fn full(&self, now: Timestamp) -> Bucket {
        Bucket { tokens: f64::from(self.burst), refilled_at: now }
    }

    /// The bucket at `now`. A clock that goes back fills nothing twice.
    #[must_use]
    pub fn refill(&self, bucket: Bucket, now: Timestamp) -> Bucket {
        #[expect(clippy::cast_precision_loss, reason = "a bucket that was not filled for ages is full anyway")]
        let millis = (now.as_millis().saturating_sub(bucket.refilled_at.as_millis())).max(0) as f64;
        let most = f64::from(self.burst) + self.per_second * GRACE;
        Bucket {
            tokens: (bucket.tokens + millis * self.per_second / 1_000.0).min(most),
            refilled_at: bucket.refilled_at.max(now),
        }
    }

    /// When it is worth to come again, to a bucket with nothing whole in it.
    pub fn next(&self, bucket: Bucket) -> Timestamp {
        let most = f64::from(self.burst) + self.per_second * GRACE;
        let wanted = (self.per_second / TURNS).floor().clamp(1.0, most.max(1.0));
        let millis = ((wanted - bucket.tokens).max(0.0) / self.per_second * 1_000.0 - HAIR).ceil();
        #[expect(clippy::cast_possible_truncation, reason = "a rate has a least value, and the cast saturates")]
        bucket.refilled_at.plus_millis(millis.max(1.0) as i64)
    }
}

impl Bucket {
    /// How many may begin.
    pub fn whole(&self) -> usize {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and saturating")]
        let whole = (self.tokens + HAIR).max(0.0) as usize;
        whole
    }

    /// So many begin.
    #[must_use]
    pub fn take(self, tasks: usize) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "no claim takes as many as a double cannot count")]
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

    /// Takes whenever it is worth it, `late` milliseconds late, as long as there is time; gives when each was taken.
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
            |(place, from): (usize, &i64)| taken[place..].iter().take_while(|at| **at < from + 1_000).count();
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
    fn fast_ones_are_taken_a_few_at_a_time() {
        let limit = RateLimit { per_second: 1_000.0, burst: 1 };
        let taken = drain(limit, || 0, 1_000);
        let mut turns = taken.clone();
        turns.dedup();
        assert!(turns.len() <= 101, "{}", turns.len());
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
        let slow = RateLimit { per_second: super::super::limits::LEAST_RATE, burst: 1 };
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
        fn whoever_comes_a_little_late_does_not_fall_behind(per_second in 5.0..1_000.0_f64, late in 0..20_i64) {
            let limit = RateLimit { per_second, burst: 1 };
            let taken = drain(limit, || late, 20_000);
            prop_assert!(number(taken.len()) >= per_second * 20.0 * 0.97, "{} of {}", taken.len(), per_second * 20.0);
        }
    }
}
