//! Works off what transactions left to the resolver (`outbox`): ends of tasks that others wait for (`parents`), and
//! keys of which it may be another's turn (`turns`).

mod parents;
mod turns;

use punctual_core::resolver::Resolved;
use punctual_core::state::State;
use rusqlite::OptionalExtension;

use super::fault::Fault;
use super::outbox::{self, Ordering};
use super::session::Session;
use super::statements::Sql;
use crate::columns::count_column;

/// Keys and dead letters that are reviewed at once.
const PAGE: usize = 500;

/// Behind which key and which dead letter what is held was last reviewed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reviewed {
    key: Ordering,
    letter: i64,
}

/// Works off some notes.
pub(crate) fn resolve(session: &mut Session<'_>) -> Result<Resolved, Fault> {
    let mut resolved = parents::resolve(session)?;
    let turns = turns::resolve(session)?;
    resolved.waiting.extend(turns.waiting);
    resolved.tasks += turns.tasks;
    resolved.more |= turns.more;
    Ok(resolved)
}

/// Leaves a note where a dead letter holds nothing any more: it was driven again or removed, or its queue says so. Gives
/// where the next review begins.
pub(crate) fn review(session: &mut Session<'_>, reviewed: Reviewed) -> Result<Reviewed, Fault> {
    let mut held: Vec<(Ordering, i64)> = Vec::new();
    let mut rows = session.statements.get(Sql::OrderHeld)?.query((reviewed.key, count_column(PAGE)))?;
    while let Some(row) = rows.next()? {
        held.push((row.get(0)?, row.get(1)?));
    }
    drop(rows);
    for (key, letter) in &held {
        if !holds(session, *letter)? {
            outbox::turn(session, Some(*key), None)?;
        }
    }
    let mut parents: Vec<i64> = Vec::new();
    let mut rows = session.statements.get(Sql::ParentHeld)?.query([reviewed.letter, count_column(PAGE)])?;
    while let Some(row) = rows.next()? {
        parents.push(row.get(0)?);
    }
    drop(rows);
    for parent in &parents {
        if !holds(session, *parent)? {
            session.statements.get(Sql::ParentHeldRemove)?.execute([*parent])?;
            outbox::parent(session, *parent, State::DeadLettered)?;
        }
    }
    // Behind the last page comes the first.
    Ok(Reviewed {
        key: held.last().filter(|_| held.len() == PAGE).map(|(key, _)| *key).unwrap_or_default(),
        letter: parents.last().filter(|_| parents.len() == PAGE).copied().unwrap_or_default(),
    })
}

/// How a task came to rest that was a dead letter once.
#[derive(Clone, Copy, Debug)]
struct Letter {
    /// It is one, and its queue holds what waits behind it.
    holds: bool,
    state: State,
}

/// How a task came to rest, if it did.
fn letter_of(session: &mut Session<'_>, seq: i64) -> Result<Option<Letter>, Fault> {
    let query = session.statements.get(Sql::DeadLetter)?;
    let letter = query.query_row([seq], |row| Ok(Letter { holds: row.get(0)?, state: ended_as(row.get(1)?) }));
    Ok(letter.optional()?)
}

/// The state that a task came to rest in; what nobody can read is no completion.
fn ended_as(state: i64) -> State {
    State::from_code(state).unwrap_or(State::Failed)
}

/// Whether a task is a dead letter whose queue holds what waits behind it.
pub(crate) fn holds(session: &mut Session<'_>, seq: i64) -> Result<bool, Fault> {
    Ok(letter_of(session, seq)?.is_some_and(|letter| letter.holds))
}

/// Whether a task is live.
fn is_live(session: &mut Session<'_>, seq: i64) -> Result<bool, Fault> {
    Ok(session.statements.get(Sql::TurnHolder)?.exists([seq])?)
}
