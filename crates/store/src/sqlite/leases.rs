//! The check of a lease by the writer. The port's calls are in `portable/leases.rs`.

use punctual_core::coordinator::LeaderLease;

use crate::columns::{node_column, number_column};

use super::fault::Fault;
use super::session::Session;
use super::statements::Sql;

/// Whether this is the last term of the lease, expired or not. It stays so until the writer's
/// transaction ends: no other connection writes.
pub(crate) fn is_last(session: &mut Session<'_>, lease: &LeaderLease) -> Result<bool, Fault> {
    let hold = session.statements.get(Sql::LeaseHold)?;
    Ok(hold.exists((&lease.name, node_column(lease.holder), number_column(lease.term)))?)
}
