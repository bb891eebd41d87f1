//! Named leases. Every call is one statement.

use punctual_core::coordinator::{CurrentLease, LeaderLease};
use punctual_core::ids::NodeId;
use punctual_core::time::Timestamp;

use super::{Connection, PortableSql, Row};
use crate::columns::{node_column, node_from_column, number_column};

/// Takes the lease if it is free, or if this node holds it already.
pub(crate) async fn acquire<C: Connection>(
    connection: &mut C,
    now: Timestamp,
    name: &str,
    holder: NodeId,
    ttl_millis: u64,
) -> Result<Option<LeaderLease>, C::Fault> {
    let (now, expires_at) = (now.as_millis(), now.plus_millis(number_column(ttl_millis)).as_millis());
    let rows = connection.query(PortableSql::LeaseAcquire, &[&name, &node_column(holder), &now, &expires_at]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    Ok(Some(LeaderLease { name: name.to_owned(), holder, term: row.get::<i64>(0)?.cast_unsigned() }))
}

/// The lease, if a node holds it now.
pub(crate) async fn holder<C: Connection>(
    connection: &mut C,
    now: Timestamp,
    name: &str,
) -> Result<Option<CurrentLease>, C::Fault> {
    let rows = connection.query(PortableSql::LeaseGet, &[&name, &now.as_millis()]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let (holder, term) = (node_from_column(row.get(0)?), row.get::<i64>(1)?.cast_unsigned());
    let expires_at = Timestamp::from_millis(row.get(2)?);
    Ok(Some(CurrentLease { lease: LeaderLease { name: name.to_owned(), holder, term }, expires_at }))
}

/// Extends the lease, unless it has expired or changed hands.
pub(crate) async fn renew<C: Connection>(
    connection: &mut C,
    now: Timestamp,
    lease: &LeaderLease,
    ttl_millis: u64,
) -> Result<bool, C::Fault> {
    let (now, expires_at) = (now.as_millis(), now.plus_millis(number_column(ttl_millis)).as_millis());
    let (holder, term) = (node_column(lease.holder), number_column(lease.term));
    let renewed =
        connection.execute(PortableSql::LeaseRenew, &[&lease.name, &holder, &term, &now, &expires_at]).await?;
    Ok(renewed == 1)
}

/// Gives the lease up.
pub(crate) async fn release<C: Connection>(connection: &mut C, lease: &LeaderLease) -> Result<(), C::Fault> {
    let (holder, term) = (node_column(lease.holder), number_column(lease.term));
    connection.execute(PortableSql::LeaseRelease, &[&lease.name, &holder, &term]).await?;
    Ok(())
}
