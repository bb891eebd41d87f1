//! Makes tasks of what was submitted by SQL: `punctual.enqueue` puts it into the inbox, inside a
//! transaction of its submitter's own, and the nodes take it from there.
//!
//! `serve` runs [`PostgresStore::receive`] on every node that schedules or serves, and gives it
//! the validate: the rules are those of every other submission, and not known here. It has a
//! connection of its own, on which it also hears of transactions that were committed. Rows are
//! locked, made tasks and taken out of the inbox in one transaction (`batch`), so that a node
//! may die between any two lines; what a notification did not tell of is found by looking
//! (`pacing`). A row that cannot become a task is put aside with the reason, and never holds up
//! others.

mod batch;
mod pacing;

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use punctual_core::ids::TaskId;
use punctual_core::store::StoreError;
use punctual_core::task::NewTask;
use punctual_core::time::Timestamp;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_postgres::AsyncMessage;
use tracing::{info, warn};

use super::connection::Session;
use super::fault::Fault;
use super::outbox::OutboxNotes;
use super::statements::{OF_INBOX, Sql};
use super::writer::Writer;
use super::{PostgresStore, slots};
use crate::columns::count_column;
use crate::tally::TransactionTally;
use batch::Batches;
use pacing::{InboxPacing, WATCH_DURATION};

/// The channel on which `punctual.enqueue` tells of its transaction.
const CHANNEL: &str = "punctual_inbox";

/// Transactions that were told of and not looked for yet; further ones are found by looking.
const PENDING_TRANSACTIONS_MAX: usize = 1_024;

/// The connections of a node that have a slot of their own for their counts, this one the last of
/// them.
const SLOTS_MAX: usize = 64;

/// How long to wait at the most before the next attempt to connect: at first, and after many
/// failures.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// A submission as it lies in the inbox.
#[derive(Clone, Debug)]
pub struct EnqueuedTask {
    /// What its submitter knows the task by.
    pub id: TaskId,
    /// Whose it is.
    pub tenant: String,
    /// When it was submitted.
    pub created_at: Timestamp,
    /// What was submitted, as the body of `POST /v1/tasks`.
    pub submission: String,
}

/// Makes a task of a submission, or says why not.
pub type InboxValidator = Arc<dyn Fn(&EnqueuedTask) -> Result<NewTask, String> + Send + Sync>;

impl PostgresStore {
    /// Takes what is in the inbox until told to stop, and has submitters held to payloads of so
    /// many bytes.
    pub async fn receive(&self, validate: InboxValidator, payload_bytes: usize, stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        let (mut backoff, mut is_away) = (BACKOFF.0, false);
        loop {
            let begun = Instant::now();
            let Err(fault) = self.tend(&validate, payload_bytes, &mut is_away, stop.as_mut()).await else { return };
            if begun.elapsed() > BACKOFF.1 {
                backoff = BACKOFF.0;
            }
            // Once, and not as long as it lasts.
            if !std::mem::replace(&mut is_away, true) {
                warn!(fault = %fault.to_store_error(), "what was submitted by SQL cannot be taken now; it waits");
            }
            backoff = (backoff * 2).min(BACKOFF.1);
            tokio::select! {
                () = stop.as_mut() => return,
                () = tokio::time::sleep(backoff.mul_f64(rand::random())) => {}
            }
        }
    }

    /// Removes at most `limit` of each: keys that were used before `before`, and what was refused
    /// before it; gives how many there were.
    pub async fn prune_inbox(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let (before, limit) = (before.as_millis(), count_column(limit));
        let prune = async |session: &Session| {
            let keys = session.execute(Sql::InboxKeysPrune, &[&before, &limit]).await?;
            Ok(keys + session.execute(Sql::InboxRefusedPrune, &[&before, &limit]).await?)
        };
        self.reads().call(prune).await
    }

    /// Takes on one connection, for as long as it lasts. When something could be taken again after
    /// it `is_away`, that is told, and over.
    async fn tend(
        &self,
        validate: &InboxValidator,
        payload_bytes: usize,
        is_away: &mut bool,
        mut stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), Fault> {
        let (tell, told) = mpsc::channel(PENDING_TRANSACTIONS_MAX);
        let hear = move |message| {
            if let AsyncMessage::Notification(notification) = message
                && let Ok(transaction) = notification.payload().parse::<i64>()
            {
                // One too many is found by looking.
                tell.try_send(transaction).ok();
            }
        };
        let shared = Arc::clone(&self.shared.writers);
        let session = Session::open_listening(&shared.address, OF_INBOX, hear).await?;
        session.run(&format!("LISTEN {CHANNEL}")).await?;
        session.execute(Sql::InboxLimit, &[&i32::try_from(payload_bytes).unwrap_or(i32::MAX)]).await?;
        let slot = slots(shared.node, SLOTS_MAX).last().unwrap_or_default();
        let writer =
            Writer { shared, session, tally: TransactionTally::default(), notes: OutboxNotes::default(), slot };
        let (connections, listener) = (Arc::clone(&self.shared.leases), Arc::clone(&self.shared.listener));
        let mut batches = Batches { writer, connections, listener, validate };
        let mut pacing = InboxPacing::new(told);
        let watch = i64::try_from(WATCH_DURATION.as_millis()).unwrap_or_default();
        loop {
            let which = tokio::select! {
                biased;
                () = stop.as_mut() => return Ok(()),
                which = pacing.next() => which?,
            };
            let begun = Instant::now();
            let found = batches.take(which).await?;
            if std::mem::take(is_away) {
                info!("what was submitted by SQL is taken again");
            }
            pacing.taken(which, found, begun.elapsed());
            if pacing.wants_to_watch() {
                batches.writer.session.execute(Sql::InboxWatch, &[&watch]).await?;
                pacing.watches();
            }
        }
    }
}
