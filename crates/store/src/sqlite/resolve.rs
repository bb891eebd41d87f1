//! The resolver's work on the notes of the outbox: parents that are live again (`revived`) or
//! finished (`parents`), ordering keys whose turn may pass (`turns`), and concurrency keys of which
//! a place may be free (`places`).

mod parents;
mod places;
mod revived;
mod turns;

use punctual_core::state::State;
use punctual_core::upkeep::Resolved;
use rusqlite::OptionalExtension;

use super::fault::Fault;
use super::outbox::{self, Concurrency, Ordering};
use super::session::Session;
use super::statements::Sql;
use crate::blocked_child::DeadLetterEnd;
use crate::columns::count_column;
use crate::review::{self, behind};

/// Keys and dead letters that one review checks.
const PAGE: usize = 500;

/// The cursor of the reviews in this store.
pub(crate) type ReviewCursor = review::ReviewCursor<Ordering, i64>;

/// Works off some notes. During a round it also checks one page, as a review does.
pub(crate) fn resolve(session: &mut Session<'_>) -> Result<Resolved, Fault> {
    if let Some(place) = session.review_round {
        session.review_round = review(session, place)?.or_end();
    }
    let mut resolved = Resolved::default();
    // What is revived first is not failed by an older note.
    let revived = revived::resolve(session)?;
    for some in [revived, parents::resolve(session)?, turns::resolve(session)?, places::resolve(session)?] {
        resolved.waiting.extend(some.waiting);
        resolved.tasks += some.tasks;
        resolved.more |= some.more;
    }
    resolved.more |= session.review_round.is_some();
    Ok(resolved)
}

/// Leaves a note for each dead letter that holds nothing any more: it was re-driven or removed, or
/// its queue no longer holds. Leaves one for each concurrency key that tasks wait for. Returns
/// where the next page begins.
pub(crate) fn review(session: &mut Session<'_>, place: ReviewCursor) -> Result<ReviewCursor, Fault> {
    let mut next = ReviewCursor { key: None, letter: None, parked: None };
    if let Some(after) = place.key {
        let query = session.statements.get(Sql::OrderHeld)?;
        let rows = query.query_map((after, count_column(PAGE)), |row| Ok((row.get(0)?, row.get(1)?)))?;
        let held: Vec<(Ordering, i64)> = rows.collect::<Result<_, _>>()?;
        for (key, letter) in &held {
            if !holds(session, *letter)? {
                outbox::turn(session, Some(*key), None)?;
            }
        }
        next.key = behind(held.len(), PAGE, held.last().map(|(key, _)| *key));
    }
    if let Some(after) = place.letter {
        let query = session.statements.get(Sql::ParentHeld)?;
        let rows = query.query_map([after, count_column(PAGE)], |row| row.get(0))?;
        let parents: Vec<i64> = rows.collect::<Result<_, _>>()?;
        for parent in &parents {
            if !holds(session, *parent)? {
                session.statements.get(Sql::ParentHeldRemove)?.execute([*parent])?;
                outbox::parent(session, *parent, State::DeadLettered)?;
            }
        }
        next.letter = behind(parents.len(), PAGE, parents.last().copied());
    }
    if let Some(after) = place.parked {
        let query = session.statements.get(Sql::PlaceKeys)?;
        let keys: Vec<Concurrency> =
            query.query_map((after, count_column(PAGE)), |row| row.get(0))?.collect::<Result<_, _>>()?;
        for key in &keys {
            outbox::note_places(session, *key, None)?;
        }
        next.parked = behind(keys.len(), PAGE, keys.last().copied());
    }
    Ok(next)
}

/// How a task finished, if it did.
fn letter_of(session: &mut Session<'_>, seq: i64) -> Result<Option<DeadLetterEnd>, Fault> {
    let query = session.statements.get(Sql::DeadLetter)?;
    let letter = query.query_row([seq], |row| {
        let settings: Option<String> = row.get(1)?;
        Ok(DeadLetterEnd::of(State::from_code(row.get(0)?), settings.as_deref()))
    });
    Ok(letter.optional()?)
}

/// Whether a task is a dead letter whose queue holds the tasks behind it.
fn holds(session: &mut Session<'_>, seq: i64) -> Result<bool, Fault> {
    Ok(letter_of(session, seq)?.is_some_and(|letter| letter.holds))
}

/// Whether a task is live.
fn is_live(session: &mut Session<'_>, seq: i64) -> Result<bool, Fault> {
    Ok(session.statements.get(Sql::TurnHolder)?.exists([seq])?)
}
