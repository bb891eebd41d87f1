//! Checks whether a database can be used, and explains in one sentence why not.
//!
//! The store calls it when it opens, before any session. No password is ever in a message.

use tokio_postgres::error::SqlState;

use super::Address;
use super::tls::{self, Refusal};
use crate::migrations::MigrationError;
use crate::migrations::postgres::STEPS;
use crate::postgres::fault::{Fault, describe};
use crate::postgres::migrator::Migrator;

/// Why a database cannot be used. No password is ever in it.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The URL is not valid.
    #[error("the store's URL cannot be read: {0}")]
    Url(String),
    /// No server answers there.
    #[error("PostgreSQL at {server} cannot be reached: {reason}")]
    Unreachable {
        /// Its address.
        server: String,
        /// The error of the operating system or the server.
        reason: String,
    },
    /// It does not speak TLS, which `sslmode` asks for.
    #[error(
        "PostgreSQL at {server} does not speak TLS, which sslmode asks for: turn `ssl` on there, or say sslmode=disable \
         if the network in between can be trusted"
    )]
    NoTls {
        /// Its address.
        server: String,
    },
    /// Its certificate is not accepted.
    #[error("the certificate of PostgreSQL at {server} is not accepted: {reason}")]
    Certificate {
        /// Its address.
        server: String,
        /// The fault, and what to do.
        reason: String,
    },
    /// It does not accept the certificate of this node.
    #[error("PostgreSQL at {server} does not accept the certificate of this node: {reason}")]
    ClientCertificate {
        /// Its address.
        server: String,
        /// The fault, and what to do.
        reason: String,
    },
    /// The server does not let this user in.
    #[error("PostgreSQL at {server} refuses the user or its password: {reason}")]
    Authentication {
        /// Its address.
        server: String,
        /// The error of the server.
        reason: String,
    },
    /// The server has no such database.
    #[error("PostgreSQL at {server} has no such database; create it first")]
    NoDatabase {
        /// Its address.
        server: String,
    },
    /// The server has no room for the connections of this node.
    #[error(
        "PostgreSQL at {server} has no room for the {needed} connections of this node: {reason}; raise max_connections \
         there (or the size of the pool), lower store_connections on every node, or stop another node"
    )]
    TooFewConnections {
        /// Its address.
        server: String,
        /// How many connections the node needs.
        needed: usize,
        /// The error of the server.
        reason: String,
    },
    /// A pooler in between gives each transaction another connection.
    #[error(
        "{server} is a pooler that does not keep sessions, such as PgBouncer with pool_mode=transaction: set \
         pool_mode=session for this database, or give the address of PostgreSQL itself"
    )]
    TransactionPooling {
        /// Its address.
        server: String,
    },
    /// The schema lacks steps that this binary needs.
    #[error(
        "the database has schema version {found}, but this binary needs version {known}: run `punctual migrate up`"
    )]
    Older {
        /// The version of the database; zero if there is none.
        found: usize,
        /// The last version of this binary.
        known: usize,
    },
    /// The schema is not one that this binary can work with.
    #[error("the database at {server} cannot be used: {reason}")]
    Schema {
        /// Its address.
        server: String,
        /// What is wrong with it.
        reason: MigrationError,
    },
    /// The read store is not a standby of this store.
    #[error("the read store at {server} is not a standby of the store: {reason}")]
    NotAStandby {
        /// Its address.
        server: String,
        /// What it is instead.
        reason: String,
    },
    /// The read store cannot be used, and waiting does not help.
    #[error("the read store cannot be used: {0}")]
    ReadStore(Box<ConnectError>),
    /// Something else.
    #[error("the database at {server} does not answer: {reason}")]
    Database {
        /// Its address.
        server: String,
        /// The error.
        reason: String,
    },
}

impl ConnectError {
    /// The error of a failed connection.
    pub(crate) fn of(address: &Address, fault: Fault) -> Self {
        let server = address.to_string();
        let Fault::Postgres(error) = fault else {
            return ConnectError::Unreachable { server, reason: fault.to_store_error().to_string() };
        };
        match tls::refusal(&error) {
            Some(Refusal::Plain) => return ConnectError::NoTls { server },
            Some(Refusal::Certificate(reason)) => return ConnectError::Certificate { server, reason },
            Some(Refusal::ClientCertificate(reason)) => return ConnectError::ClientCertificate { server, reason },
            None => {}
        }
        let reason = describe(&error);
        match error.code() {
            Some(code) if code.code().starts_with("28") => ConnectError::Authentication { server, reason },
            Some(code) if *code == SqlState::UNDEFINED_DATABASE => ConnectError::NoDatabase { server },
            // The driver gives up if the server asks for a password that it does not have.
            None if reason.ends_with("password missing") => {
                let reason = "it asks for a password, and the address has none".to_owned();
                ConnectError::Authentication { server, reason }
            }
            _ => ConnectError::Unreachable { server, reason },
        }
    }

    pub(crate) fn database(address: &Address, reason: String) -> Self {
        ConnectError::Database { server: address.to_string(), reason }
    }

    pub(crate) fn schema(address: &Address, reason: MigrationError) -> Self {
        ConnectError::Schema { server: address.to_string(), reason }
    }
}

/// Checks that the database answers and has the schema that this binary knows.
pub(crate) async fn check(address: &Address) -> Result<(), ConnectError> {
    let database = Migrator::open(address).await?;
    let found = database.applied().await.map_err(|reason| ConnectError::schema(address, reason))?;
    if found < STEPS.len() {
        return Err(ConnectError::Older { found, known: STEPS.len() });
    }
    Ok(())
}
