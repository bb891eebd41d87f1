//! What will run, by name.

use punctual_core::ids::{ScheduleId, TaskId};
use punctual_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::form::{ScheduleIdForm, TaskIdForm};

/// A page of what will run, the soonest first.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Upcoming {
    /// What will run.
    pub items: Vec<UpcomingItem>,
    /// The `cursor` of the next page; `null` at the end. A short page may still have a next one.
    pub next_cursor: Option<String>,
    /// How many schedules are left out because there are too many: the last ones by name.
    pub schedules_missing: u64,
}

/// A waiting task, or an instant of a schedule whose task is not made yet. Either `task_id` or
/// `schedule_id` is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UpcomingItem {
    /// When the task is due; or the instant of the schedule, without its jitter.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The schedule.
    #[schema(value_type = Option<ScheduleIdForm>)]
    pub schedule_id: Option<ScheduleId>,
    /// The task.
    #[schema(value_type = Option<TaskIdForm>)]
    pub task_id: Option<TaskId>,
    /// The schedule's name; `null` for a task.
    pub name: Option<String>,
    /// The type of the task.
    #[serde(rename = "type")]
    pub kind: String,
    /// The queue of the task.
    pub queue: String,
}
