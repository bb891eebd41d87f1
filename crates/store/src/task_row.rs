//! How a task is read from the columns of a row, in both stores.
//!
//! Every statement that reads whole tasks returns the columns named here, in this order. Columns
//! that only a live task has are NULL for a final one, and the other way round. A row that cannot
//! be read is reported as [`Unreadable`] with the column at fault, not as a fault of the database:
//! one bad row must not stop the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_core::ids::{ScheduleId, TaskId};
use punctual_core::json::Json;
use punctual_core::lane::Lane;
use punctual_core::state::{Position, State};
use punctual_core::task::{Body, Callback, Dependencies, Hold, Task};
use punctual_core::time::Timestamp;
use punctual_core::trail::Trail;
use uuid::Uuid;

use crate::columns::{self, Unreadable, node_from_column};
use crate::dependencies;

/// A column of a row: its index, and its name for [`Unreadable`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskColumn(pub usize, pub &'static str);

impl TaskColumn {
    fn unreadable(self) -> Unreadable {
        Unreadable(self.1)
    }
}

pub(crate) const ID: TaskColumn = TaskColumn(0, "id");
pub(crate) const LANE: TaskColumn = TaskColumn(1, "lane");
pub(crate) const STATE: TaskColumn = TaskColumn(2, "state");
const VERSION: TaskColumn = TaskColumn(3, "version");
const ATTEMPTS: TaskColumn = TaskColumn(4, "attempts");
const CRASHES: TaskColumn = TaskColumn(5, "crashes");
const CANCEL_REQUESTED: TaskColumn = TaskColumn(6, "cancel_requested");
const EXECUTE_AT: TaskColumn = TaskColumn(7, "execute_at");
pub(crate) const DUE_AT: TaskColumn = TaskColumn(8, "due_at");
pub(crate) const EXPIRES_AT: TaskColumn = TaskColumn(9, "expires_at");
const WORKER: TaskColumn = TaskColumn(10, "worker");
const STARTED_AT: TaskColumn = TaskColumn(11, "started_at");
const PROGRESS: TaskColumn = TaskColumn(12, "progress");
const CHECKPOINT: TaskColumn = TaskColumn(13, "checkpoint");
const TRAIL: TaskColumn = TaskColumn(14, "trail");
const CREATED_AT: TaskColumn = TaskColumn(15, "created_at");
const PAYLOAD: TaskColumn = TaskColumn(16, "payload");
const CALLBACK_URL: TaskColumn = TaskColumn(17, "callback_url");
const CALLBACK_HEADERS: TaskColumn = TaskColumn(18, "callback_headers");
const RETRY_POLICY: TaskColumn = TaskColumn(19, "retry_policy");
const TIMEOUT_MILLIS: TaskColumn = TaskColumn(20, "timeout_millis");
const METADATA: TaskColumn = TaskColumn(21, "metadata");
const SCHEDULE_ID: TaskColumn = TaskColumn(22, "schedule_id");
const IDEMPOTENCY_KEY: TaskColumn = TaskColumn(23, "idempotency_key");
/// The first of the six columns of [`hold`].
const HOLD: usize = 24;
pub(crate) const LEASE_EXPIRES_AT: TaskColumn = TaskColumn(27, "lease_expires_at");
const COMPLETED_AT: TaskColumn = TaskColumn(30, "completed_at");
const RESULT: TaskColumn = TaskColumn(31, "result");
const ORDERING_KEY: TaskColumn = TaskColumn(32, "ordering_key");
const DEPENDS_ON: TaskColumn = TaskColumn(33, "depends_on");
const ON_DEPENDENCY_FAILURE: TaskColumn = TaskColumn(34, "on_dependency_failure");
const CONCURRENCY_KEY: TaskColumn = TaskColumn(35, "concurrency_key");
const CALLBACK_BODY: TaskColumn = TaskColumn(36, "callback_body");
/// The first column behind those of a task. Its content depends on the statement.
pub(crate) const BEHIND: usize = 37;

/// A row of either database. A NULL is none; a value of another type is unreadable.
pub(crate) trait TaskRow {
    /// An integer of any width.
    fn integer(&self, column: TaskColumn) -> Result<Option<i64>, Unreadable>;
    fn boolean(&self, column: TaskColumn) -> Result<Option<bool>, Unreadable>;
    fn text(&self, column: TaskColumn) -> Result<Option<&str>, Unreadable>;
    fn bytes(&self, column: TaskColumn) -> Result<Option<&[u8]>, Unreadable>;
    fn uuid(&self, column: TaskColumn) -> Result<Option<Uuid>, Unreadable>;
}

/// Reads a task.
pub(crate) fn task(row: &impl TaskRow, lane: Option<Arc<Lane>>) -> Result<Task, Unreadable> {
    let payload = json(row, PAYLOAD)?.ok_or(PAYLOAD.unreadable())?;
    with_payload(row, lane, payload)
}

/// Reads a task; a payload that was too large to be read with it is null.
pub(crate) fn task_with_small_payload(row: &impl TaskRow, lane: Option<Arc<Lane>>) -> Result<Task, Unreadable> {
    with_payload(row, lane, json(row, PAYLOAD)?.unwrap_or_else(Json::null))
}

fn with_payload(row: &impl TaskRow, lane: Option<Arc<Lane>>, payload: Json) -> Result<Task, Unreadable> {
    let worker = row.text(WORKER)?;
    let (state, hold) = (state(row, STATE)?, hold(row, HOLD, worker)?);
    if state.is_held() != hold.is_some() {
        return Err(LEASE_EXPIRES_AT.unreadable());
    }
    Ok(Task {
        id: id(row, ID)?,
        lane: lane.ok_or(LANE.unreadable())?,
        position: Position {
            state,
            version: number(row, VERSION)?,
            attempts: count(row, ATTEMPTS)?,
            crashes: count(row, CRASHES)?,
            cancel_requested: boolean(row, CANCEL_REQUESTED)?,
        },
        created_at: instant(row, CREATED_AT)?,
        execute_at: instant(row, EXECUTE_AT)?,
        due_at: instant(row, DUE_AT)?,
        expires_at: maybe_instant(row, EXPIRES_AT)?,
        hold,
        worker: worker.map(str::to_owned),
        started_at: maybe_instant(row, STARTED_AT)?,
        completed_at: maybe_instant(row, COMPLETED_AT)?,
        result: json(row, RESULT)?,
        progress: json(row, PROGRESS)?,
        checkpoint: json(row, CHECKPOINT)?,
        body: body(row, payload)?,
        trail: Trail::from_bytes(row.bytes(TRAIL)?.ok_or(TRAIL.unreadable())?.to_vec()),
    })
}

fn body(row: &impl TaskRow, payload: Json) -> Result<Body, Unreadable> {
    let callback = match row.text(CALLBACK_URL)? {
        Some(url) => Some(Callback {
            url: url.to_owned(),
            headers: map(row, CALLBACK_HEADERS)?,
            body: columns::callback_body(row.text(CALLBACK_BODY)?)?,
        }),
        None => None,
    };
    let text = |column| row.text(column).map(|text| text.map(str::to_owned));
    Ok(Body {
        payload,
        callback,
        retry_policy: columns::policy(row.text(RETRY_POLICY)?)?,
        timeout_millis: number(row, TIMEOUT_MILLIS)?,
        metadata: map(row, METADATA)?,
        schedule_id: row.uuid(SCHEDULE_ID)?.map(ScheduleId::from_uuid),
        idempotency_key: text(IDEMPOTENCY_KEY)?,
        ordering_key: text(ORDERING_KEY)?,
        concurrency_key: text(CONCURRENCY_KEY)?,
        dependencies: Dependencies {
            ids: dependencies::ids(row.bytes(DEPENDS_ON)?).ok_or(DEPENDS_ON.unreadable())?,
            on_failure: dependencies::policy(row.text(ON_DEPENDENCY_FAILURE)?)
                .ok_or(ON_DEPENDENCY_FAILURE.unreadable())?,
        },
    })
}

/// Reads the hold of a task from six columns: holder, node, `held_since`, `lease_expires_at`,
/// `deadline_at`, `lease_millis`. A running task is held by its worker, which is not written twice.
pub(crate) fn hold(row: &impl TaskRow, first: usize, worker: Option<&str>) -> Result<Option<Hold>, Unreadable> {
    let column = |nth: usize, name| TaskColumn(first + nth, name);
    let Some(expires_at) = maybe_instant(row, column(3, "lease_expires_at"))? else { return Ok(None) };
    let holder = row.text(column(0, "holder"))?.or(worker).ok_or(Unreadable("holder"))?;
    Ok(Some(Hold {
        worker: holder.to_owned(),
        node: row.integer(column(1, "node"))?.map(node_from_column),
        since: instant(row, column(2, "held_since"))?,
        expires_at,
        deadline_at: instant(row, column(4, "deadline_at"))?,
        lease_millis: number(row, column(5, "lease_millis"))?,
    }))
}

/// Reads the id of a task.
pub(crate) fn id(row: &impl TaskRow, column: TaskColumn) -> Result<TaskId, Unreadable> {
    row.uuid(column)?.map(TaskId::from_uuid).ok_or(column.unreadable())
}

/// Reads a state.
pub(crate) fn state(row: &impl TaskRow, column: TaskColumn) -> Result<State, Unreadable> {
    row.integer(column)?.and_then(State::from_code).ok_or(column.unreadable())
}

/// Reads a version or a number of milliseconds.
pub(crate) fn number(row: &impl TaskRow, column: TaskColumn) -> Result<u64, Unreadable> {
    row.integer(column)?.and_then(|number| u64::try_from(number).ok()).ok_or(column.unreadable())
}

/// Reads a boolean that is never NULL.
pub(crate) fn boolean(row: &impl TaskRow, column: TaskColumn) -> Result<bool, Unreadable> {
    row.boolean(column)?.ok_or(column.unreadable())
}

/// Reads a count of attempts or crashes.
pub(crate) fn count(row: &impl TaskRow, column: TaskColumn) -> Result<u32, Unreadable> {
    row.integer(column)?.and_then(|count| u32::try_from(count).ok()).ok_or(column.unreadable())
}

/// Reads an instant that is never NULL.
pub(crate) fn instant(row: &impl TaskRow, column: TaskColumn) -> Result<Timestamp, Unreadable> {
    maybe_instant(row, column)?.ok_or(column.unreadable())
}

fn maybe_instant(row: &impl TaskRow, column: TaskColumn) -> Result<Option<Timestamp>, Unreadable> {
    row.integer(column).map(|millis| millis.map(Timestamp::from_millis))
}

fn json(row: &impl TaskRow, column: TaskColumn) -> Result<Option<Json>, Unreadable> {
    row.text(column)?.map(|text| columns::json(text, column.1)).transpose()
}

fn map(row: &impl TaskRow, column: TaskColumn) -> Result<BTreeMap<String, String>, Unreadable> {
    columns::map(row.text(column)?, column.1)
}
