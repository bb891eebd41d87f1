//! Inserts batches in which some tasks depend on others.
//!
//! Every member gets its verdict before the first is written: a member may depend on one that comes
//! later in the batch.

use std::collections::{HashMap, HashSet};

use punctual_core::ids::TaskId;
use punctual_core::state::State;
use punctual_core::store::Inserted;
use punctual_core::task::{Idempotency, NewTask};
use rusqlite::OptionalExtension;

use super::fault::Fault;
use super::insert::{answer, create, verdict_of};
use super::outbox;
use super::session::Session;
use super::statements::Sql;
use crate::dependencies::{DependencyBatch, KnownParent, Prerequisites};
use crate::submissions::{BatchPlan, InsertMode, SubmissionVerdict, member_statuses};

/// Inserts tasks; answers in order.
pub(crate) fn insert(session: &mut Session<'_>, tasks: Vec<NewTask>, mode: InsertMode) -> Result<Vec<Inserted>, Fault> {
    let former = former_keys(session, &tasks)?;
    let verdicts = verdicts_of(session, &tasks)?;
    let statuses = member_statuses(&verdicts);
    let none = HashSet::new();
    let batch = DependencyBatch::new(&tasks, &statuses, &none);
    let mut known: HashMap<TaskId, KnownParent> = HashMap::new();
    for id in batch.outside() {
        if let Some((_, found)) = look_up(session, id)? {
            known.insert(id, found);
        }
    }
    let BatchPlan { verdicts, waits, refused } = BatchPlan::new(&tasks, &batch, &known, verdicts, mode);
    for task in refused.into_iter().map(|place| &tasks[place]) {
        expect(session, task, -1);
        free_key(session, task, former.get(&task.id))?;
    }
    let mut edges: Vec<(TaskId, Prerequisites)> = Vec::new();
    let mut answers = Vec::with_capacity(tasks.len());
    for ((task, verdict), waits) in tasks.into_iter().zip(verdicts).zip(waits) {
        if verdict != SubmissionVerdict::New {
            answers.push(answer(session, verdict, task)?);
            continue;
        }
        expect(session, &task, -1);
        let id = task.id;
        let answer = create(session, task, &waits)?;
        if matches!(answer, Inserted::Created(_)) {
            edges.push((id, waits));
        }
        answers.push(answer);
    }
    for (child, waits) in edges {
        add_edges(session, child, &waits)?;
    }
    Ok(answers)
}

/// The verdicts, one after the other: each new task counts for the depth of its queue at once.
fn verdicts_of(session: &mut Session<'_>, tasks: &[NewTask]) -> Result<Vec<SubmissionVerdict>, Fault> {
    let mut verdicts = Vec::with_capacity(tasks.len());
    for task in tasks {
        let verdict = verdict_of(session, task)?;
        if matches!(verdict, SubmissionVerdict::New) {
            expect(session, task, 1);
        }
        verdicts.push(verdict);
    }
    Ok(verdicts)
}

/// Counts a task that is going to be written, or takes it back.
fn expect(session: &mut Session<'_>, task: &NewTask, tasks: i64) {
    session.queue_tally.add(&task.lane.tenant, &task.lane.queue, State::Pending, tasks);
}

/// The number of a parent, and what is known of it.
pub(crate) fn look_up(session: &mut Session<'_>, id: TaskId) -> Result<Option<(i64, KnownParent)>, Fault> {
    let query = session.statements.get(Sql::ParentLook)?;
    let found = query.query_row([id.uuid().as_bytes()], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
    });
    let Some((seq, lane, state)) = found.optional()? else { return Ok(None) };
    let (Some(lane), Some(state)) = (session.lanes.get(session.connection, lane)?, State::from_code(state)) else {
        return Ok(None);
    };
    Ok(Some((seq, KnownParent { tenant: lane.key.tenant.clone(), state })))
}

/// The entry of an idempotency key: its task, the digest, and when it was used.
type KeyEntry = ([u8; 16], [u8; 32], i64);

/// The entries of the keys that tasks may take from others, by the task that takes them.
fn former_keys(session: &mut Session<'_>, tasks: &[NewTask]) -> Result<HashMap<TaskId, KeyEntry>, Fault> {
    let mut former = HashMap::new();
    for task in tasks {
        let Some(Idempotency { key, replace_final: true, .. }) = &task.idempotency else { continue };
        let query = session.statements.get(Sql::IdempotencyRead)?;
        let entry = query.query_row((&task.lane.tenant, key), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
        if let Some(entry) = entry.optional()? {
            former.insert(task.id, entry);
        }
    }
    Ok(former)
}

/// A task that is not stored frees the idempotency key that it took, or gives it back.
fn free_key(session: &mut Session<'_>, task: &NewTask, former: Option<&KeyEntry>) -> Result<(), Fault> {
    let Some(Idempotency { key, .. }) = &task.idempotency else { return Ok(()) };
    let (tenant, own) = (&task.lane.tenant, task.id.uuid().into_bytes());
    match former {
        Some((id, fingerprint, created_at)) => {
            let restore = session.statements.get(Sql::IdempotencyRestore)?;
            restore.execute((tenant, key, own, id, fingerprint, created_at))?;
        }
        None => drop(session.statements.get(Sql::IdempotencyDrop)?.execute((tenant, key, own))?),
    }
    Ok(())
}

/// Writes the edges of a new task, and a note for each parent that has finished.
pub(crate) fn add_edges(session: &mut Session<'_>, child: TaskId, waits: &Prerequisites) -> Result<(), Fault> {
    let Some((child, _)) = look_up(session, child)? else { return Ok(()) };
    for parent in &waits.edges {
        let Some((parent, KnownParent { state, .. })) = look_up(session, *parent)? else { continue };
        session.statements.get(Sql::EdgeAdd)?.execute((parent, child))?;
        if state.is_final() {
            outbox::parent(session, parent, state)?;
        } else {
            session.statements.get(Sql::ParentAwait)?.execute([parent])?;
        }
    }
    Ok(())
}
