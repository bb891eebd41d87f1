//! Submissions and cancellations by SQL that a call of this process cannot wait for: they go before
//! all others.
//!
//! `ports` calls [`PostgresStore::take_in`] for tasks that a call reads or names as dependencies.
//! So a task can be read, changed and depended on as soon as the transaction that submitted it has
//! committed, and is read as cancelled as soon as the one that cancelled it has.

use std::time::Duration;

use parking_lot::Mutex;
use punctual_core::ids::TaskId;
use punctual_core::store::StoreError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};
use tokio_postgres::Row;
use uuid::Uuid;

use super::super::PostgresStore;
use super::super::fault::Fault;
use super::super::statements::Sql;
use super::batch::{BATCH_ROWS_MAX, Batches, InboxRows, TakenPart};
use super::cancels::Cancellations;

/// The maximum number of demands that wait for the receiver; further callers wait to send theirs.
const DEMANDS_MAX: usize = 1_024;

/// A call gives up if no row was taken for so long: another node that is frozen may have locked it.
const PATIENCE: Duration = Duration::from_secs(2);

/// The pause before rows that another node has locked are looked at again.
const PAUSE: Duration = Duration::from_millis(5);

/// Tasks whose rows a caller waits for. It is answered whether something was done.
pub(crate) struct InboxDemand {
    ids: Vec<Uuid>,
    done: oneshot::Sender<bool>,
}

impl InboxDemand {
    /// A demand for these rows, answered on `done`.
    pub(super) fn new(ids: Vec<Uuid>, done: oneshot::Sender<bool>) -> Self {
        Self { ids, done }
    }
}

/// Where the calls of this process demand rows of its receiver.
#[derive(Default)]
pub(crate) struct InboxDemands(Mutex<Option<mpsc::Sender<InboxDemand>>>);

impl InboxDemands {
    /// The demands from now on, for the receiver.
    pub(super) fn open(&self) -> mpsc::Receiver<InboxDemand> {
        let (sender, receiver) = mpsc::channel(DEMANDS_MAX);
        *self.0.lock() = Some(sender);
        receiver
    }

    /// Demands rows. Returns whether something was done; none if this process has no receiver.
    async fn demand(&self, ids: Vec<Uuid>) -> Option<bool> {
        let sender = self.0.lock().clone()?;
        let (done, answer) = oneshot::channel();
        sender.send(InboxDemand::new(ids, done)).await.ok()?;
        Some(answer.await.unwrap_or(false))
    }
}

impl PostgresStore {
    /// Makes tasks of those of the ids that wait in the inbox, and cancels those that SQL has
    /// cancelled. A process without a receiver leaves them. Fails if one cannot be made: whether it
    /// exists cannot be said.
    pub(crate) async fn take_in(&self, ids: &[TaskId]) -> Result<(), StoreError> {
        if ids.is_empty() {
            return Ok(());
        }
        let ids: Vec<Uuid> = ids.iter().map(|id| id.uuid()).collect();
        let (mut fewest, mut progress_at) = (usize::MAX, Instant::now());
        loop {
            let pending = self.reads().call(async |session| session.query(Sql::InboxPending, &[&ids]).await).await?;
            if pending.is_empty() {
                return Ok(());
            } else if pending.len() < fewest {
                (fewest, progress_at) = (pending.len(), Instant::now());
            } else if progress_at.elapsed() > PATIENCE {
                return give_up(&pending);
            }
            let some = pending.iter().take(BATCH_ROWS_MAX).map(|row| row.get(0)).collect();
            match timeout(PATIENCE, self.shared.inbox_demands.demand(some)).await {
                Ok(None) => return Ok(()),
                Ok(Some(true)) => {}
                Ok(Some(false)) => tokio::time::sleep(PAUSE).await,
                Err(_) => return give_up(&pending),
            }
        }
    }
}

/// A task that is still to be cancelled can be read as it is.
fn give_up(pending: &[Row]) -> Result<(), StoreError> {
    if pending.iter().any(|row| row.get(1)) {
        let message = "a task that was submitted by SQL cannot be taken from the inbox at present";
        return Err(StoreError::Unavailable(message.to_owned()));
    }
    Ok(())
}

impl Batches<'_> {
    /// Does what was demanded.
    pub(super) async fn serve(&mut self, demand: InboxDemand, store: &PostgresStore) -> Result<(), Fault> {
        let taken = self.take(InboxRows::These(&demand.ids)).await? != TakenPart::Nothing;
        let cancelled = self.cancel(Cancellations::These(&demand.ids), store).await? > 0;
        // A caller that has gone needs no answer.
        demand.done.send(taken || cancelled).ok();
        Ok(())
    }
}
