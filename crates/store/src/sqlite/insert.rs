//! Inserts submitted tasks, and recognises those that were submitted before.

use std::borrow::Cow;

use punctual_core::ids::TaskId;
use punctual_core::state::State;
use punctual_core::store::Inserted;
use punctual_core::task::{Idempotency, NewTask, Task};
use rusqlite::OptionalExtension;
use uuid::Uuid;

use crate::columns::{callback_body_column, count_column, instant_column, map_column, number_column, policy_column};
use crate::dependencies::{self, Prerequisites, ids_column};
use crate::effects::{Effects, LaneInstant};
use crate::ordering::ordering;
use crate::places::concurrency_of;
use crate::submissions::{InsertMode, SubmissionVerdict};

use super::fault::Fault;
use super::get;
use super::outbox::{self, NotedRow};
use super::session::Session;
use super::statements::Sql;
use super::{dependents, limits};

/// Inserts tasks; answers in order.
pub(crate) fn insert(session: &mut Session<'_>, tasks: Vec<NewTask>) -> Result<Vec<Inserted>, Fault> {
    if tasks.iter().any(|task| !task.body.dependencies.ids.is_empty()) {
        return dependents::insert(session, tasks, InsertMode::Each);
    }
    tasks.into_iter().map(|task| insert_one(session, task)).collect()
}

/// Inserts all tasks or none; answers in order.
pub(crate) fn insert_all(session: &mut Session<'_>, tasks: Vec<NewTask>) -> Result<Vec<Inserted>, Fault> {
    dependents::insert(session, tasks, InsertMode::All)
}

fn insert_one(session: &mut Session<'_>, task: NewTask) -> Result<Inserted, Fault> {
    let verdict = verdict_of(session, &task)?;
    answer(session, verdict, task)
}

/// Answers for a task without prerequisites; a new one is written.
pub(crate) fn answer(session: &mut Session<'_>, verdict: SubmissionVerdict, task: NewTask) -> Result<Inserted, Fault> {
    match verdict {
        SubmissionVerdict::New => create(session, task, &Prerequisites::default()),
        SubmissionVerdict::Replay(first) => replay(session, first),
        SubmissionVerdict::KeyReused(first) => Ok(Inserted::KeyReused(first)),
        SubmissionVerdict::UnknownDependency(missing) => Ok(Inserted::UnknownDependency(missing)),
        SubmissionVerdict::QueueFull(queue) => Ok(Inserted::QueueFull(queue)),
        SubmissionVerdict::TooManyLanes(most) => Ok(Inserted::TooManyLanes(most)),
        SubmissionVerdict::Withheld => Ok(Inserted::Withheld),
    }
}

/// Decides whether a task is stored.
pub(crate) fn verdict_of(session: &mut Session<'_>, task: &NewTask) -> Result<SubmissionVerdict, Fault> {
    if let Some(queue) = limits::without_room(session, task)? {
        return Ok(SubmissionVerdict::QueueFull(queue));
    }
    if let Some(most) = session.lanes.admit(session.connection, &task.lane)?
        && !is_repeated(session, task)?
    {
        return Ok(SubmissionVerdict::TooManyLanes(most));
    }
    Ok(match submitted_before(session, task)? {
        None => SubmissionVerdict::New,
        Some((first, true)) => SubmissionVerdict::Replay(first),
        Some((first, false)) => SubmissionVerdict::KeyReused(first),
    })
}

/// Whether a task was submitted before: under its key, or with its id.
pub(crate) fn is_repeated(session: &mut Session<'_>, task: &NewTask) -> Result<bool, Fault> {
    match &task.idempotency {
        Some(Idempotency { key, replace_final, .. }) => {
            let (tenant, has) = (&task.lane.tenant, session.statements.get(Sql::IdempotencyOwner)?);
            if !has.exists((tenant, key))? {
                return Ok(false);
            }
            Ok(!replace_final || !session.statements.get(Sql::IdempotencyReplaceable)?.exists((tenant, key))?)
        }
        None => is_known(session, task.id),
    }
}

/// Inserts a new task, unless its id exists already. The edges to its parents are written later.
pub(crate) fn create(session: &mut Session<'_>, mut task: NewTask, waits: &Prerequisites) -> Result<Inserted, Fault> {
    let seq = session.next_seq()?;
    let insert_id = session.statements.get(Sql::IdInsert)?;
    if insert_id.execute((task.id.uuid().as_bytes(), seq))? == 0 {
        // The client submits the same task again: it did not get the answer.
        return replay(session, task.id);
    }
    let lane = session.lanes.resolve(session.connection, &task.lane)?;
    let state = waits.state();
    waits.write_into(&mut task.body, &mut task.trail);
    write_body(session, seq, &task)?;
    let ordering = task.body.ordering_key.as_deref().map(|key| ordering(&task.lane.tenant, key).into_bytes());
    let concurrency = concurrency_of(&task.lane, &task.body).map(Uuid::into_bytes);
    session.statements.get(Sql::TaskInsert)?.execute((
        seq,
        task.id.uuid().as_bytes(),
        lane.id.number(),
        state.code(),
        task.execute_at.as_millis(),
        task.due_at.as_millis(),
        instant_column(task.expires_at),
        task.trail.as_bytes(),
        ordering,
        waits.awaited.then_some(true),
        (state == State::Blocked).then_some(count_column(waits.edges.len())),
        concurrency,
    ))?;
    let at = LaneInstant { lane: lane.id.number(), due_at: task.due_at };
    let row = NotedRow { seq, ordering, concurrency, awaited: waits.awaited };
    outbox::record(session, &Effects::of_insert(state, at), &row)?;
    Ok(Inserted::Created(Task::created(Cow::Owned(task), lane, state)))
}

/// The task that was submitted under the same key, and whether its content was the same. If there
/// is none, this task takes the key.
fn submitted_before(session: &mut Session<'_>, task: &NewTask) -> Result<Option<(TaskId, bool)>, Fault> {
    let Some(idempotency) = &task.idempotency else { return Ok(None) };
    let own = (
        &task.lane.tenant,
        &idempotency.key,
        task.id.uuid().into_bytes(),
        idempotency.fingerprint,
        task.created_at.as_millis(),
    );
    let is_taken = session.statements.get(Sql::IdempotencyInsert)?.execute(own)? == 1
        || (idempotency.replace_final && session.statements.get(Sql::IdempotencyReplace)?.execute(own)? == 1);
    if is_taken {
        return Ok(None);
    }
    let query = session.statements.get(Sql::IdempotencyOwner)?;
    let first = query
        .query_row((&task.lane.tenant, &idempotency.key), |row| {
            Ok((row.get::<_, [u8; 16]>(0)?, row.get::<_, [u8; 32]>(1)?))
        })
        .optional()?;
    let (id, fingerprint) = first.ok_or_else(|| {
        Fault::Corrupt(format!("the idempotency key of {} could neither be taken nor be read", task.id))
    })?;
    Ok(Some((TaskId::from_uuid(Uuid::from_bytes(id)), idempotency.is_repeat_of(&fingerprint))))
}

/// The task that was submitted before.
fn replay(session: &mut Session<'_>, first: TaskId) -> Result<Inserted, Fault> {
    match get::by_id(session, first)? {
        Some(Ok(task)) => Ok(Inserted::Replayed(task)),
        Some(Err(bad)) => Err(Fault::Corrupt(bad.describe(first))),
        // Its history was pruned before its key. The task has run and must not run again.
        None if !is_known(session, first)? => Ok(Inserted::KeyReused(first)),
        None => Err(Fault::Corrupt(format!("{first} has an idempotency key but no row"))),
    }
}

/// Whether a task with this id exists, even an unreadable one.
fn is_known(session: &mut Session<'_>, id: TaskId) -> Result<bool, Fault> {
    Ok(session.statements.get(Sql::IdGet)?.exists([id.uuid().as_bytes()])?)
}

fn write_body(session: &mut Session<'_>, seq: i64, task: &NewTask) -> Result<(), Fault> {
    let body = &task.body;
    session.statements.get(Sql::BodyInsert)?.execute((
        seq,
        task.created_at.as_millis(),
        body.payload.get(),
        body.callback.as_ref().map(|callback| callback.url.as_str()),
        body.callback.as_ref().and_then(|callback| map_column(&callback.headers)),
        policy_column(&body.retry_policy),
        number_column(body.timeout_millis),
        map_column(&body.metadata),
        body.schedule_id.map(|id| id.uuid().into_bytes()),
        body.idempotency_key.as_deref(),
        body.ordering_key.as_deref(),
        ids_column(&body.dependencies.ids),
        dependencies::policy_column(body.dependencies.on_failure),
        body.concurrency_key.as_deref(),
        callback_body_column(body.callback.as_ref()),
    ))?;
    Ok(())
}
