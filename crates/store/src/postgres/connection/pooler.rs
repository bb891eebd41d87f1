//! Refuses a pooler that does not keep a session on one connection of the server.
//!
//! The store needs sessions: prepared statements, settings and notifications. PgBouncer keeps them
//! in session mode; in transaction or statement mode it gives each of these any connection.

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::{Address, ConnectError};
use crate::postgres::fault::Fault;

/// How often it is tried. A pooler gives out its last used connection first, so the first try
/// nearly always finds it.
const TRIES: u32 = 3;

/// Fails if a setting of one session is lost while another session has a transaction open. `client`
/// is a connection to `address`.
pub(crate) async fn refuse_shared_sessions(address: &Address, client: &Client) -> Result<(), ConnectError> {
    let fault = |fault: Fault| ConnectError::of(address, fault);
    let (other, connection) = address.connect(|_| {}).await.map_err(fault)?;
    let driver = tokio::spawn(async move {
        // The statement under way gets the error.
        drop(connection.await);
    });
    for number in 0..TRIES {
        let kept = match keeps_its_setting(client, &other, number).await {
            // In statement mode there are no transactions.
            Err(error) if error.code() == Some(&SqlState::PROTOCOL_VIOLATION) => Ok(false),
            kept => kept.map_err(|error| fault(error.into())),
        };
        if !kept? {
            driver.abort();
            return Err(ConnectError::TransactionPooling { server: address.to_string() });
        }
    }
    driver.abort();
    Ok(())
}

/// Whether `client` reads what it set while `other` is in a transaction.
async fn keeps_its_setting(client: &Client, other: &Client, number: u32) -> Result<bool, tokio_postgres::Error> {
    client.batch_execute(&format!("SET punctual.session = 'session {number}'")).await?;
    // It takes the connection that the pooler just got back, if there is a pooler.
    other.batch_execute("BEGIN; SELECT 1").await?;
    let read = client.simple_query("SELECT current_setting('punctual.session', true)").await;
    other.batch_execute("ROLLBACK").await?;
    let is_kept = |message: &SimpleQueryMessage| matches!(message, SimpleQueryMessage::Row(row) if row.get(0) == Some(format!("session {number}").as_str()));
    Ok(read?.iter().any(is_kept))
}
