//! Releases or fails the children of parents that finished.
//!
//! The end of a child leaves a note like any other, so a chain is followed note by note.

use punctual_core::ids::TaskId;
use punctual_core::state::State;
use punctual_core::trail::Actor;
use punctual_core::upkeep::Resolved;
use rusqlite::OptionalExtension;

use super::super::apply::{self, lane_of};
use super::super::fault::Fault;
use super::super::outbox::{self, NotedRow, Ordering};
use super::super::session::Session;
use super::super::statements::Sql;
use super::{is_live, letter_of};
use crate::blocked_child::{BlockedChild, ChildStep, ParentEnd, ended_as};
use crate::columns::count_column;
use crate::effects::{Effects, LaneInstant};

/// Notes that are read at once.
const NOTES: usize = 500;
/// Edges and notes that one step works off.
const EDGES: usize = 1_000;

/// Works off some notes, including notes that this work leaves.
pub(super) fn resolve(session: &mut Session<'_>) -> Result<Resolved, Fault> {
    let mut resolved = Resolved::default();
    let (mut room, mut notes_left) = (EDGES, EDGES);
    loop {
        let notes = notes(session)?;
        if notes.is_empty() {
            return Ok(resolved);
        }
        for (note, parent, state) in notes {
            if notes_left == 0 {
                resolved.more = true;
                return Ok(resolved);
            }
            notes_left -= 1;
            if let Some(state) = end(session, parent, ended_as(State::from_code(state)))? {
                let end = ParentEnd { id: name(session, parent, state)?, state };
                let children = children(session, parent, room)?;
                room -= children.len();
                for child in children {
                    session.statements.get(Sql::EdgeRemove)?.execute([parent, child])?;
                    release(session, parent, end, child, &mut resolved)?;
                }
                if room == 0 {
                    // This parent may have more children: its note stays.
                    resolved.more = true;
                    return Ok(resolved);
                }
            }
            session.statements.get(Sql::ParentNotesRemove)?.execute([note])?;
        }
    }
}

/// The oldest notes: number, parent and state.
fn notes(session: &mut Session<'_>) -> Result<Vec<(i64, i64, i64)>, Fault> {
    let mut rows = session.statements.get(Sql::ParentNotes)?.query([count_column(NOTES)])?;
    let mut notes = Vec::new();
    while let Some(row) = rows.next()? {
        notes.push((row.get(0)?, row.get(1)?, row.get(2)?));
    }
    Ok(notes)
}

/// How a parent finished; none if its children go on waiting. One that did not complete may have
/// been re-driven, revived or removed since.
fn end(session: &mut Session<'_>, parent: i64, state: State) -> Result<Option<State>, Fault> {
    if state == State::Completed {
        return Ok(Some(state));
    }
    match letter_of(session, parent)? {
        Some(letter) if letter.holds => {
            session.statements.get(Sql::ParentHold)?.execute([parent])?;
            Ok(None)
        }
        Some(letter) => Ok(Some(letter.state)),
        // It runs again and will leave another note.
        None if is_live(session, parent)? => Ok(None),
        None => Ok(Some(state)),
    }
}

/// The id of a parent for the trails of its children. None if it completed or was removed.
fn name(session: &mut Session<'_>, parent: i64, state: State) -> Result<Option<TaskId>, Fault> {
    if state == State::Completed {
        return Ok(None);
    }
    let id = session.statements.get(Sql::TaskName)?.query_row([parent], |row| row.get(0)).optional()?;
    Ok(id.map(TaskId::from_uuid))
}

fn children(session: &mut Session<'_>, parent: i64, most: usize) -> Result<Vec<i64>, Fault> {
    let mut rows = session.statements.get(Sql::EdgeList)?.query([parent, count_column(most)])?;
    let mut children = Vec::new();
    while let Some(row) = rows.next()? {
        children.push(row.get(0)?);
    }
    Ok(children)
}

/// Releases or fails a child after one of its parents has finished.
fn release(
    session: &mut Session<'_>,
    parent: i64,
    end: ParentEnd,
    seq: i64,
    resolved: &mut Resolved,
) -> Result<(), Fault> {
    let Some((child, lane, ordering)) = look_at(session, seq)? else { return Ok(()) };
    let by = session.by(session.now(), Actor::Resolver);
    match child.decide(1, end, &by) {
        ChildStep::Wait(blockers) => {
            session.statements.get(Sql::ChildCount)?.execute([seq, blockers])?;
            return Ok(());
        }
        ChildStep::Finish(change) => {
            apply::finish(session, child.id, &change)?;
            session.statements.get(Sql::FailedChildAdd)?.execute((parent, seq, by.now.as_millis()))?;
        }
        ChildStep::Unblock(change) => {
            apply::change_task(session, seq, &change)?;
            let due_at = change.due_at.unwrap_or(by.now);
            let row = NotedRow { seq, ordering, concurrency: None, awaited: false };
            outbox::record(session, &Effects::in_place(&change, LaneInstant { lane, due_at }), &row)?;
            resolved.waiting.push((lane_of(session, lane)?, due_at));
        }
    }
    resolved.tasks += 1;
    Ok(())
}

/// A blocked child with its lane and its ordering key; none if it does not wait any more.
fn look_at(session: &mut Session<'_>, seq: i64) -> Result<Option<(BlockedChild, i64, Option<Ordering>)>, Fault> {
    let mut rows = session.statements.get(Sql::ChildGet)?.query([seq])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let Ok(child) = BlockedChild::read(row) else { return Ok(None) };
    Ok(Some((child, row.get(7)?, row.get(8)?)))
}
