//! The inbox: submissions by SQL. `punctual.enqueue` puts rows into it, inside a transaction of the
//! submitter, and the nodes turn them into tasks.
//!
//! `serve` runs [`PostgresStore::receive`] on every node that schedules or serves, with a validator
//! that knows the rules of all submissions. It has a connection of its own, which also receives the
//! notifications of committed submissions. Rows are locked, turned into tasks and removed in one
//! transaction (`batch`), so a node may die at any point. A scan finds rows that no notification
//! named (`pacing`). Rows that a call of this process names are taken at once (`demand`). A row
//! that cannot become a task moves to `inbox_refused` with the reason and never holds up others.
//! Cancellations by SQL are applied on the same connection (`cancels`).

mod batch;
mod cancels;
mod demand;
mod pacing;

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use punctual_core::ids::TaskId;
use punctual_core::store::StoreError;
use punctual_core::task::NewTask;
use punctual_core::time::Timestamp;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_postgres::AsyncMessage;
use tracing::{info, warn};

use super::connection::Session;
use super::fault::Fault;
use super::statements::{OF_INBOX, Sql};
use super::writer::Writer;
use super::{PostgresStore, slots};
use crate::columns::count_column;
use batch::{Batches, InboxRows};
use cancels::{CANCELS_MAX, Cancellations};
use demand::InboxDemand;
pub(crate) use demand::InboxDemands;
use pacing::{InboxPacing, WATCH_DURATION};

/// The channel on which `punctual.enqueue` announces its transaction, …
const CHANNEL: &str = "punctual_inbox";

/// … and `punctual.cancel` sends this.
const CANCELS: &str = "cancels";

/// The maximum number of announced transactions that wait; a scan finds further ones.
const PENDING_TRANSACTIONS_MAX: usize = 1_024;

/// The number of shards of `counts` that a node has; the inbox uses the last one.
const SLOTS_MAX: usize = 64;

/// The maximum wait before the next attempt to connect: at first, and after many failures.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// A submission in the inbox.
#[derive(Clone, Debug)]
pub struct EnqueuedTask {
    /// The id that the submitter got.
    pub id: TaskId,
    /// The tenant that submitted it.
    pub tenant: String,
    /// When it was submitted.
    pub created_at: Timestamp,
    /// Its content, as the body of `POST /v1/tasks`.
    pub submission: String,
}

/// Makes a task of a submission, or fails with the reason.
pub type InboxValidator = Arc<dyn Fn(&EnqueuedTask) -> Result<NewTask, String> + Send + Sync>;

impl PostgresStore {
    /// Takes submissions until `stop` is ready. `payload_bytes` becomes the maximum payload of
    /// `punctual.enqueue`.
    pub async fn receive(&self, validate: InboxValidator, payload_bytes: usize, stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        let mut demands = self.shared.inbox_demands.open();
        let (mut backoff, mut is_away) = (BACKOFF.0, false);
        loop {
            let begun = Instant::now();
            let connection = self.connect_inbox(&validate, payload_bytes);
            let receiving = async { connection.await?.run(self, &mut demands, &mut is_away, stop.as_mut()).await };
            let Err(fault) = Box::pin(receiving).await else { return };
            if begun.elapsed() > BACKOFF.1 {
                backoff = BACKOFF.0;
            }
            // Once per outage.
            if !std::mem::replace(&mut is_away, true) {
                warn!(error = %fault.to_store_error(), "cannot take submissions by SQL; they wait until the connection is back");
            }
            backoff = (backoff * 2).min(BACKOFF.1);
            tokio::select! {
                () = stop.as_mut() => return,
                () = tokio::time::sleep(backoff.mul_f64(rand::random())) => {}
            }
        }
    }

    /// Removes at most `limit` keys that were used before `before`, and as many submissions that
    /// were refused before it; returns how many were removed.
    pub async fn prune_inbox(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let (before, limit) = (before.as_millis(), count_column(limit));
        let prune = async |session: &Session| {
            let keys = session.execute(Sql::InboxKeysPrune, &[&before, &limit]).await?;
            Ok(keys + session.execute(Sql::InboxRefusedPrune, &[&before, &limit]).await?)
        };
        self.reads().call(prune).await
    }

    /// Connects for the announcements and the rows.
    async fn connect_inbox<'v>(
        &self,
        validate: &'v InboxValidator,
        payload_bytes: usize,
    ) -> Result<InboxConnection<'v>, Fault> {
        let (announce, announced) = mpsc::channel(PENDING_TRANSACTIONS_MAX);
        let cancelled = Arc::new(Notify::new());
        let note_cancels = Arc::clone(&cancelled);
        let receive = move |message| {
            let AsyncMessage::Notification(notification) = message else { return };
            if notification.payload() == CANCELS {
                note_cancels.notify_one();
            } else if let Ok(transaction) = notification.payload().parse::<i64>() {
                // A scan finds one that does not fit.
                announce.try_send(transaction).ok();
            }
        };
        let shared = Arc::clone(&self.shared.writers);
        let session = Session::open_listening(&shared.address, OF_INBOX, receive).await?;
        session.run(&format!("LISTEN {CHANNEL}")).await?;
        session.execute(Sql::InboxLimit, &[&i32::try_from(payload_bytes).unwrap_or(i32::MAX)]).await?;
        let slot = slots(shared.node, SLOTS_MAX).last().unwrap_or_default();
        let writer = Writer::new(shared, session, slot);
        let (connections, listener) = (Arc::clone(&self.shared.leases), Arc::clone(&self.shared.listener));
        let batches = Batches { writer, connections, listener, validate, parents: Vec::new() };
        Ok(InboxConnection { batches, pacing: InboxPacing::new(announced), cancelled, has_cancelled: false })
    }
}

/// A connection on which rows are taken and cancellations applied.
struct InboxConnection<'v> {
    batches: Batches<'v>,
    pacing: InboxPacing,
    /// Notified by the announcements of cancellations, and while some are left.
    cancelled: Arc<Notify>,
    /// Whether the last work was on cancellations.
    has_cancelled: bool,
}

impl InboxConnection<'_> {
    /// Works until `stop` is ready; fails when the connection breaks. The first success after an
    /// outage is logged and clears `is_away`.
    async fn run(
        mut self,
        store: &PostgresStore,
        demands: &mut mpsc::Receiver<InboxDemand>,
        is_away: &mut bool,
        mut stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), Fault> {
        loop {
            tokio::select! {
                biased;
                () = stop.as_mut() => return Ok(()),
                Some(demand) = demands.recv() => self.batches.serve(demand, store).await?,
                // A flood of cancellations alternates with the submissions.
                () = self.cancelled.notified(), if !self.has_cancelled => self.cancel(store).await?,
                which = self.pacing.next() => self.take(which?, store).await?,
                () = self.cancelled.notified() => self.cancel(store).await?,
            }
            if std::mem::take(is_away) {
                info!("submissions by SQL are taken again");
            }
        }
    }

    /// Applies cancellations. A full transaction may have left some.
    async fn cancel(&mut self, store: &PostgresStore) -> Result<(), Fault> {
        self.has_cancelled = true;
        if self.batches.cancel(Cancellations::Front, store).await? >= CANCELS_MAX {
            self.cancelled.notify_one();
        }
        Ok(())
    }

    /// Takes the next rows. A scan finds cancellations that were not announced, too.
    async fn take(&mut self, which: InboxRows<'_>, store: &PostgresStore) -> Result<(), Fault> {
        self.has_cancelled = false;
        let begun = Instant::now();
        let found = self.batches.take(which).await?;
        self.pacing.taken(which, found, begun.elapsed());
        if which == InboxRows::Front {
            self.cancel(store).await?;
        }
        if self.pacing.wants_to_watch() {
            let watch = i64::try_from(WATCH_DURATION.as_millis()).unwrap_or_default();
            self.batches.writer.session.execute(Sql::InboxWatch, &[&watch]).await?;
            self.pacing.watches();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
