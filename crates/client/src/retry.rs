//! Retry policies on the wire.

use punctual_core::retry as core;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::form::RetryConditionForm;
use crate::objects::objects_only;
use crate::seconds::Seconds;
use crate::words::words;

/// How a task is retried after a failed attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RetryPolicy {
    /// The maximum number of attempts after the first.
    pub max_retries: u32,
    /// How the delay grows. Left out if the delays are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub backoff: Option<Backoff>,
    /// The first delay. Left out if the delays are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub backoff_seconds: Option<Seconds>,
    /// The longest delay. Left out if the delays are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub max_backoff_seconds: Option<Seconds>,
    /// Whether a delay is randomised.
    pub jitter: Jitter,
    /// The delays one by one. Left out if they follow `backoff`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub delays_seconds: Option<Vec<Seconds>>,
    /// What is retried. Left out for the usual failures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub retry_on: Option<Vec<String>>,
}

/// A retry policy in a request. An absent field gets its default; in a patch it keeps its value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct RetryPolicyFields {
    /// The maximum number of attempts after the first; 7 if absent, or as many as `delays_seconds`
    /// has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1000)]
    pub max_retries: Option<i64>,
    /// How the delay grows; exponential if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Backoff>,
    /// The first delay, up to 30 days; 30 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 2_592_000)]
    pub backoff_seconds: Option<Seconds>,
    /// The longest delay, up to 30 days; 3600 (or `backoff_seconds`, if that is more) if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 2_592_000)]
    pub max_backoff_seconds: Option<Seconds>,
    /// Whether a delay is randomised; if absent full, or none with `delays_seconds`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Jitter>,
    /// The delays one by one, each up to 30 days, instead of `backoff`, `backoff_seconds` and
    /// `max_backoff_seconds`. There are as many retries as delays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1, max_items = 100)]
    pub delays_seconds: Option<Vec<Seconds>>,
    /// The answers of webhooks (`5xx`, `402`), the `timeout`s and the failures to connect
    /// (`connection`) that are retried; all others of these are final. If absent: 408, 425, 429,
    /// 5xx, timeout and connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<RetryConditionForm>>, max_items = 50)]
    pub retry_on: Option<Vec<String>>,
}

words! {
    /// How the delay grows from one attempt to the next.
    Backoff is core::Backoff {
        /// The same delay each time.
        Fixed,
        /// The delay times the number of the attempt that failed.
        Linear,
        /// The delay doubled with each attempt.
        Exponential,
    }

    /// Whether a delay is randomised.
    Jitter is core::Jitter {
        /// The delay as computed.
        None,
        /// Drawn evenly between zero and the delay.
        Full,
    }
}

impl From<core::RetryPolicy> for RetryPolicy {
    fn from(policy: core::RetryPolicy) -> Self {
        let delays = policy.delays_millis;
        let grows = delays.is_empty();
        Self {
            max_retries: policy.max_retries,
            backoff: grows.then(|| policy.backoff.into()),
            backoff_seconds: grows.then(|| Seconds::from_millis(policy.backoff_millis)),
            max_backoff_seconds: grows.then(|| Seconds::from_millis(policy.max_backoff_millis)),
            jitter: policy.jitter.into(),
            delays_seconds: (!grows).then(|| delays.into_iter().map(Seconds::from_millis).collect()),
            retry_on: policy.retry_on.map(|kinds| kinds.iter().map(ToString::to_string).collect()),
        }
    }
}

objects_only!(RetryPolicyFields);
