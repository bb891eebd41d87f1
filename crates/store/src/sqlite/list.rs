//! Lists tasks page by page, over the live tasks and the history at once.
//!
//! Newest first means last submitted first. Soonest first means by `execute_at`, then first
//! submitted first. Both are orders of an index, and a task keeps its place in them when it moves
//! to the history, so pages have no gaps and no repeats. A page checks a bounded number of rows: a
//! page with few matches still says where the next one begins. `listing` says when rows are
//! gathered instead.

use std::collections::HashMap;

use punctual_core::ids::TaskId;
use punctual_core::store::{Cursor, Filter, PAGE_BYTES, Page};
use rusqlite::OptionalExtension;

use crate::listing;

use super::fault::Fault;
use super::get::{self, FoundRow};
use super::list_gather;
use super::list_source::{ListRow, Source, Sources};
use super::session::Session;
use super::statements::Sql;

/// How much work one page may be. Checking a row costs [`LOOK`] and reading it [`READ`], in
/// proportion to the time they take. So a page takes at most a few dozen milliseconds.
const BUDGET: usize = 100_000;
const LOOK: usize = 1;
const READ: usize = 10;

/// One page of a listing.
#[derive(Default)]
pub(crate) struct Listed {
    pub page: Page,
    /// The numbers of unreadable live rows.
    pub unreadable: Vec<i64>,
}

/// Lists at most `limit` tasks strictly after the cursor.
pub(crate) fn list(
    session: &mut Session<'_>,
    filter: &Filter,
    after: Option<Cursor>,
    limit: usize,
) -> Result<Listed, Fault> {
    if limit == 0 {
        return Ok(Listed::default());
    }
    let connection = session.connection;
    let from = start(session, filter, after)?;
    let wanted = listing::ListedTables::of(filter);
    let mut sources = Vec::with_capacity(2);
    if wanted.live {
        sources.push(Sources::live(connection, filter.by_execute_at, from)?);
    }
    if wanted.finished {
        sources.push(Sources::finished(connection, filter.by_execute_at, wanted.only_dead, from)?);
    }
    let mut source = Source::merged(&mut sources, filter.by_execute_at)?;
    let mut page =
        PageInProgress { filter, limit, lanes: HashMap::new(), spent: 0, bytes: 0, listed: Listed::default() };
    page.walk(session, &mut source)?;
    page.listed.unreadable.extend(source.nameless());
    Ok(page.listed)
}

/// A page, and what it has cost so far.
struct PageInProgress<'f> {
    filter: &'f Filter,
    limit: usize,
    /// Whether the rows of a lane can match.
    lanes: HashMap<i64, bool>,
    spent: usize,
    bytes: usize,
    listed: Listed,
}

impl PageInProgress<'_> {
    fn walk(&mut self, session: &mut Session<'_>, source: &mut Source<'_>) -> Result<(), Fault> {
        let mut walked = 0;
        while let Some(row) = source.next()? {
            if self.take(session, &row)? {
                return Ok(());
            }
            walked += 1;
            if walked == listing::first_walk(self.limit)
                && let Some(gathered) = list_gather::gather(session, self.filter, &row)?
            {
                for row in gathered {
                    if self.take(session, &row)? {
                        return Ok(());
                    }
                }
                return Ok(());
            }
        }
        Ok(())
    }

    /// Adds a row's task if it matches. Returns whether the page is complete.
    fn take(&mut self, session: &mut Session<'_>, row: &ListRow) -> Result<bool, Fault> {
        let filter = self.filter;
        if filter.by_execute_at && filter.execute_before.is_some_and(|before| row.execute_at >= before) {
            return Ok(true);
        }
        self.spent += LOOK;
        if fits(session, filter, row, &mut self.lanes)? {
            self.spent += READ;
            match read(session, row)? {
                Some(Ok(task)) if filter.allows_body(&task) => {
                    self.bytes += task.bytes();
                    self.listed.page.tasks.push(task);
                }
                Some(Ok(_)) | None => {}
                Some(Err(bad)) if row.is_live => self.listed.unreadable.push(bad.row),
                Some(Err(bad)) => session.complain(bad.row, row.id, bad.fault),
            }
        }
        let is_full = self.listed.page.tasks.len() >= self.limit || self.spent >= BUDGET || self.bytes >= PAGE_BYTES;
        if is_full {
            self.listed.page.next = Some(Cursor { execute_at: row.execute_at, id: row.id });
        }
        Ok(is_full)
    }
}

/// Where a listing begins, in the order of its rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct From {
    /// Strictly after this instant, or at it with a greater number.
    pub execute_at: i64,
    pub seq: i64,
}

/// The place of the cursor in the order of the listing.
fn start(session: &mut Session<'_>, filter: &Filter, after: Option<Cursor>) -> Result<From, Fault> {
    let earliest = filter.execute_after.map_or(i64::MIN, |at| at.as_millis().saturating_sub(1));
    let Some(after) = after else {
        let seq = i64::MAX;
        return Ok(From { execute_at: earliest, seq });
    };
    let execute_at = after.execute_at.as_millis();
    if filter.by_execute_at && execute_at < earliest {
        return Ok(From { execute_at: earliest, seq: i64::MAX });
    }
    Ok(From { execute_at, seq: number_of(session, after.id, filter.by_execute_at)? })
}

/// The number of the cursor's task. If the task is gone, its neighbours in order of submission show
/// where it was.
fn number_of(session: &mut Session<'_>, id: TaskId, ascending: bool) -> Result<i64, Fault> {
    let query = session.statements.get(Sql::IdAtOrBefore)?;
    let found: Option<([u8; 16], i64)> =
        query.query_row([id.uuid().as_bytes()], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    Ok(match found {
        Some((same, seq)) if same == *id.uuid().as_bytes() => seq,
        // With the newest first, the task before it comes next.
        Some((_, seq)) => seq + i64::from(!ascending),
        None => 0,
    })
}

/// Whether a row can match, judging by its narrow columns and its lane.
fn fits(
    session: &mut Session<'_>,
    filter: &Filter,
    candidate: &ListRow,
    lanes: &mut HashMap<i64, bool>,
) -> Result<bool, Fault> {
    if !listing::row_fits(filter, candidate.state, candidate.execute_at) {
        return Ok(false);
    }
    if let Some(fits) = lanes.get(&candidate.lane) {
        return Ok(*fits);
    }
    let lane = session.lanes.get(session.connection, candidate.lane)?;
    // A row without its lane belongs to no tenant and is reported as unreadable.
    let fits = lane.is_none_or(|lane| filter.allows_lane(&lane.key));
    lanes.insert(candidate.lane, fits);
    Ok(fits)
}

fn read(session: &mut Session<'_>, candidate: &ListRow) -> Result<FoundRow, Fault> {
    if candidate.is_live { get::live(session, candidate.seq) } else { get::finished(session, candidate.seq) }
}
