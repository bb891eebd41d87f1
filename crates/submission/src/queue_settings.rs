//! The rules of a queue's settings.
//!
//! Called by `PUT /v1/queues/{name}`. Invariant: the defaults that a queue gives to its tasks obey
//! the rules of the tasks themselves.

use punctual_client::{QueueSettings, RateLimitFields};
use punctual_core::queues::{RateLimit, Settings, limits};

use crate::SubmissionRules;
use crate::faults::Faults;

impl Faults {
    /// The settings to store for a queue.
    pub fn queue_settings(&mut self, wanted: &QueueSettings, rules: &SubmissionRules) -> Settings {
        let concurrency = 1..=i64::from(limits::CONCURRENCY);
        let none = "; to have nothing run, pause the queue";
        let max_concurrency = self.whole("/max_concurrency", wanted.max_concurrency, concurrency, none);
        let per_key = 1..=i64::from(limits::PER_KEY);
        let max_per_key = self.whole("/max_per_key", wanted.max_per_key, per_key, "; leave it out for no limit");
        let depth = 1..=i64::try_from(limits::DEPTH).unwrap_or(i64::MAX);
        let max_depth = self.whole("/max_depth", wanted.max_depth, depth, "; leave it out for no bound");
        let retry_policy = wanted.retry_policy.as_ref().map(|given| self.retry_policy(given, &rules.retry_policy));
        let timeout_millis = wanted.timeout_seconds.map(|given| self.timeout(Some(given), rules.timeout_millis));
        let jitter = self.seconds("/dispatch_jitter_seconds", wanted.dispatch_jitter_seconds, limits::JITTER_MILLIS);
        let (url, headers) = (wanted.callback_url.clone(), wanted.callback_headers.clone());
        let (_, callback) =
            self.callback(url, headers, wanted.callback_body.unwrap_or_default().into(), &rules.networks);
        Settings {
            max_concurrency,
            max_per_key,
            rate_limit: wanted.rate_limit.map(|given| self.rate_limit(given)),
            max_depth,
            retry_policy,
            timeout_millis,
            dispatch_jitter_millis: jitter.unwrap_or(0),
            on_dead_letter: wanted.on_dead_letter.unwrap_or_default().into(),
            callback,
        }
    }

    fn rate_limit(&mut self, given: RateLimitFields) -> RateLimit {
        let RateLimitFields { per_second, burst } = given;
        if !(limits::RATE_MIN..=f64::from(limits::RATE)).contains(&per_second) {
            self.add(
                "/rate_limit/per_second",
                format!("must be a number from {} to {}", limits::RATE_MIN, limits::RATE),
            );
        }
        let burst = self.whole("/rate_limit/burst", burst, 1..=i64::from(limits::RATE), "; leave it out for 1");
        RateLimit { per_second, burst: burst.unwrap_or(1) }
    }
}
