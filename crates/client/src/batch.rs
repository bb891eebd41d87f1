//! Many tasks in one request.

use punctual_core::ids::TaskId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::form::TaskIdForm;
use crate::new_task::NewTask;
use crate::objects::objects_only;
use crate::problem::Problem;
use crate::task::Task;

/// Tasks to submit together. Each is accepted or refused by itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct NewBatch {
    /// The tasks.
    #[schema(max_items = 10_000)]
    pub tasks: Vec<NewTask>,
}

/// The result for each task, in order.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BatchAnswer {
    /// An item for each task.
    pub items: Vec<BatchItem>,
}

/// The result for one task of a batch: its `task` (with `?return=ids` its `task_id`), or an
/// `error`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BatchItem {
    /// What `POST /v1/tasks` would have answered: 201 when it is new, 200 when it was submitted
    /// before.
    pub status: u16,
    /// The task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub task: Option<Box<Task>>,
    /// Its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = TaskIdForm)]
    pub task_id: Option<TaskId>,
    /// Why it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub error: Option<Box<Problem>>,
    /// After how many seconds to try it again, where that may help (429, 503).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub retry_after_seconds: Option<u32>,
}

objects_only!(NewBatch);
