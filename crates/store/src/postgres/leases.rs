//! The lock that a lease's holder writes under. The port's calls are in `portable/leases.rs`.

use punctual_core::coordinator::LeaderLease;

use super::connection::Session;
use super::fault::Fault;
use super::statements::Sql;
use crate::columns::{node_column, number_column};

/// Begins a transaction that writes as the holder of the lease; no other node takes the lease
/// before it ends. Returns false if another node has held the lease since: then the caller rolls
/// back. (Here only, because `BEGIN` and the lock are sent together.)
pub(crate) async fn begin_as(session: &Session, lease: &LeaderLease) -> Result<bool, Fault> {
    let (holder, term) = (node_column(lease.holder), number_column(lease.term));
    Ok(!session.begin(Sql::LeaseHold, &[&lease.name, &holder, &term]).await?.is_empty())
}
