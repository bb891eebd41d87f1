//! Reads the URL of a database and looks whether it can be worked with, and says in one sentence what is wrong.

use tokio_postgres::Config;
use tokio_postgres::config::Host;
use tokio_postgres::error::SqlState;

use super::database::Database;
use super::fault::{Fault, spoken};
use crate::migrations::MigrationError;
use crate::migrations::postgres::STEPS;

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
    pub(crate) fn of(config: &Config, fault: Fault) -> Self {
        let server = server(config);
        let Fault::Postgres(error) = fault else {
            return ConnectError::Unreachable { server, reason: fault.tell().to_string() };
        };
        let reason = spoken(&error);
        match error.code() {
            Some(code) if code.code().starts_with("28") => ConnectError::Authentication { server, reason },
            Some(code) if *code == SqlState::UNDEFINED_DATABASE => ConnectError::NoDatabase { server },
            // Without an answer of the server: it asks for a password, say, and none was given.
            None if error.to_string().contains("password") => ConnectError::Authentication { server, reason },
            _ => ConnectError::Unreachable { server, reason },
        }
    }

    pub(crate) fn database(config: &Config, reason: String) -> Self {
        ConnectError::Database { server: server(config), reason }
    }

    pub(crate) fn schema(config: &Config, reason: MigrationError) -> Self {
        ConnectError::Schema { server: server(config), reason }
    }
}

/// Reads a URL.
pub(crate) fn config(url: &str) -> Result<Config, ConnectError> {
    url.parse().map_err(|error: tokio_postgres::Error| ConnectError::Url(spoken(&error)))
}

/// Looks whether the database is there and has the schema that this binary knows.
pub(crate) async fn check(config: &Config) -> Result<(), ConnectError> {
    let database = Database::open(config).await?;
    let status = database.status().await.map_err(|reason| ConnectError::schema(config, reason))?;
    let found = status.iter().filter(|step| step.applied_at.is_some()).count();
    if found < STEPS.len() {
        return Err(ConnectError::Older { found, known: STEPS.len() });
    }
    Ok(())
}

/// Host, port and database, and no more: a URL has a password in it.
fn server(config: &Config) -> String {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(host)) => host.clone(),
        #[cfg(unix)]
        Some(Host::Unix(path)) => path.display().to_string(),
        None => "localhost".to_owned(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
    format!("{host}:{port}/{database}")
}
