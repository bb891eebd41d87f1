//! Starts the runs of queued tasks.

use std::borrow::Cow;

use punctual_core::state::{Event, State};
use punctual_core::store::Start;
use punctual_core::task::Task;
use punctual_core::trail::Actor;
use rusqlite::OptionalExtension;

use crate::claims::{self, expect_change, update_task};
use crate::columns::number_column;
use crate::effects::{Effects, LaneInstant};

use super::fault::Fault;
use super::session::Session;
use super::statements::Sql;
use super::{apply, get, outbox, quarantine};

/// Starts tasks; answers in order.
pub(crate) fn start(session: &mut Session<'_>, starts: &[Start]) -> Result<Vec<Option<Task>>, Fault> {
    starts.iter().map(|start| start_one(session, start)).collect()
}

fn start_one(session: &mut Session<'_>, start: &Start) -> Result<Option<Task>, Fault> {
    let Some(seq) = queued_at(session, start)? else { return Ok(None) };
    let mut task = match get::live(session, seq)? {
        Some(Ok(task)) => task,
        Some(Err(bad)) => {
            quarantine::put_away(session, seq, bad.fault.0)?;
            return Ok(None);
        }
        None => return Ok(None),
    };
    let now = session.now();
    let by = session.by(now, Actor::Worker(Cow::Borrowed(&start.worker)));
    if task.has_expired(now) {
        let expired = expect_change(&task.position, Event::Expire, &by);
        apply::finish(session, task.id, &expired)?;
        return Ok(None);
    }
    let event = claims::start_event(start, session.node, now, task.body.timeout_millis);
    let change = expect_change(&task.position, event, &by);
    apply::change_task(session, seq, &change)?;
    let at = LaneInstant { lane: task.lane.id.number(), due_at: task.due_at };
    outbox::record_claim(session, &Effects::in_place(&change, at), now)?;
    update_task(&mut task, change);
    Ok(Some(task))
}

/// The number of the task if it is queued at that version.
fn queued_at(session: &mut Session<'_>, start: &Start) -> Result<Option<i64>, Fault> {
    let look = session.statements.get(Sql::TaskLook)?;
    let place = look.query_row([start.id.uuid().as_bytes()], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(2)?, row.get::<_, i64>(3)?))
    });
    let queued = (i64::from(State::Queued.code()), number_column(start.version));
    Ok(place.optional()?.filter(|(_, state, version)| (*state, *version) == queued).map(|(seq, ..)| seq))
}
