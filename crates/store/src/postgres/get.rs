//! Reads whole tasks by their ids, wherever they are.

use std::collections::HashMap;
use std::sync::Arc;

use punctual_core::ids::TaskId;
use punctual_core::lane::Lane;
use punctual_core::task::Task;
use tokio_postgres::Row;
use uuid::Uuid;

use super::fault::Fault;
use super::lanes::Lanes;
use super::row;
use super::session::Session;
use super::statements::Sql;
use crate::columns::Unreadable;

/// A row that is there but cannot be read.
#[derive(Clone, Debug)]
pub(crate) struct BadRow {
    pub is_live: bool,
    pub lane: Option<Arc<Lane>>,
    pub fault: Unreadable,
}

/// What was found where a task was looked for.
pub(crate) type Found = Result<Task, BadRow>;

/// Reads tasks of one tenant. A row that cannot be read fails the call if it is all that was asked for; in a batch it is
/// left out, so that the others get their answer.
pub(crate) async fn get(
    session: &Session,
    lanes: &Lanes,
    tenant: &str,
    ids: &[TaskId],
) -> Result<Vec<Option<Task>>, Fault> {
    let found = by_ids(session, lanes, ids).await?;
    if let [id] = ids {
        return one(session, lanes, tenant, *id, found.get(id)).await.map(|task| vec![task]);
    }
    let own = |id: &TaskId| found.get(id)?.as_ref().ok().filter(|task| task.tenant() == tenant).cloned();
    Ok(ids.iter().map(own).collect())
}

async fn one(
    session: &Session,
    lanes: &Lanes,
    tenant: &str,
    id: TaskId,
    found: Option<&Found>,
) -> Result<Option<Task>, Fault> {
    let (lane, reason) = match found {
        Some(Ok(task)) => return Ok((task.tenant() == tenant).then(|| task.clone())),
        Some(Err(bad)) => (bad.lane.clone(), format!("its {} cannot be read", bad.fault.0)),
        None => match session.query(Sql::QuarantineGet, &[&id.uuid()]).await?.first() {
            Some(row) => {
                let reason: String = row.get(1);
                (lanes.get_one(session, row.get(0)).await?, format!("it is in quarantine: {reason}"))
            }
            None => return Ok(None),
        },
    };
    match lane {
        Some(lane) if lane.key.tenant == tenant => Err(Fault::Corrupt(format!("{id}: {reason}"))),
        _ => Ok(None),
    }
}

/// Reads tasks, live or final, in one statement: one that moves meanwhile is found in one place or the other.
pub(crate) async fn by_ids(session: &Session, lanes: &Lanes, ids: &[TaskId]) -> Result<HashMap<TaskId, Found>, Fault> {
    let mut wanted: Vec<Uuid> = ids.iter().map(|id| id.uuid()).collect();
    wanted.sort_unstable();
    wanted.dedup();
    let rows = session.query(Sql::TaskGet, &[&wanted]).await?;
    read(session, lanes, &rows).await
}

/// The tasks of rows.
pub(crate) async fn read(session: &Session, lanes: &Lanes, rows: &[Row]) -> Result<HashMap<TaskId, Found>, Fault> {
    let lanes = lanes.get(session, rows.iter().map(|row| row.get(row::LANE))).await?;
    let mut found: HashMap<TaskId, Found> = HashMap::with_capacity(rows.len());
    for row in rows {
        let id = TaskId::from_uuid(row.get(row::ID));
        let lane = lanes.get(&row.get(row::LANE)).cloned();
        let is_live = row::state(row, row::STATE).is_ok_and(|state| !state.is_final());
        let task = row::task(row, lane.clone()).map_err(|fault| BadRow { is_live, lane, fault });
        // A task that was submitted again under its old id lives; the history tells of its past.
        if is_live || !found.contains_key(&id) {
            found.insert(id, task);
        }
    }
    Ok(found)
}
