//! Revives the tasks that finished because of parents which are live again.
//!
//! A revived task leaves a note like its parent's, so a chain is followed note by note. Its parents
//! are locked as for a submission: none ends meanwhile without a note.

use std::collections::{BTreeSet, HashMap};

use punctual_core::ids::TaskId;
use punctual_core::state::{Change, State};
use punctual_core::trail::Actor;
use punctual_core::upkeep::Resolved;
use uuid::Uuid;

use super::super::apply::change::{ChangedRow, changed};
use super::super::fault::Fault;
use super::super::insert::dependents::look_up;
use super::super::row::state_column;
use super::super::statements::Sql;
use super::super::writer::Writer;
use super::announce;
use crate::columns::{count_column, instant_column, number_column};
use crate::dependencies::Prerequisites;
use crate::effects::Effects;
use crate::revived_child::RevivedChild;

/// Tasks and notes that one step works off. A task may have thousands of parents.
const TASKS: usize = 200;

/// A task and how it is revived.
struct Revival {
    id: TaskId,
    change: Change,
    waits: Prerequisites,
}

/// Works off some notes.
pub(super) async fn resolve(writer: &mut Writer) -> Result<Resolved, Fault> {
    let Some(from) = writer.shared.outbox.revived.begin() else { return Ok(Resolved::default()) };
    let resolved = work_off(writer, from).await;
    if resolved.is_err() {
        writer.shared.outbox.revived.note(from);
    }
    resolved
}

async fn work_off(writer: &mut Writer, from: i64) -> Result<Resolved, Fault> {
    let notes = writer.session.begin(Sql::RevivedNotes, &[&from, &count_column(TASKS)]).await?;
    if notes.is_empty() {
        writer.session.run("ROLLBACK").await?;
        return Ok(Resolved::default());
    }
    let parents: Vec<Uuid> = notes.iter().map(|row| row.get(1)).collect();
    let children = writer.session.query(Sql::FailedChildTake, &[&parents, &count_column(TASKS)]).await?;
    let children: BTreeSet<Uuid> = children.iter().map(|row| row.get(0)).collect();
    let waiting = revive(writer, &children.iter().copied().collect::<Vec<_>>()).await?;
    // If the step is full there may be more children: the notes stay.
    let is_full = children.len() >= TASKS;
    if !is_full {
        let done: Vec<i64> = notes.iter().map(|row| row.get(0)).collect();
        writer.session.execute(Sql::RevivedNotesRemove, &[&done]).await?;
    }
    writer.commit().await?;
    if is_full {
        writer.shared.outbox.revived.note(from);
    } else if notes.len() >= TASKS {
        let last = notes.iter().map(|row| row.get::<_, i64>(0)).max().unwrap_or(from);
        writer.shared.outbox.revived.note(last.saturating_add(1));
    }
    let more = !children.is_empty() || notes.len() >= TASKS;
    Ok(Resolved { waiting: announce(writer, &waiting).await?, tasks: children.len(), more })
}

/// Revives tasks, except those that were replaced or removed, or of which a parent was removed.
/// Returns where they wait, if they can be claimed.
async fn revive(writer: &mut Writer, ids: &[Uuid]) -> Result<Vec<(i64, i64)>, Fault> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    writer.session.query(Sql::RevivableKeys, &[&ids]).await?;
    let rows = writer.session.query(Sql::Revivable, &[&ids]).await?;
    let readable = rows.iter().filter_map(|row| Some((RevivedChild::read(row).ok()?, row.get::<_, &str>(8))));
    let children: Vec<(RevivedChild, &str)> = readable.collect();
    let named = children.iter().flat_map(|(child, tenant)| child.dependencies.ids.iter().map(|id| (*id, *tenant)));
    let (known, passed) = look_up(writer, &named.collect()).await?;
    let states: HashMap<TaskId, State> = known.into_iter().map(|(id, known)| (id, known.state)).collect();
    let by = writer.by(writer.now(), Actor::Resolver);
    let decide = |(child, _): &(RevivedChild, &str)| {
        let (change, waits) = child.decide(&states, &by)?;
        Some(Revival { id: child.id, change, waits })
    };
    let revivals: Vec<Revival> = children.iter().filter_map(decide).collect();
    let mut waiting = write(writer, &revivals).await?;
    // A claim may have skipped parents that were locked here.
    waiting.extend(passed);
    Ok(waiting)
}

/// Writes the tasks, their edges and their notes. Returns where those wait that can be claimed.
async fn write(writer: &mut Writer, revivals: &[Revival]) -> Result<Vec<(i64, i64)>, Fault> {
    let revived: HashMap<Uuid, &Revival> = revivals.iter().map(|revival| (revival.id.uuid(), revival)).collect();
    let (now, mut waiting) = (writer.now(), Vec::new());
    let (mut parents, mut children) = (Vec::new(), Vec::new());
    for row in move_back(writer, revivals).await? {
        let Some(Revival { change, waits, .. }) = revived.get(&row.id).copied() else { continue };
        let effects = Effects::in_place(change, row.at());
        writer.tally.record(&effects, || now);
        writer.notes.record(&effects, &row.noted());
        writer.notes.revived(row.id);
        for (parent, state) in &waits.ended {
            writer.notes.parent(parent.uuid(), *state);
        }
        parents.extend(waits.edges.iter().map(|parent| parent.uuid()));
        children.extend(waits.edges.iter().map(|_| row.id));
        waiting.extend((change.to == State::Pending).then_some((row.lane, row.due_at)));
    }
    if !parents.is_empty() {
        writer.session.execute(Sql::EdgeAdd, &[&parents, &children]).await?;
    }
    Ok(waiting)
}

/// Moves tasks from the history to the live ones.
async fn move_back(writer: &Writer, revivals: &[Revival]) -> Result<Vec<ChangedRow>, Fault> {
    if revivals.is_empty() {
        return Ok(Vec::new());
    }
    let blockers = |revival: &Revival| i32::try_from(revival.waits.edges.len()).unwrap_or(i32::MAX);
    let rows = writer
        .session
        .query(
            Sql::TaskRevive,
            &[
                &each(revivals, |revival| revival.id.uuid()),
                &each(revivals, |revival| number_column(revival.change.expected_version)),
                &each(revivals, |revival| state_column(revival.change.from)),
                &each(revivals, |revival| state_column(revival.change.to)),
                &each(revivals, |revival| number_column(revival.change.version)),
                &each(revivals, |revival| revival.change.trail.as_bytes()),
                &each(revivals, |revival| instant_column(revival.change.due_at)),
                &each(revivals, blockers),
            ],
        )
        .await?;
    Ok(rows.iter().map(changed).collect())
}

/// A column: one value of each task.
fn each<'a, T>(revivals: &'a [Revival], column: impl Fn(&'a Revival) -> T) -> Vec<T> {
    revivals.iter().map(column).collect()
}
