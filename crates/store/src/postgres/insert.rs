//! Inserts submitted tasks, and recognises those that were submitted before.

pub(crate) mod dependents;
pub(crate) mod depth;
mod keys;
pub(crate) mod lane_room;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use punctual_core::ids::{ScheduleId, TaskId};
use punctual_core::lane::Lane;
use punctual_core::state::State;
use punctual_core::store::Inserted;
use punctual_core::task::{NewTask, Task};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::connection::Session;
use super::fault::Fault;
use super::get;
use super::lanes::BEGIN_KEEPING_LANES;
use super::outbox::NotedRow;
use super::row::sparse;
use super::statements::Sql;
use super::writer::{TransactionEnd, Writer};
use crate::columns::{callback_body_column, instant_column, map_column, number_column, policy_column};
use crate::dependencies::{self, Prerequisites, ids_column};
use crate::effects::{Effects, LaneInstant};
use crate::found_tasks::FoundTask;
use crate::ordering::ordering;
use crate::places::concurrency_of;
use crate::submissions::{InsertMode, SubmissionVerdict};

pub(crate) use keys::{RecognisedBatch, free_keys, submitted_before};

/// About how many bytes of payload one statement carries.
const CHUNK_BYTES: usize = 16 << 20;

/// Inserts tasks; answers in order. An id that exists already is so rare that the insert just fails
/// and is repeated with care. `put_off` are members of their batch whose queues are full.
pub(crate) async fn insert(
    writer: &mut Writer,
    tasks: &[NewTask],
    put_off: &HashSet<TaskId>,
    mode: InsertMode,
) -> Result<Vec<Inserted>, Fault> {
    let lanes = lanes(writer, tasks).await?;
    let written = match write(writer, tasks, &lanes, put_off, mode, false).await {
        Err(fault) if fault.is_unique_violation() => {
            writer.forget();
            writer.session.run("ROLLBACK").await?;
            write(writer, tasks, &lanes, put_off, mode, true).await
        }
        written => written,
    };
    let written = written.map_err(|fault| writer.shared.lanes.fault_of(fault, &lanes));
    let WrittenBatch { verdicts, waits, passed } = written?;
    let new =
        || lanes.iter().zip(tasks.iter()).zip(&verdicts).filter(|(_, verdict)| **verdict == SubmissionVerdict::New);
    let waiting = new().map(|((lane, task), _)| (lane.id.number(), task.due_at.as_millis()));
    let waiting: Vec<(i64, i64)> = waiting.chain(passed).collect();
    writer.shared.cursors.put(waiting.iter().copied());
    writer.shared.low_watermarks.wrote(new().filter_map(|((_, task), _)| task.expires_at), []);
    writer.shared.notifier.note_waiting(&waiting, writer.now());
    answer(writer, tasks, lanes, verdicts, &waits).await
}

/// The outcome of a batch.
pub(crate) struct WrittenBatch {
    pub verdicts: Vec<SubmissionVerdict>,
    /// The prerequisites of the tasks; empty if no task has any.
    pub waits: Vec<Prerequisites>,
    /// Parents that a claim may have skipped while they were locked: lane and due instant.
    pub passed: Vec<(i64, i64)>,
}

/// Keeps the new tasks that were stored. The others were stored before: their client did not get
/// the answer.
pub(crate) fn keep_stored(
    tasks: &[NewTask],
    stored: &HashSet<Uuid>,
    new: &mut Vec<usize>,
    verdicts: &mut [SubmissionVerdict],
) {
    new.retain(|place| {
        let is_new = stored.contains(&tasks[*place].id.uuid());
        if !is_new {
            verdicts[*place] = SubmissionVerdict::Replay(tasks[*place].id);
        }
        is_new
    });
}

/// The lanes of the tasks, in their order.
async fn lanes(writer: &Writer, tasks: &[NewTask]) -> Result<Vec<Arc<Lane>>, Fault> {
    let lanes = writer.shared.lanes.resolve(&writer.session, tasks.iter().map(|task| &task.lane)).await?;
    Ok(tasks.iter().map(|task| Arc::clone(&lanes[&task.lane])).collect())
}

/// One transaction. `carefully`: one of the ids may exist already.
async fn write(
    writer: &mut Writer,
    tasks: &[NewTask],
    lanes: &[Arc<Lane>],
    put_off: &HashSet<TaskId>,
    mode: InsertMode,
    carefully: bool,
) -> Result<WrittenBatch, Fault> {
    let keyed = tasks.iter().any(|task| task.idempotency.is_some());
    let recognised = if keyed {
        let (begun, recognised) =
            tokio::join!(biased; writer.session.run(BEGIN_KEEPING_LANES), submitted_before(&writer.session, tasks));
        begun?;
        recognised?
    } else {
        RecognisedBatch::all_new(tasks.len())
    };
    if mode == InsertMode::All || tasks.iter().any(|task| !task.body.dependencies.ids.is_empty()) {
        if !keyed {
            writer.session.run(BEGIN_KEEPING_LANES).await?;
        }
        // A large future: boxed, so that the common path stays small.
        let written = Box::pin(dependents::write(writer, tasks, lanes, recognised, put_off, mode)).await?;
        writer.commit().await?;
        return Ok(written);
    }
    let mut verdicts = recognised.verdicts;
    let mut new: Vec<usize> = (0..tasks.len()).filter(|place| verdicts[*place] == SubmissionVerdict::New).collect();
    if carefully {
        if !keyed {
            writer.session.run(BEGIN_KEEPING_LANES).await?;
        }
        let stored = NewRows::of(tasks, lanes, &new, &[]).write_once(&writer.session).await?;
        keep_stored(tasks, &stored, &mut new, &mut verdicts);
        count(writer, tasks, lanes, &new, &[]);
        writer.commit().await?;
        return Ok(WrittenBatch { verdicts, waits: Vec::new(), passed: Vec::new() });
    }
    count(writer, tasks, lanes, &new, &[]);
    let written = WrittenBatch { verdicts, waits: Vec::new(), passed: Vec::new() };
    let rows: Vec<NewRows<'_>> = chunks(tasks, &new).map(|chunk| NewRows::of(tasks, lanes, chunk, &[])).collect();
    let [rows] = rows.as_slice() else {
        if !keyed {
            writer.session.run(BEGIN_KEEPING_LANES).await?;
        }
        write_all(&writer.session, &rows).await?;
        writer.commit().await?;
        return Ok(written);
    };
    // Everything is sent at once; the answers are checked in the order in which they come.
    let (end, session) = (TransactionEnd::of(writer), &writer.session);
    let begin = async { if keyed { Ok(()) } else { session.run(BEGIN_KEEPING_LANES).await } };
    let (begun, inserted, committed) =
        tokio::join!(biased; begin, rows.write(session, Sql::TaskInsert), end.commit(session));
    begun?;
    inserted?;
    writer.shared.outbox.wake_resolver(committed?);
    Ok(written)
}

/// Records the effects of the inserts of these tasks, given by their indices.
pub(crate) fn count(
    writer: &mut Writer,
    tasks: &[NewTask],
    lanes: &[Arc<Lane>],
    new: &[usize],
    waits: &[Prerequisites],
) {
    let now = writer.now();
    for place in new {
        let (task, waits) = (&tasks[*place], waits.get(*place));
        let at = LaneInstant { lane: lanes[*place].id.number(), due_at: task.due_at };
        let effects = Effects::of_insert(state(waits), at);
        let awaited = waits.is_some_and(|waits| waits.awaited);
        writer.tally.record(&effects, || now);
        let (ordering, concurrency) = (ordering_of(task), concurrency_of(&task.lane, &task.body));
        writer.notes.record(&effects, &NotedRow { id: task.id.uuid(), ordering, concurrency, awaited });
    }
}

/// The state in which a task with these prerequisites begins.
fn state(waits: Option<&Prerequisites>) -> State {
    waits.map_or(State::Pending, Prerequisites::state)
}

fn ordering_of(task: &NewTask) -> Option<Uuid> {
    task.body.ordering_key.as_deref().map(|key| ordering(&task.lane.tenant, key))
}

/// Inserts new tasks without prerequisites in the transaction that is under way.
pub(crate) async fn write_new(writer: &mut Writer, tasks: &[NewTask], lanes: &[Arc<Lane>]) -> Result<(), Fault> {
    let new: Vec<usize> = (0..tasks.len()).collect();
    let rows: Vec<NewRows<'_>> = chunks(tasks, &new).map(|chunk| NewRows::of(tasks, lanes, chunk, &[])).collect();
    let written = write_all(&writer.session, &rows).await;
    written.map_err(|fault| writer.shared.lanes.fault_of(fault, lanes))?;
    count(writer, tasks, lanes, &new, &[]);
    Ok(())
}

/// Notifies dispatchers of tasks that [`write_new`] inserted, after the commit.
pub(crate) fn announce_new(writer: &Writer, tasks: &[NewTask], lanes: &[Arc<Lane>]) {
    let waiting = lanes.iter().zip(tasks).map(|(lane, task)| (lane.id.number(), task.due_at.as_millis()));
    let waiting: Vec<(i64, i64)> = waiting.collect();
    writer.shared.cursors.put(waiting.iter().copied());
    writer.shared.low_watermarks.wrote(tasks.iter().filter_map(|task| task.expires_at), []);
    writer.shared.notifier.note_waiting(&waiting, writer.now());
}

async fn write_all(session: &Session, rows: &[NewRows<'_>]) -> Result<(), Fault> {
    for rows in rows {
        rows.write(session, Sql::TaskInsert).await?;
    }
    Ok(())
}

/// Splits the new tasks into parts that one statement can carry.
pub(crate) fn chunks<'a>(tasks: &'a [NewTask], new: &'a [usize]) -> impl Iterator<Item = &'a [usize]> {
    let mut rest = new;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |place: &&usize| {
            bytes += tasks[**place].body.payload.get().len();
            bytes <= CHUNK_BYTES
        };
        let count = rest.iter().take_while(fits).count().max(1).min(rest.len());
        let (chunk, behind) = rest.split_at(count);
        rest = behind;
        (!chunk.is_empty()).then_some(chunk)
    })
}

async fn answer(
    writer: &Writer,
    tasks: &[NewTask],
    lanes: Vec<Arc<Lane>>,
    verdicts: Vec<SubmissionVerdict>,
    waits: &[Prerequisites],
) -> Result<Vec<Inserted>, Fault> {
    let replayed = verdicts.iter().filter_map(|verdict| match verdict {
        SubmissionVerdict::Replay(id) => Some(*id),
        _ => None,
    });
    let replayed: HashSet<TaskId> = replayed.collect();
    let mut found: HashMap<TaskId, FoundTask<TaskId>> = HashMap::new();
    if !replayed.is_empty() {
        let ids: Vec<TaskId> = replayed.into_iter().collect();
        found = get::by_ids(&writer.session, &writer.shared.lanes, &ids).await?;
    }
    let each = tasks.iter().zip(lanes).zip(verdicts).enumerate();
    each.map(|(place, ((task, lane), verdict))| match verdict {
        SubmissionVerdict::New => Ok(Inserted::Created(created(task, lane, waits.get(place)))),
        SubmissionVerdict::UnknownDependency(missing) => Ok(Inserted::UnknownDependency(missing)),
        SubmissionVerdict::KeyReused(first) => Ok(Inserted::KeyReused(first)),
        SubmissionVerdict::QueueFull(queue) => Ok(Inserted::QueueFull(queue)),
        SubmissionVerdict::TooManyLanes(most) => Ok(Inserted::TooManyLanes(most)),
        SubmissionVerdict::Withheld => Ok(Inserted::Withheld),
        SubmissionVerdict::Replay(first) => match found.get(&first) {
            Some(Ok(task)) => Ok(Inserted::Replayed(task.clone())),
            Some(Err(bad)) => Err(Fault::Corrupt(bad.describe(first))),
            // Its history was pruned before its key. The task ran, so it is not run again.
            None => Ok(Inserted::KeyReused(first)),
        },
    })
    .collect()
}

fn created(task: &NewTask, lane: Arc<Lane>, waits: Option<&Prerequisites>) -> Task {
    let mut created = Task::created(Cow::Borrowed(task), lane, state(waits));
    if let Some(waits) = waits {
        waits.write_into(&mut created.body, &mut created.trail);
    }
    created
}

/// New tasks as columns, in the order of `task_insert.sql`.
pub(crate) struct NewRows<'a>(Vec<Box<dyn ToSql + Sync + Send + 'a>>);

impl<'a> NewRows<'a> {
    /// The tasks at these indices. `waits` is empty if none has prerequisites.
    pub(crate) fn of(tasks: &'a [NewTask], lanes: &[Arc<Lane>], places: &[usize], waits: &[Prerequisites]) -> Self {
        fn each<'a, T>(tasks: &'a [NewTask], places: &[usize], column: impl Fn(&'a NewTask) -> T) -> Vec<T> {
            places.iter().map(|place| column(&tasks[*place])).collect()
        }
        let of_waits = |place: &usize| waits.get(*place);
        let trail = |place: &usize| {
            let trail = &tasks[*place].trail;
            match state(of_waits(place)) {
                State::Blocked => Cow::Owned(trail.beginning_in(State::Blocked).as_bytes().to_vec()),
                _ => Cow::Borrowed(trail.as_bytes()),
            }
        };
        let blockers = |place: &usize| {
            let edges = of_waits(place).filter(|waits| !waits.edges.is_empty())?.edges.len();
            Some(i32::try_from(edges).unwrap_or(i32::MAX))
        };
        let callback = |task: &'a NewTask| task.body.callback.as_ref();
        let headers = |task: &'a NewTask| callback(task).and_then(|callback| map_column(&callback.headers));
        let on_failure = |task: &NewTask| dependencies::policy_column(task.body.dependencies.on_failure);
        let depends_on = |place: &usize| ids_column(&of_waits(place)?.depends_on);
        let awaited = |place: &usize| of_waits(place)?.awaited.then_some(true);
        Self(vec![
            Box::new(each(tasks, places, |task| task.id.uuid())),
            Box::new(places.iter().map(|place| lanes[*place].id.number()).collect::<Vec<_>>()),
            Box::new(each(tasks, places, |task| task.created_at.as_millis())),
            Box::new(each(tasks, places, |task| task.execute_at.as_millis())),
            Box::new(each(tasks, places, |task| task.due_at.as_millis())),
            Box::new(each(tasks, places, |task| instant_column(task.expires_at))),
            Box::new(each(tasks, places, |task| number_column(task.body.timeout_millis))),
            Box::new(each(tasks, places, |task| task.body.schedule_id.map(ScheduleId::uuid))),
            Box::new(each(tasks, places, |task| task.body.idempotency_key.as_deref())),
            Box::new(each(tasks, places, |task| callback(task).map(|callback| callback.url.as_str()))),
            Box::new(each(tasks, places, headers)),
            Box::new(each(tasks, places, |task| policy_column(&task.body.retry_policy))),
            Box::new(each(tasks, places, |task| map_column(&task.body.metadata))),
            Box::new(places.iter().map(trail).collect::<Vec<_>>()),
            Box::new(each(tasks, places, |task| task.body.payload.get())),
            // Most tasks have none of these. A column is empty if no task has it.
            Box::new(sparse(each(tasks, places, ordering_of))),
            Box::new(sparse(each(tasks, places, |task| task.body.ordering_key.as_deref()))),
            Box::new(sparse(places.iter().map(depends_on).collect())),
            Box::new(sparse(each(tasks, places, on_failure))),
            Box::new(sparse(places.iter().map(blockers).collect())),
            Box::new(sparse(places.iter().map(awaited).collect())),
            Box::new(sparse(each(tasks, places, |task| concurrency_of(&task.lane, &task.body)))),
            Box::new(sparse(each(tasks, places, |task| task.body.concurrency_key.as_deref()))),
            Box::new(sparse(each(tasks, places, |task| callback_body_column(callback(task))))),
        ])
    }

    pub(crate) async fn write(&self, session: &Session, sql: Sql) -> Result<Vec<Row>, Fault> {
        let columns: Vec<&(dyn ToSql + Sync)> = self.0.iter().map(|column| &**column as &(dyn ToSql + Sync)).collect();
        session.query(sql, &columns).await
    }

    /// Inserts the tasks whose ids are new. Returns these ids.
    pub(crate) async fn write_once(&self, session: &Session) -> Result<HashSet<Uuid>, Fault> {
        let rows = self.write(session, Sql::TaskInsertOnce).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }
}
