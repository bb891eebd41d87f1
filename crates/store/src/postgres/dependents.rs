//! Inserts batches in which some tasks depend on others.
//!
//! Live parents are locked and marked, so that their end leaves a note: a write that finishes one
//! waits for this transaction, or this transaction for it. Finished parents are looked up in the
//! history, where a dead letter cannot be re-driven before the commit.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use punctual_core::ids::TaskId;
use punctual_core::lane::Lane;
use punctual_core::state::State;
use punctual_core::task::NewTask;
use uuid::Uuid;

use super::fault::Fault;
use super::insert::{NewRows, chunks, count};
use super::statements::Sql;
use super::writer::Writer;
use crate::dependencies::{DependencyBatch, KnownParent, MemberPlan, MemberStatus, Prerequisites};
use crate::submissions::SubmissionVerdict;

/// How often a parent that is in neither table is looked up: it may have moved in between.
const LOOKS: usize = 3;

/// Edges in one statement.
const EDGES: usize = 50_000;

/// What became of a batch.
pub(crate) struct DependentBatch {
    pub verdicts: Vec<SubmissionVerdict>,
    /// The prerequisites of the new tasks; the other members have none.
    pub waits: Vec<Prerequisites>,
    /// Parents that a claim may have skipped while they were locked.
    pub passed: Vec<(i64, i64)>,
}

/// Decides about tasks whose keys are checked, and inserts the new ones in a transaction that has
/// begun. `put_off` are members of their batch whose queues are full.
pub(crate) async fn write(
    writer: &mut Writer,
    tasks: &[NewTask],
    lanes: &[Arc<Lane>],
    mut verdicts: Vec<SubmissionVerdict>,
    put_off: &HashSet<TaskId>,
) -> Result<DependentBatch, Fault> {
    let stands: Vec<MemberStatus> = verdicts.iter().map(SubmissionVerdict::member_status).collect();
    let batch = DependencyBatch::new(tasks, &stands, put_off);
    let (known, passed) = look_up(writer, &batch.outside()).await?;
    let mut waits: Vec<Prerequisites> = Vec::with_capacity(tasks.len());
    for (plan, verdict) in batch.plan(&known).into_iter().zip(&mut verdicts) {
        waits.push(match plan {
            MemberPlan::Create(waits) => waits,
            MemberPlan::Unknown(id) => {
                *verdict = SubmissionVerdict::UnknownDependency(id);
                Prerequisites::default()
            }
            MemberPlan::Stays => Prerequisites::default(),
        });
    }
    free_keys(writer, tasks, &mut verdicts).await?;
    let mut new: Vec<usize> = (0..tasks.len()).filter(|place| verdicts[*place] == SubmissionVerdict::New).collect();
    let mut stored: HashSet<Uuid> = HashSet::new();
    for chunk in chunks(tasks, &new) {
        stored.extend(NewRows::of(tasks, lanes, chunk, &waits).write_once(&writer.session).await?);
    }
    new.retain(|place| {
        let is_new = stored.contains(&tasks[*place].id.uuid());
        if !is_new {
            // The same task again: its client did not get the answer.
            verdicts[*place] = SubmissionVerdict::Replay(tasks[*place].id);
        }
        is_new
    });
    add_edges(writer, tasks, &new, &waits).await?;
    count(writer, tasks, lanes, &new, &waits);
    Ok(DependentBatch { verdicts, waits, passed })
}

/// What is known of the parents, and where the locked ones wait.
async fn look_up(writer: &Writer, ids: &[TaskId]) -> Result<(HashMap<TaskId, KnownParent>, Vec<(i64, i64)>), Fault> {
    let (mut known, mut passed) = (HashMap::with_capacity(ids.len()), Vec::new());
    let mut missing: Vec<Uuid> = ids.iter().map(|id| id.uuid()).collect();
    let read = |state: i16| {
        State::from_code(i64::from(state)).ok_or_else(|| Fault::Corrupt(format!("a task is in the state {state}")))
    };
    for _ in 0..LOOKS {
        if missing.is_empty() {
            break;
        }
        for row in writer.session.query(Sql::ParentAwait, &[&missing]).await? {
            let state = read(row.get(2))?;
            if state == State::Pending {
                passed.push((row.get(3), row.get(4)));
            }
            known.insert(TaskId::from_uuid(row.get(0)), KnownParent { tenant: row.get(1), state });
        }
        missing.retain(|id| !known.contains_key(&TaskId::from_uuid(*id)));
        if missing.is_empty() {
            break;
        }
        for row in writer.session.query(Sql::ParentEnded, &[&missing]).await? {
            known.insert(TaskId::from_uuid(row.get(0)), KnownParent { tenant: row.get(1), state: read(row.get(2))? });
        }
        missing.retain(|id| !known.contains_key(&TaskId::from_uuid(*id)));
    }
    Ok((known, passed))
}

/// A refused task frees its idempotency key. Its replays in the batch are refused too.
async fn free_keys(writer: &Writer, tasks: &[NewTask], verdicts: &mut [SubmissionVerdict]) -> Result<(), Fault> {
    let mut refused: HashMap<TaskId, TaskId> = HashMap::new();
    let (mut tenants, mut keys, mut ids) = (Vec::new(), Vec::new(), Vec::new());
    for (task, verdict) in tasks.iter().zip(verdicts.iter()) {
        if let SubmissionVerdict::UnknownDependency(missing) = verdict {
            refused.insert(task.id, *missing);
            if let Some(idempotency) = &task.idempotency {
                tenants.push(task.lane.tenant.as_str());
                keys.push(idempotency.key.as_str());
                ids.push(task.id.uuid());
            }
        }
    }
    for verdict in verdicts.iter_mut() {
        if let SubmissionVerdict::Replay(first) = verdict
            && let Some(missing) = refused.get(first)
        {
            *verdict = SubmissionVerdict::UnknownDependency(*missing);
        }
    }
    if !ids.is_empty() {
        writer.session.execute(Sql::IdempotencyDrop, &[&tenants, &keys, &ids]).await?;
    }
    Ok(())
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
