//! The registry of workers and nodes: who was seen, and when.
//!
//! # Contract
//! Each sentence is a test of the same name in `testkit::registry`.
//!
//! - `presence_is_recorded`: with its first and last instant, and what the worker asks for.
//! - `a_heartbeat_keeps_what_was_asked_for`: a presence that asks for nothing changes the last
//!   instant only.
//! - `workers_are_listed_by_tenant`: a tenant sees its own workers and no others.
//! - `nodes_are_listed_as_they_were_last_seen`: with their first and last instant, until they are
//!   removed.
//! - `nodes_that_are_silent_are_dead`: `dead_nodes` names nodes last seen before the cutoff.
//! - `a_removed_node_is_gone`.

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
    /// The queues it asks for. Neither these nor types: it was seen otherwise than asking.
    pub queues: Vec<String>,
    /// The types it asks for.
    pub kinds: Vec<String>,
    /// When it was first seen.
    pub first_seen_at: Timestamp,
    /// When it was last seen.
    pub last_seen_at: Timestamp,
}

impl WorkerPresence {
    /// This presence after an older one of the same worker.
    #[must_use]
    pub fn following(self, older: &WorkerPresence) -> Self {
        let is_sign_of_life = self.queues.is_empty() && self.kinds.is_empty();
        let (queues, kinds) =
            if is_sign_of_life { (older.queues.clone(), older.kinds.clone()) } else { (self.queues, self.kinds) };
        let first_seen_at = self.first_seen_at.min(older.first_seen_at);
        Self { queues, kinds, first_seen_at, last_seen_at: self.last_seen_at.max(older.last_seen_at), ..self }
    }
}

/// A process of ours, as it was last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePresence {
    /// The process.
    pub id: NodeId,
    /// What its operator calls it: a label, which others may carry as well.
    pub name: String,
    /// Where it listens.
    pub address: String,
    /// Its roles.
    pub roles: Vec<String>,
    /// The version of the program.
    pub version: String,
    /// How far its wall clock is ahead of the store's.
    pub skew_millis: i64,
    /// When it was first seen.
    pub first_seen_at: Timestamp,
    /// When it was last seen.
    pub last_seen_at: Timestamp,
}

/// Remembers workers and nodes (see the module's contract).
#[async_trait]
pub trait Registry: Send + Sync {
    /// Records that workers were seen; of an existing one the first presence is kept, and of one
    /// that asks for nothing what it asked for before.
    async fn record_workers(&self, presences: Vec<WorkerPresence>) -> Result<(), StoreError>;

    /// The workers of a tenant, by name, strictly after `after`.
    async fn workers(
        &self,
        tenant: &str,
        after: Option<String>,
        limit: usize,
    ) -> Result<Vec<WorkerPresence>, StoreError>;

    /// Records that a node lives; of a known one the first presence is kept. The instants are the
    /// store's own.
    async fn record_node(&self, presence: NodePresence) -> Result<(), StoreError>;

    /// The nodes that were not removed, by the instant they were first seen.
    async fn nodes(&self) -> Result<Vec<NodePresence>, StoreError>;

    /// Nodes last seen before the cutoff.
    async fn dead_nodes(&self, before: Timestamp) -> Result<Vec<NodeId>, StoreError>;

    /// Removes a node that holds nothing any more.
    async fn remove_node(&self, node: NodeId) -> Result<(), StoreError>;
}
