//! Revives the tasks that finished because of parents which are live again.
//!
//! A revived task leaves a note like its parent's, so a chain is followed note by note.

use std::collections::HashMap;

use punctual_core::ids::TaskId;
use punctual_core::state::State;
use punctual_core::store::Applied;
use punctual_core::trail::Actor;
use punctual_core::upkeep::Resolved;

use super::super::fault::Fault;
use super::super::outbox;
use super::super::session::Session;
use super::super::statements::Sql;
use super::super::{apply, dependents};
use crate::columns::count_column;
use crate::revived_child::RevivedChild;

/// Tasks and notes that one step works off …
const TASKS: usize = 200;
/// … until it has looked at this many of their parents. One task may have more.
const PARENTS: usize = 10_000;

/// Works off some notes.
pub(super) fn resolve(session: &mut Session<'_>) -> Result<Resolved, Fault> {
    let mut resolved = Resolved::default();
    let (mut room, mut parents_left) = (TASKS, PARENTS);
    for (note, parent) in notes(session)? {
        for child in children(session, parent, room)? {
            if parents_left == 0 {
                break;
            }
            room -= 1;
            session.statements.get(Sql::FailedChildRemove)?.execute([parent, child])?;
            parents_left = parents_left.saturating_sub(revive(session, child, &mut resolved)?);
        }
        if room == 0 || parents_left == 0 {
            // This parent may have more children: its note stays.
            break;
        }
        session.statements.get(Sql::RevivedNotesRemove)?.execute([note])?;
    }
    resolved.more = !notes(session)?.is_empty();
    Ok(resolved)
}

/// The oldest notes: number and parent.
fn notes(session: &mut Session<'_>) -> Result<Vec<(i64, i64)>, Fault> {
    let rows = session.statements.get(Sql::RevivedNotes)?;
    let rows = rows.query_map([count_column(TASKS)], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn children(session: &mut Session<'_>, parent: i64, most: usize) -> Result<Vec<i64>, Fault> {
    let rows = session.statements.get(Sql::FailedChildList)?;
    let rows = rows.query_map([parent, count_column(most)], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Revives a task, unless it was replaced or removed, or a parent of it was removed. Returns how
/// many parents it has.
///
/// It may have finished while other parents had not: what is left of its edges goes, or they would
/// be counted for parents that it does not wait for any more.
fn revive(session: &mut Session<'_>, seq: i64, resolved: &mut Resolved) -> Result<usize, Fault> {
    let Some(child) = revivable(session, seq)? else { return Ok(0) };
    let looked_at = child.dependencies.ids.len();
    let mut parents: HashMap<TaskId, State> = HashMap::with_capacity(child.dependencies.ids.len());
    for id in &child.dependencies.ids {
        if let Some((parent, known)) = dependents::look_up(session, *id)? {
            session.statements.get(Sql::EdgeRemove)?.execute([parent, seq])?;
            parents.insert(*id, known.state);
        }
    }
    let by = session.by(session.now(), Actor::Resolver);
    let Some((change, waits)) = child.decide(&parents, &by) else { return Ok(looked_at) };
    let Some(applied) = apply::revive(session, child.id, &change)? else { return Ok(looked_at) };
    session.statements.get(Sql::ChildCount)?.execute([seq, count_column(waits.edges.len())])?;
    dependents::add_edges(session, child.id, &waits)?;
    outbox::revived(session, seq)?;
    if let Applied::Done(Some((lane, due_at))) = applied {
        resolved.waiting.push((lane, due_at));
    }
    resolved.tasks += 1;
    Ok(looked_at)
}

fn revivable(session: &mut Session<'_>, seq: i64) -> Result<Option<RevivedChild>, Fault> {
    let mut rows = session.statements.get(Sql::Revivable)?.query([seq])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(RevivedChild::read(row).ok())
}
