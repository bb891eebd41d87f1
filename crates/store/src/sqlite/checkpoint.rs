//! Checkpoints: moves the write-ahead log into the database, so that the log stays small.
//!
//! The writer checks the length of the log after each commit. A thread beside it
//! ([`super::checkpointer`]) moves a long log, because small calls would wait too long otherwise.
//! The writer itself moves the few pages that were written meanwhile, between two transactions.
//! Then the log restarts from its beginning. A reader of an old snapshot prevents that; reads are
//! short, so the log grows little. If it still grows too long, the writer waits for the readers.

use std::io;
use std::time::Duration;

use rusqlite::Connection;
use tracing::warn;

use super::checkpointer::Checkpointer;
use super::connection::BUSY_TIMEOUT;
use super::fault::Fault;

/// Our own readers take less; a longer read by another process must not hold up the writer.
const READERS_BUSY_TIMEOUT: Duration = Duration::from_millis(250);

/// When the log is this many times longer than wanted, the writer waits for the readers.
const RESTART_FACTOR: i64 = 8;

/// The writer moves the remaining pages itself if they are at most this part of the wanted length.
const REMAINDER_DIVISOR: i64 = 4;

/// When to move the log into the database.
pub(crate) struct Checkpoints {
    checkpointer: Checkpointer,
    /// The number of pages between two checkpoints.
    every: i64,
    /// The length of the log at which the next one begins.
    next: i64,
    /// The length at the last check.
    last: i64,
    /// How many pages were in the database when the thread last finished.
    moved: i64,
}

impl Checkpoints {
    /// `beside` is a connection for the thread that moves the log.
    pub(crate) fn new(every: u32, beside: Connection) -> io::Result<Self> {
        let every = i64::from(every.max(1));
        Ok(Self { checkpointer: Checkpointer::start(beside)?, every, next: every, last: 0, moved: 0 })
    }

    /// Checks the log after a commit and begins a checkpoint if it is long enough.
    pub(crate) fn tend(&mut self, connection: &Connection) -> Result<(), Fault> {
        let finished = self.checkpointer.take_result().transpose()?;
        let CheckpointResult { length, done: moved, .. } = checkpoint(connection, CheckpointMode::Noop)?;
        if length < self.last {
            (self.next, self.moved) = (self.every, 0);
        }
        self.last = length;
        if finished.is_some() {
            let went_on = moved > std::mem::replace(&mut self.moved, moved);
            match length - moved {
                0 => {}
                left if left <= self.every / REMAINDER_DIVISOR => {
                    return checkpoint(connection, CheckpointMode::Passive).map(drop);
                }
                // Much was written meanwhile: after the next run less is left.
                _ if went_on => self.checkpointer.request(),
                _ => {}
            }
        }
        if length < self.next || self.checkpointer.is_busy() {
            return Ok(());
        }
        // If a reader is in the way or the disk is full, a try at every commit would only add an
        // fsync to each.
        self.next = length.saturating_add(self.every);
        if length < self.every.saturating_mul(RESTART_FACTOR) {
            self.checkpointer.request();
            return Ok(());
        }
        connection.busy_timeout(READERS_BUSY_TIMEOUT)?;
        let moved = checkpoint(connection, CheckpointMode::Restart);
        connection.busy_timeout(BUSY_TIMEOUT)?;
        if moved?.busy {
            warn!(
                log.pages = length,
                "a long read keeps the write-ahead log from being emptied; it grows until the read ends"
            );
        }
        Ok(())
    }
}

/// Moves the whole log and empties it.
pub(crate) fn truncate(connection: &Connection) -> Result<(), Fault> {
    let CheckpointResult { busy, .. } = checkpoint(connection, CheckpointMode::Truncate)?;
    if busy { Err(Fault::Busy) } else { Ok(()) }
}

/// The modes of SQLite's checkpoints.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CheckpointMode {
    /// Moves nothing and returns the lengths.
    Noop,
    /// Moves as much as readers and writers allow.
    Passive,
    /// Moves everything, so that the log restarts.
    Restart,
    /// The same, and empties the file.
    Truncate,
}

/// The outcome of a checkpoint.
pub(crate) struct CheckpointResult {
    /// A reader or a writer was in the way.
    pub busy: bool,
    /// The number of pages in the log.
    pub length: i64,
    /// The number of them that are in the database.
    pub done: i64,
}

/// Runs a checkpoint.
pub(crate) fn checkpoint(connection: &Connection, mode: CheckpointMode) -> Result<CheckpointResult, Fault> {
    let sql = match mode {
        CheckpointMode::Noop => "PRAGMA wal_checkpoint(NOOP)",
        CheckpointMode::Passive => "PRAGMA wal_checkpoint(PASSIVE)",
        CheckpointMode::Restart => "PRAGMA wal_checkpoint(RESTART)",
        CheckpointMode::Truncate => "PRAGMA wal_checkpoint(TRUNCATE)",
    };
    let mut query = connection.prepare_cached(sql)?;
    Ok(query.query_row([], |row| Ok(CheckpointResult { busy: row.get(0)?, length: row.get(1)?, done: row.get(2)? }))?)
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Instant;

    use tempfile::TempDir;

    use super::super::Options;
    use super::super::connection::open_writer;
    use super::*;

    const EVERY: u32 = 64;

    struct Log {
        _directory: TempDir,
        writer: Connection,
        checkpoints: Checkpoints,
    }

    impl Log {
        fn open() -> Self {
            let directory = TempDir::new().unwrap();
            let path = directory.path().join("a.db");
            let writer = open_writer(&path, &Options::default()).unwrap();
            writer.execute_batch("CREATE TABLE t (a INTEGER PRIMARY KEY, b BLOB)").unwrap();
            let beside = open_writer(&path, &Options::default()).unwrap();
            Self { _directory: directory, writer, checkpoints: Checkpoints::new(EVERY, beside).unwrap() }
        }

        fn write(&self, pages: u32) {
            let sql = "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < ?1) \
                          INSERT INTO t (b) SELECT zeroblob(3000) FROM s";
            self.writer.execute(sql, [pages]).unwrap();
        }

        fn look(&self) -> CheckpointResult {
            checkpoint(&self.writer, CheckpointMode::Noop).unwrap()
        }

        /// Tends until all of the log is in the database.
        fn tend_until_moved(&mut self) {
            let begun = Instant::now();
            while self.look().done < self.look().length {
                assert!(begun.elapsed() < Duration::from_secs(30), "the log is not moved");
                self.checkpoints.tend(&self.writer).unwrap();
                thread::yield_now();
            }
        }
    }

    #[test]
    fn a_long_log_is_moved_beside_the_writer() {
        let mut log = Log::open();
        log.write(EVERY);
        let length = log.look().length;
        assert!(length >= i64::from(EVERY), "{length}");
        log.tend_until_moved();
        log.write(1);
        assert!(log.look().length < length, "it has restarted");
    }

    #[test]
    fn a_short_log_is_left_alone() {
        let mut log = Log::open();
        log.write(EVERY / 2);
        log.checkpoints.tend(&log.writer).unwrap();
        assert!(!log.checkpoints.checkpointer.is_busy());
        assert_eq!(log.look().done, 0);
    }

    #[test]
    fn the_writer_moves_the_last_pages_itself() {
        let mut log = Log::open();
        log.write(EVERY);
        log.checkpoints.tend(&log.writer).unwrap();
        assert!(log.checkpoints.checkpointer.is_busy());
        log.write(1);
        log.tend_until_moved();
        log.write(1);
        assert!(log.look().length < i64::from(EVERY) / 2, "it has restarted");
    }
}
