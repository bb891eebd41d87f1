//! Whether and when a failed task is retried. The state machine calls it. Pure: the caller draws
//! the random number.

mod condition;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::failure::FailureCause;

pub use condition::{RetryCondition, UnknownCondition};

/// How a task is retried after a failed attempt. Stored policies may lack the fields that were
/// added later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The delays one by one, instead of `backoff` and its bounds; empty if they are not listed. If
    /// they are, `max_retries` is their number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delays_millis: Vec<u64>,
    /// The failures of webhooks, and the timeouts, that are retried; none for the usual ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_on: Option<BTreeSet<RetryCondition>>,
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

/// Full jitter draws a delay evenly from zero, so the default needs more retries than its delays
/// suggest. With seven of them it gives up after 32 minutes on average and 64 at most. A target
/// that is down for two minutes loses one task in 750,000.
impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_retries: 7,
            backoff: Backoff::Exponential,
            backoff_millis: 30_000,
            max_backoff_millis: 3_600_000,
            jitter: Jitter::Full,
            delays_millis: Vec::new(),
            retry_on: None,
        }
    }
}

impl RetryPolicy {
    /// Whether a failure of this cause is worth a retry. `usually` is whether it is without
    /// `retry_on`.
    pub fn retries(&self, cause: FailureCause, usually: bool) -> bool {
        match &self.retry_on {
            Some(named) if RetryCondition::is_nameable(cause) => named.iter().any(|kind| kind.covers(cause)),
            _ => usually,
        }
    }

    /// Whether another attempt is allowed after `attempts` of them.
    pub fn allows_retry_after(&self, attempts: u32) -> bool {
        attempts <= self.max_retries
    }

    /// The delay after attempt number `attempt` (from 1) failed, in milliseconds. `random` is any
    /// number.
    pub fn delay_millis(&self, attempt: u32, random: u64) -> u64 {
        let delay = self.longest_delay_millis(attempt);
        match self.jitter {
            Jitter::None => delay,
            Jitter::Full => random % delay.saturating_add(1),
        }
    }

    /// The same without jitter.
    fn longest_delay_millis(&self, attempt: u32) -> u64 {
        let place = usize::try_from(attempt.saturating_sub(1)).unwrap_or(usize::MAX);
        // An attempt beyond the list was not counted, or the policy was edited since.
        if let Some(listed) = self.delays_millis.get(place).or(self.delays_millis.last()) {
            return *listed;
        }
        let grown = match self.backoff {
            Backoff::Fixed => self.backoff_millis,
            Backoff::Linear => self.backoff_millis.saturating_mul(u64::from(attempt.max(1))),
            Backoff::Exponential => {
                let doublings = attempt.saturating_sub(1);
                let factor = 1_u64.checked_shl(doublings).unwrap_or(u64::MAX);
                self.backoff_millis.saturating_mul(factor)
            }
        };
        grown.min(self.max_backoff_millis)
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
                ..RetryPolicy::default()
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
            let drawn = policy.delay_millis(attempt, random);
            prop_assert!(drawn <= plain(policy).delay_millis(attempt, random));
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

    #[test]
    fn listed_delays_follow_one_another() {
        let delays_millis = vec![60_000, 86_400_000, 259_200_000];
        let policy = RetryPolicy { max_retries: 3, delays_millis, jitter: Jitter::None, ..RetryPolicy::default() };
        let days = [1, 2, 3, 4, 0].map(|attempt| policy.delay_millis(attempt, 7));
        assert_eq!(days, [60_000, 86_400_000, 259_200_000, 259_200_000, 60_000]);
        let spread = RetryPolicy { jitter: Jitter::Full, ..policy };
        assert_eq!(spread.delay_millis(2, 86_400_000 + 6), 5);
    }

    #[test]
    fn retry_on_replaces_what_is_usually_retried() {
        let named = ["402", "timeout"].map(|word| word.parse().unwrap());
        let chosen = RetryPolicy { retry_on: Some(named.into()), ..RetryPolicy::default() };
        for (cause, usually, retried) in [
            (FailureCause::Status(402), false, true),
            (FailureCause::Status(500), true, false),
            (FailureCause::Timeout, true, true),
            (FailureCause::Connection, true, false),
            (FailureCause::Lost, true, true),
            (FailureCause::Reported, true, true),
            (FailureCause::Reported, false, false),
            (FailureCause::NotCalled, false, false),
        ] {
            assert_eq!(chosen.retries(cause, usually), retried, "{cause:?}");
            assert_eq!(RetryPolicy::default().retries(cause, usually), usually, "{cause:?}");
        }
    }

    #[test]
    fn a_stored_policy_without_later_fields_is_read() {
        let stored = r#"{"max_retries":2,"backoff":"fixed","backoff_millis":1,"max_backoff_millis":9,"jitter":"none"}"#;
        let policy: RetryPolicy = serde_json::from_str(stored).unwrap();
        assert_eq!((policy.max_retries, policy.delays_millis.len(), policy.retry_on.as_ref()), (2, 0, None));
        assert_eq!(serde_json::to_string(&policy).unwrap(), stored, "an older node reads what is written now");
    }
}
