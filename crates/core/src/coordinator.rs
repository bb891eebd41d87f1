//! The coordinator: named leases, each with a term that only grows.
//!
//! # Contract
//! Each sentence is a test of the same name in `testkit::coordinator`.
//!
//! - `one_holder_at_a_time`: a lease that is held and not expired is refused to others.
//! - `terms_grow`: each new holder gets a term greater than all before, also after a restart of the store.
//! - `renew_keeps_the_term`: and fails for whoever does not hold the lease any more.
//! - `an_expired_lease_is_free`: by the coordinator's clock.
//! - `release_frees_at_once`: and only the holder's own term can be released.
//! - `the_holder_is_told_to_everybody`: while it holds the lease.

use async_trait::async_trait;

use crate::ids::NodeId;
use crate::store::StoreError;

/// The name of the leader's lease.
pub const LEADER: &str = "leader";

/// A lease that somebody holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// What it is a lease of.
    pub name: String,
    /// Who holds it.
    pub holder: NodeId,
    /// Its term: greater than that of any holder before.
    pub term: u64,
}

/// Gives out named leases (see the module's contract).
#[async_trait]
pub trait Coordinator: Send + Sync {
    /// Takes the lease if it is free, for `ttl_millis`.
    async fn acquire(&self, name: &str, holder: NodeId, ttl_millis: u64) -> Result<Option<Lease>, StoreError>;

    /// Holds on to the lease for another `ttl_millis`. False: it is lost.
    async fn renew(&self, lease: &Lease, ttl_millis: u64) -> Result<bool, StoreError>;

    /// Who holds the lease now, if anybody does.
    async fn holder(&self, name: &str) -> Result<Option<Lease>, StoreError>;

    /// Gives the lease up.
    async fn release(&self, lease: &Lease) -> Result<(), StoreError>;
}
