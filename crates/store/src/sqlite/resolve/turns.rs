//! Works off the notes about ordering keys: reads what [`TurnDecision`] asks for, and writes what
//! it decides.

use std::collections::BTreeMap;

use punctual_core::time::Timestamp;
use punctual_core::upkeep::Resolved;
use rusqlite::OptionalExtension;
use tracing::error;

use super::super::apply::lane_of;
use super::super::fault::Fault;
use super::super::outbox::Ordering;
use super::super::session::Session;
use super::super::statements::Sql;
use super::holds;
use crate::columns::count_column;
use crate::ordering::{TurnChoice, TurnDecision, TurnRow};

/// Notes that are worked off at once.
const NOTES: usize = 1_000;

/// Works off some notes.
pub(super) fn resolve(session: &mut Session<'_>) -> Result<Resolved, Fault> {
    let mut keys: BTreeMap<Ordering, Vec<i64>> = BTreeMap::new();
    let (mut last, mut count) = (0, 0);
    let mut rows = session.statements.get(Sql::OrderNotes)?.query([count_column(NOTES)])?;
    while let Some(row) = rows.next()? {
        last = row.get(0)?;
        count += 1;
        let Ok(key) = row.get(1) else {
            error!(
                note = last,
                "cannot read a note about an ordering key; dropping it, so its key waits for another note"
            );
            continue;
        };
        keys.entry(key).or_default().extend(row.get::<_, Option<i64>>(2)?);
    }
    drop(rows);
    let mut resolved = Resolved { more: count == NOTES, ..Resolved::default() };
    for (key, noted) in keys {
        if let Some((lane, due_at)) = decide(session, key, &noted)? {
            resolved.waiting.push((lane_of(session, lane)?, Timestamp::from_millis(due_at)));
            resolved.tasks += 1;
        }
    }
    if count > 0 {
        session.statements.get(Sql::OrderNotesRemove)?.execute([last])?;
    }
    Ok(resolved)
}

/// Decides which task has the turn. Returns lane and due instant of a task that just got it.
fn decide(session: &mut Session<'_>, key: Ordering, noted: &[i64]) -> Result<Option<(i64, i64)>, Fault> {
    let mut turn = read(session, key, noted)?;
    let mut rows: [Option<(i64, TurnRow)>; 2] = [None; 2];
    for (row, seq) in rows.iter_mut().zip(turn.asks_for()) {
        *row = row_of(session, key, seq)?.map(|row| (seq, row));
    }
    if turn.choose(|seq| rows.iter().flatten().find(|row| row.0 == seq).map(|row| row.1)) == TurnChoice::FirstWaiting {
        let first = session.statements.get(Sql::TurnFirst)?;
        turn.choose_first(first.query_row([key], |row| row.get(0)).optional()?);
    }
    if let Some(loser) = turn.loser() {
        session.statements.get(Sql::TurnTake)?.execute([loser])?;
    }
    let waits_at = match turn.winner() {
        Some(winner) => give(session, winner)?,
        None => None,
    };
    turn.hand_over(waits_at.is_some());
    write(session, key, &turn)?;
    Ok(waits_at)
}

/// The turn of a key as it is stored, and the dead letters that notes named since.
fn read(session: &mut Session<'_>, key: Ordering, noted: &[i64]) -> Result<TurnDecision<i64>, Fault> {
    let query = session.statements.get(Sql::OrderGet)?;
    let order = query.query_row([key], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let (head, held_by): (Option<i64>, Option<i64>) = order.unwrap_or_default();
    let mut holding: Vec<i64> = Vec::new();
    for letter in held_by.iter().chain(noted) {
        if holds(session, *letter)? {
            holding.push(*letter);
        }
    }
    Ok(TurnDecision::new(head, held_by, noted.iter().copied(), |letter| holding.contains(&letter)))
}

fn row_of(session: &mut Session<'_>, key: Ordering, seq: i64) -> Result<Option<TurnRow>, Fault> {
    let query = session.statements.get(Sql::TurnHolderOf)?;
    let row = query.query_row((seq, key), |row| Ok(TurnRow::of_columns(row.get(0)?, row.get(1)?, row.get(2)?)));
    Ok(row.optional()?)
}

/// Gives a task the turn. Returns its lane and when it is due.
fn give(session: &mut Session<'_>, seq: i64) -> Result<Option<(i64, i64)>, Fault> {
    let now = session.now().as_millis();
    let give = session.statements.get(Sql::TurnGive)?;
    Ok(give.query_row([seq, now], |row| Ok((row.get(0)?, row.get(1)?))).optional()?)
}

/// Writes which task has the turn. The row of a key that no task waits for is removed.
fn write(session: &mut Session<'_>, key: Ordering, turn: &TurnDecision<i64>) -> Result<(), Fault> {
    if turn.is_over() {
        session.statements.get(Sql::OrderRemove)?.execute([key])?;
    } else {
        session.statements.get(Sql::OrderPut)?.execute((key, turn.head, turn.held_by))?;
    }
    Ok(())
}
