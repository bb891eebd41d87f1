//! Moves what is in the write-ahead log into the database, so that the log stays small.
//!
//! The writer does it between transactions: it sees whether it succeeded, and no caller
//! waits for it who is not behind it anyway. A reader that is still on an old state of the
//! database keeps the log from being begun anew; reads are short, so that it grows by
//! little. When it has grown too much all the same, the writer waits for the readers.

use std::time::Duration;

use rusqlite::Connection;
use tracing::warn;

use super::connection::PATIENCE;
use super::fault::Fault;

/// Our own readers are done in less; somebody who reads for longer must not hold up the writer.
const PATIENCE_WITH_READERS: Duration = Duration::from_millis(250);

/// When the log is this many times longer than wanted, the writer waits for the readers.
const TOO_LONG: i64 = 8;

/// When to move the log into the database.
pub(crate) struct Checkpoints {
    /// After so many pages.
    every: i64,
    /// At this length of the log.
    next: i64,
    /// Its length when it was last looked at.
    last: i64,
}

impl Checkpoints {
    pub(crate) fn new(every: u32) -> Self {
        let every = i64::from(every.max(1));
        Self { every, next: every, last: 0 }
    }

    /// Looks at the log after a commit, and moves it if it is long enough.
    pub(crate) fn tend(&mut self, connection: &Connection) -> Result<(), Fault> {
        let length = checkpoint(connection, "PRAGMA wal_checkpoint(NOOP)")?.length;
        if length < self.last {
            self.next = self.every;
        }
        self.last = length;
        if length < self.next {
            return Ok(());
        }
        // If a reader is in the way, or the disk is full, trying again at every commit would only add an fsync to each.
        self.next = length.saturating_add(self.every);
        if length < self.every.saturating_mul(TOO_LONG) {
            checkpoint(connection, "PRAGMA wal_checkpoint(PASSIVE)")?;
            return Ok(());
        }
        connection.busy_timeout(PATIENCE_WITH_READERS)?;
        let moved = checkpoint(connection, "PRAGMA wal_checkpoint(RESTART)");
        connection.busy_timeout(PATIENCE)?;
        if moved?.busy {
            warn!(log.pages = length, "somebody has been reading for long: the log of the database cannot be emptied");
        }
        Ok(())
    }
}

/// Moves the whole log and empties it.
pub(crate) fn truncate(connection: &Connection) -> Result<(), Fault> {
    let Moved { busy, .. } = checkpoint(connection, "PRAGMA wal_checkpoint(TRUNCATE)")?;
    if busy { Err(Fault::Busy) } else { Ok(()) }
}

struct Moved {
    /// Somebody was in the way.
    busy: bool,
    /// How many pages are in the log.
    length: i64,
}

fn checkpoint(connection: &Connection, sql: &str) -> Result<Moved, Fault> {
    let mut query = connection.prepare_cached(sql)?;
    Ok(query.query_row([], |row| Ok(Moved { busy: row.get(0)?, length: row.get(1)? }))?)
}
