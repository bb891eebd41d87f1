//! The final state of a task: what the API shows after the drain.

use punctual_client as wire;
use punctual_core::ids::{ScheduleId, TaskId};
use punctual_core::state::State;
use punctual_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Stamp;

/// A task with its audit trail and its runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Dumped {
    /// Its id.
    pub task: TaskId,
    /// The idempotency key it was submitted under.
    pub key: Option<String>,
    /// The schedule that created it, and the instant it was made for.
    pub scheduled: Option<(ScheduleId, Timestamp)>,
    /// Its state.
    pub state: State,
    /// Its version.
    pub version: u64,
    /// When its submitter wants it, after the last edit.
    pub execute_at: Timestamp,
    /// Its payload.
    pub payload: Value,
    /// The result of its last run.
    pub result: Option<Value>,
    /// Attempts beyond the first that it is allowed.
    pub max_retries: u32,
    /// The delay before a retry, which has no jitter in a trial.
    pub backoff_millis: u64,
    /// How long one run may take.
    pub timeout_millis: u64,
    /// Whether webhook workers push it.
    pub pushed: bool,
    /// Its steps, oldest first.
    pub trail: Vec<TrailStep>,
    /// Its runs, oldest first.
    pub runs: Vec<RecordedRun>,
    /// When it was read.
    pub read: Stamp,
}

/// One step of a task's audit trail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrailStep {
    /// When, in the store's time.
    pub at: Timestamp,
    /// The state before; none for the first.
    pub from: Option<State>,
    /// The state after.
    pub to: State,
    /// On whose behalf.
    pub actor: String,
    /// The node that wrote it.
    pub node: String,
    /// A word for what happened.
    pub reason: String,
    /// The version after it.
    pub version: u64,
}

/// One run of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedRun {
    /// From 1; a run that was given back or not counted does not advance it.
    pub attempt: u32,
    /// When it began.
    pub started_at: Timestamp,
    /// How it ended; none while it runs.
    pub outcome: Option<wire::RunEnded>,
    /// The status that the webhook answered.
    pub http_status: Option<u16>,
    /// Why its attempt was not counted, if it failed.
    #[serde(default)]
    pub uncounted: Option<String>,
}

impl Dumped {
    /// A task as the API shows it.
    pub fn of(task: &wire::Task, events: Vec<wire::TaskEvent>, runs: Vec<wire::Run>, read: Stamp) -> Self {
        let millis = |seconds: wire::Seconds| seconds.to_millis_within(0, u64::MAX).unwrap_or(0);
        Self {
            task: task.task_id,
            key: task.idempotency_key.clone(),
            scheduled: task.schedule_id.zip(task.scheduled_for),
            state: state(task.status),
            version: task.version,
            execute_at: task.execute_at,
            payload: serde_json::from_str(task.payload.get()).unwrap_or_default(),
            result: task.result.as_ref().and_then(|result| serde_json::from_str(result.get()).ok()),
            max_retries: task.retry_policy.max_retries,
            backoff_millis: task.retry_policy.backoff_seconds.map_or(0, millis),
            timeout_millis: millis(task.timeout_seconds),
            pushed: task.callback_url.is_some(),
            trail: events.into_iter().map(TrailStep::from).collect(),
            runs: runs.into_iter().map(RecordedRun::from).collect(),
            read,
        }
    }
}

impl From<wire::TaskEvent> for TrailStep {
    fn from(event: wire::TaskEvent) -> Self {
        let wire::TaskEvent { at, from, to, actor, reason, version, node, .. } = event;
        Self { at, from: from.map(state), to: state(to), actor, node, reason, version }
    }
}

impl From<wire::Run> for RecordedRun {
    fn from(run: wire::Run) -> Self {
        let wire::Run { attempt, started_at, outcome, http_status, uncounted, .. } = run;
        Self { attempt, started_at, outcome, http_status, uncounted }
    }
}

fn state(status: wire::Status) -> State {
    match status {
        wire::Status::Blocked => State::Blocked,
        wire::Status::Pending => State::Pending,
        wire::Status::Queued => State::Queued,
        wire::Status::Running => State::Running,
        wire::Status::Completed => State::Completed,
        wire::Status::Cancelled => State::Cancelled,
        wire::Status::Failed => State::Failed,
        wire::Status::DeadLettered => State::DeadLettered,
    }
}
