//! Inserts batches in which some tasks depend on others.
//!
//! Live parents are locked and marked, so that their end leaves a note: a write that finishes one
//! waits for this transaction, or this transaction for it. Finished parents are looked up in the
//! history, where a dead letter cannot be re-driven before the commit.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use punctual_core::ids::TaskId;
use punctual_core::lane::Lane;
use punctual_core::state::State;
use punctual_core::task::NewTask;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::dependencies::{DependencyBatch, KnownParent, Prerequisites};
use crate::postgres::fault::Fault;
use crate::postgres::insert::{NewRows, RecognisedBatch, WrittenBatch, chunks, count, free_keys, keep_stored};
use crate::postgres::row;
use crate::postgres::statements::Sql;
use crate::postgres::writer::Writer;
use crate::submissions::{BatchPlan, InsertMode, SubmissionVerdict, member_statuses};

/// How often a parent that is in neither table is looked up: it may have moved in between.
const LOOKS: usize = 3;

/// Edges in one statement.
const EDGES: usize = 50_000;

/// Decides about tasks whose keys are checked, and inserts the new ones in a transaction that has
/// begun. `put_off` are members of their batch whose queues are full.
pub(crate) async fn write(
    writer: &mut Writer,
    tasks: &[NewTask],
    lanes: &[Arc<Lane>],
    mut recognised: RecognisedBatch,
    put_off: &HashSet<TaskId>,
    mode: InsertMode,
) -> Result<WrittenBatch, Fault> {
    let verdicts = std::mem::take(&mut recognised.verdicts);
    let statuses = member_statuses(&verdicts);
    let batch = DependencyBatch::new(tasks, &statuses, put_off);
    let (known, passed) = look_up(writer, &batch.named_outside()).await?;
    let BatchPlan { mut verdicts, waits, refused } = BatchPlan::new(tasks, &batch, &known, verdicts, mode);
    free_keys(&writer.session, &recognised, refused.into_iter().map(|place| &tasks[place])).await?;
    let mut new: Vec<usize> = (0..tasks.len()).filter(|place| verdicts[*place] == SubmissionVerdict::New).collect();
    let mut stored: HashSet<Uuid> = HashSet::new();
    for chunk in chunks(tasks, &new) {
        stored.extend(NewRows::of(tasks, lanes, chunk, &waits).write_once(&writer.session).await?);
    }
    keep_stored(tasks, &stored, &mut new, &mut verdicts);
    add_edges(writer, tasks, &new, &waits).await?;
    count(writer, tasks, lanes, &new, &waits);
    Ok(WrittenBatch { verdicts, waits, passed })
}

/// What is known of the parents, and where the locked ones wait. Each is named by a tenant.
pub(crate) async fn look_up(
    writer: &Writer,
    parents: &BTreeSet<(TaskId, &str)>,
) -> Result<(HashMap<TaskId, KnownParent>, Vec<(i64, i64)>), Fault> {
    let (mut known, mut passed) = (HashMap::with_capacity(parents.len()), Vec::new());
    let mut missing: Vec<(TaskId, &str)> = parents.iter().copied().collect();
    let read =
        |row: &Row| row::state(row, 2).ok_or_else(|| Fault::Corrupt("the state of a task cannot be read".to_owned()));
    for _ in 0..LOOKS {
        if missing.is_empty() {
            break;
        }
        let (ids, tenants): (Vec<Uuid>, Vec<&str>) = missing.iter().map(|(id, tenant)| (id.uuid(), *tenant)).unzip();
        for row in writer.session.query(Sql::ParentAwait, &[&ids, &tenants]).await? {
            let state = read(&row)?;
            if state == State::Pending {
                passed.push((row.get(3), row.get(4)));
            }
            known.insert(TaskId::from_uuid(row.get(0)), KnownParent { tenant: row.get(1), state });
        }
        missing.retain(|(id, _)| !known.contains_key(id));
        if missing.is_empty() {
            break;
        }
        let ids: Vec<Uuid> = missing.iter().map(|(id, _)| id.uuid()).collect();
        for row in writer.session.query(Sql::ParentEnded, &[&ids]).await? {
            known.insert(TaskId::from_uuid(row.get(0)), KnownParent { tenant: row.get(1), state: read(&row)? });
        }
        missing.retain(|(id, _)| !known.contains_key(id));
    }
    Ok((known, passed))
}

async fn add_edges(
    writer: &mut Writer,
    tasks: &[NewTask],
    new: &[usize],
    waits: &[Prerequisites],
) -> Result<(), Fault> {
    let edges = new.iter().flat_map(|place| {
        let child = tasks[*place].id.uuid();
        waits[*place].edges.iter().map(move |parent| (parent.uuid(), child))
    });
    let (parents, children): (Vec<Uuid>, Vec<Uuid>) = edges.unzip();
    for (parents, children) in parents.chunks(EDGES).zip(children.chunks(EDGES)) {
        writer.session.execute(Sql::EdgeAdd, &[&parents, &children]).await?;
    }
    let ended: HashMap<TaskId, State> = new.iter().flat_map(|place| waits[*place].ended.iter().copied()).collect();
    for (parent, state) in ended {
        writer.notes.parent(parent.uuid(), state);
    }
    Ok(())
}
