//! Writes advances of schedules, all in the writer's transaction: the records, the tasks and the
//! rows of the schedules.

use punctual_core::coordinator::LeaderLease;
use punctual_core::ids::ScheduleId;
use punctual_core::schedules::{Advance, Advanced, FiredTask, KeyedTrigger, Record, Replaced};
use punctual_core::state::State;
use punctual_core::store::Inserted;
use punctual_core::time::Timestamp;

use crate::columns::number_column;
use crate::dependencies::Prerequisites;
use crate::portable::{ready, schedules as portable};
use crate::schedule_columns::{AdvanceColumns, RecordColumns};
use crate::sqlite::fault::Fault;
use crate::sqlite::session::Session;
use crate::sqlite::statements::Sql;
use crate::sqlite::{insert, leases};

/// Writes advances, each by itself; none if another node has held the lease since.
pub(crate) fn write(
    session: &mut Session<'_>,
    lease: Option<&LeaderLease>,
    advances: Vec<Advance>,
) -> Result<Option<Vec<Advanced>>, Fault> {
    if let Some(lease) = lease
        && !leases::is_last(session, lease)?
    {
        return Ok(None);
    }
    advances.into_iter().map(|advance| write_one(session, advance)).collect::<Result<_, _>>().map(Some)
}

fn write_one(session: &mut Session<'_>, mut advance: Advance) -> Result<Advanced, Fault> {
    if !is_at(session, advance.id, advance.revision)? {
        return Ok(Advanced::Lost);
    }
    if let Some(trigger) = &advance.trigger
        && !take_key(session, trigger, advance.now)?
    {
        return Ok(Advanced::Lost);
    }
    if let Some(edited) = &advance.edited {
        match ready(portable::replace(session, edited))? {
            Replaced::Done => {}
            Replaced::Lost => return Ok(Advanced::Lost),
            Replaced::NameTaken => return Ok(Advanced::NameTaken),
        }
    }
    ready(portable::cut(session, &advance))?;
    for record in std::mem::take(&mut advance.records) {
        if put(session, &advance, &record)? {
            advance.records.push(record);
        }
    }
    let recorded: Vec<Timestamp> = advance.records.iter().map(|record| record.instant).collect();
    if let Some(trigger) = advance.trigger.as_ref().filter(|trigger| !recorded.contains(&trigger.instant)) {
        free_key(session, trigger)?;
    }
    let finished = session.statements.get(Sql::OccurrenceFinished)?;
    for instant in &advance.finished {
        finished.execute((advance.id.uuid(), instant.as_millis()))?;
    }
    let of = AdvanceColumns::of(&advance, |_| true);
    session.statements.get(Sql::ScheduleAdvance)?.execute((
        of.id,
        of.next_run_at,
        of.look_at,
        of.last_run_at,
        of.runs,
        of.skipped,
        of.missed,
        of.is_switched,
        of.paused_at,
        of.pause_reason,
        of.decided_at,
    ))?;
    let mut waiting = Vec::new();
    for FiredTask { task, .. } in advance.records.into_iter().filter_map(|record| record.fired) {
        // The queue's limit on its depth is for submissions: this task was accepted with its
        // schedule.
        let Inserted::Created(task) = insert::create(session, *task, &Prerequisites::default())? else {
            return Err(Fault::Corrupt(format!("a task of {} existed before its instant fired", advance.id)));
        };
        if task.state() == State::Pending {
            waiting.push((task.lane, task.due_at));
        }
    }
    Ok(Advanced::Done { waiting, recorded })
}

/// Whether the schedule is at this revision.
fn is_at(session: &mut Session<'_>, id: ScheduleId, revision: u64) -> Result<bool, Fault> {
    Ok(session.statements.get(Sql::ScheduleAt)?.exists((id.uuid(), number_column(revision)))?)
}

/// Makes the key stand for the task of the trigger; false if it stands for another.
fn take_key(session: &mut Session<'_>, trigger: &KeyedTrigger, now: Timestamp) -> Result<bool, Fault> {
    let taken = session.statements.get(Sql::IdempotencyInsert)?.execute((
        &trigger.tenant,
        &trigger.idempotency.key,
        trigger.task.uuid(),
        trigger.idempotency.fingerprint,
        now.as_millis(),
    ))?;
    Ok(taken == 1)
}

/// Frees the key of a run that is not recorded after all.
fn free_key(session: &mut Session<'_>, trigger: &KeyedTrigger) -> Result<(), Fault> {
    let free = session.statements.get(Sql::IdempotencyDrop)?;
    free.execute((&trigger.tenant, &trigger.idempotency.key, trigger.task.uuid()))?;
    Ok(())
}

/// Writes a record; false if an earlier one stays.
fn put(session: &mut Session<'_>, advance: &Advance, record: &Record) -> Result<bool, Fault> {
    let of = RecordColumns::of(advance, record);
    let put = session.statements.get(if record.waited { Sql::OccurrenceSettle } else { Sql::OccurrencePut })?;
    let written = put.execute((
        of.schedule,
        of.instant,
        of.decided_at,
        of.task_id,
        of.covers_until,
        of.covers_at_least,
        of.origin,
        of.outcome,
        of.is_watched,
        of.reason,
        of.detail,
    ))?;
    Ok(written == 1)
}
