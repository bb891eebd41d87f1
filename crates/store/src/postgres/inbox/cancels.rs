//! Cancellations by SQL: `punctual.cancel` puts a row into `inbox_cancels`, inside a transaction of
//! its caller, and the nodes cancel the task as they do for a client.
//!
//! No claim takes a task that has such a row. The row is removed after the task is cancelled, so a
//! node may die at any point: the next one finds the task cancelled and removes the row. With it
//! goes a submission that was set aside, so that nobody puts back what was cancelled.

use std::collections::{BTreeSet, HashSet};

use punctual_core::ids::TaskId;
use punctual_core::state::{By, Change, Event, transition};
use punctual_core::store::{Applied, Store, StoreError};
use punctual_core::trail::Actor;
use tracing::{info, warn};
use uuid::Uuid;

use super::super::PostgresStore;
use super::super::fault::Fault;
use super::super::get;
use super::super::statements::Sql;
use super::batch::{BATCH_ROWS_MAX, Batches, InboxRows};
use crate::columns::count_column;

/// The maximum number of cancellations in one transaction.
pub(super) const CANCELS_MAX: usize = BATCH_ROWS_MAX;

/// How often a lost race is run again. What still waits then is left for the next scan.
const ROUNDS: usize = 16;

/// Cancellations to apply.
#[derive(Clone, Copy)]
pub(super) enum Cancellations<'a> {
    /// The oldest ones.
    Front,
    /// Those of the tasks with these ids.
    These(&'a [Uuid]),
}

impl Batches<'_> {
    /// Applies cancellations that wait, as many as one transaction takes; returns how many.
    pub(super) async fn cancel(&mut self, which: Cancellations<'_>, store: &PostgresStore) -> Result<usize, Fault> {
        let most = count_column(CANCELS_MAX);
        if let Cancellations::Front = which {
            // A submission becomes a task first, and is cancelled as one.
            let enqueued = self.writer.session.query(Sql::InboxCancelled, &[&most]).await?;
            if !enqueued.is_empty() {
                let ids: Vec<Uuid> = enqueued.iter().map(|row| row.get(0)).collect();
                self.take(InboxRows::These(&ids)).await?;
            }
        }
        let session = &self.writer.session;
        let rows = match which {
            Cancellations::Front => session.begin(Sql::InboxCancels, &[&most]).await?,
            Cancellations::These(ids) => session.begin(Sql::InboxCancelsThese, &[&ids]).await?,
        };
        if rows.is_empty() {
            session.run("ROLLBACK").await?;
            return Ok(0);
        }
        let ids: BTreeSet<TaskId> = rows.iter().map(|row| TaskId::from_uuid(row.get(1))).collect();
        let left = match cancel_tasks(store, ids.into_iter().collect()).await {
            Ok(left) => left,
            Err(error) => {
                warn!(%error, "cannot cancel tasks as SQL asked; the next scan of the inbox tries again");
                session.run("ROLLBACK").await?;
                return Ok(0);
            }
        };
        let is_done = |id: Uuid| !left.contains(&TaskId::from_uuid(id));
        let done: Vec<i64> = rows.iter().filter(|row| is_done(row.get(1))).map(|row| row.get(0)).collect();
        let set_aside = session.query(Sql::InboxCancelsRemove, &[&done]).await?;
        session.run("COMMIT").await?;
        if let Some(row) = set_aside.first() {
            let (task, others) = (TaskId::from_uuid(row.get(0)), set_aside.len() - 1);
            info!(task.id = %task, others, "a submission by SQL that was set aside is cancelled; it is removed");
        }
        Ok(done.len())
    }
}

/// Cancels those of the tasks that are not final. Returns those that changed each time.
async fn cancel_tasks(store: &PostgresStore, mut ids: Vec<TaskId>) -> Result<HashSet<TaskId>, StoreError> {
    for _ in 0..ROUNDS {
        if ids.is_empty() {
            break;
        }
        let found = store.reads().call(async |session| get::by_ids(session, store.lanes(), &ids).await).await?;
        let by = By { now: store.now(), node: store.node(), actor: Actor::Sql };
        let changes: Vec<(TaskId, Change)> = found
            .into_iter()
            .filter_map(|(id, task)| {
                let task = task.ok()?;
                // Refused if it is final, or was asked to stop before.
                let change = transition(&task.position, Event::Cancel, &by).ok()?;
                Some((id, change.shortening(&task.trail)))
            })
            .collect();
        ids = changes.iter().map(|(id, _)| *id).collect();
        let mut applied = store.apply(changes).await?.into_iter();
        ids.retain(|_| matches!(applied.next(), Some(Applied::Lost)));
    }
    Ok(ids.into_iter().collect())
}
