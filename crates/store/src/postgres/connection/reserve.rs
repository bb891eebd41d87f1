//! Opens all connections of a node before it joins.
//!
//! The store calls it when it opens. A node that gets only some of its connections would take them
//! from the other nodes and still not work, so it gives them back and does not start.

use tokio::task::JoinSet;
use tokio_postgres::error::SqlState;
use tracing::warn;

use super::{Address, ConnectError, Session};
use crate::postgres::fault::Fault;
use crate::postgres::statements::Sql;

/// Opens this many sessions, or none. The node has one already, that of its clock.
pub(crate) async fn open_all(address: &Address, count: usize) -> Result<Vec<Session>, ConnectError> {
    let needed = count + 1;
    let mut opening = JoinSet::new();
    for _ in 0..count {
        let address = address.clone();
        opening.spawn(async move { Session::open(&address, &[]).await });
    }
    let opened: Result<Vec<Session>, Fault> = opening.join_all().await.into_iter().collect();
    let sessions = opened.map_err(|fault| refusal(address, needed, fault))?;
    if let Some(session) = sessions.first() {
        warn_of_scarcity(session, needed).await;
    }
    Ok(sessions)
}

fn refusal(address: &Address, needed: usize, fault: Fault) -> ConnectError {
    let is_full = fault.code() == Some(&SqlState::TOO_MANY_CONNECTIONS) || matches!(fault, Fault::Silent);
    if !is_full {
        return ConnectError::of(address, fault);
    }
    let reason = fault.to_store_error().to_string();
    ConnectError::TooFewConnections { server: address.to_string(), needed, reason }
}

/// Warns if the server has no room for another node like this one.
async fn warn_of_scarcity(session: &Session, needed: usize) {
    let Ok(rows) = session.query(Sql::ConnectionRoom, &[]).await else { return };
    let Some((max, reserved, used)) = rows.first().map(|row| (row.get(0), row.get(1), row.get(2))) else { return };
    let (max, reserved, used): (i32, i32, i64) = (max, reserved, used);
    let free = (i64::from(max) - i64::from(reserved) - used).max(0);
    if free < i64::try_from(needed).unwrap_or(i64::MAX) {
        warn!(
            max_connections = max,
            reserved,
            in_use = used,
            needed,
            "PostgreSQL has no room for another node; raise max_connections or lower store_connections before you add one"
        );
    }
}
