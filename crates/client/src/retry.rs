//! Retry policies on the wire.

use punctual_core::retry as core;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::objects::objects_only;
use crate::seconds::Seconds;
use crate::words::words;

/// How a task is retried after a failed attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RetryPolicy {
    /// The maximum number of attempts after the first.
    pub max_retries: u32,
    /// How the delay grows.
    pub backoff: Backoff,
    /// The first delay.
    pub backoff_seconds: Seconds,
    /// The longest delay.
    pub max_backoff_seconds: Seconds,
    /// Whether a delay is randomised.
    pub jitter: Jitter,
}

/// A retry policy in a request. An absent field gets its default; in a patch it keeps its value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct RetryPolicyFields {
    /// The maximum number of attempts after the first; 3 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1000)]
    pub max_retries: Option<i64>,
    /// How the delay grows; exponential if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Backoff>,
    /// The first delay, up to a day; 30 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff_seconds: Option<Seconds>,
    /// The longest delay, up to a day; 3600 (or `backoff_seconds`, if that is more) if
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_backoff_seconds: Option<Seconds>,
    /// Whether a delay is randomised; full if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Jitter>,
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
        Self {
            max_retries: policy.max_retries,
            backoff: policy.backoff.into(),
            backoff_seconds: Seconds::from_millis(policy.backoff_millis),
            max_backoff_seconds: Seconds::from_millis(policy.max_backoff_millis),
            jitter: policy.jitter.into(),
        }
    }
}

objects_only!(RetryPolicyFields);
