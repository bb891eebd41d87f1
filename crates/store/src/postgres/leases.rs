//! Named leases: the coordinator on the store. Each of its calls is one statement.

use punctual_core::coordinator::Lease;
use punctual_core::ids::NodeId;
use punctual_core::time::Timestamp;

use super::connection::Session;
use super::fault::Fault;
use super::statements::Sql;
use crate::columns::{node_column, node_from_column, number_column};

/// Takes the lease if it is free.
pub(crate) async fn acquire(
    session: &Session,
    now: Timestamp,
    name: &str,
    holder: NodeId,
    ttl_millis: u64,
) -> Result<Option<Lease>, Fault> {
    let until = now.plus_millis(number_column(ttl_millis));
    let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
        [&name, &node_column(holder), &now.as_millis(), &until.as_millis()];
    let rows = session.query(Sql::LeaseAcquire, &parameters).await?;
    let lease =
        |row: &tokio_postgres::Row| Lease { name: name.to_owned(), holder, term: row.get::<_, i64>(0).cast_unsigned() };
    Ok(rows.first().map(lease))
}

/// Who holds the lease now, if anybody does.
pub(crate) async fn holder(session: &Session, now: Timestamp, name: &str) -> Result<Option<Lease>, Fault> {
    let rows = session.query(Sql::LeaseGet, &[&name, &now.as_millis()]).await?;
    let lease = |row: &tokio_postgres::Row| Lease {
        name: name.to_owned(),
        holder: node_from_column(row.get(0)),
        term: row.get::<_, i64>(1).cast_unsigned(),
    };
    Ok(rows.first().map(lease))
}

/// Begins a transaction that writes as the holder of the lease, unless somebody else has held it
/// since: then false, and the transaction is to be rolled back. Nobody takes the lease before it
/// has ended.
pub(crate) async fn begin_as(session: &Session, lease: &Lease) -> Result<bool, Fault> {
    let (holder, term) = (node_column(lease.holder), number_column(lease.term));
    Ok(!session.begin(Sql::LeaseHold, &[&lease.name, &holder, &term]).await?.is_empty())
}

/// Holds on to the lease.
pub(crate) async fn renew(session: &Session, now: Timestamp, lease: &Lease, ttl_millis: u64) -> Result<bool, Fault> {
    let until = now.plus_millis(number_column(ttl_millis));
    let (holder, term) = (node_column(lease.holder), number_column(lease.term));
    let renewed =
        session.execute(Sql::LeaseRenew, &[&lease.name, &holder, &term, &now.as_millis(), &until.as_millis()]).await?;
    Ok(renewed == 1)
}

/// Gives the lease up.
pub(crate) async fn release(session: &Session, lease: &Lease) -> Result<(), Fault> {
    let (holder, term) = (node_column(lease.holder), number_column(lease.term));
    session.execute(Sql::LeaseRelease, &[&lease.name, &holder, &term]).await?;
    Ok(())
}
