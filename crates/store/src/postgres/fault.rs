//! The faults of the database, and the errors that callers get for them.

use std::error::Error;

use punctual_core::store::StoreError;
use tokio_postgres::error::{DbError, SqlState};

/// Why a statement or a transaction did not succeed.
#[derive(Debug)]
pub(crate) enum Fault {
    /// PostgreSQL refused or failed, or the connection broke.
    Postgres(tokio_postgres::Error),
    /// PostgreSQL did not answer in time, or the connection ended.
    Silent,
    /// There is no connection; the error of the last attempt.
    NoConnection(StoreError),
    /// Another transaction removed a row between two reads.
    Vanished(String),
    /// A stored value is invalid.
    Corrupt(String),
    /// The store is closed.
    Closed,
}

impl Fault {
    /// The error code of PostgreSQL.
    pub(crate) fn code(&self) -> Option<&SqlState> {
        if let Fault::Postgres(error) = self { error.code() } else { None }
    }

    /// Whether another transaction was in the way: a retry may succeed at once.
    pub(crate) fn is_conflict(&self) -> bool {
        let clashes = [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED];
        matches!(self, Fault::Vanished(_)) || self.code().is_some_and(|code| clashes.contains(code))
    }

    /// Whether a unique row exists already.
    pub(crate) fn is_unique_violation(&self) -> bool {
        self.code() == Some(&SqlState::UNIQUE_VIOLATION)
    }

    /// Whether a task was to be put into a lane that does not exist.
    pub(crate) fn is_of_missing_lane(&self) -> bool {
        let Fault::Postgres(error) = self else { return false };
        let is_lane = |error: &DbError| (error.table(), error.column()) == (Some("tasks"), Some("lane"));
        error.code() == Some(&SqlState::NOT_NULL_VIOLATION) && error.as_db_error().is_some_and(is_lane)
    }

    /// Whether the lock was not to be had in time.
    pub(crate) fn is_lock_timeout(&self) -> bool {
        self.code() == Some(&SqlState::LOCK_NOT_AVAILABLE)
    }

    /// Whether the connection must be replaced.
    pub(crate) fn breaks_connection(&self) -> bool {
        match self {
            Fault::Postgres(error) => error.is_closed() || error.code().is_none_or(is_connection),
            Fault::Silent | Fault::NoConnection(_) => true,
            Fault::Vanished(_) | Fault::Corrupt(_) | Fault::Closed => false,
        }
    }

    /// Whether one call of a batch may have caused it.
    pub(crate) fn may_be_of_one_call(&self) -> bool {
        match self {
            Fault::Postgres(_) => !self.breaks_connection() && !self.is_full() && !self.is_timeout(),
            Fault::Vanished(_) | Fault::Corrupt(_) => true,
            _ => false,
        }
    }

    /// Whether a statement ran, or waited for a lock, for too long. Another try would take as long.
    fn is_timeout(&self) -> bool {
        let timeouts = [SqlState::LOCK_NOT_AVAILABLE, SqlState::QUERY_CANCELED];
        self.code().is_some_and(|code| timeouts.contains(code))
    }

    fn is_full(&self) -> bool {
        self.code() == Some(&SqlState::DISK_FULL)
    }

    /// The error that callers get.
    pub(crate) fn to_store_error(&self) -> StoreError {
        match self {
            Fault::Postgres(error) => match error.code() {
                Some(code) if *code == SqlState::DISK_FULL => StoreError::Full(describe(error)),
                Some(code) if [SqlState::DATA_CORRUPTED, SqlState::INDEX_CORRUPTED].contains(code) => {
                    StoreError::Corrupt(describe(error))
                }
                _ => StoreError::Unavailable(describe(error)),
            },
            Fault::Silent => StoreError::Unavailable("PostgreSQL does not answer".to_owned()),
            Fault::NoConnection(why) => why.clone(),
            Fault::Vanished(what) => StoreError::Unavailable(what.clone()),
            Fault::Corrupt(what) => StoreError::Corrupt(what.clone()),
            Fault::Closed => closed(),
        }
    }
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        Fault::Postgres(error)
    }
}

/// Class 08, and the errors of a server that shuts down, crashes or starts.
fn is_connection(code: &SqlState) -> bool {
    code.code().starts_with("08")
        || [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN, SqlState::CANNOT_CONNECT_NOW].contains(code)
        || *code == SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT
        // A server that became a standby refuses writes; the next connection may find the new
        // primary.
        || *code == SqlState::READ_ONLY_SQL_TRANSACTION
}

/// The message of PostgreSQL, or the error with its cause: its own text names only the place.
pub(crate) fn describe(error: &tokio_postgres::Error) -> String {
    if let Some(reported) = error.as_db_error() {
        return format!("{} ({})", reported.message(), reported.code().code());
    }
    match error.source() {
        Some(reason) => format!("{error}: {reason}"),
        None => error.to_string(),
    }
}

/// The error of calls on a closed store.
pub(crate) fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".to_owned())
}
