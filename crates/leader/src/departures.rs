//! Notices nodes whose process has ended, and declares them gone.
//!
//! Every node runs it on a store that nodes share. The store knows which nodes keep a session open.
//! A node whose session has ended is declared gone after a moment: the others take over what it has
//! at once, and need not wait for its lease. The lease rules for every other node that is silent:
//! one that is frozen or cut off keeps its session.
//!
//! Invariant: a node declares another one gone only while its own session is open, and was for a
//! while. When the server or a pooler ends all sessions, every node has time to return.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use punctual_core::coordinator::Coordinator;
use punctual_core::ids::NodeId;
use punctual_core::registry::{NodePresence, NodeSession, Registry};
use punctual_core::store::StoreError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often a node looks at the sessions of the others.
const INTERVAL: Duration = Duration::from_millis(250);
/// How long a session must have ended before its node is declared gone. A node that lives opens it
/// again within milliseconds, or says that it lives without it.
const ENDED_FOR: Duration = Duration::from_secs(1);
/// How long the own session must have been open before.
const OPEN_FOR: Duration = Duration::from_secs(2);

/// The nodes that this node has declared gone, until they are removed from the registry or return.
/// Their end was logged.
#[derive(Debug, Default)]
pub struct DeclaredGone {
    nodes: Mutex<HashSet<NodeId>>,
}

impl DeclaredGone {
    pub(crate) fn has(&self, node: NodeId) -> bool {
        self.nodes.lock().contains(&node)
    }

    pub(crate) fn add(&self, node: NodeId) {
        self.nodes.lock().insert(node);
    }

    /// Forgets all nodes but some.
    pub(crate) fn keep(&self, is_kept: impl Fn(NodeId) -> bool) {
        self.nodes.lock().retain(|node| is_kept(*node));
    }
}

/// Declares nodes gone (see the module).
pub struct DepartureWatch {
    registry: Arc<dyn Registry>,
    coordinator: Arc<dyn Coordinator>,
    sessions: ObservedSessions,
    declared: Arc<DeclaredGone>,
}

impl DepartureWatch {
    /// A watch for this node, which adds to `declared` what it logs.
    pub fn new(
        registry: Arc<dyn Registry>,
        coordinator: Arc<dyn Coordinator>,
        node: NodeId,
        declared: Arc<DeclaredGone>,
    ) -> Self {
        Self { registry, coordinator, sessions: ObservedSessions::new(node), declared }
    }

    /// Watches until `shutdown`. Membership logs a registry that cannot be reached.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut interval = tokio::time::interval(INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                _ = interval.tick() => {}
            }
            if let Err(error) = self.run_once().await {
                tracing::debug!(error = %error, "cannot look for nodes that are gone; retrying");
            }
        }
    }

    /// Looks once; returns how many nodes it has declared gone.
    pub async fn run_once(&mut self) -> Result<usize, StoreError> {
        let nodes = match self.registry.nodes().await {
            Ok(nodes) => nodes,
            Err(error) => {
                self.sessions.forget();
                return Err(error);
            }
        };
        let mut declared = 0;
        for node in self.sessions.observe(&nodes, Instant::now()) {
            if self.coordinator.declare_gone(node.id).await? {
                declared += 1;
                self.declared.add(node.id);
                tracing::warn!(
                    node.id = %node.id,
                    node.name,
                    "a node is gone: its connections to the database ended; others take over what it had"
                );
            }
        }
        Ok(declared)
    }
}

/// The sessions of the nodes, as this node has seen them since its own is open.
struct ObservedSessions {
    node: NodeId,
    /// The own session, and since when it is open.
    own: Option<(u32, Instant)>,
    /// Since when the sessions of others have ended.
    ended: HashMap<NodeId, Instant>,
}

impl ObservedSessions {
    fn new(node: NodeId) -> Self {
        Self { node, own: None, ended: HashMap::new() }
    }

    /// Takes in what was read at `now`. Returns the nodes to be declared gone.
    fn observe<'a>(&mut self, nodes: &'a [NodePresence], now: Instant) -> Vec<&'a NodePresence> {
        let own = nodes.iter().find(|node| node.id == self.node).map(|node| node.session);
        let Some(NodeSession::Open(number)) = own else {
            self.forget();
            return Vec::new();
        };
        if self.own.is_none_or(|(known, _)| known != number) {
            self.forget();
        }
        let (_, open_since) = *self.own.get_or_insert((number, now));
        let has_ended = |node: &&NodePresence| node.session == NodeSession::Ended && node.gone_at.is_none();
        let ended: Vec<&NodePresence> = nodes.iter().filter(has_ended).collect();
        let since = |id: NodeId| self.ended.get(&id).copied().unwrap_or(now);
        self.ended = ended.iter().map(|node| (node.id, since(node.id))).collect();
        let is_gone = |node: &&NodePresence| {
            now - open_since >= OPEN_FOR && self.ended.get(&node.id).is_some_and(|since| now - *since >= ENDED_FOR)
        };
        ended.into_iter().filter(is_gone).collect()
    }

    /// Starts over: this node may have missed what happened meanwhile.
    fn forget(&mut self) {
        self.own = None;
        self.ended.clear();
    }
}

#[cfg(test)]
mod tests {
    use punctual_core::time::Timestamp;

    use super::*;

    const OWN: u64 = 1;

    fn node(number: u64, session: NodeSession) -> NodePresence {
        NodePresence {
            id: NodeId::new(number),
            name: String::new(),
            address: String::new(),
            roles: Vec::new(),
            version: String::new(),
            skew_millis: 0,
            lease: None,
            first_seen_at: Timestamp::from_millis(0),
            last_seen_at: Timestamp::from_millis(0),
            session,
            gone_at: None,
        }
    }

    /// What a node with these sessions around it declares gone, one look after the other.
    struct Watcher {
        sessions: ObservedSessions,
        now: Instant,
    }

    impl Watcher {
        fn new() -> Self {
            Self { sessions: ObservedSessions::new(NodeId::new(OWN)), now: Instant::now() }
        }

        fn look(&mut self, own: NodeSession, other: NodeSession) -> bool {
            self.now += INTERVAL;
            let nodes = [node(OWN, own), node(2, other)];
            let gone = self.sessions.observe(&nodes, self.now);
            assert!(gone.iter().all(|node| node.id == NodeId::new(2)), "never itself");
            !gone.is_empty()
        }

        /// After how many looks the other node is gone; none if it is not within twenty.
        fn looks_until_gone(&mut self, own: NodeSession, other: NodeSession) -> Option<usize> {
            (1..=20).find(|_| self.look(own, other))
        }
    }

    const OPEN: NodeSession = NodeSession::Open(7);

    #[test]
    fn a_node_is_gone_a_second_after_its_session() {
        let mut watcher = Watcher::new();
        assert_eq!(watcher.looks_until_gone(OPEN, NodeSession::Open(8)), None);
        assert_eq!(watcher.looks_until_gone(OPEN, NodeSession::Ended), Some(5), "a look, and a second later");
    }

    #[test]
    fn a_node_that_returns_in_time_is_not_gone() {
        let mut watcher = Watcher::new();
        for back in [NodeSession::Open(9), NodeSession::Unknown] {
            assert_eq!(watcher.looks_until_gone(OPEN, NodeSession::Open(8)), None);
            assert!((0..4).all(|_| !watcher.look(OPEN, NodeSession::Ended)));
            assert!(!watcher.look(OPEN, back));
            assert_eq!(watcher.looks_until_gone(OPEN, NodeSession::Ended), Some(5), "its second starts over");
        }
    }

    #[test]
    fn a_node_without_a_lock_is_judged_by_its_lease() {
        assert_eq!(Watcher::new().looks_until_gone(OPEN, NodeSession::Unknown), None);
    }

    /// All sessions may have ended together, and the others may need longer to return.
    #[test]
    fn a_node_whose_own_session_is_new_waits() {
        let mut watcher = Watcher::new();
        assert_eq!(watcher.looks_until_gone(OPEN, NodeSession::Ended), Some(9), "a look, and two seconds later");
        assert_eq!(watcher.looks_until_gone(NodeSession::Open(9), NodeSession::Ended), Some(9));
        for own in [NodeSession::Unknown, NodeSession::Ended] {
            assert_eq!(watcher.looks_until_gone(own, NodeSession::Ended), None);
            assert_eq!(watcher.looks_until_gone(NodeSession::Open(9), NodeSession::Ended), Some(9));
        }
    }

    #[test]
    fn a_node_is_declared_gone_once() {
        let mut watcher = Watcher::new();
        watcher.looks_until_gone(OPEN, NodeSession::Ended);
        let gone = NodePresence { gone_at: Some(Timestamp::from_millis(1)), ..node(2, NodeSession::Ended) };
        let later = watcher.now + ENDED_FOR;
        assert!(watcher.sessions.observe(&[node(OWN, OPEN), gone], later).is_empty());
    }
}
