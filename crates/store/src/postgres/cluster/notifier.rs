//! Notifies the other nodes of waiting tasks, a few times a second, and defines the format.
//!
//! A writer leaves a note; one task gathers notes for a moment and sends one notification. It is
//! not sent in the writer's transaction, because a notification takes a lock at commit that all
//! share. A lost note delays a task until the next sweep, and does nothing else.

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

/// How long notes are gathered.
const GATHER_INTERVAL: Duration = Duration::from_millis(10);

/// What is due later than this is found by those who look for themselves.
const SOON_MILLIS: i64 = 30_000;

/// The bytes that a notification may carry; PostgreSQL takes 8,000.
const PAYLOAD_BYTES_MAX: usize = 7_900;

/// What stands for every lane, where they are too many to be named.
const EVERYTHING: &str = "*";

/// What stands for partitions that have become free. A node that does not know it takes it for
/// every lane, as it does whatever it cannot read: it looks at all of them, and goes on.
const PARTITIONS: &str = "partitions";

/// What stands for queues that were changed, and before lanes in whose queues places came free.
/// Likewise.
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
    /// Something waits in these lanes that is due then.
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

    /// A place came free in the queue of this lane.
    pub(crate) fn freed(&self, lane: i64) {
        self.0.freed.lock().insert(lane);
        self.0.added.notify_one();
    }

    /// Sends what was noted, until it is aborted.
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
                    debug!(%fault, "cannot notify the other nodes; they find the tasks in their next sweep");
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

/// What is sent when a queue was set, paused or resumed.
pub(crate) fn queues_have_changed(node: NodeId) -> String {
    format!("{} {QUEUES}", node.number())
}

/// What is sent when the node has given partitions up.
pub(crate) fn partitions_are_free(node: NodeId) -> String {
    format!("{} {PARTITIONS}", node.number())
}

/// What a notification tells.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Notification {
    /// Who sent it.
    pub node: NodeId,
    pub kind: NotificationKind,
}

/// What has happened.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotificationKind {
    /// Tasks wait in these lanes; their first due instants.
    Lanes(Vec<(i64, i64)>),
    /// Tasks may wait in any lane.
    Everything,
    /// Partitions have become free.
    Partitions,
    /// A queue was set, paused or resumed.
    Queues,
    /// Places came free in the queues of these lanes.
    Freed(Vec<i64>),
}

/// Reads a notification. What cannot be read was sent by another version, and tells of everything.
pub(crate) fn read(text: &str) -> Notification {
    let (node, rest) = text.split_once(' ').unwrap_or((text, EVERYTHING));
    let node = NodeId::new(node.parse().unwrap_or_default());
    if rest == PARTITIONS {
        return Notification { node, kind: NotificationKind::Partitions };
    }
    if rest == QUEUES {
        return Notification { node, kind: NotificationKind::Queues };
    }
    if let Some(lanes) = rest.strip_prefix(FREED) {
        let lanes: Option<Vec<i64>> = lanes.split_whitespace().map(|lane| lane.parse().ok()).collect();
        return Notification { node, kind: lanes.map_or(NotificationKind::Everything, NotificationKind::Freed) };
    }
    let lane = |word: &str| {
        let (lane, due_at) = word.split_once(':')?;
        Some((lane.parse().ok()?, due_at.parse().ok()?))
    };
    let lanes: Option<Vec<(i64, i64)>> = rest.split(' ').map(lane).collect();
    Notification { node, kind: lanes.map_or(NotificationKind::Everything, NotificationKind::Lanes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spelled_is_read() {
        let node = NodeId::new(7);
        let lanes = HashMap::from([(1, -5), (9, 1_779_472_800_000)]);
        let told = read(&format_waiting(node, &lanes));
        assert_eq!(told.node, node);
        let NotificationKind::Lanes(told) = told.kind else { panic!("{told:?}") };
        assert_eq!(told.into_iter().collect::<HashMap<_, _>>(), lanes);
        assert_eq!(read(&partitions_are_free(node)), Notification { node, kind: NotificationKind::Partitions });
        assert_eq!(read(&queues_have_changed(node)), Notification { node, kind: NotificationKind::Queues });
        let freed = read(&format_freed(node, &HashSet::from([7])));
        assert_eq!(freed, Notification { node, kind: NotificationKind::Freed(vec![7]) });
        assert_eq!(read(&format_freed(node, &(0..10_000).collect())).kind, NotificationKind::Queues);
    }

    #[test]
    fn too_many_lanes_are_everything() {
        let node = NodeId::new(u64::MAX >> 1);
        let lanes: HashMap<i64, i64> = (0..1_000).map(|lane| (lane, 1_779_472_800_000)).collect();
        let text = format_waiting(node, &lanes);
        assert!(text.len() < 8_000);
        assert_eq!(read(&text), Notification { node, kind: NotificationKind::Everything });
        for other in ["of another version", "7 partitions of another version", "7 1:2 partitions", "7", ""] {
            assert_eq!(read(other).kind, NotificationKind::Everything, "{other:?}");
        }
    }
}
