//! Pauses between attempts of a call that fails: exponential, capped, jittered.
//!
//! Every loop that retries a call of its own uses this. (A task's retries follow its
//! [`RetryPolicy`](crate::retry::RetryPolicy).) Pure: the caller counts the failures, draws the
//! random number and sleeps. No pause is longer than the cap.

use std::time::Duration;

/// How long to pause after each failure in a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExponentialBackoff {
    base: Duration,
    cap: Duration,
    jitter: f64,
}

impl ExponentialBackoff {
    /// Pauses of up to `base` after the first failure, doubled with each further one up to `cap`.
    /// They have full jitter: they are drawn evenly from zero.
    pub const fn new(base: Duration, cap: Duration) -> Self {
        Self { base, cap, jitter: 1.0 }
    }

    /// The same with this share of each pause random: 0 for none, 1 for all of it.
    #[must_use]
    pub const fn with_jitter(self, jitter: f64) -> Self {
        Self { jitter, ..self }
    }

    /// The longest pause after this many failures in a row, from 1.
    pub fn longest_pause(&self, failures: u32) -> Duration {
        let factor = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        self.base.saturating_mul(factor).min(self.cap)
    }

    /// The pause after this many failures in a row, from 1. `random` is drawn evenly from 0 to 1.
    pub fn pause(&self, failures: u32, random: f64) -> Duration {
        // A jitter above 1 would make a negative pause, which panics.
        debug_assert!((0.0..=1.0).contains(&self.jitter), "the jitter is a share");
        self.longest_pause(failures).mul_f64(1.0 - self.jitter * (1.0 - random.clamp(0.0, 1.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: ExponentialBackoff = ExponentialBackoff::new(Duration::from_millis(50), Duration::from_secs(2));

    fn millis(pause: Duration) -> u128 {
        pause.as_millis()
    }

    #[test]
    fn pauses_double_up_to_the_cap() {
        let longest = |failures| millis(BACKOFF.longest_pause(failures));
        assert_eq!([1, 2, 3, 6, 7, 33, u32::MAX].map(longest), [50, 100, 200, 1_600, 2_000, 2_000, 2_000]);
        assert_eq!(longest(0), 50, "no failure counts as one");
        assert_eq!(ExponentialBackoff::new(Duration::MAX, Duration::MAX).longest_pause(40), Duration::MAX);
    }

    #[test]
    fn jitter_is_the_share_that_is_random() {
        let drawn = |jitter| [0.0, 0.5, 1.0].map(|random| millis(BACKOFF.with_jitter(jitter).pause(2, random)));
        assert_eq!(drawn(1.0), [0, 50, 100]);
        assert_eq!(drawn(0.5), [50, 75, 100]);
        assert_eq!(drawn(0.0), [100, 100, 100]);
        assert_eq!(millis(BACKOFF.pause(1, 7.0)), 50, "never more than the longest");
    }
}
