//! Receives the notifications of the other nodes: waiting tasks, free partitions, changed queues.
//!
//! It has a connection of its own. The serving node subscribes to it. After a lost connection, or
//! when a subscriber was too slow, the subscriber is told to look at everything. Notifications are
//! hints: the sweep every few seconds must suffice without them.

use std::sync::Arc;
use std::time::Duration;

use punctual_core::lane::Lane;
use punctual_core::time::Timestamp;
use tokio::sync::{broadcast, mpsc};
use tokio_postgres::AsyncMessage;
use tracing::debug;

use super::notifier::{CHANNEL, NotificationKind, read};
use crate::postgres::connection::Session;
use crate::postgres::fault::Fault;
use crate::postgres::writer::WriterShared;

/// What may wait for a slow subscriber.
const WAKES_MAX: usize = 1_024;

/// How often the connection is looked at, and how long to wait before the next attempt to connect.
const PING_INTERVAL: Duration = Duration::from_secs(1);

/// What another node told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wake {
    /// A task of this lane waits, and is due then.
    Lane(Arc<Lane>, Timestamp),
    /// Partitions have become free: whoever takes its turn now may get some.
    Partitions,
    /// Anything may have been told and missed: tasks may wait in any lane, and partitions may be
    /// free.
    Everything,
}

/// What the other nodes tell from now on.
pub struct Wakes(broadcast::Receiver<Wake>);

impl Wakes {
    /// Waits for the next; none when the store is closed.
    pub async fn next(&mut self) -> Option<Wake> {
        match self.0.recv().await {
            Ok(wake) => Some(wake),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(Wake::Everything),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

/// Where one subscribes (see the module).
pub(crate) struct Listener {
    wakes: broadcast::Sender<Wake>,
}

impl Listener {
    pub(crate) fn new() -> Self {
        Self { wakes: broadcast::Sender::new(WAKES_MAX) }
    }

    pub(crate) fn subscribe(&self) -> Wakes {
        Wakes(self.wakes.subscribe())
    }

    /// Tells this process itself of a task that waits.
    pub(crate) fn notify_local(&self, lane: &Arc<Lane>, due_at: Timestamp) {
        // Nobody may have subscribed.
        self.wakes.send(Wake::Lane(Arc::clone(lane), due_at)).ok();
    }

    /// Listens until it is aborted.
    pub(crate) async fn run(self: Arc<Self>, shared: Arc<WriterShared>) {
        loop {
            if let Err(fault) = self.listen(&shared).await {
                debug!(fault = %fault.to_store_error(), "cannot listen for notifications; reconnecting");
            }
            tokio::time::sleep(PING_INTERVAL.mul_f64(0.5 + rand::random::<f64>())).await;
        }
    }

    async fn listen(&self, shared: &WriterShared) -> Result<(), Fault> {
        let (hear, mut heard) = mpsc::unbounded_channel();
        let session = Session::open_listening(&shared.address, &[], move |message| {
            if let AsyncMessage::Notification(notification) = message {
                drop(hear.send(read(notification.payload())));
            }
        })
        .await?;
        session.run(&format!("LISTEN {CHANNEL}")).await?;
        // Whatever was told before is missed.
        self.notify_everything(shared);
        loop {
            match tokio::time::timeout(PING_INTERVAL, heard.recv()).await {
                Ok(Some(told)) if told.node == shared.node => {}
                Ok(Some(told)) => self.pass_on(shared, &session, told.kind).await?,
                Ok(None) => return Ok(()),
                // A connection that nothing is sent on does not notice that its server is gone.
                Err(_) => session.run("SELECT 1").await?,
            }
        }
    }

    async fn pass_on(&self, shared: &WriterShared, session: &Session, kind: NotificationKind) -> Result<(), Fault> {
        let waiting = match kind {
            NotificationKind::Lanes(waiting) => waiting,
            NotificationKind::Everything => {
                self.notify_everything(shared);
                return Ok(());
            }
            NotificationKind::Partitions => {
                self.wakes.send(Wake::Partitions).ok();
                return Ok(());
            }
            NotificationKind::Queues => {
                shared.limits.watch.changed();
                return Ok(());
            }
            NotificationKind::Freed(lanes) => {
                for lane in shared.lanes.get(session, lanes).await?.values() {
                    shared.limits.watch.freed(&lane.key.tenant, &lane.key.queue);
                }
                return Ok(());
            }
        };
        shared.cursors.put(waiting.iter().copied());
        let lanes = shared.lanes.get(session, waiting.iter().map(|(lane, _)| *lane)).await?;
        for (lane, due_at) in waiting {
            if let Some(lane) = lanes.get(&lane) {
                // Nobody may have subscribed.
                self.wakes.send(Wake::Lane(Arc::clone(lane), Timestamp::from_millis(due_at))).ok();
            }
        }
        Ok(())
    }

    fn notify_everything(&self, shared: &WriterShared) {
        shared.cursors.doubt_all();
        shared.limits.watch.changed();
        self.wakes.send(Wake::Everything).ok();
    }
}
