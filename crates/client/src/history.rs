//! What happened to a task.

use punctual_core::ids::RunId;
use punctual_core::json::Json;
use punctual_core::time::Timestamp;
use punctual_core::trail as core;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::form::RunIdForm;
use crate::task::Status;
use crate::words::words;

/// One attempt.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Run {
    /// Its id.
    #[schema(value_type = RunIdForm)]
    pub run_id: RunId,
    /// The number of the attempt, from 1. It repeats after a run that was not counted.
    pub attempt: u32,
    /// The worker that ran it.
    pub worker_id: String,
    /// When it began.
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    /// When it ended.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished_at: Option<Timestamp>,
    /// How it ended; `null` while it runs.
    pub outcome: Option<RunEnded>,
    /// What went wrong.
    pub error: Option<RunError>,
    /// The HTTP status of the webhook.
    pub http_status: Option<u16>,
    /// Why the failed run used up no attempt: `breaker_open`. Left out if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub uncounted: Option<String>,
    /// The first KiB of what the webhook answered, if the run failed. Left out if it answered
    /// nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub response_excerpt: Option<String>,
    /// Why what the webhook answered is not the task's result. Left out if it is, or if it answered
    /// nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub result_dropped: Option<ResultDropped>,
}

words! {
    /// How a run ended.
    RunEnded is core::RunEnded {
        /// It succeeded.
        Completed,
        /// It failed.
        Failed,
        /// It did not end within the task's timeout.
        TimedOut,
        /// Its worker was lost.
        Lost,
        /// Its worker gave the task back.
        Released,
        /// The task was cancelled.
        Cancelled,
    }

    /// Why what a webhook answered was not kept as the result.
    ResultDropped is core::ResultDropped {
        /// It is larger than a result may be.
        TooLarge,
        /// It is not UTF-8.
        NotUtf8,
        /// It is not JSON that is accepted as a payload.
        NotJson,
        /// It is nested too deep.
        TooDeep,
    }
}

/// What went wrong in a run.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RunError {
    /// A stable word for programs.
    pub code: String,
    /// A sentence for people.
    pub message: String,
    /// What the worker added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = serde_json::Value)]
    pub details: Option<Json>,
}

/// One step of a task's life.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Event)]
pub struct TaskEvent {
    /// When it happened.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The state before; `null` for the first step.
    pub from: Option<Status>,
    /// The state after.
    pub to: Status,
    /// On whose behalf: `client`, `sql`, `scheduler`, `worker:NAME`, `reaper`, `node`, `schedule`,
    /// `resolver`, `operation:ID` (a bulk operation).
    pub actor: String,
    /// The process that wrote it.
    pub node: String,
    /// A word for what happened.
    pub reason: String,
    /// The version of the task after this step.
    pub version: u64,
    /// Why the run that failed in this step used up no attempt: `breaker_open`. Left out if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub uncounted: Option<String>,
    /// How many steps this one stands for, if its reason is `omitted`: a long life keeps its first
    /// and last steps only. Left out for every other step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub omitted: Option<u64>,
}
