//! The resolver's work on the notes of the outbox: parents that are live again (`revived`) or
//! finished (`parents`), ordering keys whose turn may pass (`turns`), and concurrency keys of which
//! a place may be free (`places`). Each step is one transaction.

mod parents;
mod places;
mod revived;
mod turns;

use std::collections::HashMap;
use std::sync::Arc;

use punctual_core::lane::Lane;
use punctual_core::state::State;
use punctual_core::time::Timestamp;
use punctual_core::upkeep::Resolved;
use tokio_postgres::Row;
use uuid::Uuid;

use super::connection::Session;
use super::fault::Fault;
use super::row;
use super::statements::Sql;
use super::writer::Writer;
use crate::blocked_child::DeadLetterEnd;
use crate::columns::count_column;
use crate::review::{self, behind};

/// Keys and dead letters that one review checks.
const PAGE: usize = 500;

/// The cursor of the reviews in this store.
pub(crate) type ReviewCursor = review::ReviewCursor<Uuid, Uuid>;

/// What the resolver asks the store to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResolverStep {
    /// Work off some notes.
    Resolve,
    /// Review a page of the dead letters that hold keys or children, and of the keys that parked
    /// tasks wait for.
    Review,
}

/// The kinds of notes, in the order in which they are worked off: what is revived first is not
/// failed by an older note.
#[derive(Clone, Copy)]
enum NoteKind {
    Revived,
    Parents,
    Turns,
    Places,
}

/// Takes the steps. One execution serves all callers of the same step.
pub(crate) async fn resolve(writer: &mut Writer, steps: &[ResolverStep]) -> Result<Vec<Resolved>, Fault> {
    let mut resolved = Resolved::default();
    if steps.contains(&ResolverStep::Review) {
        let place = *writer.shared.outbox.reviewed.lock();
        let next = review(writer, place).await?.or_front();
        *writer.shared.outbox.reviewed.lock() = next;
    }
    if steps.contains(&ResolverStep::Resolve) {
        resolved = work_off(writer).await?;
    }
    let mut answers = vec![Resolved::default(); steps.len()];
    if let Some(first) = answers.first_mut() {
        *first = resolved;
    }
    Ok(answers)
}

/// Works off notes of each kind. A kind that fails does not keep the others waiting: its fault is
/// returned by the step that has nothing else to do.
async fn work_off(writer: &mut Writer) -> Result<Resolved, Fault> {
    let mut resolved = Resolved { more: go_round(writer).await?, ..Resolved::default() };
    let mut failed = None;
    for kind in [NoteKind::Revived, NoteKind::Parents, NoteKind::Turns, NoteKind::Places] {
        let worked_off = match kind {
            NoteKind::Revived => Box::pin(revived::resolve(writer)).await,
            NoteKind::Parents => parents::resolve(writer).await,
            NoteKind::Turns => turns::resolve(writer).await,
            NoteKind::Places => places::resolve(writer).await,
        };
        match worked_off {
            Ok(some) => {
                resolved.waiting.extend(some.waiting);
                resolved.tasks += some.tasks;
                resolved.more |= some.more;
            }
            Err(fault) if fault.breaks_connection() => return Err(fault),
            Err(fault) => {
                writer.roll_back().await?;
                failed = failed.or(Some(fault));
            }
        }
    }
    match failed {
        Some(fault) if resolved.tasks == 0 => Err(fault),
        Some(_) => Ok(Resolved { more: true, ..resolved }),
        None => Ok(resolved),
    }
}

/// Notifies this node and the others of tasks that may be claimed now. Returns them with their
/// lanes.
async fn announce(writer: &Writer, waiting: &[(i64, i64)]) -> Result<Vec<(Arc<Lane>, Timestamp)>, Fault> {
    writer.shared.cursors.put(waiting.iter().copied());
    writer.shared.notifier.note_waiting(waiting, writer.now());
    let lanes = writer.shared.lanes.get(&writer.session, waiting.iter().map(|(lane, _)| *lane)).await?;
    let of_lane = |(lane, due_at): &(i64, i64)| Some((lanes.get(lane)?.clone(), Timestamp::from_millis(*due_at)));
    Ok(waiting.iter().filter_map(of_lane).collect())
}

/// How these tasks finished. Live tasks are left out.
async fn letters(session: &Session, ids: &[Uuid]) -> Result<HashMap<Uuid, DeadLetterEnd>, Fault> {
    ends_by(session, Sql::DeadLetters, ids).await
}

/// The same by one of the statements that find them.
async fn ends_by(session: &Session, sql: Sql, ids: &[Uuid]) -> Result<HashMap<Uuid, DeadLetterEnd>, Fault> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = session.query(sql, &[&ids]).await?;
    let letter = |row: &Row| DeadLetterEnd::of(row::state(row, 1), row.get(2));
    Ok(rows.iter().map(|row| (row.get(0), letter(row))).collect())
}

/// Reviews one page if a round is under way. Returns whether there are more pages.
async fn go_round(writer: &mut Writer) -> Result<bool, Fault> {
    let Some(place) = writer.shared.outbox.take_round() else { return Ok(false) };
    let reviewed = review(writer, place).await;
    let next = reviewed.as_ref().map_or(Some(place), |next| next.or_end());
    let more = writer.shared.outbox.keep_round(next);
    reviewed.map(|_| more)
}

/// Leaves a note for each dead letter that holds nothing any more: it was re-driven or removed, or
/// its queue no longer holds. Leaves one for each concurrency key that tasks wait for. Returns
/// where the next page begins.
async fn review(writer: &mut Writer, place: ReviewCursor) -> Result<ReviewCursor, Fault> {
    // Nothing comes behind the greatest id.
    let (after_key, after_letter) = (place.key.unwrap_or(Uuid::max()), place.letter.unwrap_or(Uuid::max()));
    let keys = writer.session.begin(Sql::OrderHeld, &[&after_key, &count_column(PAGE)]).await?;
    let parents = writer.session.query(Sql::ParentHeld, &[&after_letter, &count_column(PAGE)]).await?;
    let parents: Vec<Uuid> = parents.iter().map(|row| row.get(0)).collect();
    let held: Vec<(Uuid, Uuid)> = keys.iter().map(|row| (row.get(0), row.get(1))).collect();
    let ids: Vec<Uuid> = held.iter().map(|(_, letter)| *letter).chain(parents.iter().copied()).collect();
    let known = letters(&writer.session, &ids).await?;
    let is_over = |letter: &Uuid| known.get(letter).is_none_or(|letter| !letter.holds);
    for (key, _) in held.iter().filter(|(_, letter)| is_over(letter)) {
        writer.notes.turn(Some(*key));
    }
    let over: Vec<Uuid> = parents.iter().copied().filter(is_over).collect();
    if !over.is_empty() {
        for row in writer.session.query(Sql::ParentHeldRemove, &[&over]).await? {
            writer.notes.parent(row.get(0), State::DeadLettered);
        }
    }
    let after_parked = place.parked.unwrap_or(Uuid::max());
    let parked = writer.session.query(Sql::PlaceKeys, &[&after_parked, &count_column(PAGE)]).await?;
    let parked: Vec<Uuid> = parked.iter().map(|row| row.get(0)).collect();
    for key in &parked {
        writer.notes.places(*key, None);
    }
    writer.commit().await?;
    Ok(ReviewCursor {
        key: behind(held.len(), PAGE, held.last().map(|(key, _)| *key)),
        letter: behind(parents.len(), PAGE, parents.last().copied()),
        parked: behind(parked.len(), PAGE, parked.last().copied()),
    })
}
