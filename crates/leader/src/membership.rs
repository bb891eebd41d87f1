//! Records this node's presence, so that the leader can notice when it is dead.
//!
//! Every node runs it. With each record it reads the other nodes, and logs which joined or left.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use punctual_core::ids::NodeId;
use punctual_core::registry::{NodePresence, Registry};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::departures::DeclaredGone;

/// How far this node's wall clock is ahead of the store's at the moment, in milliseconds.
pub type Skew = Arc<dyn Fn() -> i64 + Send + Sync>;

/// The longest pause after a failure. It is short: a leader that reaches the store again must not
/// count this node as dead.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);

/// How long a node that shuts down tries to leave the registry.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// The shortest time between two records.
const INTERVAL_MIN: Duration = Duration::from_millis(200);

/// How steadily this node's own presence was recorded. A node that was cut off must not declare
/// others dead that were cut off for the same reason and are not back yet.
#[derive(Debug)]
pub struct OwnPresence {
    lease: Duration,
    records: Mutex<Option<SteadyRecords>>,
}

/// Records without a gap.
#[derive(Clone, Copy, Debug)]
struct SteadyRecords {
    first: Instant,
    last: Instant,
    /// If the next record comes later than this, they are not steady.
    gap: Duration,
}

impl OwnPresence {
    /// A node that was not recorded yet, and is dead after a silence of `lease`.
    pub fn new(lease: Duration) -> Self {
        Self { lease, records: Mutex::new(None) }
    }

    /// Whether this node was recorded steadily for as long as the lease of another node, or its own
    /// if that one names none: so that the other one was recorded too if it lives.
    pub fn is_steady_for(&self, other: Option<Duration>) -> bool {
        let (now, lease) = (Instant::now(), other.unwrap_or(self.lease));
        let is_steady = |records: SteadyRecords| {
            let sees_shorter_cuts = other.is_none_or(|other| records.gap < other);
            sees_shorter_cuts && now - records.last <= records.gap && now - records.first >= lease
        };
        self.records.lock().is_some_and(is_steady)
    }

    /// Notes that the registry has recorded this node; the next record is due in `interval`. Other
    /// nodes may need longer to return than this node, so a gap begins soon after that.
    pub fn recorded(&self, interval: Duration) {
        let now = Instant::now();
        let mut records = self.records.lock();
        let first = records.filter(|records| now - records.last <= records.gap).map_or(now, |records| records.first);
        *records = Some(SteadyRecords { first, last: now, gap: interval * 3 / 2 });
    }
}

/// Records this node in the registry.
pub struct Membership {
    registry: Arc<dyn Registry>,
    me: NodePresence,
    skew: Skew,
    interval: Duration,
    own: Arc<OwnPresence>,
    declared_gone: Arc<DeclaredGone>,
}

impl Membership {
    /// Records `me` every `interval`, or three times in the lease of another node if that is
    /// shorter. The registry fills in its instants, and `skew` is measured each time. `own` is
    /// notified of every record.
    pub fn new(
        registry: Arc<dyn Registry>,
        me: NodePresence,
        skew: Skew,
        interval: Duration,
        own: Arc<OwnPresence>,
    ) -> Self {
        Self { registry, me, skew, interval, own, declared_gone: Arc::default() }
    }

    /// The same; it does not log that these nodes have left.
    #[must_use]
    pub fn with_declared_gone(self, declared_gone: Arc<DeclaredGone>) -> Self {
        Self { declared_gone, ..self }
    }

    /// Records until `shutdown` is cancelled, and then leaves the registry: a node that has ended
    /// is not gone. The first record comes before anything else.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut others = OtherNodes::default();
        while !shutdown.is_cancelled() {
            let sighting = NodePresence { skew_millis: (self.skew)(), ..self.me.clone() };
            let mut pause = others.interval(self.interval);
            match self.registry.record_node(sighting).await {
                Ok(()) => self.own.recorded(pause),
                Err(error) => {
                    tracing::warn!(error = %error, "cannot record this node's presence; retrying within a second");
                    pause = pause.min(RETRY_PAUSE_MAX);
                }
            }
            let recorded_at = Instant::now();
            // During the pause, so that it does not delay the next record.
            let rest = async {
                if let Ok(Ok(nodes)) = tokio::time::timeout(pause, self.registry.nodes()).await {
                    let nodes = nodes.into_iter().filter(|node| node.id != self.me.id);
                    others.take_in(nodes, &self.declared_gone);
                }
                tokio::time::sleep_until(recorded_at + others.interval(self.interval).min(pause)).await;
            };
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = rest => {}
            }
        }
        match tokio::time::timeout(LEAVE_TIMEOUT, self.registry.remove_node(self.me.id)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::debug!(error = %error, "cannot leave the registry; the leader removes this node");
            }
            Err(_) => tracing::debug!("cannot leave the registry in time; the leader removes this node"),
        }
    }
}

/// The other nodes, as of the last read.
#[derive(Default)]
struct OtherNodes {
    names: Option<HashMap<NodeId, String>>,
    shortest_lease: Option<Duration>,
}

impl OtherNodes {
    /// How often to record a node that should be recorded every `own` beside these.
    fn interval(&self, own: Duration) -> Duration {
        self.shortest_lease.map_or(own, |lease| (lease / 3).max(INTERVAL_MIN).min(own))
    }

    /// Logs which nodes joined and left since the last read; returns how many of each. The first
    /// read logs nothing, and what was declared gone was logged before.
    fn take_in(&mut self, nodes: impl Iterator<Item = NodePresence>, declared: &DeclaredGone) -> (usize, usize) {
        let now: HashMap<NodeId, NodePresence> = nodes.map(|node| (node.id, node)).collect();
        let names = now.iter().map(|(id, node)| (*id, node.name.clone())).collect();
        self.shortest_lease = now.values().filter_map(|node| node.lease).min();
        let Some(before) = self.names.replace(names) else { return (0, 0) };
        let (mut came, mut gone) = (0, 0);
        for node in now.values().filter(|node| !before.contains_key(&node.id)) {
            came += 1;
            tracing::info!(node.id = %node.id, node.name, node.address, node.version, "a node has joined");
        }
        for (id, name) in before.iter().filter(|(id, _)| !now.contains_key(id) && !declared.has(**id)) {
            gone += 1;
            tracing::info!(node.id = %id, node.name = name, "a node has left: it ended, or it died and was silent since");
        }
        // One that has returned since may leave in another way.
        declared.keep(|id| now.get(&id).is_some_and(|node| node.gone_at.is_some()));
        (came, gone)
    }
}

#[cfg(test)]
mod tests {
    use punctual_core::registry::NodeSession;
    use punctual_core::time::Timestamp;

    use super::*;

    const LEASE: Duration = Duration::from_secs(30);
    const RENEWAL: Duration = Duration::from_secs(10);

    async fn record_for(own: &OwnPresence, times: u32) {
        for _ in 0..times {
            own.recorded(RENEWAL);
            tokio::time::advance(RENEWAL).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn presence_is_steady_after_a_lease_without_a_gap() {
        let own = OwnPresence::new(LEASE);
        assert!(!own.is_steady_for(None));
        record_for(&own, 2).await;
        assert!(!own.is_steady_for(None), "two thirds of a lease are not enough");
        record_for(&own, 1).await;
        assert!(own.is_steady_for(None));
        assert!(!own.is_steady_for(Some(RENEWAL)), "ten seconds between two records are too long for such a lease");
        assert!(!own.is_steady_for(Some(2 * LEASE)), "a node with a longer lease may take longer to return");
        record_for(&own, 3).await;
        assert!(own.is_steady_for(Some(2 * LEASE)));
    }

    /// A node whose lease is shorter is judged by that, once this node is recorded as often.
    #[tokio::test(start_paused = true)]
    async fn a_shorter_lease_is_judged_by_more_records() {
        let (own, other) = (OwnPresence::new(LEASE), Duration::from_secs(3));
        for _ in 0..3 {
            assert!(!own.is_steady_for(Some(other)));
            own.recorded(other / 3);
            tokio::time::advance(other / 3).await;
        }
        assert!(own.is_steady_for(Some(other)));
        assert!(!own.is_steady_for(None), "not for as long as its own lease");
        tokio::time::advance(other / 3).await;
        assert!(!own.is_steady_for(Some(other)), "its last record is too old");
    }

    fn node(number: u64) -> NodePresence {
        NodePresence {
            id: NodeId::new(number),
            name: format!("n{number}"),
            address: String::new(),
            roles: Vec::new(),
            version: String::new(),
            skew_millis: 0,
            lease: None,
            first_seen_at: Timestamp::from_millis(0),
            last_seen_at: Timestamp::from_millis(0),
            session: NodeSession::Unknown,
            gone_at: None,
        }
    }

    #[test]
    fn a_node_that_joins_or_leaves_is_logged_once() {
        let mut others = OtherNodes::default();
        let declared = DeclaredGone::default();
        let mut logged = |numbers: &[u64]| others.take_in(numbers.iter().copied().map(node), &declared);
        assert_eq!(logged(&[1, 2]), (0, 0), "they were there before");
        assert_eq!(logged(&[1, 2]), (0, 0));
        assert_eq!(logged(&[2, 3, 4]), (2, 1));
        assert_eq!(logged(&[2, 3, 4]), (0, 0), "once");
        assert_eq!(logged(&[]), (0, 3));
        assert_eq!(logged(&[1]), (1, 0), "it is back");
        let short = |seconds| NodePresence { lease: Some(Duration::from_secs(seconds)), ..node(seconds) };
        others.take_in([node(1), short(9), short(4)].into_iter(), &declared);
        let every = |seconds| others.interval(Duration::from_secs(seconds)).as_millis();
        assert_eq!((every(10), every(1)), (1_333, 1_000));
    }

    /// The watch for departures has said so.
    #[test]
    fn a_node_that_was_declared_gone_is_not_logged_again() {
        let (mut others, declared) = (OtherNodes::default(), DeclaredGone::default());
        let mut logged = |nodes: &[NodePresence]| others.take_in(nodes.iter().cloned(), &declared);
        let gone = |number| NodePresence { gone_at: Some(Timestamp::from_millis(1)), ..node(number) };
        logged(&[node(1), node(2), node(3)]);
        declared.add(NodeId::new(1));
        declared.add(NodeId::new(2));
        assert_eq!(logged(&[gone(1), node(2), node(3)]), (0, 0), "the second has returned");
        assert_eq!(logged(&[]), (0, 2), "two of them were not declared gone since");
        assert!(!declared.has(NodeId::new(1)), "and nothing is left");
    }

    #[tokio::test(start_paused = true)]
    async fn a_gap_restarts_the_lease() {
        let own = OwnPresence::new(LEASE);
        record_for(&own, 4).await;
        tokio::time::advance(RENEWAL).await;
        assert!(!own.is_steady_for(None), "its last record is too old");
        record_for(&own, 1).await;
        assert!(!own.is_steady_for(None), "the others may not be back yet");
        record_for(&own, 2).await;
        assert!(own.is_steady_for(None));
    }
}
