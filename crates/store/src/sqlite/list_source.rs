//! The rows of a listing in its order: the live tasks and the history, merged. `list` reads them.

use std::cmp::Ordering;

use punctual_core::ids::TaskId;
use punctual_core::time::Timestamp;
use rusqlite::{CachedStatement, Connection, Row, Rows};

use crate::task_row::{self, TaskColumn};

use super::fault::Fault;
use super::list::From;
use super::statements::Sql;

/// A row that may be part of a listing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListRow {
    pub seq: i64,
    pub id: TaskId,
    pub lane: i64,
    pub state: i64,
    pub execute_at: Timestamp,
    pub is_live: bool,
}

/// The statements that give the rows of one table in the order of the listing, one after the other.
pub(crate) struct Sources<'c> {
    first: CachedStatement<'c>,
    then: Option<CachedStatement<'c>>,
    from: From,
    is_live: bool,
}

impl<'c> Sources<'c> {
    /// The live tasks.
    pub(crate) fn live(connection: &'c Connection, by_execute_at: bool, from: From) -> Result<Self, Fault> {
        let (first, then) =
            if by_execute_at { (Sql::ListLiveSameTime, Some(Sql::ListLiveLater)) } else { (Sql::ListLiveNewest, None) };
        Self::prepare(connection, first, then, from, true)
    }

    /// The history, or the dead letters in it.
    pub(crate) fn finished(
        connection: &'c Connection,
        by_execute_at: bool,
        only_dead: bool,
        from: From,
    ) -> Result<Self, Fault> {
        let (first, then) = match (by_execute_at, only_dead) {
            (true, _) => (Sql::ListFinalSameTime, Some(Sql::ListFinalLater)),
            (false, true) => (Sql::ListDeadNewest, None),
            (false, false) => (Sql::ListFinalNewest, None),
        };
        Self::prepare(connection, first, then, from, false)
    }

    fn prepare(
        connection: &'c Connection,
        first: Sql,
        then: Option<Sql>,
        from: From,
        is_live: bool,
    ) -> Result<Self, Fault> {
        let then = then.map(|sql| connection.prepare_cached(sql.text())).transpose()?;
        Ok(Self { first: connection.prepare_cached(first.text())?, then, from, is_live })
    }

    fn stream(&mut self) -> Result<Stream<'_>, Fault> {
        let rows = match &mut self.then {
            Some(then) => {
                let same_time = self.first.query((self.from.execute_at, self.from.seq))?;
                [Some(same_time), Some(then.query([self.from.execute_at])?)]
            }
            None => [Some(self.first.query([self.from.seq])?), None],
        };
        Ok(Stream { rows, is_live: self.is_live, head: None, nameless: Vec::new() })
    }
}

/// The rows of both tables in the order of the listing.
pub(crate) struct Source<'s> {
    streams: Vec<Stream<'s>>,
    by_execute_at: bool,
}

struct Stream<'s> {
    rows: [Option<Rows<'s>>; 2],
    is_live: bool,
    head: Option<ListRow>,
    /// The numbers of rows without an id.
    nameless: Vec<i64>,
}

impl<'s> Source<'s> {
    pub(crate) fn merged(sources: &'s mut [Sources<'_>], by_execute_at: bool) -> Result<Self, Fault> {
        let mut streams = Vec::with_capacity(sources.len());
        for sources in sources {
            let mut stream = sources.stream()?;
            stream.advance()?;
            streams.push(stream);
        }
        Ok(Self { streams, by_execute_at })
    }

    /// The numbers of live rows without an id that were passed.
    pub(crate) fn nameless(&mut self) -> Vec<i64> {
        let live = self.streams.iter_mut().filter(|stream| stream.is_live);
        live.flat_map(|stream| std::mem::take(&mut stream.nameless)).collect()
    }

    /// The next row of the listing.
    pub(crate) fn next(&mut self) -> Result<Option<ListRow>, Fault> {
        let by_execute_at = self.by_execute_at;
        let first = self
            .streams
            .iter_mut()
            .filter_map(|stream| stream.head.map(|head| (head, stream)))
            .min_by(|(a, _), (b, _)| a.compare(b, by_execute_at));
        let Some((head, stream)) = first else { return Ok(None) };
        stream.advance()?;
        Ok(Some(head))
    }
}

impl ListRow {
    /// Reads the columns of a listing. The number of a row without an id is the error.
    pub(crate) fn read(found: &Row<'_>, is_live: bool) -> rusqlite::Result<Result<Self, i64>> {
        let Ok(id) = task_row::id(found, TaskColumn(1, "id")) else { return found.get(0).map(Err) };
        Ok(Ok(Self {
            seq: found.get(0)?,
            id,
            lane: found.get(2)?,
            state: found.get(3)?,
            execute_at: Timestamp::from_millis(found.get(4)?),
            is_live,
        }))
    }

    /// Where it comes in the listing: before `other`, at it or behind it.
    pub(crate) fn compare(&self, other: &Self, by_execute_at: bool) -> Ordering {
        if by_execute_at {
            (self.execute_at, self.seq).cmp(&(other.execute_at, other.seq))
        } else {
            other.seq.cmp(&self.seq)
        }
    }
}

impl Stream<'_> {
    fn advance(&mut self) -> Result<(), Fault> {
        self.head = None;
        for rows in &mut self.rows {
            if let Some(open) = rows {
                while let Some(found) = open.next()? {
                    match ListRow::read(found, self.is_live)? {
                        Ok(row) => {
                            self.head = Some(row);
                            return Ok(());
                        }
                        Err(seq) => self.nameless.push(seq),
                    }
                }
                *rows = None;
            }
        }
        Ok(())
    }
}
