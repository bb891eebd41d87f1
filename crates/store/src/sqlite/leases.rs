//! Named leases: the coordinator on the store.

use punctual_core::coordinator::Lease;
use punctual_core::ids::NodeId;
use rusqlite::OptionalExtension;

use crate::columns::{node_column, node_from_column, number_column};

use super::fault::Fault;
use super::session::Session;
use super::statements::Sql;

/// Takes the lease if it is free. Its holder may ask again, having missed the answer: it gets the
/// same term.
pub(crate) fn acquire(
    session: &mut Session<'_>,
    name: &str,
    holder: NodeId,
    ttl_millis: u64,
) -> Result<Option<Lease>, Fault> {
    let now = session.now();
    let get = session.statements.get(Sql::LeaseGet)?;
    let held: Option<(i64, i64, i64)> =
        get.query_row([name], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).optional()?;
    let term = match held {
        Some((by, term, until)) if until > now.as_millis() => {
            if node_from_column(by) != holder {
                return Ok(None);
            }
            term
        }
        Some((_, term, _)) => term + 1,
        None => 1,
    };
    let until = now.plus_millis(number_column(ttl_millis));
    let put = session.statements.get(Sql::LeasePut)?;
    put.execute((name, node_column(holder), term, until.as_millis()))?;
    Ok(Some(Lease { name: name.to_owned(), holder, term: term.cast_unsigned() }))
}

/// Who holds the lease now, if anybody does.
pub(crate) fn holder(session: &mut Session<'_>, name: &str) -> Result<Option<Lease>, Fault> {
    let now = session.now().as_millis();
    let get = session.statements.get(Sql::LeaseGet)?;
    let held: Option<(i64, i64, i64)> =
        get.query_row([name], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).optional()?;
    let lease = |holder, term: i64| Lease { name: name.to_owned(), holder, term: term.cast_unsigned() };
    let lasting = held.filter(|(.., until)| *until > now);
    Ok(lasting.map(|(by, term, _)| lease(node_from_column(by), term)))
}

/// Whether nobody has held the lease since, run out or not.
pub(crate) fn is_last(session: &mut Session<'_>, lease: &Lease) -> Result<bool, Fault> {
    let get = session.statements.get(Sql::LeaseGet)?;
    let last: Option<(i64, i64)> = get.query_row([&lease.name], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    Ok(last == Some((node_column(lease.holder), number_column(lease.term))))
}

/// Holds on to the lease.
pub(crate) fn renew(session: &mut Session<'_>, lease: &Lease, ttl_millis: u64) -> Result<bool, Fault> {
    let now = session.now();
    let until = now.plus_millis(number_column(ttl_millis));
    let renew = session.statements.get(Sql::LeaseRenew)?;
    let holder = node_column(lease.holder);
    let renewed =
        renew.execute((&lease.name, holder, number_column(lease.term), now.as_millis(), until.as_millis()))?;
    Ok(renewed == 1)
}

/// Gives the lease up.
pub(crate) fn release(session: &mut Session<'_>, lease: &Lease) -> Result<(), Fault> {
    let release = session.statements.get(Sql::LeaseRelease)?;
    release.execute((&lease.name, node_column(lease.holder), number_column(lease.term)))?;
    Ok(())
}
