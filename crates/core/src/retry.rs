//! When a failed task is retried. The state machine calls it. Pure: the caller draws the random
//! number.

use serde::{Deserialize, Serialize};

/// How a task is retried after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// The maximum number of attempts beyond the first.
    pub max_retries: u32,
    /// How the delay grows.
    pub backoff: Backoff,
    /// The first delay.
    pub backoff_millis: u64,
    /// The longest delay.
    pub max_backoff_millis: u64,
    /// Whether the delay is random.
    pub jitter: Jitter,
}

/// How the delay grows from one attempt to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backoff {
    /// The same delay each time.
    Fixed,
    /// The delay times the number of the attempt that failed.
    Linear,
    /// The delay doubled with each attempt.
    Exponential,
}

/// Whether a delay is randomised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Jitter {
    /// The delay as computed.
    None,
    /// Drawn evenly between zero and the delay, so that tasks that failed together are retried
    /// apart.
    Full,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_retries: 3,
            backoff: Backoff::Exponential,
            backoff_millis: 30_000,
            max_backoff_millis: 3_600_000,
            jitter: Jitter::Full,
        }
    }
}

impl RetryPolicy {
    /// Whether another attempt is allowed after `attempts` of them.
    pub fn allows_retry_after(&self, attempts: u32) -> bool {
        attempts <= self.max_retries
    }

    /// The delay after attempt number `attempt` (from 1) failed, in milliseconds. `random` is any
    /// number.
    pub fn delay_millis(&self, attempt: u32, random: u64) -> u64 {
        let grown = match self.backoff {
            Backoff::Fixed => self.backoff_millis,
            Backoff::Linear => self.backoff_millis.saturating_mul(u64::from(attempt.max(1))),
            Backoff::Exponential => {
                let doublings = attempt.saturating_sub(1);
                let factor = 1_u64.checked_shl(doublings).unwrap_or(u64::MAX);
                self.backoff_millis.saturating_mul(factor)
            }
        };
        let capped = grown.min(self.max_backoff_millis);
        let delay = match self.jitter {
            Jitter::None => capped,
            Jitter::Full => random % capped.saturating_add(1),
        };
        // A longer delay would break the promise of `max_backoff_seconds`.
        debug_assert!(delay <= self.max_backoff_millis, "no delay is over the cap");
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn policies() -> impl Strategy<Value = RetryPolicy> {
        (
            any::<u32>(),
            prop_oneof![Just(Backoff::Fixed), Just(Backoff::Linear), Just(Backoff::Exponential)],
            any::<u64>(),
            any::<u64>(),
            prop_oneof![Just(Jitter::None), Just(Jitter::Full)],
        )
            .prop_map(|(max_retries, backoff, backoff_millis, max_backoff_millis, jitter)| RetryPolicy {
                max_retries,
                backoff,
                backoff_millis,
                max_backoff_millis,
                jitter,
            })
    }

    fn plain(policy: RetryPolicy) -> RetryPolicy {
        RetryPolicy { jitter: Jitter::None, ..policy }
    }

    proptest! {
        #[test]
        fn no_delay_is_over_the_cap(policy in policies(), attempt: u32, random: u64) {
            prop_assert!(policy.delay_millis(attempt, random) <= policy.max_backoff_millis);
        }

        #[test]
        fn delays_never_shrink(policy in policies(), attempt in 1..u32::MAX) {
            let policy = plain(policy);
            prop_assert!(policy.delay_millis(attempt, 0) <= policy.delay_millis(attempt + 1, 0));
        }

        #[test]
        fn full_jitter_stays_below_the_plain_delay(policy in policies(), attempt: u32, random: u64) {
            prop_assert!(policy.delay_millis(attempt, random) <= plain(policy).delay_millis(attempt, random));
        }

        #[test]
        fn full_jitter_reaches_every_delay(millis in 0_u64..100, wanted in 0_u64..100) {
            let policy = RetryPolicy { backoff: Backoff::Fixed, backoff_millis: millis, ..RetryPolicy::default() };
            prop_assume!(wanted <= millis);
            prop_assert_eq!(policy.delay_millis(1, wanted), wanted);
        }

        #[test]
        fn exactly_max_retries_attempts_follow_the_first(max_retries in 0_u32..1_000) {
            let policy = RetryPolicy { max_retries, ..RetryPolicy::default() };
            let attempts = (1..=2_000).take_while(|attempt| policy.allows_retry_after(*attempt)).count();
            prop_assert_eq!(attempts, max_retries as usize);
        }
    }

    #[test]
    fn delays_are_fixed_linear_or_exponential() {
        let policy = |backoff| RetryPolicy { backoff, jitter: Jitter::None, ..RetryPolicy::default() };
        let first_four = |backoff| [1, 2, 3, 4].map(|attempt| policy(backoff).delay_millis(attempt, 0) / 1_000);
        assert_eq!(first_four(Backoff::Fixed), [30, 30, 30, 30]);
        assert_eq!(first_four(Backoff::Linear), [30, 60, 90, 120]);
        assert_eq!(first_four(Backoff::Exponential), [30, 60, 120, 240]);
        assert_eq!(policy(Backoff::Exponential).delay_millis(1_000, 0), 3_600_000);
    }
}
