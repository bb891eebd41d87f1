//! Moves what is in the write-ahead log into the database, so that the log stays small.
//!
//! The writer looks at the log after each commit. A long log is moved by a thread beside it
//! ([`super::checkpointer`]), since that takes as long as many small calls would otherwise wait;
//! what was written meanwhile, and is little by then, the writer moves itself, between two
//! transactions, so that the log can begin anew. A reader that is still on an old state of the
//! database keeps it from that; reads are short, so that it grows by little. When it has grown too
//! much all the same, the writer waits for the readers.

use std::io;
use std::time::Duration;

use rusqlite::Connection;
use tracing::warn;

use super::checkpointer::Checkpointer;
use super::connection::BUSY_TIMEOUT;
use super::fault::Fault;

/// Our own readers are done in less; somebody who reads for longer must not hold up the writer.
const READERS_BUSY_TIMEOUT: Duration = Duration::from_millis(250);

/// When the log is this many times longer than wanted, the writer waits for the readers.
const TOO_LONG: i64 = 8;

/// The writer moves the rest itself when it is this part of what makes a log long.
const LITTLE: i64 = 4;

/// When to move the log into the database.
pub(crate) struct Checkpoints {
    checkpointer: Checkpointer,
    /// After so many pages.
    every: i64,
    /// At this length of the log.
    next: i64,
    /// Its length when it was last looked at.
    last: i64,
    /// How much of it was in the database when the thread was last done.
    moved: i64,
}

impl Checkpoints {
    /// `beside` is a connection for the thread that moves the log.
    pub(crate) fn new(every: u32, beside: Connection) -> io::Result<Self> {
        let every = i64::from(every.max(1));
        Ok(Self { checkpointer: Checkpointer::start(beside)?, every, next: every, last: 0, moved: 0 })
    }

    /// Looks at the log after a commit, and has it moved if it is long enough.
    pub(crate) fn tend(&mut self, connection: &Connection) -> Result<(), Fault> {
        let told = self.checkpointer.take_result().transpose()?;
        let CheckpointResult { length, done: moved, .. } = checkpoint(connection, CheckpointMode::Noop)?;
        if length < self.last {
            (self.next, self.moved) = (self.every, 0);
        }
        self.last = length;
        if told.is_some() {
            let went_on = moved > std::mem::replace(&mut self.moved, moved);
            match length - moved {
                0 => {}
                left if left <= self.every / LITTLE => {
                    return checkpoint(connection, CheckpointMode::Passive).map(drop);
                }
                // Much was written meanwhile: the next time it is less.
                _ if went_on => self.checkpointer.request(),
                _ => {}
            }
        }
        if length < self.next || self.checkpointer.is_busy() {
            return Ok(());
        }
        // If a reader is in the way, or the disk is full, trying again at every commit would only
        // add an fsync to each.
        self.next = length.saturating_add(self.every);
        if length < self.every.saturating_mul(TOO_LONG) {
            self.checkpointer.request();
            return Ok(());
        }
        connection.busy_timeout(READERS_BUSY_TIMEOUT)?;
        let moved = checkpoint(connection, CheckpointMode::Restart);
        connection.busy_timeout(BUSY_TIMEOUT)?;
        if moved?.busy {
            warn!(log.pages = length, "a long read keeps the write-ahead log from being emptied; it grows");
        }
        Ok(())
    }
}

/// Moves the whole log and empties it.
pub(crate) fn truncate(connection: &Connection) -> Result<(), Fault> {
    let CheckpointResult { busy, .. } = checkpoint(connection, CheckpointMode::Truncate)?;
    if busy { Err(Fault::Busy) } else { Ok(()) }
}

/// How the log is moved.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CheckpointMode {
    /// Not at all: it is looked at.
    Noop,
    /// As far as nobody is in the way.
    Passive,
    /// All of it, so that it begins anew.
    Restart,
    /// The same, and its file is emptied.
    Truncate,
}

/// What came of it.
pub(crate) struct CheckpointResult {
    /// Somebody was in the way.
    pub busy: bool,
    /// How many pages are in the log.
    pub length: i64,
    /// How many of them are in the database.
    pub done: i64,
}

/// Moves the log.
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
    fn a_long_log_is_moved_beside_the_writer_and_begins_anew() {
        let mut log = Log::open();
        log.write(EVERY);
        let length = log.look().length;
        assert!(length >= i64::from(EVERY), "{length}");
        log.tend_until_moved();
        log.write(1);
        assert!(log.look().length < length, "it has begun anew");
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
    fn what_was_written_meanwhile_is_moved_by_the_writer_when_it_is_little() {
        let mut log = Log::open();
        log.write(EVERY);
        log.checkpoints.tend(&log.writer).unwrap();
        assert!(log.checkpoints.checkpointer.is_busy());
        log.write(1);
        log.tend_until_moved();
        log.write(1);
        assert!(log.look().length < i64::from(EVERY) / 2, "it has begun anew");
    }
}
