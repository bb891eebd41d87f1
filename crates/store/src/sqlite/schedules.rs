//! Recurring schedules: reads beside the writer, and one conditional write for whatever changes.
//!
//! What an advance writes is in `advance`; it is one job of the writer, and so one transaction.

mod advance;

use async_trait::async_trait;
use punctual_core::coordinator::LeaderLease;
use punctual_core::ids::{ScheduleId, TaskId};
use punctual_core::schedules::plan::{PLAN_MAX, WaitingOccurrence};
use punctual_core::schedules::{
    Advance, Advanced, CheckCursor, DueSchedules, KeyOwner, Occurrence, Replaced, Schedule, ScheduleInserted,
    ScheduleSnapshot, Schedules, WatchedTask, origin_from_code,
};
use punctual_core::state::State;
use punctual_core::store::StoreError;
use punctual_core::time::Timestamp;
use rusqlite::{OptionalExtension, Row};
use uuid::Uuid;

use super::SqliteStore;
use super::fault::Fault;
use super::job_queue::WriteClass;
use super::session::Session;
use super::statements::Sql;
use crate::columns::{Unreadable, number_column};
use crate::schedule_columns::{OccurrenceColumns, ROW_BYTES, ScheduleColumns, page_end, promise, readable, size_of};
use crate::write_queue::Weight;

#[async_trait]
impl Schedules for SqliteStore {
    async fn insert(&self, schedule: Schedule) -> Result<ScheduleInserted, StoreError> {
        let weight = weight_of(&schedule);
        self.writer().call(WriteClass::Submission, weight, move |session| insert(session, &schedule)).await
    }

    async fn replace(&self, schedule: Schedule) -> Result<Replaced, StoreError> {
        let weight = weight_of(&schedule);
        self.writer().call(WriteClass::Submission, weight, move |session| replace(session, &schedule)).await
    }

    async fn remove(&self, id: ScheduleId, revision: u64) -> Result<bool, StoreError> {
        let work = move |session: &mut Session<'_>| remove(session, id, revision);
        self.writer().call(WriteClass::Submission, Weight::SMALL, work).await
    }

    async fn get(&self, tenant: &str, id: ScheduleId) -> Result<Option<Schedule>, StoreError> {
        let tenant = tenant.to_owned();
        self.readers().call(move |session| get(session, &tenant, id)).await
    }

    async fn named(&self, tenant: &str, name: &str) -> Result<Option<Schedule>, StoreError> {
        let (tenant, name) = (tenant.to_owned(), name.to_owned());
        let work = move |session: &mut Session<'_>| {
            let named = session.statements.get(Sql::ScheduleNamed)?;
            let columns = named.query_row((tenant, name), schedule_columns).optional()?;
            columns.map(ScheduleColumns::read).transpose().map_err(unreadable)
        };
        self.readers().call(work).await
    }

    async fn list(&self, tenant: &str, after: Option<String>, limit: usize) -> Result<Vec<Schedule>, StoreError> {
        let tenant = tenant.to_owned();
        let work = move |session: &mut Session<'_>| {
            let list = session.statements.get(Sql::ScheduleList)?;
            let rows = list.query_map((tenant, after.unwrap_or_default(), count(limit)), schedule_columns)?;
            let columns: Vec<ScheduleColumns> = rows.collect::<Result<_, _>>()?;
            Ok(columns.into_iter().filter_map(readable).collect())
        };
        self.readers().call(work).await
    }

    async fn key_owner(&self, tenant: &str, key: &str) -> Result<Option<KeyOwner>, StoreError> {
        let (tenant, key) = (tenant.to_owned(), key.to_owned());
        let work = move |session: &mut Session<'_>| {
            let query = session.statements.get(Sql::IdempotencyGet)?;
            let owner = query.query_row((tenant, key), |row| {
                let task = TaskId::from_uuid(Uuid::from_bytes(row.get(0)?));
                Ok(KeyOwner { task, fingerprint: row.get(1)? })
            });
            Ok(owner.optional()?)
        };
        self.readers().call(work).await
    }

    async fn snapshot(&self, tenant: &str, id: ScheduleId) -> Result<Option<ScheduleSnapshot>, StoreError> {
        let tenant = tenant.to_owned();
        let work = move |session: &mut Session<'_>| {
            let schedule = get(session, &tenant, id)?;
            schedule.map(|schedule| snapshot(session, schedule)).transpose()
        };
        self.readers().call(work).await
    }

    async fn due(&self, now: Timestamp, after: Option<CheckCursor>, limit: usize) -> Result<DueSchedules, StoreError> {
        self.readers().call(move |session| due(session, now, after, limit)).await
    }

    async fn next_check(&self, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        let work = move |session: &mut Session<'_>| {
            let next = session.statements.get(Sql::ScheduleNextCheck)?;
            let next: Option<i64> = next.query_row([now.as_millis()], |row| row.get(0))?;
            Ok(next.map(Timestamp::from_millis))
        };
        self.readers().call(work).await
    }

    async fn advance(
        &self,
        lease: Option<&LeaderLease>,
        advances: Vec<Advance>,
    ) -> Result<Option<Vec<Advanced>>, StoreError> {
        let lease = lease.cloned();
        let (bytes, rows) = size_of(&advances);
        let weight = Weight { bytes, rows };
        let work = move |session: &mut Session<'_>| advance::write(session, lease.as_ref(), advances);
        self.writer().call(WriteClass::Progress, weight, work).await
    }

    async fn occurrences(
        &self,
        id: ScheduleId,
        before: Option<Timestamp>,
        limit: usize,
    ) -> Result<Vec<Occurrence>, StoreError> {
        let work = move |session: &mut Session<'_>| {
            let list = session.statements.get(Sql::OccurrenceList)?;
            let before = before.map_or(i64::MAX, Timestamp::as_millis);
            let rows = list.query_map((id.uuid().as_bytes(), before, count(limit)), occurrence_columns)?;
            let columns: Vec<OccurrenceColumns> = rows.collect::<Result<_, _>>()?;
            columns.into_iter().map(|columns| columns.read().map_err(unreadable)).collect()
        };
        self.readers().call(work).await
    }
}

fn insert(session: &mut Session<'_>, schedule: &Schedule) -> Result<ScheduleInserted, Fault> {
    let of = ScheduleColumns::of(schedule);
    let insert = session.statements.get(Sql::ScheduleInsert)?;
    let made = insert.execute((
        of.id.as_bytes(),
        of.tenant,
        of.name,
        of.version,
        of.revision,
        of.created_at,
        of.updated_at,
        of.next_run_at,
        of.look_at,
        of.last_run_at,
        of.run_count,
        of.missed_count,
        of.skipped_count,
        of.paused_at,
        of.pause_reason,
        of.definition,
    ))?;
    Ok(if made == 1 { ScheduleInserted::Created } else { ScheduleInserted::NameTaken })
}

fn replace(session: &mut Session<'_>, schedule: &Schedule) -> Result<Replaced, Fault> {
    let of = ScheduleColumns::of(schedule);
    if !is_at(session, schedule.id, schedule.revision)? {
        return Ok(Replaced::Lost);
    }
    let replace = session.statements.get(Sql::ScheduleReplace)?;
    let written = replace.execute((
        of.id.as_bytes(),
        of.revision,
        of.name,
        of.version,
        of.updated_at,
        of.next_run_at,
        of.look_at,
        of.last_run_at,
        of.run_count,
        of.missed_count,
        of.skipped_count,
        of.paused_at,
        of.pause_reason,
        of.definition,
    ))?;
    Ok(if written == 1 { Replaced::Done } else { Replaced::NameTaken })
}

/// Removes a schedule; with it goes what waits, and its tasks are not watched any more.
fn remove(session: &mut Session<'_>, id: ScheduleId, revision: u64) -> Result<bool, Fault> {
    let id = id.uuid();
    let remove = session.statements.get(Sql::ScheduleRemove)?;
    if remove.execute((id.as_bytes(), number_column(revision)))? == 0 {
        return Ok(false);
    }
    session.statements.get(Sql::OccurrenceForget)?.execute([id.as_bytes()])?;
    session.statements.get(Sql::OccurrenceUnwatch)?.execute([id.as_bytes()])?;
    Ok(true)
}

/// Whether the schedule is at this revision.
fn is_at(session: &mut Session<'_>, id: ScheduleId, revision: u64) -> Result<bool, Fault> {
    Ok(session.statements.get(Sql::ScheduleAt)?.exists((id.uuid().as_bytes(), number_column(revision)))?)
}

fn get(session: &mut Session<'_>, tenant: &str, id: ScheduleId) -> Result<Option<Schedule>, Fault> {
    let get = session.statements.get(Sql::ScheduleGet)?;
    let columns = get.query_row((id.uuid().as_bytes(), tenant), schedule_columns).optional()?;
    columns.map(ScheduleColumns::read).transpose().map_err(unreadable)
}

fn due(
    session: &mut Session<'_>,
    now: Timestamp,
    after: Option<CheckCursor>,
    limit: usize,
) -> Result<DueSchedules, Fault> {
    let (look_at, id) =
        after.map_or((i64::MIN, Uuid::nil()), |after| (after.next_check_at.as_millis(), after.id.uuid()));
    let query = session.statements.get(Sql::ScheduleDue)?;
    let rows = query.query_map((now.as_millis(), look_at, id.as_bytes(), count(limit)), schedule_columns)?;
    let columns: Vec<ScheduleColumns> = rows.collect::<Result<_, _>>()?;
    let next = page_end(&columns, limit);
    let readable = columns.into_iter().filter_map(readable);
    let snapshots = readable.map(|schedule| snapshot(session, schedule)).collect::<Result<_, _>>()?;
    Ok(DueSchedules { snapshots, next })
}

/// What of a schedule an advance is decided by. A reader sees one state of everything.
fn snapshot(session: &mut Session<'_>, schedule: Schedule) -> Result<ScheduleSnapshot, Fault> {
    let id = schedule.id.uuid();
    let query = session.statements.get(Sql::OccurrenceBuffered)?;
    let rows = query.query_map((id.as_bytes(), count(PLAN_MAX)), |row| {
        let task: Option<[u8; 16]> = row.get(2)?;
        Ok((row.get(0)?, row.get(1)?, task.map(Uuid::from_bytes), row.get(3)?))
    })?;
    let waiting: Vec<(i64, i64, Option<Uuid>, Option<String>)> = rows.collect::<Result<_, _>>()?;
    let query = session.statements.get(Sql::OccurrenceWatched)?;
    let rows = query.query_map((id.as_bytes(), count(PLAN_MAX)), |row| {
        let state: Option<i64> = row.get(2)?;
        Ok(WatchedTask {
            instant: Timestamp::from_millis(row.get(0)?),
            task: TaskId::from_uuid(Uuid::from_bytes(row.get(1)?)),
            state: state.and_then(State::from_code),
            stop_requested: row.get(3)?,
        })
    })?;
    let watched = rows.collect::<Result<_, _>>()?;
    let (mut buffered, mut promised) = (Vec::with_capacity(waiting.len()), Vec::new());
    for (instant, origin, task, detail) in waiting {
        let instant = Timestamp::from_millis(instant);
        let origin = origin_from_code(origin).ok_or_else(|| unreadable(Unreadable("origin")))?;
        buffered.push(WaitingOccurrence { instant, origin });
        promised.extend(promise(instant, task, detail));
    }
    Ok(ScheduleSnapshot { schedule, buffered, watched, promised })
}

fn schedule_columns(row: &Row<'_>) -> rusqlite::Result<ScheduleColumns> {
    Ok(ScheduleColumns {
        id: Uuid::from_bytes(row.get(0)?),
        tenant: row.get(1)?,
        name: row.get(2)?,
        version: row.get(3)?,
        revision: row.get(4)?,
        created_at: row.get(5)?,
        updated_at: row.get(6)?,
        next_run_at: row.get(7)?,
        look_at: row.get(8)?,
        last_run_at: row.get(9)?,
        run_count: row.get(10)?,
        missed_count: row.get(11)?,
        skipped_count: row.get(12)?,
        paused_at: row.get(13)?,
        pause_reason: row.get(14)?,
        definition: row.get(15)?,
    })
}

fn occurrence_columns(row: &Row<'_>) -> rusqlite::Result<OccurrenceColumns> {
    let task: Option<[u8; 16]> = row.get(5)?;
    Ok(OccurrenceColumns {
        instant: row.get(0)?,
        origin: row.get(1)?,
        outcome: row.get(2)?,
        reason: row.get(3)?,
        detail: row.get(4)?,
        task_id: task.map(Uuid::from_bytes),
        covers_until: row.get(6)?,
        covers_at_least: row.get(7)?,
        decided_at: row.get(8)?,
    })
}

fn unreadable(Unreadable(column): Unreadable) -> Fault {
    Fault::Corrupt(format!("the {column} of a schedule cannot be read"))
}

fn weight_of(schedule: &Schedule) -> Weight {
    Weight { bytes: schedule.definition.task.get().len() + ROW_BYTES, rows: 1 }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
