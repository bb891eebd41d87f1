//! Why a task has not run yet.

use punctual_core::ids::TaskId;
use punctual_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::form::TaskIdForm;
use crate::task::Status;

/// Why a task has not run yet.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    /// Its state.
    pub state: Status,
    /// What it waits for, in the order in which that will end; or what it is doing.
    pub reasons: Vec<Reason>,
    /// The earliest instant at which it can run as things stand; no promise. `null` if a reason has
    /// no known end, or if the task expires before.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub eta: Option<Timestamp>,
    /// When it fails instead of running, unless a run (a retry too) begins before.
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
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime)]
    pub since: Option<Timestamp>,
    /// The earliest end, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime)]
    pub until: Option<Timestamp>,
    /// On whose behalf it was done (`queue_paused`), or the id of the node that decides.
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
    /// How many pull workers poll for such tasks: those seen within the last minute, and those that
    /// hold tasks.
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
    /// The concurrency key it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub concurrency_key: Option<String>,
    /// The webhook target it is about.
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
    /// The code of its last error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub error_code: Option<String>,
    /// The first ten of the tasks it is about.
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
    /// Counting stopped there: its place is `position` or a later one.
    #[serde(default, skip_serializing_if = "is_false")]
    pub position_or_later: bool,
    /// It does not hold the task yet, but will after the reasons before it, as things stand.
    #[serde(default, skip_serializing_if = "is_false")]
    pub comes_next: bool,
    /// Which webhook slots are all taken: those of the `target`, the `tenant` or the `band`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub crowded: Vec<String>,
}

/// A task that is in the way of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskInTheWay {
    /// Its id.
    #[schema(value_type = TaskIdForm)]
    pub id: TaskId,
    /// Its state.
    pub state: Status,
    /// It is a dead letter, and its queue holds the tasks behind it until it is re-driven.
    #[serde(default, skip_serializing_if = "is_false")]
    pub holds: bool,
    /// The codes of what keeps it from being taken itself: `queue_paused`, `breaker_open`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_false(flag: &bool) -> bool {
    !flag
}
