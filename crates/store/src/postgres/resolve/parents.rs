//! Releases or fails the children of parents that finished.
//!
//! The resolver that deletes an edge counts it down in the row of its child, which it has locked.
//! So every edge is counted once, however many resolvers work on the parents. The end of a child is
//! followed in the same transaction as far as the bounds allow; then it leaves a note.

use std::collections::{BTreeSet, HashMap, HashSet};

use punctual_core::ids::TaskId;
use punctual_core::state::{Change, State};
use punctual_core::trail::Actor;
use punctual_core::upkeep::Resolved;
use tokio_postgres::Row;
use uuid::Uuid;

use super::super::apply::change::{self, RowChange};
use super::super::fault::Fault;
use super::super::row::{self, state_column};
use super::super::statements::Sql;
use super::super::writer::Writer;
use super::{announce, ends_by};
use crate::blocked_child::{BlockedChild, ChildStep, ParentEnd, ended_as};
use crate::columns::count_column;
use crate::effects::Effects;

/// Notes that one step works off …
const NOTES: i64 = 500;
/// … and edges …
const EDGES: usize = 1_000;
/// … and generations of a chain.
const GENERATIONS: usize = 100;

/// A parent that has finished.
struct EndedParent {
    /// Its note; none if it finished in this transaction.
    seq: Option<i64>,
    parent: Uuid,
    state: State,
}

/// What the notes mean by now.
#[derive(Default)]
struct NotedEnds {
    ended: Vec<EndedParent>,
    /// Dead letters that hold their children.
    held: Vec<Uuid>,
    /// Notes that need nothing more.
    done: Vec<i64>,
}

/// Works off some notes.
pub(super) async fn resolve(writer: &mut Writer) -> Result<Resolved, Fault> {
    let Some(from) = writer.shared.outbox.parents.begin() else { return Ok(Resolved::default()) };
    let resolved = work_off(writer, from).await;
    if resolved.is_err() {
        writer.shared.outbox.parents.note(from);
    }
    resolved
}

async fn work_off(writer: &mut Writer, from: i64) -> Result<Resolved, Fault> {
    let notes = writer.session.begin(Sql::ParentNotes, &[&from, &NOTES]).await?;
    if notes.is_empty() {
        writer.session.run("ROLLBACK").await?;
        return Ok(Resolved::default());
    }
    let NotedEnds { ended, held, mut done } = ends(writer, &notes).await?;
    let mut released = ReleasedChildren::default();
    let left = follow(writer, ended, &mut done, &mut released).await?;
    if !held.is_empty() {
        writer.session.execute(Sql::ParentHold, &[&held]).await?;
    }
    if !done.is_empty() {
        writer.session.execute(Sql::ParentNotesRemove, &[&done]).await?;
    }
    let mut more = !left.is_empty();
    let first_left = left.iter().filter_map(|ended| ended.seq).min();
    for ended in left.iter().filter(|ended| ended.seq.is_none()) {
        writer.notes.parent(ended.parent, ended.state);
    }
    writer.commit().await?;
    if let Some(seq) = first_left {
        writer.shared.outbox.parents.note(seq);
    }
    if i64::try_from(notes.len()) == Ok(NOTES) {
        more = true;
        let last = notes.iter().map(|row| row.get::<_, i64>(0)).max().unwrap_or(from);
        writer.shared.outbox.parents.note(last.saturating_add(1));
    }
    Ok(Resolved { waiting: announce(writer, &released.waiting).await?, tasks: released.tasks, more })
}

/// Releases the children of finished parents, and the children of those that finish by it. Returns
/// the parents that are left for the next step.
async fn follow(
    writer: &mut Writer,
    mut ended: Vec<EndedParent>,
    done: &mut Vec<i64>,
    released: &mut ReleasedChildren,
) -> Result<Vec<EndedParent>, Fault> {
    let mut room = EDGES;
    for _ in 0..GENERATIONS {
        if ended.is_empty() || room == 0 {
            break;
        }
        let parents: Vec<Uuid> = ended.iter().map(|ended| ended.parent).collect();
        let rows = writer.session.query(Sql::EdgeTake, &[&parents, &count_column(room)]).await?;
        let place = |row: &Row| row::index(row, 0);
        // The last parent may have more edges, and nothing was read of the parents behind it.
        let complete = rows.last().filter(|_| rows.len() == room).map_or(ended.len(), place);
        room -= rows.len();
        let taken = rows.iter().filter(|row| row.get::<_, bool>(2));
        let edges: Vec<(&EndedParent, Uuid)> = taken.map(|row| (&ended[place(row)], row.get(1))).collect();
        let next = release(writer, &edges, released).await?;
        done.extend(ended[..complete].iter().filter_map(|ended| ended.seq));
        ended.drain(..complete);
        ended.extend(next);
    }
    Ok(ended)
}

/// Reads what the notes mean by now. A parent that did not complete may have been re-driven,
/// revived or removed since.
async fn ends(writer: &Writer, notes: &[Row]) -> Result<NotedEnds, Fault> {
    let noted = |row: &Row| ended_as(row::state(row, 2));
    let failed = |row: &&Row| noted(row) != State::Completed;
    let failed_ones: Vec<Uuid> = notes.iter().filter(failed).map(|row| row.get(1)).collect();
    let known = ends_by(&writer.session, Sql::ParentEnds, &failed_ones).await?;
    let missing: Vec<Uuid> = failed_ones.iter().copied().filter(|letter| !known.contains_key(letter)).collect();
    let mut live: BTreeSet<Uuid> = BTreeSet::new();
    if !missing.is_empty() {
        live.extend(writer.session.query(Sql::TurnHolders, &[&missing]).await?.iter().map(|row| row.get::<_, Uuid>(0)));
    }
    let mut ends = NotedEnds::default();
    let mut seen: HashSet<Uuid> = HashSet::new();
    for row in notes {
        let (seq, parent): (i64, Uuid) = (row.get(0), row.get(1));
        if !seen.insert(parent) {
            // The first note of this parent stays until everything is done.
            ends.done.push(seq);
            continue;
        }
        let end = |state: State| EndedParent { seq: Some(seq), parent, state };
        if !failed(&row) {
            ends.ended.push(end(State::Completed));
            continue;
        }
        match known.get(&parent) {
            Some(letter) if letter.holds => {
                ends.held.push(parent);
                ends.done.push(seq);
            }
            Some(letter) => ends.ended.push(end(letter.state)),
            // It runs again and will leave another note.
            None if live.contains(&parent) => ends.done.push(seq),
            None => ends.ended.push(end(noted(row))),
        }
    }
    Ok(ends)
}

/// What the step did to the children.
#[derive(Default)]
struct ReleasedChildren {
    waiting: Vec<(i64, i64)>,
    tasks: usize,
}

/// Releases or fails the children of removed edges. Returns those that finished and have children.
async fn release(
    writer: &mut Writer,
    edges: &[(&EndedParent, Uuid)],
    released: &mut ReleasedChildren,
) -> Result<Vec<EndedParent>, Fault> {
    if edges.is_empty() {
        return Ok(Vec::new());
    }
    let ids: BTreeSet<Uuid> = edges.iter().map(|(_, child)| *child).collect();
    let ids: Vec<Uuid> = ids.into_iter().collect();
    let rows = writer.session.query(Sql::ChildLock, &[&ids, &state_column(State::Blocked)]).await?;
    // Per child: how many edges are gone, and the end of the first parent that did not complete.
    let mut gone: HashMap<TaskId, (i64, ParentEnd)> = HashMap::new();
    for (ended, child) in edges {
        let end = ParentEnd { id: Some(TaskId::from_uuid(ended.parent)), state: ended.state };
        let (count, first) = gone.entry(TaskId::from_uuid(*child)).or_insert((0, end));
        *count += 1;
        if first.state == State::Completed {
            *first = end;
        }
    }
    let by = writer.by(writer.now(), Actor::Resolver);
    let mut decided = ChildDecisions::default();
    for child in rows.iter().filter_map(|row| BlockedChild::read(row).ok()) {
        let Some((count, end)) = gone.get(&child.id) else { continue };
        match child.decide(*count, *end, &by) {
            ChildStep::Finish(change) => {
                decided.failed.push((child.id, change));
                decided.failed_by.extend(end.id.map(TaskId::uuid));
            }
            ChildStep::Unblock(change) => decided.unblocked.push((child.id, change)),
            ChildStep::Wait(left) => {
                decided.counted.0.push(child.id.uuid());
                decided.counted.1.push(i32::try_from(left).unwrap_or(i32::MAX));
            }
        }
    }
    write(writer, &decided, released).await
}

/// The changes of the children.
#[derive(Default)]
struct ChildDecisions {
    counted: (Vec<Uuid>, Vec<i32>),
    unblocked: Vec<(TaskId, Change)>,
    failed: Vec<(TaskId, Change)>,
    /// The parent of each of these.
    failed_by: Vec<Uuid>,
}

async fn write(
    writer: &mut Writer,
    decided: &ChildDecisions,
    released: &mut ReleasedChildren,
) -> Result<Vec<EndedParent>, Fault> {
    let ChildDecisions { counted: (counted, counts), unblocked, failed, failed_by } = decided;
    if !counted.is_empty() {
        writer.session.execute(Sql::ChildCount, &[counted, counts]).await?;
    }
    released.tasks += unblocked.len() + failed.len();
    let now = writer.now();
    let unblocked = wanted(unblocked);
    let changed = change::change(&writer.session, &unblocked).await?;
    change::record(writer, &changed, &unblocked, now);
    released.waiting.extend(changed.iter().map(|changed| (changed.lane, changed.due_at)));
    if !failed.is_empty() {
        debug_assert_eq!(failed.len(), failed_by.len(), "columns of one length");
        let children: Vec<Uuid> = failed.iter().map(|(id, _)| id.uuid()).collect();
        writer.session.execute(Sql::FailedChildAdd, &[failed_by, &children, &now.as_millis()]).await?;
    }
    let change_of: HashMap<Uuid, &Change> = failed.iter().map(|(id, change)| (id.uuid(), change)).collect();
    let mut ended = Vec::new();
    for changed in change::finish(writer, &wanted(failed)).await? {
        let effects = Effects::in_place(change_of[&changed.id], changed.at());
        writer.tally.record(&effects, || now);
        // The end is followed up in this transaction, as far as it goes.
        writer.notes.record_turn(&effects, &changed.noted());
        let parent = changed.id;
        ended.extend(effects.ended.filter(|_| changed.awaited).map(|state| EndedParent { seq: None, parent, state }));
    }
    Ok(ended)
}

fn wanted(changes: &[(TaskId, Change)]) -> Vec<RowChange<'_>> {
    changes.iter().map(|(id, change)| RowChange::in_place(*id, change)).collect()
}
