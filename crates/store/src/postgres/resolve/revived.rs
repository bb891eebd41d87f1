//! Revives the tasks that finished because of parents which are live again.
//!
//! A revived task leaves a note like its parent's, so a chain is followed note by note. Its parents
//! are locked as for a submission: none ends meanwhile without a note.

use std::collections::{BTreeSet, HashMap};

use punctual_core::ids::TaskId;
use punctual_core::state::{Change, State};
use punctual_core::trail::Actor;
use punctual_core::upkeep::Resolved;
use tokio_postgres::Row;
use tracing::error;
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

/// Tasks and notes that one step works off …
const TASKS: usize = 200;
/// … unless they have more parents than this together. One task may have more.
const PARENTS: usize = 10_000;

/// A task and how it is revived.
struct Revival {
    id: TaskId,
    change: Change,
    waits: Prerequisites,
}

/// Works off some notes. If that fails because of one task, that task alone is not revived.
pub(super) async fn resolve(writer: &mut Writer) -> Result<Resolved, Fault> {
    let Some(from) = writer.shared.outbox.revived.begin() else { return Ok(Resolved::default()) };
    let mut resolved = work_off(writer, from, TASKS).await;
    if let Err(fault) = &resolved
        && is_of_one_task(fault)
    {
        writer.roll_back().await?;
        resolved = work_off_one(writer, from).await;
    }
    if resolved.is_err() {
        writer.shared.outbox.revived.note(from);
    }
    resolved
}

/// Whether another try with fewer tasks may succeed.
fn is_of_one_task(fault: &Fault) -> bool {
    fault.may_be_of_one_call() && !fault.is_conflict()
}

/// Revives the first task, or gives up on it.
async fn work_off_one(writer: &mut Writer, from: i64) -> Result<Resolved, Fault> {
    let fault = match work_off(writer, from, 1).await {
        Err(fault) if is_of_one_task(&fault) => fault,
        done => return done,
    };
    writer.roll_back().await?;
    let (_, found) = find(writer, from, 1).await?;
    for child in &found.children {
        error!(task.id = %child, error = %fault.to_store_error(), "cannot revive a task; it stays as it is");
    }
    writer.commit().await?;
    writer.shared.outbox.revived.note(from);
    Ok(Resolved { more: true, ..Resolved::default() })
}

/// The failed children of some noted parents.
#[derive(Default)]
struct FoundChildren {
    /// Those that this step works off.
    children: BTreeSet<Uuid>,
    /// Whether there may be others.
    more: bool,
}

/// Begins a transaction, locks at most so many notes and takes at most so many failed children.
async fn find(writer: &Writer, from: i64, most: usize) -> Result<(Vec<Row>, FoundChildren), Fault> {
    let notes = writer.session.begin(Sql::RevivedNotes, &[&from, &count_column(most)]).await?;
    if notes.is_empty() {
        return Ok((notes, FoundChildren::default()));
    }
    let parents: Vec<Uuid> = notes.iter().map(|row| row.get(1)).collect();
    let bounds = (count_column(most), count_column(PARENTS));
    let found = writer.session.query(Sql::FailedChildTake, &[&parents, &bounds.0, &bounds.1]).await?;
    let children: BTreeSet<Uuid> = found.iter().filter(|row| row.get(1)).map(|row| row.get(0)).collect();
    let more = found.len() >= most || found.iter().any(|row| !row.get::<_, bool>(1));
    Ok((notes, FoundChildren { children, more }))
}

async fn work_off(writer: &mut Writer, from: i64, most: usize) -> Result<Resolved, Fault> {
    let (notes, FoundChildren { children, more: has_more }) = find(writer, from, most).await?;
    if notes.is_empty() {
        writer.session.run("ROLLBACK").await?;
        return Ok(Resolved::default());
    }
    let waiting = revive(writer, &children.iter().copied().collect::<Vec<_>>()).await?;
    // The notes stay while there may be more children.
    if !has_more {
        let done: Vec<i64> = notes.iter().map(|row| row.get(0)).collect();
        writer.session.execute(Sql::RevivedNotesRemove, &[&done]).await?;
    }
    writer.commit().await?;
    if has_more {
        writer.shared.outbox.revived.note(from);
    } else if notes.len() >= most {
        let last = notes.iter().map(|row| row.get::<_, i64>(0)).max().unwrap_or(from);
        writer.shared.outbox.revived.note(last.saturating_add(1));
    }
    let more = !children.is_empty() || notes.len() >= most;
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
    remove_edges(writer, &children).await?;
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

/// Removes what is left of the edges to these tasks: they finished while other parents had not.
/// Such an edge would be counted for a parent that they do not wait for any more.
async fn remove_edges(writer: &Writer, children: &[(RevivedChild, &str)]) -> Result<(), Fault> {
    let edges = children.iter().flat_map(|(child, _)| child.dependencies.ids.iter().map(|parent| (*parent, child.id)));
    let (parents, children): (Vec<Uuid>, Vec<Uuid>) =
        edges.map(|(parent, child)| (parent.uuid(), child.uuid())).unzip();
    writer.session.execute(Sql::EdgeRemove, &[&parents, &children]).await.map(drop)
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
