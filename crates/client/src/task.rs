//! A task as the API shows it.

use std::collections::BTreeMap;

use punctual_core::ids::{ScheduleId, TaskId};
use punctual_core::json::Json;
use punctual_core::state::State;
use punctual_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::callback::CallbackBody;
use crate::dependency::OnDependencyFailure;
use crate::form::{ScheduleIdForm, TaskIdForm};
use crate::retry::RetryPolicy;
use crate::seconds::Seconds;

/// A task.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Task {
    /// Its id.
    #[schema(value_type = TaskIdForm)]
    pub task_id: TaskId,
    /// Its tenant.
    pub tenant: String,
    /// What kind of work it is.
    #[serde(rename = "type")]
    pub kind: String,
    /// The queue it is in.
    pub queue: String,
    /// Its state.
    pub status: Status,
    /// How often it has changed, from 1; also its `ETag`.
    pub version: u64,
    /// How urgent it is.
    #[schema(minimum = 0, maximum = 9)]
    pub priority: u8,
    /// What the worker gets. Left out of summaries.
    #[serde(default = "Json::null")]
    #[schema(value_type = serde_json::Value, required = false)]
    pub payload: Json,
    /// Where it is pushed to; `null`: it waits for a pull worker.
    pub callback_url: Option<String>,
    /// Extra request headers of the webhook. Left out of summaries.
    #[serde(default)]
    #[schema(required = false)]
    pub callback_headers: BTreeMap<String, String>,
    /// What the body of the webhook's request is.
    #[serde(default)]
    #[schema(required = true)]
    pub callback_body: CallbackBody,
    /// When it should run.
    #[schema(value_type = String, format = DateTime)]
    pub execute_at: Timestamp,
    /// When it is due next, while it waits: `execute_at`, or later after a failed attempt, after a
    /// wait for other tasks, and by the jitter of its queue.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub next_attempt_at: Option<Timestamp>,
    /// It fails if it has not started by then.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
    /// The key it was submitted under.
    pub idempotency_key: Option<String>,
    /// Tasks with the same key run one at a time, in order.
    pub ordering_key: Option<String>,
    /// At most `max_per_key` tasks of its queue with the same key run at a time.
    #[serde(default)]
    pub concurrency_key: Option<String>,
    /// The tasks it depends on.
    #[serde(default)]
    #[schema(value_type = Vec<TaskIdForm>, required = true)]
    pub depends_on: Vec<TaskId>,
    /// What happens to it when one of those does not complete.
    #[serde(default)]
    #[schema(required = true)]
    pub on_dependency_failure: OnDependencyFailure,
    /// How it is retried.
    pub retry_policy: RetryPolicy,
    /// How many retries are used, including the one it waits for.
    pub retry_count: u32,
    /// How long one run may take.
    pub timeout_seconds: Seconds,
    /// The submitter's labels.
    pub metadata: BTreeMap<String, String>,
    /// When it was accepted.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When it changed last.
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
    /// When its last run began.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Timestamp>,
    /// When it was asked to stop, if it was while it ran.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime, required = true)]
    pub cancel_requested_at: Option<Timestamp>,
    /// When it finished.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub completed_at: Option<Timestamp>,
    /// The worker that runs it, or ran it last.
    pub worker_id: Option<String>,
    /// The schedule that made it.
    #[schema(value_type = Option<ScheduleIdForm>)]
    pub schedule_id: Option<ScheduleId>,
    /// The instant of the schedule that it was made for. For a triggered task: when it was
    /// triggered.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub scheduled_for: Option<Timestamp>,
    /// What its run returned. Left out of summaries.
    #[serde(default)]
    #[schema(value_type = serde_json::Value, required = false)]
    pub result: Option<Json>,
    /// The progress that its worker reported.
    #[schema(value_type = serde_json::Value)]
    pub progress: Option<Json>,
    /// The last error. If a task expired after a run, the message also says how its last run
    /// failed.
    pub last_error: Option<LastError>,
}

/// What went wrong last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LastError {
    /// A stable word for programs.
    pub code: String,
    /// A sentence for people.
    pub message: String,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
}

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    /// Waits for the tasks it depends on.
    Blocked,
    /// Waits for its time, or for its retry.
    Pending,
    /// Claimed and dispatched.
    Queued,
    /// With a worker.
    Running,
    /// Done.
    Completed,
    /// Will not run, because it was cancelled.
    Cancelled,
    /// Will not run: expired, or a dependency failed.
    Failed,
    /// Retries used up, or an error not worth retrying; can be re-driven.
    DeadLettered,
}

impl From<State> for Status {
    fn from(state: State) -> Self {
        match state {
            State::Blocked => Status::Blocked,
            State::Pending => Status::Pending,
            State::Queued => Status::Queued,
            State::Running => Status::Running,
            State::Completed => Status::Completed,
            State::Cancelled => Status::Cancelled,
            State::Failed => Status::Failed,
            State::DeadLettered => Status::DeadLettered,
        }
    }
}
