//! How a connection to the database is opened: for the writer, and for the readers.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::Options;

/// The first release of SQLite without the defect that could corrupt a database whose write-ahead
/// log is reset while another connection checkpoints it.
pub(crate) const OLDEST_SQLITE: i32 = 3_051_003;

/// How long to wait for another process that has the database open.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// More statements than there are, so that a connection prepares each of them once.
const STATEMENTS: usize = 128;

/// Pages of 4 KiB: what the kernel and most disks write at once.
const PAGE_BYTES: u32 = 4_096;

/// Opens the database to write, and makes it if it is missing.
pub(crate) fn open_writer(path: &Path, options: &Options) -> rusqlite::Result<Connection> {
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
    // The page size holds for a database that has no page yet, so it comes first.
    connection.pragma_update(None, "page_size", PAGE_BYTES)?;
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
    if mode != "wal" {
        return Err(rusqlite::Error::InvalidParameterName(format!("the file system allows journal mode {mode} only")));
    }
    // FULL: a commit is on the disk when it returns.
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "foreign_keys", false)?;
    connection.pragma_update(None, "cache_size", kibibytes(options.writer_cache_bytes))?;
    // `checkpoint` moves the log and checks the result; a commit would hide it.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    // A log that grew under a long read is cut again.
    connection.pragma_update(None, "journal_size_limit", options.log_limit_bytes)?;
    Ok(connection)
}

/// Opens the database to read.
pub(crate) fn open_reader(path: &Path, options: &Options) -> rusqlite::Result<Connection> {
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.pragma_update(None, "query_only", true)?;
    connection.pragma_update(None, "cache_size", kibibytes(options.reader_cache_bytes))?;
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    Ok(connection)
}

fn open(path: &Path, access: OpenFlags) -> rusqlite::Result<Connection> {
    // Each connection belongs to one thread: SQLite need not lock it.
    let connection = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.pragma_update(None, "temp_store", "memory")?;
    // A statement keeps its plan for all parameters. Without this SQLite recompiles some of ours
    // for every value, which takes four times longer than running them.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(connection)
}

/// A negative cache size is in kibibytes, a positive one in pages.
fn kibibytes(bytes: usize) -> i64 {
    -i64::try_from(bytes / 1_024).unwrap_or(i64::MAX)
}
