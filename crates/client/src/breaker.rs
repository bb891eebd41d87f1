//! Circuit breakers, as an operator sees them.

use punctual_core::ids::TaskId;
use punctual_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::form::TaskIdForm;
use crate::objects::objects_only;

/// A circuit breaker that is open: nothing under it is dispatched, except a probe from time to
/// time.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Breaker {
    /// Whose tasks it holds back.
    pub tenant: String,
    /// The webhook target (`scheme://host:port`); `null`: all targets and pull workers of the
    /// tenant.
    pub target: Option<String>,
    /// Whether a probe is under way.
    pub state: BreakerState,
    /// When it opened.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// How many runs were within the window when it opened.
    pub runs: u64,
    /// How many of them failed.
    pub failures: u64,
    /// When the next probe may run. It runs as soon as there is a task and a worker for it.
    #[schema(value_type = String, format = DateTime)]
    pub next_probe_at: Timestamp,
    /// The task that is the probe, while one is under way.
    #[schema(value_type = Option<TaskIdForm>)]
    pub probe: Option<TaskId>,
    /// Why it opened.
    pub reason: String,
    /// When the failure of the last probe was noticed; `null`: no probe has failed yet.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_probe_at: Option<Timestamp>,
    /// What went wrong with it, the first 500 bytes.
    #[serde(default)]
    pub last_probe_error: Option<String>,
}

/// What an open breaker lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BreakerState {
    /// Nothing.
    Open,
    /// A probe, which is under way: if it succeeds the breaker closes.
    HalfOpen,
}

/// The breaker to close.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct ResetBreaker {
    /// Its tenant.
    pub tenant: String,
    /// Its webhook target, as any URL of it. Absent: the breaker over the whole tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

objects_only!(ResetBreaker);
