//! Gathers the rows of a listing by their lanes, if they are few. `list` calls it when its walk
//! over the tasks of all tenants finds too little; `listing` says why.

use std::cmp::Ordering;
use std::collections::HashSet;

use punctual_core::store::Filter;
use rusqlite::Params;

use crate::columns::count_column;
use crate::listing::{self, GATHERED_LANES, GATHERED_ROWS, GatheredParts, ListedTables};

use super::fault::Fault;
use super::list_source::ListRow;
use super::session::Session;
use super::statements::Sql;

/// The rows behind `from` of all lanes that the filter allows, in the order of the listing; none if
/// they are many. Rows without an id are left to the walks.
pub(crate) fn gather(
    session: &mut Session<'_>,
    filter: &Filter,
    from: &ListRow,
) -> Result<Option<Vec<ListRow>>, Fault> {
    let lanes = lanes_of(session, filter)?;
    if lanes.len() > GATHERED_LANES {
        return Ok(None);
    }
    let (parts, finished) = (GatheredParts::of(filter), ListedTables::of(filter).finished);
    let mut rows = Vec::new();
    for lane in &lanes {
        for (is_wanted, sql, is_live) in [
            (parts.claimable, Sql::ListLaneClaimable, true),
            (parts.unclaimable, Sql::ListLaneUnclaimable, true),
            (finished, Sql::ListLaneFinal, false),
        ] {
            if is_wanted {
                read(session, sql, (lane, most()), is_live, &mut rows)?;
            }
            if rows.len() > GATHERED_ROWS {
                return Ok(None);
            }
        }
    }
    if parts.held && !add_held(session, &lanes, &mut rows)? {
        return Ok(None);
    }
    rows.retain(|row| row.compare(from, filter.by_execute_at) == Ordering::Greater);
    rows.sort_unstable_by(|a, b| a.compare(b, filter.by_execute_at));
    Ok(Some(rows))
}

fn lanes_of(session: &mut Session<'_>, filter: &Filter) -> Result<Vec<i64>, Fault> {
    let (first, last) = listing::queue_range(filter);
    let (kind, least) = (listing::only_kind(filter), filter.priority_min.unwrap_or(0));
    let query = session.statements.get(Sql::LanesOfTenant)?;
    let most = count_column(GATHERED_LANES + 1);
    let lanes = query.query_map((&filter.tenant, first, last, kind, least, most), |row| row.get(0))?;
    Ok(lanes.collect::<Result<_, _>>()?)
}

/// Adds the held tasks of these lanes. They have no index by lane, since every claim would write to
/// it: they are few, and none is read if the counts say that these lanes have none. False if they
/// are many.
fn add_held(session: &mut Session<'_>, lanes: &[i64], rows: &mut Vec<ListRow>) -> Result<bool, Fault> {
    let mut holding = HashSet::new();
    for lane in lanes {
        if session.statements.get(Sql::LaneHasHeld)?.query_row([lane], |row| row.get(0))? {
            holding.insert(*lane);
        }
    }
    if holding.is_empty() {
        return Ok(true);
    }
    let mut held = Vec::new();
    read(session, Sql::ListHeld, [most()], true, &mut held)?;
    let are_all = held.len() <= GATHERED_ROWS;
    rows.extend(held.into_iter().filter(|row| holding.contains(&row.lane)));
    Ok(are_all)
}

fn read(
    session: &mut Session<'_>,
    sql: Sql,
    parameters: impl Params,
    is_live: bool,
    rows: &mut Vec<ListRow>,
) -> Result<(), Fault> {
    let mut found = session.statements.get(sql)?.query(parameters)?;
    while let Some(row) = found.next()? {
        rows.extend(ListRow::read(row, is_live)?.ok());
    }
    Ok(())
}

/// One more than may be gathered, to see that there are more.
fn most() -> i64 {
    count_column(GATHERED_ROWS + 1)
}
