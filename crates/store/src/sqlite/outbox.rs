//! The outbox: notes for the resolver, written in the transaction that causes them.
//!
//! They are rows of `orders_due`, `settled_parents`, `revived_parents` and `places_due`. Every
//! write records its effects here.

use punctual_core::state::State;
use punctual_core::time::Timestamp;

use super::fault::Fault;
use super::resolve::ReviewCursor;
use super::session::Session;
use super::statements::Sql;
use crate::effects::{Effects, TurnNote};

/// The name of an ordering key, as a column has it.
pub(crate) type Ordering = [u8; 16];

/// The name of a concurrency key, as a column has it.
pub(crate) type Concurrency = [u8; 16];

/// The row that a write was about, as the notes name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotedRow {
    /// Its number.
    pub seq: i64,
    /// Its ordering key.
    pub ordering: Option<Ordering>,
    /// Its concurrency key.
    pub concurrency: Option<Concurrency>,
    /// Whether other tasks may depend on it.
    pub awaited: bool,
}

/// Records the effects of a write: the counts and the forecast in memory, the notes in their
/// tables.
pub(crate) fn record(session: &mut Session<'_>, effects: &Effects, row: &NotedRow) -> Result<(), Fault> {
    session.tally.record(effects, || session.clock.now());
    count_queues(session, effects)?;
    if let Some(note) = effects.turn {
        turn(session, row.ordering, (note == TurnNote::DeadLetter).then_some(row.seq))?;
    }
    if effects.frees_place {
        place(session, row.concurrency)?;
    }
    match effects.ended {
        Some(state) if row.awaited => parent(session, row.seq, state),
        _ => Ok(()),
    }
}

/// Records the effects of a claim or a start, which leave no note.
pub(crate) fn record_claim(session: &mut Session<'_>, effects: &Effects, now: Timestamp) -> Result<(), Fault> {
    debug_assert!(effects.leaves_no_note(), "a claim or a start leaves no note: {effects:?}");
    session.tally.record(effects, || now);
    count_queues(session, effects)
}

/// Counts a change for the queues of its lanes. The tasks of a missing lane are of no queue.
fn count_queues(session: &mut Session<'_>, effects: &Effects) -> Result<(), Fault> {
    for (row, tasks) in effects.count_changes() {
        if let Some(lane) = session.lanes.get(session.connection, row.at.lane)? {
            session.queue_tally.add(&lane.key.tenant, &lane.key.queue, row.state, tasks);
        }
    }
    Ok(())
}

/// Notes that the turn of a key may pass. `dead_letter` is a task that has just become one.
pub(crate) fn turn(
    session: &mut Session<'_>,
    ordering: Option<Ordering>,
    dead_letter: Option<i64>,
) -> Result<(), Fault> {
    let Some(ordering) = ordering else { return Ok(()) };
    session.statements.get(Sql::OrderNote)?.execute((ordering, dead_letter))?;
    session.has_notes = true;
    Ok(())
}

/// Notes that a place of a key may be free, if a task waits for one. Only the writer parks tasks,
/// so it misses none.
fn place(session: &mut Session<'_>, concurrency: Option<Concurrency>) -> Result<(), Fault> {
    let Some(concurrency) = concurrency else { return Ok(()) };
    if session.statements.get(Sql::PlaceParked)?.exists([concurrency])? {
        note_places(session, concurrency, Some(1))?;
    }
    Ok(())
}

/// Notes that so many places of a key came free; none: that it must be looked at.
pub(crate) fn note_places(
    session: &mut Session<'_>,
    concurrency: Concurrency,
    places: Option<i64>,
) -> Result<(), Fault> {
    session.statements.get(Sql::PlaceNote)?.execute((concurrency, places))?;
    session.has_notes = true;
    Ok(())
}

/// Notes that a task which others may depend on has finished.
pub(crate) fn parent(session: &mut Session<'_>, seq: i64, state: State) -> Result<(), Fault> {
    session.statements.get(Sql::ParentNote)?.execute((seq, state.code()))?;
    session.has_notes = true;
    Ok(())
}

/// Notes that a task is live again, and that its failed children are to be revived.
pub(crate) fn revived(session: &mut Session<'_>, seq: i64) -> Result<(), Fault> {
    session.statements.get(Sql::RevivedNote)?.execute([seq])?;
    session.has_notes = true;
    Ok(())
}

/// Begins a round: tasks that wait may go on, because a queue was set otherwise.
pub(crate) fn begin_review_round(session: &mut Session<'_>) {
    session.review_round = Some(ReviewCursor::front());
    session.has_notes = true;
}

/// Wakes the resolver after a commit that left notes.
pub(crate) fn wake_resolver(session: &mut Session<'_>) {
    if std::mem::take(&mut session.has_notes)
        && let Some(resolver) = &session.resolver
    {
        resolver.notify_one();
    }
}
