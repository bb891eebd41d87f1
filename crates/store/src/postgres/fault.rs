//! What can go wrong with the database, and what the callers are told of it.

use std::error::Error;

use punctual_core::store::StoreError;
use tokio_postgres::error::SqlState;

/// Why a statement or a transaction did not succeed.
#[derive(Debug)]
pub(crate) enum Fault {
    /// PostgreSQL said no, or the connection broke.
    Postgres(tokio_postgres::Error),
    /// It did not answer for too long.
    Silent,
    /// There is no connection; why the last attempt failed.
    NoConnection(StoreError),
    /// What it had seen was removed by somebody else before it looked again.
    Vanished(String),
    /// What is stored makes no sense.
    Corrupt(String),
    /// The store is closed.
    Closed,
}

impl Fault {
    /// What PostgreSQL calls it.
    pub(crate) fn code(&self) -> Option<&SqlState> {
        if let Fault::Postgres(error) = self { error.code() } else { None }
    }

    /// Whether the same transaction may succeed at once: others were in its way.
    pub(crate) fn is_conflict(&self) -> bool {
        let clashes = [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED];
        matches!(self, Fault::Vanished(_)) || self.code().is_some_and(|code| clashes.contains(code))
    }

    /// Whether a row was there already.
    pub(crate) fn is_unique_violation(&self) -> bool {
        self.code() == Some(&SqlState::UNIQUE_VIOLATION)
    }

    /// Whether the connection is of no use any more.
    pub(crate) fn breaks_connection(&self) -> bool {
        match self {
            Fault::Postgres(error) => error.is_closed() || error.code().is_none_or(is_connection),
            Fault::Silent | Fault::NoConnection(_) => true,
            Fault::Vanished(_) | Fault::Corrupt(_) | Fault::Closed => false,
        }
    }

    /// Whether it may be the fault of one call among those that were written together.
    pub(crate) fn may_be_of_one_call(&self) -> bool {
        match self {
            Fault::Postgres(_) => !self.breaks_connection() && !self.is_full(),
            Fault::Vanished(_) | Fault::Corrupt(_) => true,
            _ => false,
        }
    }

    fn is_full(&self) -> bool {
        self.code() == Some(&SqlState::DISK_FULL)
    }

    /// What the callers are told.
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

/// Class 08, and a server that shuts down, crashes or starts.
fn is_connection(code: &SqlState) -> bool {
    code.code().starts_with("08")
        || [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN, SqlState::CANNOT_CONNECT_NOW].contains(code)
        || *code == SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT
        // A server that has become a standby takes no writes; the next connection may find the new
        // primary.
        || *code == SqlState::READ_ONLY_SQL_TRANSACTION
}

/// What PostgreSQL says, with its reason: the error by itself only says where it happened.
pub(crate) fn describe(error: &tokio_postgres::Error) -> String {
    if let Some(said) = error.as_db_error() {
        return format!("{} ({})", said.message(), said.code().code());
    }
    match error.source() {
        Some(reason) => format!("{error}: {reason}"),
        None => error.to_string(),
    }
}

/// What calls on a closed store are told.
pub(crate) fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".to_owned())
}
