//! Leases and settlements: the requests of pull workers and their answers.

use punctual_core::ids::{RunId, TaskId};
use punctual_core::json::Json;
use punctual_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::form::{NameForm, RunIdForm, TaskIdForm, TaskRefForm};
use crate::objects::objects_only;
use crate::problem::Problem;
use crate::seconds::Seconds;
use crate::task::{Status, Task};

/// A worker's request for tasks of some queues or of some types.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct LeaseRequest {
    /// The worker's name.
    #[schema(min_length = 1, max_length = 255, pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]+$")]
    pub worker_id: String,
    /// The queues it works for; not together with `types`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<NameForm>>, min_items = 1, max_items = 64)]
    pub queues: Option<Vec<String>>,
    /// The types it knows, in any queue; not together with `queues`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<NameForm>>, min_items = 1, max_items = 64)]
    pub types: Option<Vec<String>>,
    /// The maximum number of tasks, up to 1000; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000)]
    pub max_tasks: Option<i64>,
    /// How long to wait for the first, up to 60; 0 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 60)]
    pub wait_seconds: Option<Seconds>,
    /// The length of the lease, which heartbeats extend: 1 to 3600; 60 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>, minimum = 1, maximum = 3600)]
    pub lease_seconds: Option<Seconds>,
}

/// The tasks that a worker leased.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LeaseAnswer {
    /// A lease for each task; empty if none was due within the wait.
    pub leases: Vec<Lease>,
}

/// A task that a worker holds for a limited time.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Lease {
    /// The task.
    pub task: Task,
    /// The run that begins with this lease.
    #[schema(value_type = RunIdForm)]
    pub run_id: RunId,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The fencing token: settle with it.
    pub token: u64,
    /// When the task is taken back, unless a heartbeat comes before.
    #[schema(value_type = String, format = DateTime)]
    pub lease_expires_at: Timestamp,
    /// What the last attempt left to resume from.
    #[schema(value_type = serde_json::Value)]
    pub checkpoint: Option<Json>,
    /// What the tasks that it depends on returned, in the order of `depends_on`. `null` if they are
    /// more than 100, or too large to be handed out with the leases of this call: read them by
    /// their ids.
    #[serde(default)]
    #[schema(required = true)]
    pub dependencies: Option<Vec<DependencyResult>>,
}

/// How a task ended that another one depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DependencyResult {
    /// The task.
    #[schema(value_type = TaskIdForm)]
    pub task_id: TaskId,
    /// Its state; `null` if it was removed.
    pub status: Option<Status>,
    /// What its run returned.
    #[schema(value_type = serde_json::Value)]
    pub result: Option<Json>,
}

/// The outcomes or heartbeats of many runs.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct SettleRequest {
    /// An item for each.
    #[schema(max_items = 1000)]
    pub items: Vec<SettleItem>,
}

/// The outcome or heartbeat of one run. `outcome` decides which other fields are allowed.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct SettleItem {
    /// The task.
    #[schema(value_type = TaskRefForm)]
    pub task_id: TaskId,
    /// The fencing token of the lease.
    pub token: u64,
    /// The outcome.
    pub outcome: SettleOutcome,
    /// `completed`: what the run returned, up to 64 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = serde_json::Value)]
    pub result: Option<Json>,
    /// `failed`: what went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub error: Option<WorkerError>,
    /// `failed`: whether another attempt could succeed; true if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub retryable: Option<bool>,
    /// `failed`: the delay of the next attempt, up to 30 days, instead of that of the retry policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 2_592_000)]
    pub retry_after_seconds: Option<Seconds>,
    /// `released`: how long the task waits before it can be leased again, up to 30 days; 0 if
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 2_592_000)]
    pub delay_seconds: Option<Seconds>,
    /// `heartbeat`: the progress of the run, up to 64 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = serde_json::Value)]
    pub progress: Option<Json>,
    /// `heartbeat`: what the next attempt can resume from, up to 64 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = serde_json::Value)]
    pub checkpoint: Option<Json>,
}

impl SettleItem {
    /// The outcome of a run, without what may go with it.
    pub fn new(task_id: TaskId, token: u64, outcome: SettleOutcome) -> Self {
        let (result, error, retryable) = (None, None, None);
        let (retry_after_seconds, delay_seconds, progress, checkpoint) = (None, None, None, None);
        Self {
            task_id,
            token,
            outcome,
            result,
            error,
            retryable,
            retry_after_seconds,
            delay_seconds,
            progress,
            checkpoint,
        }
    }
}

/// The outcome of a run, or that it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SettleOutcome {
    /// It succeeded.
    Completed,
    /// It failed.
    Failed,
    /// The worker gives the task back; the attempt is not counted.
    Released,
    /// The run goes on.
    Heartbeat,
}

/// What went wrong, in the worker's words.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct WorkerError {
    /// A stable word for programs, up to 64 characters; `failed` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub code: Option<String>,
    /// A sentence for people, cut to 4,096 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub message: Option<String>,
    /// Anything else, up to 4,096 characters of JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = serde_json::Value)]
    pub details: Option<Json>,
}

/// The answers to a settle call, in order.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SettleAnswer {
    /// An item for each.
    pub items: Vec<Settled>,
}

/// The answer to one settlement.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Settled {
    /// 200, 409 (stale token, or timed out), 410 (cancelled: stop), 404, or 422 or 413 (the item is
    /// not valid).
    pub status: u16,
    /// The task; left out if the item names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = TaskIdForm, required = false)]
    pub task_id: Option<TaskId>,
    /// When the lease ends now, after a heartbeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime)]
    pub lease_expires_at: Option<Timestamp>,
    /// When the run ends by the task's `timeout_seconds`, after a heartbeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime)]
    pub timeout_at: Option<Timestamp>,
    /// Why it had no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub error: Option<Box<Problem>>,
}

objects_only!(LeaseRequest, SettleRequest, SettleItem, WorkerError);
