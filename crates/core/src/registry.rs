//! The port of the registry: the presence of pull workers and nodes.
//!
//! The API records workers, each node records itself, and the reaper looks for silent nodes.
//!
//! # Contract
//! Each sentence is a test of the same name in `testkit::registry`.
//!
//! - `presence_is_recorded`: with its first and last instant, and with the queues and types that
//!   the worker polls.
//! - `a_heartbeat_keeps_what_was_asked_for`: a presence without queues and types changes the last
//!   instant only.
//! - `workers_are_listed_by_tenant`: a tenant sees its own workers and no others.
//! - `nodes_are_listed_as_they_were_last_seen`: with their first and last instant and their own
//!   lease, until they are removed.
//! - `a_removed_node_is_not_listed`.
//!
//! A store that nodes share may know whether the process of a node is connected ([`NodeSession`]).
//! A node that the coordinator has declared gone is listed with the instant, until it is removed or
//! recorded again.

use std::time::Duration;

use async_trait::async_trait;

use crate::ids::NodeId;
use crate::store::StoreError;
use crate::time::Timestamp;

/// A pull worker, as it was last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerPresence {
    /// Its tenant.
    pub tenant: String,
    /// Its name.
    pub name: String,
    /// The queues it polls. A heartbeat names neither queues nor types.
    pub queues: Vec<String>,
    /// The types it polls.
    pub kinds: Vec<String>,
    /// When it was first seen.
    pub first_seen_at: Timestamp,
    /// When it was last seen.
    pub last_seen_at: Timestamp,
}

impl WorkerPresence {
    /// Merges it with an older presence of the same worker.
    #[must_use]
    pub fn following(self, older: &WorkerPresence) -> Self {
        let is_heartbeat = self.queues.is_empty() && self.kinds.is_empty();
        let (queues, kinds) =
            if is_heartbeat { (older.queues.clone(), older.kinds.clone()) } else { (self.queues, self.kinds) };
        let first_seen_at = self.first_seen_at.min(older.first_seen_at);
        Self { queues, kinds, first_seen_at, last_seen_at: self.last_seen_at.max(older.last_seen_at), ..self }
    }
}

/// A node, as it was last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePresence {
    /// Its id.
    pub id: NodeId,
    /// The operator's label for it; not unique.
    pub name: String,
    /// Where it listens.
    pub address: String,
    /// Its roles.
    pub roles: Vec<String>,
    /// The version of its program.
    pub version: String,
    /// How far its wall clock is ahead of the store's.
    pub skew_millis: i64,
    /// How long it keeps what it has after it was last seen: its own setting, which need not be
    /// that of other nodes. None for a node of an older version, which does not say.
    pub lease: Option<Duration>,
    /// When it was first seen.
    pub first_seen_at: Timestamp,
    /// When it was last seen.
    pub last_seen_at: Timestamp,
    /// Whether its process is connected to the store.
    pub session: NodeSession,
    /// When it was declared gone.
    pub gone_at: Option<Timestamp>,
}

/// What a store knows of the session that a node keeps open while its process lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeSession {
    /// Nothing: the lease of the node alone says whether it lives.
    #[default]
    Unknown,
    /// It is open. The number is another one when the node has opened it again.
    Open(u32),
    /// It has ended, and the node has not said that it lives without it.
    Ended,
}

impl NodePresence {
    /// When other nodes take over what it has, unless it is seen before: they have if it is gone.
    /// `lease` is that of a node that does not say its own.
    pub fn lost_at(&self, lease: Duration) -> Timestamp {
        self.gone_at.unwrap_or_else(|| self.last_seen_at.plus(self.lease.unwrap_or(lease)))
    }

    /// Whether it has missed a report, or is gone: a node reports three times in a lease at least.
    pub fn is_silent(&self, now: Timestamp, lease: Duration) -> bool {
        self.gone_at.is_some() || now > self.last_seen_at.plus(self.lease.unwrap_or(lease) / 2)
    }
}

/// Remembers workers and nodes (see the module's contract).
#[async_trait]
pub trait Registry: Send + Sync {
    /// Records workers. An earlier `first_seen_at` is kept, and a heartbeat keeps the queues and
    /// types of the last poll.
    async fn record_workers(&self, presences: Vec<WorkerPresence>) -> Result<(), StoreError>;

    /// Lists the workers of a tenant by name, strictly after `after`.
    async fn workers(
        &self,
        tenant: &str,
        after: Option<String>,
        limit: usize,
    ) -> Result<Vec<WorkerPresence>, StoreError>;

    /// Records that a node is alive, and so not gone. The store sets the instants by its own clock,
    /// keeps an earlier `first_seen_at`, and knows the session by itself.
    async fn record_node(&self, presence: NodePresence) -> Result<(), StoreError>;

    /// Lists the nodes that were not removed, by `first_seen_at`.
    async fn nodes(&self) -> Result<Vec<NodePresence>, StoreError>;

    /// Removes a node that holds no task any more.
    async fn remove_node(&self, node: NodeId) -> Result<(), StoreError>;
}
