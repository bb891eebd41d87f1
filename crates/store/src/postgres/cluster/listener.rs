//! Receives the notifications of the other nodes: waiting tasks, free partitions, changed queues.
//!
//! It has a connection of its own, which also holds the lock of this node (`node_lock.rs`). The
//! serving node subscribes to it. A subscriber gets
//! [`Wake::Everything`] after a lost connection, or if it was too slow. Notifications are hints:
//! the sweep every few seconds must suffice without them. Every role of the database can send them,
//! so a flood is bounded (`Intake`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use punctual_core::lane::Lane;
use punctual_core::time::Timestamp;
use tokio::sync::{broadcast, mpsc};
use tokio::time::Instant;
use tokio_postgres::AsyncMessage;
use tracing::debug;

use super::notifier::{CHANNEL, Notification, NotificationKind};
use crate::postgres::connection::{Session, SharedConnections};
use crate::postgres::fault::Fault;
use crate::postgres::writer::WriterShared;

/// The maximum number of wakes that wait for a slow subscriber.
const WAKES_MAX: usize = 1_024;

/// The maximum number of notifications that wait to be read.
const WAITING_MAX: usize = 1_024;

/// The maximum number of notifications that are passed on in a second. A node sends two hundred at
/// most.
const PASSED_MAX: usize = 4_000;

/// How often the connection is checked, and a lock that another session holds is asked for.
const PING_INTERVAL: Duration = Duration::from_secs(1);

/// About how long to wait before a reconnect. It is short: other nodes take a node without its lock
/// for gone after a second, unless it could say that it lives.
const RECONNECT_PAUSE: Duration = Duration::from_millis(200);

/// How long to try to say so before the next reconnect.
const RECORD_TIMEOUT: Duration = Duration::from_millis(200);

/// A notification of another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wake {
    /// A task of this lane waits, due at this instant.
    Lane(Arc<Lane>, Timestamp),
    /// Partitions, or the leader's lease, have become free.
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

    /// Notifies this process of rights that have become free.
    pub(crate) fn notify_freed(&self) {
        self.wakes.send(Wake::Partitions).ok();
    }

    /// Listens until it is aborted, first on `session`. `leases` are the connections over which the
    /// node says that it lives without its lock.
    pub(crate) async fn run(
        self: Arc<Self>,
        shared: Arc<WriterShared>,
        session: ListeningSession,
        leases: Arc<SharedConnections>,
    ) {
        let mut opened = Ok(session);
        loop {
            let listened = match opened {
                Ok(session) => self.listen(&shared, session).await,
                Err(fault) => Err(fault),
            };
            if let Err(fault) = listened {
                debug!(error = %fault.to_store_error(), "cannot listen for notifications; reconnecting");
            }
            shared.node_lock.lost();
            let recording = leases.call(async |session| shared.node_lock.record(session).await);
            if let Ok(Err(error)) = tokio::time::timeout(RECORD_TIMEOUT, recording).await {
                debug!(%error, "cannot record that this node has lost its lock; retrying");
            }
            tokio::time::sleep(RECONNECT_PAUSE.mul_f64(0.5 + rand::random::<f64>())).await;
            opened = ListeningSession::open(&shared).await;
        }
    }

    async fn listen(&self, shared: &WriterShared, listening: ListeningSession) -> Result<(), Fault> {
        let ListeningSession { session, mut notifications, mut intake, mut has_lock } = listening;
        let mut asked_at = Instant::now();
        loop {
            if intake.takes_everything(Instant::now()) {
                self.notify_everything(shared);
            }
            if !has_lock && asked_at.elapsed() >= PING_INTERVAL {
                has_lock = shared.node_lock.take(&session).await?;
                asked_at = Instant::now();
            }
            match tokio::time::timeout(PING_INTERVAL, notifications.recv()).await {
                Ok(Some(text)) => {
                    let Notification { node, kind } = Notification::parse(&text);
                    if node != shared.node && intake.admits(&kind, Instant::now()) {
                        self.pass_on(shared, &session, kind).await?;
                    }
                }
                Ok(None) => return Ok(()),
                // An idle connection does not notice a lost server.
                Err(_) => session.run("SELECT 1").await?,
            }
        }
    }

    async fn pass_on(&self, shared: &WriterShared, session: &Session, kind: NotificationKind) -> Result<(), Fault> {
        let waiting = match kind {
            NotificationKind::Lanes(waiting) => waiting,
            NotificationKind::Everything => return Ok(()),
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

/// The connection of a listener.
pub(crate) struct ListeningSession {
    session: Session,
    notifications: mpsc::Receiver<String>,
    intake: Intake,
    has_lock: bool,
}

impl ListeningSession {
    /// Connects, begins to listen, and takes the lock of the node.
    pub(crate) async fn open(shared: &WriterShared) -> Result<Self, Fault> {
        let (received, notifications) = mpsc::channel(WAITING_MAX);
        // Earlier notifications are missed.
        let missed = Arc::new(AtomicBool::new(true));
        let intake = Intake::new(Arc::clone(&missed), Instant::now());
        let session = Session::open_listening(&shared.address, &[], move |message| {
            if let AsyncMessage::Notification(notification) = message
                && received.try_send(notification.payload().to_owned()).is_err()
            {
                missed.store(true, Ordering::Relaxed);
            }
        })
        .await?;
        session.run(&format!("LISTEN {CHANNEL}")).await?;
        let has_lock = shared.node_lock.take(&session).await?;
        Ok(Self { session, notifications, intake, has_lock })
    }
}

/// Bounds what is passed on: [`PASSED_MAX`] notifications in a second, and everything once in a
/// second. What is not admitted counts as missed, and what was missed makes everything doubtful.
struct Intake {
    missed: Arc<AtomicBool>,
    /// When the second began, and how many were passed on in it.
    began: Instant,
    passed: usize,
    everything_at: Option<Instant>,
}

impl Intake {
    fn new(missed: Arc<AtomicBool>, now: Instant) -> Self {
        Self { missed, began: now, passed: 0, everything_at: None }
    }

    /// Whether a notification is passed on by itself.
    fn admits(&mut self, kind: &NotificationKind, now: Instant) -> bool {
        if now >= self.began + Duration::from_secs(1) {
            (self.began, self.passed) = (now, 0);
        }
        let is_admitted = *kind != NotificationKind::Everything && self.passed < PASSED_MAX;
        if is_admitted {
            self.passed += 1;
        } else {
            self.missed.store(true, Ordering::Relaxed);
        }
        is_admitted
    }

    /// Whether notifications were missed and it is time to say so.
    fn takes_everything(&mut self, now: Instant) -> bool {
        let is_due = self.everything_at.is_none_or(|last| now >= last + Duration::from_secs(1));
        let takes = is_due && self.missed.swap(false, Ordering::Relaxed);
        if takes {
            self.everything_at = Some(now);
        }
        takes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_becomes_everything_once_a_second() {
        let begun = Instant::now();
        let mut intake = Intake::new(Arc::default(), begun);
        assert!(!intake.takes_everything(begun), "nothing was missed");
        let lane = NotificationKind::Lanes(vec![(1, 1)]);
        let flood = |intake: &mut Intake, now| (0..3 * PASSED_MAX).filter(|_| intake.admits(&lane, now)).count();
        assert_eq!(flood(&mut intake, begun), PASSED_MAX);
        assert!(intake.takes_everything(begun), "the rest was missed");
        let soon = begun + Duration::from_millis(900);
        assert!(!intake.admits(&NotificationKind::Everything, soon));
        assert!(!intake.takes_everything(soon), "it was said within the second");
        let later = begun + Duration::from_secs(1);
        assert!(intake.takes_everything(later));
        assert_eq!(flood(&mut intake, later), PASSED_MAX);
    }
}
