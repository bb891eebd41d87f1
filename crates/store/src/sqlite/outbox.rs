//! Notes that transactions leave for the resolver: rows of `orders_due` and `settled_parents`, written with their cause.

use punctual_core::state::State;
use punctual_core::time::Timestamp;

use super::fault::Fault;
use super::resolve::ReviewCursor;
use super::session::Session;
use super::statements::Sql;
use crate::effects::{Effects, TurnNote};

/// The name of an ordering key, as a column has it.
pub(crate) type Ordering = [u8; 16];

/// The row that a write was about, as the notes name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotedRow {
    /// Its number.
    pub seq: i64,
    /// Its ordering key.
    pub ordering: Option<Ordering>,
    /// Whether other tasks may depend on it.
    pub awaited: bool,
}

/// Records the effects of a write: the counts and the forecast in memory, the notes in their tables.
pub(crate) fn record(session: &mut Session<'_>, effects: &Effects, row: &NotedRow) -> Result<(), Fault> {
    session.tally.record(effects, || session.clock.now());
    if let Some(note) = effects.turn {
        turn(session, row.ordering, (note == TurnNote::DeadLetter).then_some(row.seq))?;
    }
    match effects.ended {
        Some(state) if row.awaited => parent(session, row.seq, state),
        _ => Ok(()),
    }
}

/// Records the effects of a claim or a start, which leave no note.
pub(crate) fn record_claim(session: &mut Session<'_>, effects: &Effects, now: Timestamp) {
    debug_assert!(effects.leaves_no_note(), "a claim or a start leaves no note: {effects:?}");
    session.tally.record(effects, || now);
}

/// It may be another's turn; `dead_letter` is the task with the turn that became one.
pub(crate) fn turn(
    session: &mut Session<'_>,
    ordering: Option<Ordering>,
    dead_letter: Option<i64>,
) -> Result<(), Fault> {
    let Some(ordering) = ordering else { return Ok(()) };
    session.statements.get(Sql::OrderNote)?.execute((ordering, dead_letter))?;
    session.left = true;
    Ok(())
}

/// A task that others may wait for has come to rest.
pub(crate) fn parent(session: &mut Session<'_>, seq: i64, state: State) -> Result<(), Fault> {
    session.statements.get(Sql::ParentNote)?.execute((seq, state.code()))?;
    session.left = true;
    Ok(())
}

/// A queue has ceased to hold what waits behind its dead letters: everything that is held is to be looked at.
pub(crate) fn held(session: &mut Session<'_>) {
    session.round = Some(ReviewCursor::front());
    session.left = true;
}

/// After a commit: tells the resolver if there is something for it.
pub(crate) fn tell(session: &mut Session<'_>) {
    if std::mem::take(&mut session.left)
        && let Some(resolver) = &session.resolver
    {
        resolver.notify_one();
    }
}
