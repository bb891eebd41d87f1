//! Lists tasks page by page, over the live tasks and the history at once.
//!
//! Newest first means greatest id first. Soonest first means by `execute_at`, then by id. Both are
//! orders of an index, and a task keeps its place in them when it moves to the history, so pages
//! have no gaps and repeat nothing. A page checks a bounded number of rows: a page with few
//! matches still says where the next one begins. `listing` says when rows are gathered instead.

use std::cmp::Reverse;
use std::mem;

use punctual_core::ids::TaskId;
use punctual_core::store::{Cursor, Filter, PAGE_BYTES, Page, StoreError};
use punctual_core::task::Task;
use punctual_core::time::Timestamp;
use tokio_postgres::Row;
use tracing::error;
use uuid::Uuid;

use super::PostgresStore;
use super::connection::Session;
use super::fault::Fault;
use super::get;
use super::lanes::LaneDirectory;
use super::statements::Sql;
use crate::columns::count_column;
use crate::listing::{self, GatheredParts, ListedTables};

/// The work that one page may take: checking a row costs one, reading it [`READ`], in proportion to
/// the time. So no page takes longer than a fraction of a second.
const BUDGET: usize = 50_000;
const READ: usize = 10;

/// How many rows are checked at once.
const CHUNK: usize = 2_000;

impl PostgresStore {
    /// A page as it is now: a standby may be behind.
    pub(crate) async fn list_from_primary(
        &self,
        filter: &Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let listed = self.reads().call(async |session| list(session, self.lanes(), filter, after, limit).await).await?;
        self.quarantine_unreadable(listed.unreadable).await;
        Ok(listed.page)
    }
}

/// One page of a listing.
#[derive(Default)]
pub(crate) struct Listed {
    pub page: Page,
    /// Unreadable live rows.
    pub unreadable: Vec<TaskId>,
    /// How large its tasks are.
    bytes: usize,
}

/// A row that may be part of a listing.
struct ListRow {
    id: TaskId,
    lane: i64,
    state: i64,
    execute_at: Timestamp,
}

/// Lists at most `limit` tasks strictly after the cursor.
pub(crate) async fn list(
    session: &Session,
    lanes: &LaneDirectory,
    filter: &Filter,
    after: Option<Cursor>,
    limit: usize,
) -> Result<Listed, Fault> {
    let mut listed = Listed::default();
    if limit == 0 {
        return Ok(listed);
    }
    let mut from = start(filter, after);
    let (mut spent, mut chunk, mut may_gather) = (0, listing::first_walk(limit), true);
    loop {
        let candidates = candidates(session, filter, from, chunk).await?;
        spent += candidates.len();
        let is_end = candidates.len() < chunk;
        if take_in(session, lanes, filter, &candidates, limit, &mut listed, &mut spent).await? || is_end {
            return Ok(listed);
        }
        let last = candidates.last().expect("invariant: a full chunk has a last one");
        from = Cursor { execute_at: last.execute_at, id: last.id };
        if spent >= BUDGET {
            listed.page.next = Some(from);
            return Ok(listed);
        }
        if mem::take(&mut may_gather)
            && let Some(gathered) = gather(session, filter, from).await?
        {
            list_gathered(session, lanes, filter, &gathered, limit, &mut listed).await?;
            return Ok(listed);
        }
        chunk = CHUNK;
    }
}

/// Goes on with rows that are all there are.
async fn list_gathered(
    session: &Session,
    lanes: &LaneDirectory,
    filter: &Filter,
    gathered: &[ListRow],
    limit: usize,
    listed: &mut Listed,
) -> Result<(), Fault> {
    let mut spent = 0;
    let mut chunks = gathered.chunks(CHUNK).peekable();
    while let Some(chunk) = chunks.next() {
        spent += chunk.len();
        if take_in(session, lanes, filter, chunk, limit, listed, &mut spent).await? {
            return Ok(());
        }
        if let ([.., last], true, true) = (chunk, spent >= BUDGET, chunks.peek().is_some()) {
            listed.page.next = Some(Cursor { execute_at: last.execute_at, id: last.id });
            return Ok(());
        }
    }
    Ok(())
}

/// The rows behind `from` of all lanes that the filter allows, in the order of the listing; none if
/// they are many.
async fn gather(session: &Session, filter: &Filter, from: Cursor) -> Result<Option<Vec<ListRow>>, Fault> {
    let (first, last) = listing::queue_range(filter);
    let (kind, least) = (listing::only_kind(filter), i64::from(filter.priority_min.unwrap_or(0)));
    let most_lanes = count_column(listing::GATHERED_LANES + 1);
    let found = session.query(Sql::LanesOfTenant, &[&filter.tenant, &first, &last, &kind, &least, &most_lanes]).await?;
    if found.len() > listing::GATHERED_LANES {
        return Ok(None);
    }
    let lanes: Vec<i64> = found.iter().map(|row| row.get(0)).collect();
    let GatheredParts { claimable, unclaimable, held } = GatheredParts::of(filter);
    let finished = ListedTables::of(filter).finished;
    let most = count_column(listing::GATHERED_ROWS + 1);
    let rows = session.query(Sql::ListGathered, &[&lanes, &claimable, &unclaimable, &held, &finished, &most]).await?;
    if rows.len() > listing::GATHERED_ROWS {
        return Ok(None);
    }
    let mut rows: Vec<ListRow> = rows.iter().map(list_row).collect();
    if filter.by_execute_at {
        rows.retain(|row| (row.execute_at, row.id) > (from.execute_at, from.id));
        rows.sort_unstable_by_key(|row| (row.execute_at, row.id));
    } else {
        rows.retain(|row| row.id < from.id);
        rows.sort_unstable_by_key(|row| Reverse(row.id));
    }
    Ok(Some(rows))
}

/// Where the listing begins: strictly behind this.
fn start(filter: &Filter, after: Option<Cursor>) -> Cursor {
    if !filter.by_execute_at {
        let last = TaskId::from_uuid(Uuid::max());
        return after.unwrap_or(Cursor { execute_at: Timestamp::from_millis(0), id: last });
    }
    let millis = filter.execute_after.map_or(i64::MIN, Timestamp::as_millis);
    let earliest = Cursor { execute_at: Timestamp::from_millis(millis), id: TaskId::from_uuid(Uuid::nil()) };
    after.filter(|after| after.execute_at >= earliest.execute_at).unwrap_or(earliest)
}

async fn candidates(session: &Session, filter: &Filter, from: Cursor, most: usize) -> Result<Vec<ListRow>, Fault> {
    let ListedTables { live, finished, only_dead } = ListedTables::of(filter);
    let (id, most) = (from.id.uuid(), count_column(most));
    let rows = if filter.by_execute_at {
        let execute_at = from.execute_at.as_millis();
        session.query(Sql::ListSoonest, &[&execute_at, &id, &live, &finished, &most]).await?
    } else if only_dead {
        session.query(Sql::ListDeadNewest, &[&id, &most]).await?
    } else {
        session.query(Sql::ListNewest, &[&id, &live, &finished, &most]).await?
    };
    Ok(rows.iter().map(list_row).collect())
}

fn list_row(row: &Row) -> ListRow {
    ListRow {
        id: TaskId::from_uuid(row.get(0)),
        lane: row.get(1),
        state: i64::from(row.get::<_, i16>(2)),
        execute_at: Timestamp::from_millis(row.get(3)),
    }
}

/// Adds the candidates that match. Returns whether the page is complete.
async fn take_in(
    session: &Session,
    lanes: &LaneDirectory,
    filter: &Filter,
    candidates: &[ListRow],
    limit: usize,
    listed: &mut Listed,
    spent: &mut usize,
) -> Result<bool, Fault> {
    let is_late = |candidate: &ListRow| {
        filter.by_execute_at && filter.execute_before.is_some_and(|before| candidate.execute_at >= before)
    };
    let known = lanes.get(session, candidates.iter().map(|candidate| candidate.lane)).await?;
    let fits = |candidate: &&ListRow| {
        listing::row_fits(filter, candidate.state, candidate.execute_at)
            // A row without its lane belongs to no tenant and is reported as unreadable.
            && known.get(&candidate.lane).is_none_or(|lane| filter.allows_lane(&lane.key))
    };
    let in_time = candidates.iter().position(is_late).unwrap_or(candidates.len());
    let wanted: Vec<&ListRow> = candidates[..in_time].iter().filter(fits).collect();
    // In small chunks: a page needs at most `limit` rows, and a row that is read may not match.
    for some in wanted.chunks(limit.clamp(1, 100)) {
        *spent += some.len() * READ;
        let ids: Vec<TaskId> = some.iter().map(|candidate| candidate.id).collect();
        let mut found = get::by_ids(session, lanes, &ids).await?;
        for candidate in some {
            match found.remove(&candidate.id) {
                Some(Ok(task)) if still_fits(filter, &task) => {
                    listed.bytes += task.bytes();
                    listed.page.tasks.push(task);
                }
                Some(Err(bad)) if bad.is_live => listed.unreadable.push(candidate.id),
                Some(Err(bad)) => {
                    error!(task.id = %candidate.id, column = bad.fault.0, "cannot read a finished task; it is left out of listings");
                }
                _ => {}
            }
            if listed.page.tasks.len() >= limit || listed.bytes >= PAGE_BYTES {
                listed.page.next = Some(Cursor { execute_at: candidate.execute_at, id: candidate.id });
                return Ok(true);
            }
        }
    }
    Ok(in_time < candidates.len())
}

/// Whether a task still matches: it may have changed since it was checked.
fn still_fits(filter: &Filter, task: &Task) -> bool {
    filter.matches(task)
}
