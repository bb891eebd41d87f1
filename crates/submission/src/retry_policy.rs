//! The rules of `retry_policy`, for a task, for an edit and for a queue's default.
//!
//! Invariant: the delays of a policy that passes are listed or follow its backoff, never both, and
//! none is longer than 30 days.

use std::collections::BTreeSet;

use punctual_client::{RetryPolicyFields, Seconds};
use punctual_core::retry::{Jitter, RetryCondition, RetryPolicy};
use punctual_core::task::limits;

use crate::faults::Faults;

impl Faults {
    /// `base` with the fields that `given` sets. Listed delays replace the base's backoff, and a
    /// number of retries or a backoff replaces its listed delays.
    pub fn retry_policy(&mut self, given: &RetryPolicyFields, base: &RetryPolicy) -> RetryPolicy {
        let retry_on = match &given.retry_on {
            Some(words) => Some(self.retry_on(words)),
            None => base.retry_on.clone(),
        };
        let timing = match &given.delays_seconds {
            Some(delays) => self.listed_delays(given, delays, base),
            None => self.backoff(given, base),
        };
        RetryPolicy { retry_on, ..timing }
    }

    fn listed_delays(&mut self, given: &RetryPolicyFields, delays: &[Seconds], base: &RetryPolicy) -> RetryPolicy {
        let pointer = "/retry_policy/delays_seconds";
        if !(1..=limits::RETRY_DELAYS).contains(&delays.len()) {
            let most = limits::RETRY_DELAYS;
            self.add(pointer, format!("must have 1 to {most} entries; for no retries give max_retries 0 instead"));
        }
        let max_retries = u32::try_from(delays.len()).unwrap_or(u32::MAX);
        if given.max_retries.is_some_and(|retries| retries != i64::from(max_retries)) {
            let rule = "must be the number of delays_seconds if it is given together with them";
            self.add("/retry_policy/max_retries", rule);
        }
        for (field, is_given) in [
            ("backoff", given.backoff.is_some()),
            ("backoff_seconds", given.backoff_seconds.is_some()),
            ("max_backoff_seconds", given.max_backoff_seconds.is_some()),
        ] {
            if is_given {
                self.add(format!("/retry_policy/{field}"), "must not be given together with delays_seconds");
            }
        }
        let listed = delays.iter().take(limits::RETRY_DELAYS).enumerate();
        let delays_millis = listed
            .filter_map(|(at, delay)| {
                self.seconds(&format!("{pointer}/{at}"), Some(*delay), limits::RETRY_DELAY_MILLIS)
            })
            .collect();
        // Who lists delays means them; a random part of a day would not be what was asked for.
        let jitter = given.jitter.map_or(Jitter::None, Into::into);
        RetryPolicy { max_retries, delays_millis, jitter, ..base.clone() }
    }

    fn backoff(&mut self, given: &RetryPolicyFields, base: &RetryPolicy) -> RetryPolicy {
        let range = 0..=i64::from(limits::RETRIES);
        let max_retries = self.whole("/retry_policy/max_retries", given.max_retries, range, "");
        let max_retries = max_retries.unwrap_or(base.max_retries);
        let longest = limits::RETRY_DELAY_MILLIS;
        let backoff_millis = self.seconds("/retry_policy/backoff_seconds", given.backoff_seconds, longest);
        let max_backoff_millis = self.seconds("/retry_policy/max_backoff_seconds", given.max_backoff_seconds, longest);
        let first = backoff_millis.unwrap_or(base.backoff_millis);
        let max = match (max_backoff_millis, backoff_millis) {
            (Some(max), Some(first)) if max < first => {
                self.add("/retry_policy/max_backoff_seconds", "must not be less than backoff_seconds");
                max
            }
            (Some(max), _) => max,
            // A first delay longer than the default cap raises the cap.
            (None, _) => base.max_backoff_millis.max(first),
        };
        let keeps_list = given.max_retries.is_none()
            && given.backoff.is_none()
            && given.backoff_seconds.is_none()
            && given.max_backoff_seconds.is_none();
        RetryPolicy {
            max_retries,
            backoff: given.backoff.map_or(base.backoff, Into::into),
            backoff_millis: first,
            max_backoff_millis: max,
            jitter: given.jitter.map_or(base.jitter, Into::into),
            delays_millis: if keeps_list { base.delays_millis.clone() } else { Vec::new() },
            retry_on: None,
        }
    }

    fn retry_on(&mut self, words: &[String]) -> BTreeSet<RetryCondition> {
        let pointer = "/retry_policy/retry_on";
        if words.len() > limits::RETRY_CONDITIONS {
            self.add(pointer, format!("must have at most {} entries", limits::RETRY_CONDITIONS));
        }
        let mut kinds = BTreeSet::new();
        for (at, word) in words.iter().take(limits::RETRY_CONDITIONS).enumerate() {
            match word.parse() {
                Ok(kind) => _ = kinds.insert(kind),
                // Another class of statuses is not misspelt.
                Err(_) if word.ends_with("xx") => self.add(format!("{pointer}/{at}"), RetryCondition::RULE),
                Err(_) => {
                    self.add_word(format!("{pointer}/{at}"), RetryCondition::RULE, word, RetryCondition::WORDS);
                }
            }
        }
        kinds
    }
}

#[cfg(test)]
mod tests {
    use punctual_core::retry::Backoff;

    use super::*;

    fn fields(text: &str) -> RetryPolicyFields {
        serde_json::from_str(text).unwrap()
    }

    fn policy(text: &str, base: &RetryPolicy) -> RetryPolicy {
        let mut faults = Faults::default();
        let policy = faults.retry_policy(&fields(text), base);
        faults.finish().unwrap();
        policy
    }

    fn pointers(text: &str) -> Vec<String> {
        let mut faults = Faults::default();
        faults.retry_policy(&fields(text), &RetryPolicy::default());
        let error = faults.finish().unwrap_err();
        error.faults.into_iter().map(|fault| fault.pointer).collect()
    }

    fn listed() -> RetryPolicy {
        policy(r#"{"delays_seconds": [60, 86400, 2592000], "retry_on": ["402", "5xx"]}"#, &RetryPolicy::default())
    }

    #[test]
    fn listed_delays_are_the_retries() {
        let RetryPolicy { max_retries, delays_millis, jitter, .. } = listed();
        assert_eq!((max_retries, jitter), (3, Jitter::None), "listed delays are kept to");
        assert_eq!(delays_millis, [60_000, 86_400_000, 2_592_000_000]);
        let spread = policy(r#"{"delays_seconds": [1.5], "max_retries": 1, "jitter": "full"}"#, &listed());
        assert_eq!((spread.jitter, spread.delays_millis), (Jitter::Full, vec![1_500]));
    }

    #[test]
    fn a_number_or_a_backoff_replaces_listed_delays() {
        for text in [r#"{"max_retries": 0}"#, r#"{"max_retries": 3}"#, r#"{"max_retries": 2, "backoff": "fixed"}"#] {
            let replaced = policy(text, &listed());
            assert_eq!(replaced.delays_millis, Vec::<u64>::new(), "{text}");
            assert_eq!(replaced.retry_on, listed().retry_on, "{text}");
        }
        assert_eq!(policy("{}", &listed()), listed());
        assert_eq!(policy(r#"{"jitter": "full"}"#, &listed()).delays_millis, listed().delays_millis);
        assert_eq!(policy(r#"{"backoff": "linear"}"#, &RetryPolicy::default()).backoff, Backoff::Linear);
    }

    #[test]
    fn retry_on_takes_kinds_of_failures() {
        let kinds = listed().retry_on.unwrap();
        assert_eq!(kinds.iter().map(ToString::to_string).collect::<Vec<_>>(), ["5xx", "402"]);
        assert_eq!(policy(r#"{"retry_on": []}"#, &listed()).retry_on, Some(BTreeSet::new()));
    }

    #[test]
    fn every_fault_of_a_policy_has_its_place() {
        let month = r#"{"backoff_seconds": 2592001, "max_backoff_seconds": 1e9}"#;
        assert_eq!(pointers(month), ["/retry_policy/backoff_seconds", "/retry_policy/max_backoff_seconds"]);
        let both = r#"{"delays_seconds": [1, 2592001, -1], "max_retries": 2, "backoff": "fixed"}"#;
        let places = ["max_retries", "backoff", "delays_seconds/1", "delays_seconds/2"];
        assert_eq!(pointers(both), places.map(|place| format!("/retry_policy/{place}")));
        assert_eq!(pointers(r#"{"delays_seconds": []}"#), ["/retry_policy/delays_seconds"]);
        assert_eq!(
            pointers(r#"{"retry_on": ["5xx", "200", "lost"]}"#),
            ["/retry_policy/retry_on/1", "/retry_policy/retry_on/2"]
        );
        let many = format!("[{}1]", "1,".repeat(limits::RETRY_DELAYS));
        assert_eq!(pointers(&format!(r#"{{"delays_seconds": {many}}}"#)), ["/retry_policy/delays_seconds"]);
    }
}
