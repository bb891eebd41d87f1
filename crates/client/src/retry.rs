//! Retry policies on the wire.

use punctual_core::retry as core;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::objects::objects_only;
use crate::seconds::Seconds;

/// How a task is retried after a failed attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RetryPolicy {
    /// Attempts beyond the first.
    pub max_retries: u32,
    /// How the delay grows.
    pub backoff: Backoff,
    /// The first delay.
    pub backoff_seconds: Seconds,
    /// No delay is longer than this.
    pub max_backoff_seconds: Seconds,
    /// Whether a delay is randomised.
    pub jitter: Jitter,
}

/// A retry policy as it is submitted: what is absent keeps its default (in a patch: its value).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct RetryPolicyFields {
    /// Attempts beyond the first; 3 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1000)]
    pub max_retries: Option<i64>,
    /// How the delay grows; exponential if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Backoff>,
    /// The first delay, up to a day; 30 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff_seconds: Option<Seconds>,
    /// No delay is longer than this, up to a day; 3600 (or `backoff_seconds`, if that is more) if
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_backoff_seconds: Option<Seconds>,
    /// Whether a delay is randomised; full if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Jitter>,
}

/// How the delay grows from one attempt to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Jitter {
    /// The delay as computed.
    None,
    /// Drawn evenly between zero and the delay.
    Full,
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

impl From<core::Backoff> for Backoff {
    fn from(backoff: core::Backoff) -> Self {
        match backoff {
            core::Backoff::Fixed => Backoff::Fixed,
            core::Backoff::Linear => Backoff::Linear,
            core::Backoff::Exponential => Backoff::Exponential,
        }
    }
}

impl From<Backoff> for core::Backoff {
    fn from(backoff: Backoff) -> Self {
        match backoff {
            Backoff::Fixed => core::Backoff::Fixed,
            Backoff::Linear => core::Backoff::Linear,
            Backoff::Exponential => core::Backoff::Exponential,
        }
    }
}

impl From<core::Jitter> for Jitter {
    fn from(jitter: core::Jitter) -> Self {
        match jitter {
            core::Jitter::None => Jitter::None,
            core::Jitter::Full => Jitter::Full,
        }
    }
}

impl From<Jitter> for core::Jitter {
    fn from(jitter: Jitter) -> Self {
        match jitter {
            Jitter::None => core::Jitter::None,
            Jitter::Full => core::Jitter::Full,
        }
    }
}

objects_only!(RetryPolicyFields);
