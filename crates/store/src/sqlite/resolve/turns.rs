//! Whose turn it is among the tasks of an ordering key. A task that has begun keeps its turn until it comes to rest.

use std::collections::BTreeMap;

use punctual_core::resolver::Resolved;
use punctual_core::time::Timestamp;
use rusqlite::OptionalExtension;
use tracing::error;

use super::super::apply::lane_of;
use super::super::fault::Fault;
use super::super::outbox::Ordering;
use super::super::session::Session;
use super::super::statements::Sql;
use super::holds;
use crate::columns::count_column;

/// Notes that are worked off at once.
const NOTES: usize = 1_000;

/// A task that has, or had, a turn.
#[derive(Clone, Copy)]
struct Holder {
    is_waiting: bool,
    has_turn: bool,
    has_begun: bool,
}

/// Works off some notes.
pub(super) fn resolve(session: &mut Session<'_>) -> Result<Resolved, Fault> {
    let mut keys: BTreeMap<Ordering, Option<i64>> = BTreeMap::new();
    let (mut last, mut count) = (0, 0);
    let mut rows = session.statements.get(Sql::OrderNotes)?.query([count_column(NOTES)])?;
    while let Some(row) = rows.next()? {
        last = row.get(0)?;
        count += 1;
        let Ok(key) = row.get(1) else {
            error!(note = last, "a note of whose turn it may be cannot be read and is dropped");
            continue;
        };
        let dead_letter: Option<i64> = row.get(2)?;
        let known = keys.entry(key).or_default();
        *known = dead_letter.or(*known);
    }
    drop(rows);
    let mut resolved = Resolved { more: count == NOTES, ..Resolved::default() };
    for (key, dead_letter) in keys {
        if let Some((lane, due_at)) = decide(session, key, dead_letter)? {
            resolved.waiting.push((lane_of(session, lane)?, Timestamp::from_millis(due_at)));
            resolved.tasks += 1;
        }
    }
    if count > 0 {
        session.statements.get(Sql::OrderNotesRemove)?.execute([last])?;
    }
    Ok(resolved)
}

/// Decides whose turn it is; gives where the task waits that has just been given it.
fn decide(session: &mut Session<'_>, key: Ordering, dead_letter: Option<i64>) -> Result<Option<(i64, i64)>, Fault> {
    let query = session.statements.get(Sql::OrderGet)?;
    let order = query.query_row([key], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let (head, mut held_by): (Option<i64>, Option<i64>) = order.unwrap_or_default();
    let mut back = None;
    if let Some(letter) = held_by
        && !holds(session, letter)?
    {
        (back, held_by) = (Some(letter), None);
    }
    if let Some(letter) = dead_letter
        && held_by.is_none()
        && holds(session, letter)?
    {
        held_by = Some(letter);
    }
    let holder = look_at(session, head)?;
    if holder.is_some_and(|holder| holder.has_begun) {
        put(session, key, head, held_by)?;
        return Ok(None);
    }
    let mut next = None;
    if held_by.is_none() {
        next = match look_at(session, back)? {
            // It was held behind, and came back: it is first.
            Some(holder) if holder.is_waiting => back,
            _ => session.statements.get(Sql::TurnFirst)?.query_row([key], |row| row.get(0)).optional()?,
        };
    }
    let has_turn = holder.is_some_and(|holder| holder.has_turn);
    if has_turn && next == head {
        put(session, key, head, held_by)?;
        return Ok(None);
    }
    if has_turn && let Some(head) = head {
        session.statements.get(Sql::TurnTake)?.execute([head])?;
    }
    put(session, key, next, held_by)?;
    let Some(next) = next else { return Ok(None) };
    let now = session.now().as_millis();
    let give = session.statements.get(Sql::TurnGive)?;
    Ok(give.query_row([next, now], |row| Ok((row.get(0)?, row.get(1)?))).optional()?)
}

fn look_at(session: &mut Session<'_>, seq: Option<i64>) -> Result<Option<Holder>, Fault> {
    let Some(seq) = seq else { return Ok(None) };
    let holder = session.statements.get(Sql::TurnHolder)?.query_row([seq], |row| {
        let (state, attempts, has_turn): (i64, i64, bool) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(Holder { is_waiting: state == 1, has_turn, has_begun: has_turn && (state >= 2 || attempts > 0) })
    });
    Ok(holder.optional()?)
}

/// Writes whose turn it is; a key that nobody waits for is forgotten.
fn put(session: &mut Session<'_>, key: Ordering, head: Option<i64>, held_by: Option<i64>) -> Result<(), Fault> {
    if head.is_none() && held_by.is_none() {
        session.statements.get(Sql::OrderRemove)?.execute([key])?;
    } else {
        session.statements.get(Sql::OrderPut)?.execute((key, head, held_by))?;
    }
    Ok(())
}
