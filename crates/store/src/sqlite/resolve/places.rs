//! Works off the notes about concurrency keys: wakes as many parked tasks as places are free.

use std::collections::BTreeMap;

use punctual_core::time::Timestamp;
use punctual_core::upkeep::Resolved;
use rusqlite::OptionalExtension;

use super::super::apply::lane_of;
use super::super::fault::Fault;
use super::super::limits;
use super::super::outbox::{self, Concurrency};
use super::super::session::Session;
use super::super::statements::Sql;
use crate::columns::count_column;
use crate::places::{WAKE_MAX, WakeRequest};

/// Notes that are worked off at once.
const NOTES: usize = 1_000;

/// Works off some notes.
pub(super) fn resolve(session: &mut Session<'_>) -> Result<Resolved, Fault> {
    let mut requests: BTreeMap<Concurrency, WakeRequest> = BTreeMap::new();
    let (mut last, mut count) = (0, 0);
    let mut rows = session.statements.get(Sql::PlaceNotes)?.query([count_column(NOTES)])?;
    while let Some(row) = rows.next()? {
        last = row.get(0)?;
        count += 1;
        let request = WakeRequest::of_column(row.get(2)?);
        requests.entry(row.get(1)?).and_modify(|sum| *sum = sum.and(request)).or_insert(request);
    }
    drop(rows);
    let mut resolved = Resolved { more: count == NOTES, ..Resolved::default() };
    if count > 0 {
        session.statements.get(Sql::PlaceNotesRemove)?.execute([last])?;
    }
    for (key, request) in requests {
        let woken = wake(session, key, request)?;
        if woken.len() == WAKE_MAX {
            outbox::note_places(session, key, None)?;
            resolved.more = true;
        }
        resolved.tasks += woken.len();
        for (lane, due_at) in woken {
            resolved.waiting.push((lane_of(session, lane)?, Timestamp::from_millis(due_at)));
        }
    }
    Ok(resolved)
}

/// Wakes tasks of a key. Returns their lanes and due instants.
fn wake(session: &mut Session<'_>, key: Concurrency, request: WakeRequest) -> Result<Vec<(i64, i64)>, Fault> {
    let parked = session.statements.get(Sql::PlaceParked)?;
    let Some(lane) = parked.query_row([key], |row| row.get(0)).optional()? else { return Ok(Vec::new()) };
    let most = limits::max_per_key(session, lane)?;
    let taken = match most {
        Some(most) => limits::places_taken(session, key, most)?,
        None => 0,
    };
    let (count, now) = (request.count(most, taken), session.now().as_millis());
    let wake = session.statements.get(Sql::PlaceWake)?;
    let rows = wake.query_map((key, count_column(count), now), |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}
