//! Settlements of one run, at the task's own path.

use punctual_core::json::Json;
use punctual_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::lease::WorkerError;
use crate::objects::objects_only;
use crate::seconds::Seconds;
use crate::task::Task;

/// The run succeeded.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct Complete {
    /// The fencing token of the lease.
    pub token: u64,
    /// What the run returned, up to 64 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = serde_json::Value)]
    pub result: Option<Json>,
}

/// The run failed.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct Fail {
    /// The fencing token of the lease.
    pub token: u64,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub error: Option<WorkerError>,
    /// Whether another attempt could succeed; true if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub retryable: Option<bool>,
    /// The delay of the next attempt, up to 30 days, instead of that of the retry policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 2_592_000)]
    pub retry_after_seconds: Option<Seconds>,
}

/// The run goes on.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct Heartbeat {
    /// The fencing token of the lease.
    pub token: u64,
    /// The progress of the run, up to 64 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = serde_json::Value)]
    pub progress: Option<Json>,
    /// What the next attempt can resume from, up to 64 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = serde_json::Value)]
    pub checkpoint: Option<Json>,
}

/// The worker gives the task back; the attempt is not counted.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct Release {
    /// The fencing token of the lease.
    pub token: u64,
    /// How long the task waits before it can be leased again, up to 30 days; 0 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 2_592_000)]
    pub delay_seconds: Option<Seconds>,
}

/// The task after a heartbeat, and the new end of its lease.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct HeartbeatAnswer {
    /// The task.
    #[serde(flatten)]
    pub task: Task,
    /// When the task is taken back, unless another heartbeat comes before.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub lease_expires_at: Option<Timestamp>,
    /// When the run ends by the task's `timeout_seconds`, which heartbeats do not extend.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub timeout_at: Option<Timestamp>,
}

objects_only!(Complete, Fail, Heartbeat, Release);
