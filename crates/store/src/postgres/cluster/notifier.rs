//! Notifies the other nodes of waiting tasks, a few times a second, and defines the format.
//!
//! A writer leaves a note; one task gathers notes for a moment and sends one notification. It is
//! not sent in the writer's transaction, because a notification takes a lock at commit that all
//! sessions share. A lost note only delays a task until the next sweep.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use punctual_core::ids::NodeId;
use punctual_core::time::Timestamp;
use tokio::sync::Notify;
use tracing::debug;

use crate::postgres::connection::SharedConnections;
use crate::postgres::statements::Sql;

/// The channel of the notifications.
pub(crate) const CHANNEL: &str = "punctual_wake";

/// How long notes are gathered before they are sent.
const GATHER_INTERVAL: Duration = Duration::from_millis(10);

/// Tasks that are due later than this are left to the sweeps of the nodes.
const SOON_MILLIS: i64 = 30_000;

/// The maximum size of a notification; PostgreSQL allows 8,000 bytes.
const PAYLOAD_BYTES_MAX: usize = 7_900;

/// Stands for every lane, if they are too many to be named.
const EVERYTHING: &str = "*";

/// Stands for partitions, or the leader's lease, that have become free. A node of a version that
/// does not know it takes it for every lane, like any text that it cannot parse.
const PARTITIONS: &str = "partitions";

/// `QUEUES` stands for changed queues. `FREED` precedes lanes in whose queues places came free.
const QUEUES: &str = "queues";
const FREED: &str = "freed";

/// Where writers leave their notes (see the module). Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Notifier(Arc<Notes>);

#[derive(Default)]
struct Notes {
    /// The first due instant of each lane.
    lanes: Mutex<HashMap<i64, i64>>,
    /// Lanes in whose queues places came free.
    freed: Mutex<HashSet<i64>>,
    added: Notify,
}

impl Notifier {
    /// Notes that tasks wait in these lanes, due at these instants.
    pub(crate) fn note_waiting(&self, waiting: &[(i64, i64)], now: Timestamp) {
        let soon = now.as_millis().saturating_add(SOON_MILLIS);
        let mut lanes = self.0.lanes.lock();
        for (lane, due_at) in waiting.iter().filter(|(_, due_at)| *due_at <= soon) {
            let first = lanes.entry(*lane).or_insert(*due_at);
            *first = (*due_at).min(*first);
        }
        let any = !lanes.is_empty();
        drop(lanes);
        if any {
            self.0.added.notify_one();
        }
    }

    /// Notes that a place came free in the queue of this lane.
    pub(crate) fn freed(&self, lane: i64) {
        self.0.freed.lock().insert(lane);
        self.0.added.notify_one();
    }

    /// Sends the notes until it is aborted.
    pub(crate) async fn run(self, connections: Arc<SharedConnections>, node: NodeId) {
        loop {
            self.0.added.notified().await;
            tokio::time::sleep(GATHER_INTERVAL).await;
            let lanes = std::mem::take(&mut *self.0.lanes.lock());
            let freed = std::mem::take(&mut *self.0.freed.lock());
            let waiting = (!lanes.is_empty()).then(|| format_waiting(node, &lanes));
            for text in waiting.into_iter().chain((!freed.is_empty()).then(|| format_freed(node, &freed))) {
                let sent = connections.call(async |session| session.query(Sql::Notify, &[&text]).await.map(drop)).await;
                if let Err(fault) = sent {
                    debug!(error = %fault, "cannot notify the other nodes; they find the tasks in their next sweep");
                }
            }
        }
    }
}

/// The node, then each lane with its first due instant.
fn format_waiting(node: NodeId, lanes: &HashMap<i64, i64>) -> String {
    let mut text = node.number().to_string();
    for (lane, due_at) in lanes {
        write!(text, " {lane}:{due_at}").expect("invariant: a string can be written to");
        if text.len() > PAYLOAD_BYTES_MAX {
            return format!("{} {EVERYTHING}", node.number());
        }
    }
    text
}

/// The node, then each lane in whose queue a place came free.
fn format_freed(node: NodeId, lanes: &HashSet<i64>) -> String {
    let mut text = format!("{} {FREED}", node.number());
    for lane in lanes {
        write!(text, " {lane}").expect("invariant: a string can be written to");
        if text.len() > PAYLOAD_BYTES_MAX {
            return queues_have_changed(node);
        }
    }
    text
}

/// The notification that a queue was set, paused or resumed.
pub(crate) fn queues_have_changed(node: NodeId) -> String {
    format!("{} {QUEUES}", node.number())
}

/// The notification that the node has freed partitions or the leader's lease.
pub(crate) fn partitions_are_free(node: NodeId) -> String {
    format!("{} {PARTITIONS}", node.number())
}

/// A notification of a node.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Notification {
    /// The node that sent it.
    pub node: NodeId,
    pub kind: NotificationKind,
}

/// The content of a notification.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotificationKind {
    /// Tasks wait in these lanes, first due at these instants.
    Lanes(Vec<(i64, i64)>),
    /// Tasks may wait in any lane.
    Everything,
    /// Partitions, or the leader's lease, have become free.
    Partitions,
    /// A queue was set, paused or resumed.
    Queues,
    /// Places came free in the queues of these lanes.
    Freed(Vec<i64>),
}

impl Notification {
    /// Parses a notification. An unreadable one was sent by another version and means everything.
    pub(crate) fn parse(text: &str) -> Self {
        let (node, rest) = text.split_once(' ').unwrap_or((text, EVERYTHING));
        let kind = match rest {
            PARTITIONS => Some(NotificationKind::Partitions),
            QUEUES => Some(NotificationKind::Queues),
            _ => match rest.strip_prefix(FREED) {
                Some(lanes) => {
                    let lanes: Option<_> = lanes.split_whitespace().map(|lane| lane.parse().ok()).collect();
                    lanes.map(NotificationKind::Freed)
                }
                None => rest.split(' ').map(waiting_lane).collect::<Option<_>>().map(NotificationKind::Lanes),
            },
        };
        let node = NodeId::new(node.parse().unwrap_or_default());
        Self { node, kind: kind.unwrap_or(NotificationKind::Everything) }
    }
}

fn waiting_lane(word: &str) -> Option<(i64, i64)> {
    let (lane, due_at) = word.split_once(':')?;
    Some((lane.parse().ok()?, due_at.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_is_read_as_it_was_written() {
        let node = NodeId::new(7);
        let lanes = HashMap::from([(1, -5), (9, 1_779_472_800_000)]);
        let read = Notification::parse(&format_waiting(node, &lanes));
        assert_eq!(read.node, node);
        let NotificationKind::Lanes(waiting) = read.kind else { panic!("{read:?}") };
        assert_eq!(waiting.into_iter().collect::<HashMap<_, _>>(), lanes);
        assert_eq!(
            Notification::parse(&partitions_are_free(node)),
            Notification { node, kind: NotificationKind::Partitions }
        );
        assert_eq!(
            Notification::parse(&queues_have_changed(node)),
            Notification { node, kind: NotificationKind::Queues }
        );
        let freed = Notification::parse(&format_freed(node, &HashSet::from([7])));
        assert_eq!(freed, Notification { node, kind: NotificationKind::Freed(vec![7]) });
        assert_eq!(Notification::parse(&format_freed(node, &(0..10_000).collect())).kind, NotificationKind::Queues);
    }

    #[test]
    fn too_many_lanes_are_everything() {
        let node = NodeId::new(u64::MAX >> 1);
        let lanes: HashMap<i64, i64> = (0..1_000).map(|lane| (lane, 1_779_472_800_000)).collect();
        let text = format_waiting(node, &lanes);
        assert!(text.len() < 8_000);
        assert_eq!(Notification::parse(&text), Notification { node, kind: NotificationKind::Everything });
        for other in ["of another version", "7 partitions of another version", "7 1:2 partitions", "7", ""] {
            assert_eq!(Notification::parse(other).kind, NotificationKind::Everything, "{other:?}");
        }
    }
}
