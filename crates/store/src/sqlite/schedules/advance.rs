//! What an advance of a schedule writes, all of it in the writer's transaction: the records, the
//! tasks, and where the schedule stands then.

use punctual_core::coordinator::LeaderLease;
use punctual_core::schedules::{Advance, Advanced, FiredTask, KeyedTrigger, Record, Replaced};
use punctual_core::state::State;
use punctual_core::store::Inserted;
use punctual_core::time::Timestamp;

use super::{is_at, replace};
use crate::columns::{instant_column, number_column};
use crate::dependencies::Prerequisites;
use crate::schedule_columns::{RecordColumns, SwitchColumns};
use crate::sqlite::fault::Fault;
use crate::sqlite::session::Session;
use crate::sqlite::statements::Sql;
use crate::sqlite::{insert, leases};

/// Writes advances, each by itself; none if somebody else has held the lease since.
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
        match replace(session, edited)? {
            Replaced::Done => {}
            Replaced::Lost => return Ok(Advanced::Lost),
            Replaced::NameTaken => return Ok(Advanced::NameTaken),
        }
    }
    let id = advance.id.uuid();
    let (mut recorded, mut waiting) = (Vec::new(), Vec::new());
    let (mut fired, mut last) = (0, None);
    for record in std::mem::take(&mut advance.records) {
        if !put(session, &advance, &record)? {
            continue;
        }
        recorded.push(record.instant);
        let is_run = record.is_run();
        let Some(FiredTask { task, .. }) = record.fired else { continue };
        // A bound on the depth of its queue is for submissions: this one was accepted with its
        // schedule.
        let Inserted::Created(task) = insert::create(session, *task, &Prerequisites::default())? else {
            return Err(Fault::Corrupt(format!("a task of {} was there before its instant fired", advance.id)));
        };
        if is_run {
            fired += 1;
            last = last.max(Some(record.instant));
        }
        if task.state() == State::Pending {
            waiting.push((task.lane, task.due_at));
        }
    }
    if let Some(trigger) = advance.trigger.as_ref().filter(|trigger| !recorded.contains(&trigger.instant)) {
        give_key_back(session, trigger)?;
    }
    let rest = session.statements.get(Sql::OccurrenceRested)?;
    for instant in &advance.finished {
        rest.execute((id.as_bytes(), instant.as_millis()))?;
    }
    let switch = SwitchColumns::of(&advance);
    session.statements.get(Sql::ScheduleAdvance)?.execute((
        id.as_bytes(),
        instant_column(advance.next_run_at),
        instant_column(advance.next_check_at),
        instant_column(last),
        fired,
        number_column(advance.skipped),
        number_column(advance.missed),
        advance.switch.is_some(),
        switch.paused_at,
        switch.reason,
        advance.now.as_millis(),
    ))?;
    Ok(Advanced::Done { waiting, recorded })
}

/// Makes the key stand for what is asked for under it; false if it stands for something else.
fn take_key(session: &mut Session<'_>, trigger: &KeyedTrigger, now: Timestamp) -> Result<bool, Fault> {
    let taken = session.statements.get(Sql::IdempotencyInsert)?.execute((
        &trigger.tenant,
        &trigger.idempotency.key,
        trigger.task.uuid().as_bytes(),
        trigger.idempotency.fingerprint,
        now.as_millis(),
    ))?;
    Ok(taken == 1)
}

/// Frees the key of a run that is not recorded after all.
fn give_key_back(session: &mut Session<'_>, trigger: &KeyedTrigger) -> Result<(), Fault> {
    let free = session.statements.get(Sql::IdempotencyDrop)?;
    free.execute((&trigger.tenant, &trigger.idempotency.key, trigger.task.uuid().as_bytes()))?;
    Ok(())
}

/// Writes a record; false if there is one that stays.
fn put(session: &mut Session<'_>, advance: &Advance, record: &Record) -> Result<bool, Fault> {
    let of = RecordColumns::of(advance, record);
    let put = session.statements.get(if record.waited { Sql::OccurrenceSettle } else { Sql::OccurrencePut })?;
    let written = put.execute((
        advance.id.uuid().as_bytes(),
        of.instant,
        of.decided_at,
        of.task_id.map(uuid::Uuid::into_bytes),
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
