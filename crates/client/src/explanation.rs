//! Why a task has not run yet.

use punctual_core::ids::TaskId;
use punctual_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::task::Status;

/// Why a task has not run yet.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    /// Where in its life it is.
    pub state: Status,
    /// All that it waits for, in the order in which it passes it; or what it is doing.
    pub reasons: Vec<Reason>,
    /// The earliest instant at which it can run as things stand, no promise; `null` when something
    /// is in its way of which nobody knows for how long, and when it expires before.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub eta: Option<Timestamp>,
    /// When it fails instead of running, if it was not begun before; a retry counts like the first
    /// run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: Option<Timestamp>,
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
    /// Who did it (`queue_paused`), or the id of the node that decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub by: Option<String>,
    /// Why, in the words of the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub reason: Option<String>,
    /// The worker it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub worker_id: Option<String>,
    /// How many pull workers ask for such tasks: they were seen within the last minute, or hold
    /// tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub workers: Option<u64>,
    /// How many of them hold tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub busy: Option<u64>,
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
    /// The name of the node that decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub node: Option<String>,
    /// Where that node listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub address: Option<String>,
    /// When that node was last seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime)]
    pub last_seen_at: Option<Timestamp>,
    /// The partition of its queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub partition: Option<u16>,
    /// The code of the error with which it failed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub error_code: Option<String>,
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
    /// It does not hold the task yet, and will once the reasons before it are over, as things
    /// stand.
    #[serde(default, skip_serializing_if = "is_false")]
    pub comes_next: bool,
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
