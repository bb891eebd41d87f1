//! What happened to a task, and why it has not run yet.

use punctual_core::ids::{RunId, TaskId};
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
    /// All that it waits for, in the order in which it passes it; or what it is doing.
    pub reasons: Vec<Reason>,
    /// The earliest instant at which it can run as things stand; `null` when something is in its way of which nobody
    /// knows for how long, and when it expires before.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub eta: Option<Timestamp>,
}

/// One reason. The fields that do not belong to its code are left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Reason {
    /// A stable word for programs.
    pub code: String,
    /// A sentence for people.
    pub message: String,
    /// Since when it is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime)]
    pub since: Option<Timestamp>,
    /// Until when it stays so, at the least, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime)]
    pub until: Option<Timestamp>,
    /// Who did it (`queue_paused`), or which node decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub by: Option<String>,
    /// Why, in the words of whoever did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub reason: Option<String>,
    /// The worker it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub worker_id: Option<String>,
    /// The queue it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub queue: Option<String>,
    /// The ordering key it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub ordering_key: Option<String>,
    /// The target of webhooks it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub target: Option<String>,
    /// The partition of its queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub partition: Option<u16>,
    /// The tasks it is about, the first ten of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TaskInTheWay>,
    /// How many tasks it is about in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub count: Option<u64>,
    /// How many may run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub limit: Option<u32>,
    /// How many are QUEUED or RUNNING.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub running: Option<u64>,
    /// How many may begin in a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub per_second: Option<f64>,
    /// How many may begin at once, after a while in which none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub burst: Option<u32>,
    /// Its place in the line, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub position: Option<u64>,
    /// Nobody counted further: its place is `position` or a later one.
    #[serde(default, skip_serializing_if = "is_false")]
    pub position_or_later: bool,
    /// Whose places for webhooks are all taken: `target`, `tenant`, `band`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub crowded: Vec<String>,
}

/// A task that is in the way of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskInTheWay {
    /// Its id.
    #[schema(value_type = String, example = "task_01981e2c-5b7a-7c3e-9f00-3a4b5c6d7e8f")]
    pub id: TaskId,
    /// Where in its life it is.
    pub state: Status,
    /// It is a dead letter, and its queue holds what waits behind it until it is driven again.
    #[serde(default, skip_serializing_if = "is_false")]
    pub holds: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_false(flag: &bool) -> bool {
    !flag
}
