//! Checks whether a database can be used, and says in one sentence what is wrong with it.
//!
//! The store calls it when it opens, before any session. No password is ever in a message.

use tokio_postgres::error::SqlState;

use super::Address;
use super::tls::{self, Refusal};
use crate::migrations::MigrationError;
use crate::migrations::postgres::STEPS;
use crate::postgres::fault::{Fault, describe};
use crate::postgres::migrator::Migrator;

/// Why a database cannot be worked with. No password is ever in it.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The URL is none.
    #[error("the store's URL cannot be read: {0}")]
    Url(String),
    /// Nobody answers there.
    #[error("PostgreSQL at {server} cannot be reached: {reason}")]
    Unreachable {
        /// Where.
        server: String,
        /// What the operating system or the server says.
        reason: String,
    },
    /// It does not speak TLS, and was asked to.
    #[error(
        "PostgreSQL at {server} does not speak TLS, which sslmode asks for: turn `ssl` on there, or say sslmode=disable \
         if the network in between can be trusted"
    )]
    NoTls {
        /// Where.
        server: String,
    },
    /// Its certificate is not accepted.
    #[error("the certificate of PostgreSQL at {server} is not accepted: {reason}")]
    Certificate {
        /// Where.
        server: String,
        /// What is wrong with it, and what to do.
        reason: String,
    },
    /// The server does not let this user in.
    #[error("PostgreSQL at {server} refuses the user or its password: {reason}")]
    Authentication {
        /// Where.
        server: String,
        /// What the server says.
        reason: String,
    },
    /// The server has no such database.
    #[error("PostgreSQL at {server} has no such database; create it first")]
    NoDatabase {
        /// Where.
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
        /// Where.
        server: String,
        /// What is wrong with it.
        reason: MigrationError,
    },
    /// What is given as the read store is none of this store's.
    #[error("the read store at {server} is not a standby of the store: {reason}")]
    NotAStandby {
        /// Where.
        server: String,
        /// What it is instead.
        reason: String,
    },
    /// The read store cannot be worked with, and waiting will not help.
    #[error("the read store cannot be used: {0}")]
    ReadStore(Box<ConnectError>),
    /// Something else.
    #[error("the database at {server} does not answer: {reason}")]
    Database {
        /// Where.
        server: String,
        /// What it says.
        reason: String,
    },
}

impl ConnectError {
    /// What went wrong with a connection.
    pub(crate) fn of(address: &Address, fault: Fault) -> Self {
        let server = address.to_string();
        let Fault::Postgres(error) = fault else {
            return ConnectError::Unreachable { server, reason: fault.to_store_error().to_string() };
        };
        match tls::refusal(&error) {
            Some(Refusal::Plain) => return ConnectError::NoTls { server },
            Some(Refusal::Certificate(reason)) => return ConnectError::Certificate { server, reason },
            None => {}
        }
        let reason = describe(&error);
        match error.code() {
            Some(code) if code.code().starts_with("28") => ConnectError::Authentication { server, reason },
            Some(code) if *code == SqlState::UNDEFINED_DATABASE => ConnectError::NoDatabase { server },
            // The driver does not answer a server that asks for what it was not given.
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

/// Looks whether the database is there and has the schema that this binary knows.
pub(crate) async fn check(address: &Address) -> Result<(), ConnectError> {
    let database = Migrator::open(address).await?;
    let found = database.applied().await.map_err(|reason| ConnectError::schema(address, reason))?;
    if found < STEPS.len() {
        return Err(ConnectError::Older { found, known: STEPS.len() });
    }
    Ok(())
}
