//! What happened to a task, and why it has not run yet.

use punctual_core::ids::RunId;
use punctual_core::json::Json;
use punctual_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::task::Status;

/// One attempt.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Run {
    /// Its id.
    #[schema(value_type = String)]
    pub run_id: RunId,
    /// From 1; an attempt that was given back is counted again.
    pub attempt: u32,
    /// Who ran it.
    pub worker_id: String,
    /// When it began.
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    /// When it ended.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished_at: Option<Timestamp>,
    /// `completed`, `failed`, `timed_out`, `lost`, `released` or `cancelled`; `null` while it runs.
    pub outcome: Option<String>,
    /// What went wrong.
    pub error: Option<RunError>,
    /// The status the webhook answered.
    pub http_status: Option<u16>,
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
pub struct Event {
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The state before; `null` for the first step.
    pub from: Option<Status>,
    /// The state after.
    pub to: Status,
    /// On whose behalf: `client`, `scheduler`, `worker:NAME`, `reaper`, `node`, `schedule`.
    pub actor: String,
    /// The process that wrote it.
    pub node: String,
    /// A word for what happened.
    pub reason: String,
    /// The version of the task after this step.
    pub version: u64,
}

/// Why a task has not run yet.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    /// Where in its life it is.
    pub state: Status,
    /// What it waits for, or what it is doing.
    pub reasons: Vec<Reason>,
    /// When it is expected to run, if that is known.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub eta: Option<Timestamp>,
}

/// One reason.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Reason {
    /// A stable word for programs.
    pub code: String,
    /// A sentence for people.
    pub message: String,
    /// Until when it stays so, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime)]
    pub until: Option<Timestamp>,
    /// The worker it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub worker_id: Option<String>,
}
