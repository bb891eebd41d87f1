//! The port of the coordinator: which node leads, and which node owns which partition.
//!
//! A lease and the ownership of a partition are the same kind of right: one node has it for a
//! limited time, with a term that only grows. Every store serves this port, and another service
//! could serve it instead. The elector and the loop that owns partitions call it.
//!
//! # Contract
//! Each sentence is a test of the same name in `testkit::coordinator`.
//!
//! - `one_holder_at_a_time`: a lease that is held and not expired is refused to other nodes.
//! - `terms_grow`: each new holder gets a term greater than all before, even after a restart of the
//!   store.
//! - `renew_keeps_the_term`: and fails for a node that no longer holds the lease.
//! - `an_expired_lease_is_free`: by the coordinator's clock.
//! - `release_frees_at_once`: and only the holder's own term can be released.
//! - `every_node_can_read_the_holder`: while it holds the lease, and until when it does unless it
//!   renews.
//! - `only_a_node_whose_session_ended_is_gone`: the rights of any other node end with its lease.
//!
//! Partitions (see [`partitions`](crate::partitions)) are tested in `testkit::partitions`:
//!
//! - `a_lone_node_owns_everything`: at once.
//! - `a_newcomer_gets_its_share`: after both have taken their shares. Nothing else changes hands.
//! - `partitions_of_a_silent_node_are_taken`: once its ownership has run out, by the store's clock.
//! - `a_leaving_node_frees_what_it_owned`: at once.
//! - `terms_grow_with_every_new_owner`: and stay with the same one.
//! - `nobody_owns_what_another_owns`.
//! - `a_share_says_when_to_look_again`: when the right of another node may end, which is its
//!   membership or its ownership. A node that looks then takes over from a silent one at once.

use async_trait::async_trait;

use crate::ids::NodeId;
use crate::partitions::{Ownership, PartitionShare};
use crate::store::StoreError;
use crate::time::Timestamp;

/// The name of the leader's lease.
pub const LEADER: &str = "leader";

/// A lease that a node holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderLease {
    /// The name of the right.
    pub name: String,
    /// The node that holds it.
    pub holder: NodeId,
    /// Its term, greater than that of any earlier holder.
    pub term: u64,
}

/// A lease as another node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurrentLease {
    /// Who holds it, and in which term.
    pub lease: LeaderLease,
    /// When it ends unless it is renewed.
    pub expires_at: Timestamp,
}

/// Gives out named leases and partitions (see the module's contract).
#[async_trait]
pub trait Coordinator: Send + Sync {
    /// Acquires the lease for `ttl_millis`, if it is free.
    async fn acquire(&self, name: &str, holder: NodeId, ttl_millis: u64) -> Result<Option<LeaderLease>, StoreError>;

    /// Renews the lease for `ttl_millis` from now. False if it is lost.
    async fn renew(&self, lease: &LeaderLease, ttl_millis: u64) -> Result<bool, StoreError>;

    /// Reads the current lease.
    async fn holder(&self, name: &str) -> Result<Option<CurrentLease>, StoreError>;

    /// Releases the lease.
    async fn release(&self, lease: &LeaderLease) -> Result<(), StoreError>;

    /// Brings a node to its share of `count` partitions, in one transaction. The node becomes a
    /// member for `ttl_millis`, renews the partitions that it owns, gives up those beyond its
    /// share, and takes free ones up to its share.
    async fn take_share(&self, node: NodeId, count: u16, ttl_millis: u64) -> Result<PartitionShare, StoreError>;

    /// Ends the membership of a node and frees its partitions.
    async fn leave(&self, node: NodeId) -> Result<(), StoreError>;

    /// Declares a node gone whose session has ended (see
    /// [`NodeSession`](crate::registry::NodeSession)). In one transaction its membership, its
    /// partitions and its lease end, and the registry records it. False, and nothing changes, if
    /// its session is open or unknown, or if it is gone already.
    async fn declare_gone(&self, node: NodeId) -> Result<bool, StoreError>;

    /// Lists every partition that was ever owned, by number.
    async fn ownership(&self) -> Result<Vec<Ownership>, StoreError>;
}
