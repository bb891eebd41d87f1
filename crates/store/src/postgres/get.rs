//! Reads whole tasks by their ids, live or finished.

use std::collections::HashMap;

use punctual_core::ids::TaskId;
use punctual_core::store::TaskResult;
use punctual_core::task::Task;
use tokio_postgres::Row;
use uuid::Uuid;

use super::connection::Session;
use super::fault::Fault;
use super::lanes::LaneDirectory;
use super::row;
use super::statements::Sql;
use crate::columns::{self, count_column};
use crate::found_tasks::{BadRow, FoundTask, FoundTasks, is_of};
use crate::task_row::{self, ID, LANE, STATE};

/// Reads tasks of one tenant, and whether a submission or a cancellation of one of them by SQL
/// waits for a node.
pub(crate) async fn with_pending(
    session: &Session,
    lanes: &LaneDirectory,
    tenant: &str,
    ids: &[TaskId],
) -> Result<(FoundTasks<Option<Task>, TaskId>, bool), Fault> {
    let wanted: Vec<Uuid> = ids.iter().map(|id| id.uuid()).collect();
    // In this order: what a node takes in between is found among the tasks. Prepared before, so
    // that both are sent at once.
    session.prepare(&[Sql::InboxPending]).await?;
    let (pending, found) = tokio::join!(
        biased;
        async { session.query(Sql::InboxPending, &[&wanted]).await },
        get(session, lanes, tenant, ids),
    );
    Ok((found?, !pending?.is_empty()))
}

/// Reads tasks of one tenant, in the order of the ids. An unreadable row fails the call if its
/// owner asked for it alone. Otherwise it is left out, so that the other tasks are answered.
async fn get(
    session: &Session,
    lanes: &LaneDirectory,
    tenant: &str,
    ids: &[TaskId],
) -> Result<FoundTasks<Option<Task>, TaskId>, Fault> {
    let found = by_ids(session, lanes, ids).await?;
    if let [id] = ids {
        match found.get(id) {
            Some(Err(bad)) if bad.is_of(tenant) => return Err(Fault::Corrupt(bad.describe(*id))),
            None => check_quarantine(session, lanes, tenant, *id).await?,
            _ => {}
        }
    }
    let own = |id: &TaskId| found.get(id)?.as_ref().ok().filter(|task| task.tenant() == tenant).cloned();
    let bad = |found: &FoundTask<TaskId>| found.as_ref().err().filter(|bad| bad.is_live).map(|bad| bad.row);
    Ok(FoundTasks { tasks: ids.iter().map(own).collect(), unreadable: found.values().filter_map(bad).collect() })
}

/// Fails if the task is in quarantine and belongs to the tenant that asks.
async fn check_quarantine(session: &Session, lanes: &LaneDirectory, tenant: &str, id: TaskId) -> Result<(), Fault> {
    let rows = session.query(Sql::QuarantineGet, &[&id.uuid()]).await?;
    let Some(row) = rows.first() else { return Ok(()) };
    let lane = lanes.get_one(session, row.get(0)).await?;
    if is_of(lane.as_ref(), tenant) {
        return Err(Fault::Corrupt(format!("{id}: it is in quarantine: {}", row.get::<_, &str>(1))));
    }
    Ok(())
}

/// Which of these tasks have not finished.
pub(crate) async fn live(session: &Session, ids: &[TaskId]) -> Result<Vec<TaskId>, Fault> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.uuid()).collect();
    let rows = session.query(Sql::TaskLive, &[&ids]).await?;
    Ok(rows.iter().map(|row| TaskId::from_uuid(row.get(0))).collect())
}

/// The states and results of tasks, as far as the results have room.
pub(crate) async fn results(
    session: &Session,
    ids: &[TaskId],
    max_bytes: usize,
) -> Result<Vec<Option<TaskResult>>, Fault> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.uuid()).collect();
    let rows = session.query(Sql::TaskResults, &[&ids, &count_column(max_bytes)]).await?;
    let read = |row: &Row| columns::task_result(row.get::<_, Option<i16>>(0).map(i64::from), row.get(1));
    Ok(rows.iter().map(read).collect())
}

/// Reads tasks, live or final, in one statement: a task that moves meanwhile is found in one of the
/// two tables.
pub(crate) async fn by_ids(
    session: &Session,
    lanes: &LaneDirectory,
    ids: &[TaskId],
) -> Result<HashMap<TaskId, FoundTask<TaskId>>, Fault> {
    let mut wanted: Vec<Uuid> = ids.iter().map(|id| id.uuid()).collect();
    wanted.sort_unstable();
    wanted.dedup();
    let rows = session.query(Sql::TaskGet, &[&wanted]).await?;
    read(session, lanes, &rows).await
}

/// The tasks of rows.
pub(crate) async fn read(
    session: &Session,
    lanes: &LaneDirectory,
    rows: &[Row],
) -> Result<HashMap<TaskId, FoundTask<TaskId>>, Fault> {
    let lanes = lanes.get(session, rows.iter().map(|row| row.get(LANE.0))).await?;
    let mut found: HashMap<TaskId, FoundTask<TaskId>> = HashMap::with_capacity(rows.len());
    for row in rows {
        let id = TaskId::from_uuid(row.get(ID.0));
        let lane = lanes.get(&row.get(LANE.0)).cloned();
        let is_live = row::state(row, STATE.0).is_some_and(|state| !state.is_final());
        let task = task_row::task(row, lane.clone()).map_err(|fault| BadRow { row: id, is_live, lane, fault });
        // A task that was submitted again under its old id is live; its history row is the past.
        if is_live || !found.contains_key(&id) {
            found.insert(id, task);
        }
    }
    Ok(found)
}
