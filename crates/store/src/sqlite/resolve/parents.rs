//! Releases or fails the children of parents that finished.
//!
//! The end of a child leaves a note like any other, so that a chain is followed note by note.

use punctual_core::ids::TaskId;
use punctual_core::state::{Event, Position, State};
use punctual_core::task::OnDependencyFailure;
use punctual_core::time::Timestamp;
use punctual_core::trail::Actor;
use punctual_core::upkeep::Resolved;
use rusqlite::OptionalExtension;
use uuid::Uuid;

use super::super::apply::{self, lane_of};
use super::super::fault::Fault;
use super::super::obstacles::stands;
use super::super::outbox::{self, NotedRow, Ordering};
use super::super::session::Session;
use super::super::statements::Sql;
use super::{ended_as, is_live, letter_of};
use crate::claims::expect_change;
use crate::columns::count_column;
use crate::dependencies;
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
            if let Some(state) = end(session, parent, ended_as(state))? {
                let ended = EndedParent { parent, id: name(session, parent, state)?, state };
                let children = children(session, parent, room)?;
                room -= children.len();
                for child in children {
                    release(session, &ended, child, &mut resolved)?;
                }
                if room == 0 {
                    // There may be more of this one.
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

/// How a parent finished; none if its children go on waiting. A dead letter may have been re-driven
/// or removed since.
fn end(session: &mut Session<'_>, parent: i64, state: State) -> Result<Option<State>, Fault> {
    if state != State::DeadLettered {
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
        None => Ok(Some(State::DeadLettered)),
    }
}

/// The id of a parent for the trails of its children. None if it completed or was removed.
fn name(session: &mut Session<'_>, parent: i64, state: State) -> Result<Option<TaskId>, Fault> {
    if state == State::Completed {
        return Ok(None);
    }
    Ok(stands(session, parent)?.map(|(id, _)| id))
}

fn children(session: &mut Session<'_>, parent: i64, most: usize) -> Result<Vec<i64>, Fault> {
    let mut rows = session.statements.get(Sql::EdgeList)?.query([parent, count_column(most)])?;
    let mut children = Vec::new();
    while let Some(row) = rows.next()? {
        children.push(row.get(0)?);
    }
    Ok(children)
}

/// A parent that has finished.
struct EndedParent {
    parent: i64,
    id: Option<TaskId>,
    state: State,
}

/// A task that waits for its parents.
struct BlockedChild {
    id: TaskId,
    lane: i64,
    position: Position,
    due_at: i64,
    blockers: i64,
    ordering: Option<Ordering>,
    on_failure: OnDependencyFailure,
}

/// Removes an edge, and releases or fails its child.
fn release(session: &mut Session<'_>, ended: &EndedParent, seq: i64, resolved: &mut Resolved) -> Result<(), Fault> {
    session.statements.get(Sql::EdgeRemove)?.execute([ended.parent, seq])?;
    let Some(child) = look_at(session, seq)? else { return Ok(()) };
    let now = session.now();
    let by = session.by(now, Actor::Resolver);
    if ended.state != State::Completed && child.on_failure != OnDependencyFailure::Run {
        let parent = ended.id.map(|id| (id, ended.state));
        let event = Event::DependencyFailed { fail: child.on_failure == OnDependencyFailure::Fail, parent };
        apply::finish(session, child.id, &expect_change(&child.position, event, &by))?;
        resolved.tasks += 1;
    } else if child.blockers > 1 {
        session.statements.get(Sql::ChildCount)?.execute([seq, child.blockers - 1])?;
    } else {
        let due_at = Timestamp::from_millis(child.due_at).max(now);
        let change = expect_change(&child.position, Event::Unblock(due_at), &by);
        apply::change_task(session, seq, &change)?;
        let row = NotedRow { seq, ordering: child.ordering, awaited: false };
        outbox::record(session, &Effects::in_place(&change, LaneInstant { lane: child.lane, due_at }), &row)?;
        resolved.waiting.push((lane_of(session, child.lane)?, due_at));
        resolved.tasks += 1;
    }
    Ok(())
}

fn look_at(session: &mut Session<'_>, seq: i64) -> Result<Option<BlockedChild>, Fault> {
    let child = session.statements.get(Sql::ChildGet)?.query_row([seq], |row| {
        let policy: Option<String> = row.get(8)?;
        Ok(BlockedChild {
            id: TaskId::from_uuid(Uuid::from_bytes(row.get(0)?)),
            lane: row.get(1)?,
            position: Position {
                state: State::Blocked,
                version: row.get::<_, i64>(2)?.try_into().unwrap_or_default(),
                attempts: row.get(3)?,
                crashes: row.get(4)?,
                cancel_requested: false,
            },
            due_at: row.get(5)?,
            blockers: row.get::<_, Option<i64>>(6)?.unwrap_or_default(),
            ordering: row.get(7)?,
            on_failure: dependencies::policy(policy.as_deref()).unwrap_or_default(),
        })
    });
    Ok(child.optional()?)
}
