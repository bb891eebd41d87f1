//! Lists tasks page by page, over the live tasks and the history at once.
//!
//! Newest first means greatest id first. Soonest first means by `execute_at`, then by id. Both are
//! orders of an index, and a task keeps its place in them when it moves to the history, so pages
//! have no gaps and repeat nothing. A page checks a bounded number of rows: a page with few
//! matches still says where the next one begins.

use punctual_core::ids::TaskId;
use punctual_core::store::{Cursor, Filter, PAGE_BYTES, Page};
use punctual_core::task::Task;
use punctual_core::time::Timestamp;
use tracing::error;
use uuid::Uuid;

use super::connection::Session;
use super::fault::Fault;
use super::get;
use super::lanes::LaneDirectory;
use super::statements::Sql;
use crate::columns::count_column;
use crate::listing::{self, ListedTables};

/// The work that one page may take: checking a row costs one, reading it [`READ`], in proportion to
/// the time. So no page takes longer than a fraction of a second.
const BUDGET: usize = 50_000;
const READ: usize = 10;

/// How many rows are checked at once.
const CHUNK: usize = 2_000;

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
    let (mut spent, mut chunk) = (0, (limit + 1).clamp(64, CHUNK));
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
        chunk = CHUNK;
    }
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
    let candidate = |row: tokio_postgres::Row| ListRow {
        id: TaskId::from_uuid(row.get(0)),
        lane: row.get(1),
        state: i64::from(row.get::<_, i16>(2)),
        execute_at: Timestamp::from_millis(row.get(3)),
    };
    Ok(rows.into_iter().map(candidate).collect())
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
            && known.get(&candidate.lane).is_none_or(|lane| listing::lane_fits(filter, &lane.key))
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
    listing::row_fits(filter, i64::from(task.state().code()), task.execute_at)
        && listing::lane_fits(filter, &task.lane.key)
        && listing::body_fits(filter, task)
}
