//! Bulk operations: one change for every task that a filter matches.

use std::collections::BTreeMap;

use punctual_core::bulk as core;
use punctual_core::ids::OperationId;
use punctual_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::form::{LabelsForm, OperationIdForm, ScheduleIdForm};
use crate::objects::objects_only;
use crate::priority::Priority;
use crate::task::{Status, Task};
use crate::words::words;

/// Asks for a bulk operation.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct BulkRequest {
    /// Which tasks. It needs a condition unless this is a dry run.
    pub filter: TaskFilter,
    /// Whether to count the tasks only, and change nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// Asks for a bulk re-drive.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct BulkRedrive {
    /// Which dead letters. It needs a condition unless this is a dry run.
    pub filter: TaskFilter,
    /// Whether to count the tasks only, and change nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// Whether the tasks that were cancelled or failed because of each dead letter wait again, and
    /// those because of them.
    #[serde(default)]
    pub dependents: bool,
}

impl From<BulkRequest> for BulkRedrive {
    fn from(BulkRequest { filter, dry_run }: BulkRequest) -> Self {
        Self { filter, dry_run, dependents: false }
    }
}

/// Which tasks; all conditions have to hold. They mean what the parameters of `GET /v1/tasks` mean.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default, remote = "Self")]
pub struct TaskFilter {
    /// In one of these states.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub status: Vec<Status>,
    /// Of this type; a trailing `*` stands for any end.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// In this queue; a trailing `*` stands for any end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Made by this schedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<ScheduleIdForm>)]
    pub schedule_id: Option<String>,
    /// At least this urgent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_min: Option<Priority>,
    /// Created at or after.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub created_after: Option<String>,
    /// Created before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub created_before: Option<String>,
    /// Wanted at or after.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub execute_after: Option<String>,
    /// Wanted before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub execute_before: Option<String>,
    /// Finished at or after.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub completed_after: Option<String>,
    /// Finished before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub completed_before: Option<String>,
    /// With this ordering key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordering_key: Option<String>,
    /// With this concurrency key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency_key: Option<String>,
    /// Submitted under this idempotency key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// With this worker, or run last by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<String>,
    /// Whose last error has this code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// With these labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = LabelsForm)]
    pub metadata: BTreeMap<String, String>,
}

/// What a bulk operation would do.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DryRun {
    /// How many tasks match.
    pub matched: u64,
    /// Whether there are more: counting stopped after some seconds.
    pub more: bool,
    /// Some of them, newest first, as summaries.
    pub sample: Vec<Task>,
}

/// A bulk operation.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Operation {
    /// Its id.
    #[schema(value_type = OperationIdForm)]
    pub operation_id: OperationId,
    /// What it does with each task.
    pub kind: OperationKind,
    /// How far it is.
    pub state: OperationState,
    /// How many tasks it changed. After a crash it may miss a page of them.
    pub done: u64,
    /// How many tasks matched when it began; `null` if they were too many to count. Tasks that
    /// finish or change meanwhile are not counted elsewhere: `done` may end below it.
    pub total: Option<u64>,
    /// How many it could not change, because others changed them each time.
    pub failed: u64,
    /// When it began.
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    /// When it ended.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished_at: Option<Timestamp>,
    /// Why it failed.
    pub error: Option<String>,
}

words! {
    /// What a bulk operation does with each task.
    OperationKind is core::BulkKind {
        /// Cancels it, or asks it to stop.
        Cancel,
        /// Tries a dead letter again.
        Redrive,
        /// Discards a dead letter.
        Purge,
    }

    /// How far a bulk operation is.
    OperationState is core::BulkState {
        /// It goes on.
        Running,
        /// Every matching task was looked at.
        Done,
        /// A client ended it. What was done stays done.
        Cancelled,
        /// It cannot go on.
        Failed,
    }
}

objects_only!(BulkRequest, BulkRedrive, TaskFilter);
