//! How a task is read from the columns of a row.
//!
//! Every statement that reads whole tasks returns the columns named here, in this order:
//! the common ones, the body's, then those of a live task or those of a final one.
//! A row that cannot be read is reported as [`Unreadable`] with the column at fault, not as a fault
//! of the database: one bad row must not stop the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_core::ids::{ScheduleId, TaskId};
use punctual_core::json::Json;
use punctual_core::lane::Lane;
use punctual_core::state::{Position, State};
use punctual_core::task::{Body, Callback, Dependencies, Hold, Task};
use punctual_core::time::Timestamp;
use punctual_core::trail::Trail;
use rusqlite::Row;
use rusqlite::types::{FromSql, ValueRef};
use uuid::Uuid;

use crate::columns::{self, Unreadable, node_from_column};
use crate::dependencies;

pub(crate) const SEQ: usize = 0;
pub(crate) const ID: usize = 1;
pub(crate) const LANE: usize = 2;
const STATE: usize = 3;
const VERSION: usize = 4;
const ATTEMPTS: usize = 5;
const CRASHES: usize = 6;
const CANCEL_REQUESTED: usize = 7;
const EXECUTE_AT: usize = 8;
const DUE_AT: usize = 9;
const EXPIRES_AT: usize = 10;
const WORKER: usize = 11;
const STARTED_AT: usize = 12;
const PROGRESS: usize = 13;
const CHECKPOINT: usize = 14;
const TRAIL: usize = 15;
const CREATED_AT: usize = 16;
const PAYLOAD: usize = 17;
const CALLBACK_URL: usize = 18;
const CALLBACK_HEADERS: usize = 19;
const RETRY_POLICY: usize = 20;
const TIMEOUT_MILLIS: usize = 21;
const METADATA: usize = 22;
const SCHEDULE_ID: usize = 23;
const IDEMPOTENCY_KEY: usize = 24;
const ORDERING_KEY: usize = 25;
const DEPENDS_ON: usize = 26;
const ON_DEPENDENCY_FAILURE: usize = 27;
/// The first of the columns that only a live task has (see [`hold`]).
const HOLD: usize = 28;
const COMPLETED_AT: usize = 28;
const RESULT: usize = 29;

/// Reads a live task.
pub(crate) fn live(row: &Row<'_>, lane: Option<Arc<Lane>>) -> Result<Task, Unreadable> {
    let task = common(row, lane)?;
    if task.position.state.is_final() {
        return Err(Unreadable("state"));
    }
    let hold = hold(row, HOLD, task.worker.as_deref())?;
    columns::is_held_as(task.position.state, hold.as_ref())?;
    Ok(Task { hold, ..task })
}

/// Reads a final task.
pub(crate) fn finished(row: &Row<'_>, lane: Option<Arc<Lane>>) -> Result<Task, Unreadable> {
    let task = common(row, lane)?;
    if !task.position.state.is_final() {
        return Err(Unreadable("state"));
    }
    let completed_at = Some(instant(row, COMPLETED_AT, "completed_at")?);
    Ok(Task { completed_at, result: json(row, RESULT, "result")?, ..task })
}

fn common(row: &Row<'_>, lane: Option<Arc<Lane>>) -> Result<Task, Unreadable> {
    Ok(Task {
        id: id(row, ID)?,
        lane: lane.ok_or(Unreadable("lane"))?,
        position: Position {
            state: State::from_code(get(row, STATE, "state")?).ok_or(Unreadable("state"))?,
            version: version(row, VERSION)?,
            attempts: get(row, ATTEMPTS, "attempts")?,
            crashes: get(row, CRASHES, "crashes")?,
            cancel_requested: get(row, CANCEL_REQUESTED, "cancel_requested")?,
        },
        created_at: instant(row, CREATED_AT, "created_at")?,
        execute_at: instant(row, EXECUTE_AT, "execute_at")?,
        due_at: instant(row, DUE_AT, "due_at")?,
        expires_at: maybe_instant(row, EXPIRES_AT, "expires_at")?,
        hold: None,
        worker: get(row, WORKER, "worker")?,
        started_at: maybe_instant(row, STARTED_AT, "started_at")?,
        completed_at: None,
        result: None,
        progress: json(row, PROGRESS, "progress")?,
        checkpoint: json(row, CHECKPOINT, "checkpoint")?,
        body: body(row)?,
        trail: Trail::from_bytes(get(row, TRAIL, "trail")?),
    })
}

fn body(row: &Row<'_>) -> Result<Body, Unreadable> {
    let callback = match get::<Option<String>>(row, CALLBACK_URL, "callback_url")? {
        Some(url) => Some(Callback { url, headers: map(row, CALLBACK_HEADERS, "callback_headers")? }),
        None => None,
    };
    let retry_policy = columns::policy(text(row, RETRY_POLICY, "retry_policy")?)?;
    let schedule_id = get::<Option<[u8; 16]>>(row, SCHEDULE_ID, "schedule_id")?;
    Ok(Body {
        payload: json(row, PAYLOAD, "payload")?.ok_or(Unreadable("payload"))?,
        callback,
        retry_policy,
        timeout_millis: millis(row, TIMEOUT_MILLIS, "timeout_millis")?,
        metadata: map(row, METADATA, "metadata")?,
        schedule_id: schedule_id.map(|bytes| ScheduleId::from_uuid(Uuid::from_bytes(bytes))),
        idempotency_key: get(row, IDEMPOTENCY_KEY, "idempotency_key")?,
        ordering_key: get(row, ORDERING_KEY, "ordering_key")?,
        dependencies: dependencies(row)?,
    })
}

fn dependencies(row: &Row<'_>) -> Result<Dependencies, Unreadable> {
    let ids: Option<Vec<u8>> = get(row, DEPENDS_ON, "depends_on")?;
    let policy: Option<String> = get(row, ON_DEPENDENCY_FAILURE, "on_dependency_failure")?;
    Ok(Dependencies {
        ids: dependencies::ids(ids.as_deref()).ok_or(Unreadable("depends_on"))?,
        on_failure: dependencies::policy(policy.as_deref()).ok_or(Unreadable("on_dependency_failure"))?,
    })
}

/// Reads who holds a task from six columns: holder, node, `held_since`, `lease_expires_at`,
/// `deadline_at`, `lease_millis`. A task that runs is held by its worker, which is not written
/// twice.
pub(crate) fn hold(row: &Row<'_>, first: usize, worker: Option<&str>) -> Result<Option<Hold>, Unreadable> {
    let Some(expires_at) = maybe_instant(row, first + 3, "lease_expires_at")? else { return Ok(None) };
    let holder: Option<String> = get(row, first, "holder")?;
    Ok(Some(Hold {
        worker: holder.or_else(|| worker.map(str::to_owned)).ok_or(Unreadable("holder"))?,
        node: get::<Option<i64>>(row, first + 1, "node")?.map(node_from_column),
        since: instant(row, first + 2, "held_since")?,
        expires_at,
        deadline_at: instant(row, first + 4, "deadline_at")?,
        lease_millis: millis(row, first + 5, "lease_millis")?,
    }))
}

/// Reads one column as this type.
pub(crate) fn get<T: FromSql>(row: &Row<'_>, column: usize, name: &'static str) -> Result<T, Unreadable> {
    row.get(column).map_err(|_| Unreadable(name))
}

pub(crate) fn id(row: &Row<'_>, column: usize) -> Result<TaskId, Unreadable> {
    get(row, column, "id").map(|bytes| TaskId::from_uuid(Uuid::from_bytes(bytes)))
}

pub(crate) fn version(row: &Row<'_>, column: usize) -> Result<u64, Unreadable> {
    u64::try_from(get::<i64>(row, column, "version")?).map_err(|_| Unreadable("version"))
}

fn instant(row: &Row<'_>, column: usize, name: &'static str) -> Result<Timestamp, Unreadable> {
    get(row, column, name).map(Timestamp::from_millis)
}

fn maybe_instant(row: &Row<'_>, column: usize, name: &'static str) -> Result<Option<Timestamp>, Unreadable> {
    get::<Option<i64>>(row, column, name).map(|millis| millis.map(Timestamp::from_millis))
}

fn millis(row: &Row<'_>, column: usize, name: &'static str) -> Result<u64, Unreadable> {
    u64::try_from(get::<i64>(row, column, name)?).map_err(|_| Unreadable(name))
}

fn text<'r>(row: &'r Row<'_>, column: usize, name: &'static str) -> Result<Option<&'r str>, Unreadable> {
    match row.get_ref(column).map_err(|_| Unreadable(name))? {
        ValueRef::Null => Ok(None),
        value => value.as_str().map(Some).map_err(|_| Unreadable(name)),
    }
}

fn json(row: &Row<'_>, column: usize, name: &'static str) -> Result<Option<Json>, Unreadable> {
    text(row, column, name)?.map(|text| columns::json(text, name)).transpose()
}

fn map(row: &Row<'_>, column: usize, name: &'static str) -> Result<BTreeMap<String, String>, Unreadable> {
    columns::map(text(row, column, name)?, name)
}
