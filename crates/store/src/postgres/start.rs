//! Starts the runs of queued tasks.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use punctual_core::ids::TaskId;
use punctual_core::state::{Change, Event, State};
use punctual_core::store::Start;
use punctual_core::task::Task;
use punctual_core::time::Timestamp;
use punctual_core::trail::Actor;
use uuid::Uuid;

use super::apply::change::{self, RowChange};
use super::claim::held_places::HeldPlace;
use super::claim::held_rows::{self, HeldRow};
use super::fault::Fault;
use super::statements::Sql;
use super::tid::Tid;
use super::writer::{TransactionEnd, Writer};
use super::{get, quarantine, row};
use crate::claims::{self, expect_change, update_task};
use crate::effects::{Effects, LaneInstant};
use crate::found_tasks::FoundTask;
use crate::task_row::ID;

/// Starts tasks; answers in order.
pub(crate) async fn start(writer: &mut Writer, starts: &[Start]) -> Result<Vec<Option<Task>>, Fault> {
    let mut ids: Vec<Uuid> = starts.iter().map(|start| start.id.uuid()).collect();
    ids.sort_unstable();
    ids.dedup();
    let rows = writer.session.begin(Sql::StartLook, &[&ids]).await?;
    let found = get::read(&writer.session, &writer.shared.lanes, &rows).await?;
    let place_of: HashMap<Uuid, Tid> = rows.iter().map(|row| (row.get(ID.0), row.get(row::PLACE_OF_QUEUED))).collect();
    let mut decided = StartDecisions::of(writer, starts, found);
    write(writer, &decided, &place_of).await?;
    quarantine::put_away(writer, &decided.unreadable).await?;
    let mut answers: Vec<Option<Task>> = starts.iter().map(|_| None).collect();
    for ((place, mut task), (_, change)) in decided.began.drain(..).zip(decided.started) {
        update_task(&mut task, change);
        answers[place] = Some(task);
    }
    Ok(answers)
}

/// What the call does to the tasks.
struct StartDecisions {
    now: Timestamp,
    /// The tasks that start, and the indices of their calls.
    began: Vec<(usize, Task)>,
    started: Vec<(TaskId, Change)>,
    expired: Vec<(TaskId, Change)>,
    unreadable: Vec<(Uuid, &'static str)>,
}

impl StartDecisions {
    /// Only the first of several starts of a task may start it.
    fn of(writer: &mut Writer, starts: &[Start], mut found: HashMap<TaskId, FoundTask<TaskId>>) -> Self {
        let now = writer.now();
        let mut decided =
            Self { now, began: Vec::new(), started: Vec::new(), expired: Vec::new(), unreadable: Vec::new() };
        for (place, start) in starts.iter().enumerate() {
            let fits = |task: &Task| (task.state(), task.position.version) == (State::Queued, start.version);
            let task = match found.remove(&start.id) {
                None => continue,
                Some(Err(bad)) => {
                    decided.unreadable.push((start.id.uuid(), bad.fault.0));
                    continue;
                }
                Some(Ok(task)) if !fits(&task) => {
                    found.insert(start.id, Ok(task));
                    continue;
                }
                Some(Ok(task)) => task,
            };
            let by = writer.by(now, Actor::Worker(Cow::Borrowed(&start.worker)));
            if task.has_expired(now) {
                decided.expired.push((start.id, expect_change(&task.position, Event::Expire, &by)));
            } else {
                let event = claims::start_event(start, writer.shared.node, now, task.body.timeout_millis);
                let change = expect_change(&task.position, event, &by);
                let at = LaneInstant { lane: task.lane.id.number(), due_at: task.due_at };
                let effects = Effects::in_place(&change, at);
                debug_assert!(effects.leaves_no_note(), "a start leaves no note: {effects:?}");
                writer.tally.record(&effects, || now);
                decided.started.push((start.id, change));
                decided.began.push((place, task));
            }
        }
        decided
    }
}

async fn write(writer: &mut Writer, decided: &StartDecisions, place_of: &HashMap<Uuid, Tid>) -> Result<(), Fault> {
    let takes: Vec<HeldRow<'_>> =
        decided.started.iter().map(|(id, change)| HeldRow { tid: place_of[&id.uuid()], change }).collect();
    let gone: Vec<RowChange<'_>> =
        decided.expired.iter().map(|(id, change)| RowChange::in_place(*id, change)).collect();
    let finished = change::finish(writer, &gone).await?;
    change::record(writer, &finished, &gone, decided.now);
    let (end, session) = (TransactionEnd::of(writer), &writer.session);
    // All rows are locked, so no write should fail its condition: everything is sent at once. One
    // that does fails the transaction.
    let (written, committed) = tokio::join!(biased; held_rows::write(session, &takes), end.commit(session));
    if committed.as_ref().is_err_and(Fault::breaks_connection) {
        let held = decided.began.iter().zip(&decided.started).filter_map(|((_, task), (id, change))| {
            Some((*id, change.position_after(&task.position), change.hold.as_ref()?))
        });
        writer.shared.in_doubt.note(held, &writer.by(decided.now, Actor::Node));
    }
    let written = written?;
    writer.shared.outbox.wake_resolver(committed?);
    writer.shared.held_places.note(written.into_iter().map(|(at, tid)| {
        let ((_, task), (id, change)) = (&decided.began[at], &decided.started[at]);
        (*id, HeldPlace { tid, version: change.version, lane: Arc::clone(&task.lane) })
    }));
    Ok(())
}
