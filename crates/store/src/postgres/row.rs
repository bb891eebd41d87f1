//! How a task is read from a row.
//!
//! Every statement that reads whole tasks returns the columns named here, in this order. Columns
//! that only a live task has are NULL for a final one, and the other way round.

use std::sync::Arc;

use punctual_core::ids::{ScheduleId, TaskId};
use punctual_core::json::Json;
use punctual_core::lane::Lane;
use punctual_core::state::{Position, State};
use punctual_core::task::{Body, Callback, Dependencies, Hold, Task};
use punctual_core::time::Timestamp;
use punctual_core::trail::Trail;
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;
use uuid::Uuid;

use crate::columns::{self, Unreadable, node_from_column};
use crate::dependencies;

pub(crate) const ID: usize = 0;
pub(crate) const LANE: usize = 1;
pub(crate) const STATE: usize = 2;
const VERSION: usize = 3;
const ATTEMPTS: usize = 4;
const CRASHES: usize = 5;
const CANCEL_REQUESTED: usize = 6;
const EXECUTE_AT: usize = 7;
pub(crate) const DUE_AT: usize = 8;
pub(crate) const EXPIRES_AT: usize = 9;
const WORKER: usize = 10;
const STARTED_AT: usize = 11;
const PROGRESS: usize = 12;
const CHECKPOINT: usize = 13;
const TRAIL: usize = 14;
const CREATED_AT: usize = 15;
const PAYLOAD: usize = 16;
const CALLBACK_URL: usize = 17;
const CALLBACK_HEADERS: usize = 18;
const RETRY_POLICY: usize = 19;
const TIMEOUT_MILLIS: usize = 20;
const METADATA: usize = 21;
const SCHEDULE_ID: usize = 22;
const IDEMPOTENCY_KEY: usize = 23;
const HOLD: usize = 24;
pub(crate) const LEASE_EXPIRES_AT: usize = 27;
const COMPLETED_AT: usize = 30;
const RESULT: usize = 31;
const ORDERING_KEY: usize = 32;
const DEPENDS_ON: usize = 33;
const ON_DEPENDENCY_FAILURE: usize = 34;

/// Only where due tasks are read: number of submission, size of the payload, location of the row.
pub(crate) const SEQ: usize = 35;
pub(crate) const PAYLOAD_BYTES: usize = 36;
pub(crate) const PLACE: usize = 37;
pub(crate) const LOOK: usize = 38;

/// Only where queued tasks are read: location of the row.
pub(crate) const PLACE_OF_QUEUED: usize = 35;

/// Reads a task.
pub(crate) fn task(row: &Row, lane: Option<Arc<Lane>>) -> Result<Task, Unreadable> {
    let payload = json(row, PAYLOAD, "payload")?.ok_or(Unreadable("payload"))?;
    whole(row, lane, payload)
}

/// Reads a due task; a payload that is too large to be read with it is null.
pub(crate) fn due(row: &Row, lane: Option<Arc<Lane>>) -> Result<Task, Unreadable> {
    whole(row, lane, json(row, PAYLOAD, "payload")?.unwrap_or_else(Json::null))
}

fn whole(row: &Row, lane: Option<Arc<Lane>>, payload: Json) -> Result<Task, Unreadable> {
    let worker: Option<String> = get(row, WORKER, "worker")?;
    let (state, hold) = (state(row, STATE)?, hold(row, HOLD, worker.as_deref())?);
    columns::is_held_as(state, hold.as_ref())?;
    Ok(Task {
        id: id(row, ID)?,
        lane: lane.ok_or(Unreadable("lane"))?,
        position: Position {
            state,
            version: number(row, VERSION, "version")?,
            attempts: count(row, ATTEMPTS, "attempts")?,
            crashes: count(row, CRASHES, "crashes")?,
            cancel_requested: get(row, CANCEL_REQUESTED, "cancel_requested")?,
        },
        created_at: instant(row, CREATED_AT, "created_at")?,
        execute_at: instant(row, EXECUTE_AT, "execute_at")?,
        due_at: instant(row, DUE_AT, "due_at")?,
        expires_at: maybe_instant(row, EXPIRES_AT, "expires_at")?,
        hold,
        started_at: maybe_instant(row, STARTED_AT, "started_at")?,
        completed_at: maybe_instant(row, COMPLETED_AT, "completed_at")?,
        result: json(row, RESULT, "result")?,
        progress: json(row, PROGRESS, "progress")?,
        checkpoint: json(row, CHECKPOINT, "checkpoint")?,
        body: body(row, payload)?,
        trail: Trail::from_bytes(get(row, TRAIL, "trail")?),
        worker,
    })
}

fn body(row: &Row, payload: Json) -> Result<Body, Unreadable> {
    let callback = match get::<Option<String>>(row, CALLBACK_URL, "callback_url")? {
        Some(url) => {
            let headers = get(row, CALLBACK_HEADERS, "callback_headers")?;
            Some(Callback { url, headers: columns::map(headers, "callback_headers")? })
        }
        None => None,
    };
    Ok(Body {
        payload,
        callback,
        retry_policy: columns::policy(get(row, RETRY_POLICY, "retry_policy")?)?,
        timeout_millis: number(row, TIMEOUT_MILLIS, "timeout_millis")?,
        metadata: columns::map(get(row, METADATA, "metadata")?, "metadata")?,
        schedule_id: get::<Option<Uuid>>(row, SCHEDULE_ID, "schedule_id")?.map(ScheduleId::from_uuid),
        idempotency_key: get(row, IDEMPOTENCY_KEY, "idempotency_key")?,
        ordering_key: get(row, ORDERING_KEY, "ordering_key")?,
        dependencies: Dependencies {
            ids: dependencies::ids(get(row, DEPENDS_ON, "depends_on")?).ok_or(Unreadable("depends_on"))?,
            on_failure: dependencies::policy(get(row, ON_DEPENDENCY_FAILURE, "on_dependency_failure")?)
                .ok_or(Unreadable("on_dependency_failure"))?,
        },
    })
}

/// Reads who holds a task from six columns: holder, node, `held_since`, `lease_expires_at`,
/// `deadline_at`, `lease_millis`. A task that runs is held by its worker, which is not written
/// twice.
pub(crate) fn hold(row: &Row, first: usize, worker: Option<&str>) -> Result<Option<Hold>, Unreadable> {
    let Some(expires_at) = maybe_instant(row, first + 3, "lease_expires_at")? else { return Ok(None) };
    let holder: Option<&str> = get(row, first, "holder")?;
    Ok(Some(Hold {
        worker: holder.or(worker).ok_or(Unreadable("holder"))?.to_owned(),
        node: get::<Option<i64>>(row, first + 1, "node")?.map(node_from_column),
        since: instant(row, first + 2, "held_since")?,
        expires_at,
        deadline_at: instant(row, first + 4, "deadline_at")?,
        lease_millis: number(row, first + 5, "lease_millis")?,
    }))
}

/// Reads one column as this type.
pub(crate) fn get<'r, T: FromSql<'r>>(row: &'r Row, column: usize, name: &'static str) -> Result<T, Unreadable> {
    row.try_get(column).map_err(|_| Unreadable(name))
}

pub(crate) fn id(row: &Row, column: usize) -> Result<TaskId, Unreadable> {
    get(row, column, "id").map(TaskId::from_uuid)
}

pub(crate) fn state(row: &Row, column: usize) -> Result<State, Unreadable> {
    let code: i16 = get(row, column, "state")?;
    State::from_code(i64::from(code)).ok_or(Unreadable("state"))
}

/// A version or a count of milliseconds.
pub(crate) fn number(row: &Row, column: usize, name: &'static str) -> Result<u64, Unreadable> {
    u64::try_from(get::<i64>(row, column, name)?).map_err(|_| Unreadable(name))
}

/// A count of attempts or crashes.
fn count(row: &Row, column: usize, name: &'static str) -> Result<u32, Unreadable> {
    u32::try_from(get::<i32>(row, column, name)?).map_err(|_| Unreadable(name))
}

fn instant(row: &Row, column: usize, name: &'static str) -> Result<Timestamp, Unreadable> {
    get(row, column, name).map(Timestamp::from_millis)
}

fn maybe_instant(row: &Row, column: usize, name: &'static str) -> Result<Option<Timestamp>, Unreadable> {
    get::<Option<i64>>(row, column, name).map(|millis| millis.map(Timestamp::from_millis))
}

fn json(row: &Row, column: usize, name: &'static str) -> Result<Option<Json>, Unreadable> {
    get::<Option<&str>>(row, column, name)?.map(|text| columns::json(text, name)).transpose()
}

/// The column of a count of attempts or crashes, saturated to what the column can hold.
pub(crate) fn count_column(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// The column of a state.
pub(crate) fn state_column(state: State) -> i16 {
    i16::from(state.code())
}
