//! The faults of the database, and the errors that callers get for them.

use std::io;

use punctual_core::store::StoreError;
use rusqlite::ErrorCode;

/// Why a job did not succeed.
#[derive(Debug)]
pub(crate) enum Fault {
    /// SQLite refused or failed.
    Sqlite(rusqlite::Error),
    /// A stored value makes no sense.
    Corrupt(String),
    /// Another process has the database open and is in the way.
    Busy,
    /// The job panicked: a bug.
    Panicked,
    /// The system refused a thread.
    Thread(io::Error),
}

impl Fault {
    /// Whether the disk may differ from what the connection believes.
    pub(crate) fn is_suspect(&self) -> bool {
        matches!(self, Fault::Sqlite(error) if error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure))
    }

    /// Whether there is no room on the disk.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Fault::Sqlite(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull))
    }

    /// Whether SQLite calls the file malformed.
    pub(crate) fn is_damage(&self) -> bool {
        let code = if let Fault::Sqlite(error) = self { error.sqlite_error_code() } else { None };
        matches!(code, Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
    }

    /// The error that callers get.
    pub(crate) fn to_store_error(&self) -> StoreError {
        match self {
            Fault::Sqlite(error) => match error.sqlite_error_code() {
                Some(ErrorCode::DiskFull) => StoreError::Full(error.to_string()),
                _ => StoreError::Unavailable(error.to_string()),
            },
            Fault::Corrupt(what) => StoreError::Corrupt(what.clone()),
            Fault::Busy => StoreError::Unavailable("another process is using the database".to_owned()),
            Fault::Thread(error) => StoreError::Unavailable(format!("the store cannot start a thread: {error}")),
            Fault::Panicked => StoreError::Unavailable("a call of the store panicked, see the log".to_owned()),
        }
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Fault::Sqlite(error)
    }
}

/// The error of calls on a closed store.
pub(crate) fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".to_owned())
}
