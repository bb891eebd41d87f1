//! Receives the notifications of the other nodes: waiting tasks, free partitions, changed queues.
//!
//! It has a connection of its own. The serving node subscribes to it. A subscriber gets
//! [`Wake::Everything`] after a lost connection, or if it was too slow. Notifications are hints:
//! the sweep every few seconds must suffice without them.

use std::sync::Arc;
use std::time::Duration;

use punctual_core::lane::Lane;
use punctual_core::time::Timestamp;
use tokio::sync::{broadcast, mpsc};
use tokio_postgres::AsyncMessage;
use tracing::debug;

use super::notifier::{CHANNEL, Notification, NotificationKind};
use crate::postgres::connection::Session;
use crate::postgres::fault::Fault;
use crate::postgres::writer::WriterShared;

/// The maximum number of wakes that wait for a slow subscriber.
const WAKES_MAX: usize = 1_024;

/// How often the connection is checked, and about how long to wait before a reconnect.
const PING_INTERVAL: Duration = Duration::from_secs(1);

/// A notification of another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wake {
    /// A task of this lane waits, due at this instant.
    Lane(Arc<Lane>, Timestamp),
    /// Partitions have become free.
    Partitions,
    /// Notifications may have been missed: tasks may wait in any lane, and partitions may be free.
    Everything,
}

/// A subscription to the notifications of other nodes.
pub struct Wakes(broadcast::Receiver<Wake>);

impl Wakes {
    /// Waits for the next wake; none when the store is closed.
    pub async fn next(&mut self) -> Option<Wake> {
        match self.0.recv().await {
            Ok(wake) => Some(wake),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(Wake::Everything),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

/// The listener (see the module).
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

    /// Notifies this process of a waiting task.
    pub(crate) fn notify_local(&self, lane: &Arc<Lane>, due_at: Timestamp) {
        // There may be no subscriber.
        self.wakes.send(Wake::Lane(Arc::clone(lane), due_at)).ok();
    }

    /// Listens until it is aborted.
    pub(crate) async fn run(self: Arc<Self>, shared: Arc<WriterShared>) {
        loop {
            if let Err(fault) = self.listen(&shared).await {
                debug!(error = %fault.to_store_error(), "cannot listen for notifications; reconnecting");
            }
            tokio::time::sleep(PING_INTERVAL.mul_f64(0.5 + rand::random::<f64>())).await;
        }
    }

    async fn listen(&self, shared: &WriterShared) -> Result<(), Fault> {
        let (received, mut notifications) = mpsc::unbounded_channel();
        let session = Session::open_listening(&shared.address, &[], move |message| {
            if let AsyncMessage::Notification(notification) = message {
                drop(received.send(Notification::parse(notification.payload())));
            }
        })
        .await?;
        session.run(&format!("LISTEN {CHANNEL}")).await?;
        // Earlier notifications are missed.
        self.notify_everything(shared);
        loop {
            match tokio::time::timeout(PING_INTERVAL, notifications.recv()).await {
                Ok(Some(notification)) if notification.node == shared.node => {}
                Ok(Some(notification)) => self.pass_on(shared, &session, notification.kind).await?,
                Ok(None) => return Ok(()),
                // An idle connection does not notice a lost server.
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
                // There may be no subscriber.
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
