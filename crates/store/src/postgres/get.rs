//! Reads whole tasks by their ids, live or finished.

use std::collections::HashMap;
use std::sync::Arc;

use punctual_core::ids::TaskId;
use punctual_core::lane::Lane;
use punctual_core::task::Task;
use tokio_postgres::Row;
use uuid::Uuid;

use super::connection::Session;
use super::fault::Fault;
use super::lanes::LaneDirectory;
use super::row;
use super::statements::Sql;
use crate::columns::Unreadable;

/// A row that exists but cannot be read.
#[derive(Clone, Debug)]
pub(crate) struct BadRow {
    pub is_live: bool,
    pub lane: Option<Arc<Lane>>,
    pub fault: Unreadable,
}

/// The task that was found, or the row that could not be read.
pub(crate) type FoundTask = Result<Task, BadRow>;

/// The tasks that were found by their ids.
pub(crate) struct Got {
    /// In the order of the ids.
    pub tasks: Vec<Option<Task>>,
    /// Unreadable live rows that were left out of the answer.
    pub unreadable: Vec<TaskId>,
}

/// Reads tasks of one tenant. An unreadable row fails the call if its owner asked for it alone.
/// Otherwise it is left out, so that the other tasks are answered.
pub(crate) async fn get(session: &Session, lanes: &LaneDirectory, tenant: &str, ids: &[TaskId]) -> Result<Got, Fault> {
    let found = by_ids(session, lanes, ids).await?;
    if let [id] = ids {
        match found.get(id) {
            Some(Err(bad)) if is_of(bad.lane.as_ref(), tenant) => {
                return Err(Fault::Corrupt(format!("{id}: its {} cannot be read", bad.fault.0)));
            }
            None => quarantined(session, lanes, tenant, *id).await?,
            _ => {}
        }
    }
    let own = |id: &TaskId| found.get(id)?.as_ref().ok().filter(|task| task.tenant() == tenant).cloned();
    let bad = |(id, found): (&TaskId, &FoundTask)| found.as_ref().is_err_and(|bad| bad.is_live).then_some(*id);
    Ok(Got { tasks: ids.iter().map(own).collect(), unreadable: found.iter().filter_map(bad).collect() })
}

fn is_of(lane: Option<&Arc<Lane>>, tenant: &str) -> bool {
    lane.is_some_and(|lane| lane.key.tenant == tenant)
}

/// Fails if the task is in quarantine and belongs to the tenant that asks.
async fn quarantined(session: &Session, lanes: &LaneDirectory, tenant: &str, id: TaskId) -> Result<(), Fault> {
    let rows = session.query(Sql::QuarantineGet, &[&id.uuid()]).await?;
    let Some(row) = rows.first() else { return Ok(()) };
    let lane = lanes.get_one(session, row.get(0)).await?;
    if is_of(lane.as_ref(), tenant) {
        return Err(Fault::Corrupt(format!("{id}: it is in quarantine: {}", row.get::<_, &str>(1))));
    }
    Ok(())
}

/// Reads tasks, live or final, in one statement: a task that moves meanwhile is found in one of the
/// two tables.
pub(crate) async fn by_ids(
    session: &Session,
    lanes: &LaneDirectory,
    ids: &[TaskId],
) -> Result<HashMap<TaskId, FoundTask>, Fault> {
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
) -> Result<HashMap<TaskId, FoundTask>, Fault> {
    let lanes = lanes.get(session, rows.iter().map(|row| row.get(row::LANE))).await?;
    let mut found: HashMap<TaskId, FoundTask> = HashMap::with_capacity(rows.len());
    for row in rows {
        let id = TaskId::from_uuid(row.get(row::ID));
        let lane = lanes.get(&row.get(row::LANE)).cloned();
        let is_live = row::state(row, row::STATE).is_ok_and(|state| !state.is_final());
        let task = row::task(row, lane.clone()).map_err(|fault| BadRow { is_live, lane, fault });
        // A task that was submitted again under its old id is live; its history row is the past.
        if is_live || !found.contains_key(&id) {
            found.insert(id, task);
        }
    }
    Ok(found)
}
