//! Recurring schedules: their reads, and the writes of one row. Each store's `schedules` module
//! calls it and writes advances itself.
//!
//! A snapshot reads the schedule first, with its revision, and then its occurrences. Any change in
//! between moves the revision, and the advance that was decided by the snapshot is lost.

use std::collections::HashMap;

use punctual_core::ids::{ScheduleId, TaskId};
use punctual_core::schedules::plan::{BACKFILL_MAX, CoveringRecord, Covers, WaitingOccurrence};
use punctual_core::schedules::{
    Advance, CheckCursor, Definition, DueSchedules, KeyOwner, Occurrence, OccurrenceOutcome, Progress, Promise,
    Replaced, Schedule, ScheduleInserted, SchedulePause, ScheduleSnapshot, WatchedTask, origin_from_code,
};
use punctual_core::state::State;
use punctual_core::time::Timestamp;
use uuid::Uuid;

use super::{Connection, Corrupt, Parameter, PortableFault, PortableSql, Row};
use crate::columns::{Unreadable, count_column, instant_column, number_column};

/// A connection that reads the open occurrences of schedules. PostgreSQL reads them for many
/// schedules at once; SQLite reads one schedule after another, as it has no lateral joins.
pub(crate) trait OpenOccurrences: Connection {
    /// The occurrences that wait and the tasks that are watched: at most
    /// [`PLAN_MAX`](punctual_core::schedules::plan::PLAN_MAX) of each for each schedule. The first
    /// column is the schedule.
    fn open_occurrences(
        &mut self,
        schedules: &[Uuid],
    ) -> impl Future<Output = Result<[Vec<Self::Row>; 2], Self::Fault>> + Send;
}

pub(crate) async fn insert<C: Connection>(
    connection: &mut C,
    schedule: &Schedule,
) -> Result<ScheduleInserted, C::Fault> {
    let written = write(connection, PortableSql::ScheduleInsert, schedule).await?;
    Ok(if written == 1 { ScheduleInserted::Created } else { ScheduleInserted::NameTaken })
}

pub(crate) async fn replace<C: Connection>(connection: &mut C, schedule: &Schedule) -> Result<Replaced, C::Fault> {
    match write(connection, PortableSql::ScheduleReplace, schedule).await {
        Ok(1) => Ok(Replaced::Done),
        Ok(_) => Ok(Replaced::Lost),
        Err(fault) if fault.is_duplicate() => Ok(Replaced::NameTaken),
        Err(fault) => Err(fault),
    }
}

async fn write<C: Connection>(connection: &mut C, sql: PortableSql, schedule: &Schedule) -> Result<u64, C::Fault> {
    let Schedule { tenant, name, progress, pause, .. } = schedule;
    let (id, version, revision) =
        (schedule.id.uuid(), number_column(schedule.version), number_column(schedule.revision));
    let (created_at, updated_at) = (schedule.created_at.as_millis(), schedule.updated_at.as_millis());
    let paused_at = pause.as_ref().map(|pause| pause.at.as_millis());
    let pause_reason = pause.as_ref().and_then(|pause| pause.reason.as_deref());
    let [next_run_at, look_at, last_run_at] =
        [progress.next_run_at, progress.next_check_at, progress.last_run_at].map(instant_column);
    let [runs, missed, skipped] =
        [progress.run_count, progress.missed_count, progress.skipped_count].map(number_column);
    let definition = serde_json::to_string(&schedule.definition);
    let definition = definition.expect("invariant: a definition is texts, numbers and carried JSON");
    let parameters: [&dyn Parameter; 16] = [
        &id,
        &revision,
        name,
        &version,
        &updated_at,
        &next_run_at,
        &look_at,
        &last_run_at,
        &runs,
        &missed,
        &skipped,
        &paused_at,
        &pause_reason,
        &definition,
        tenant,
        &created_at,
    ];
    // The tenant and the creation never change.
    let count = if sql == PortableSql::ScheduleReplace { 14 } else { 16 };
    connection.execute(sql, &parameters[..count]).await
}

pub(crate) async fn get<C: Connection>(
    connection: &mut C,
    tenant: &str,
    id: ScheduleId,
) -> Result<Option<Schedule>, C::Fault> {
    let rows = connection.query(PortableSql::ScheduleGet, &[&id.uuid(), &tenant]).await?;
    Ok(rows.first().map(schedule).transpose()?)
}

pub(crate) async fn named<C: Connection>(
    connection: &mut C,
    tenant: &str,
    name: &str,
) -> Result<Option<Schedule>, C::Fault> {
    let rows = connection.query(PortableSql::ScheduleNamed, &[&tenant, &name]).await?;
    Ok(rows.first().map(schedule).transpose()?)
}

pub(crate) async fn list<C: Connection>(
    connection: &mut C,
    tenant: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<Schedule>, C::Fault> {
    let parameters: [&dyn Parameter; 3] = [&tenant, &after.unwrap_or_default(), &count_column(limit)];
    let rows = connection.query(PortableSql::ScheduleList, &parameters).await?;
    Ok(readable(&rows, schedule)?)
}

pub(crate) async fn key_owner<C: Connection>(
    connection: &mut C,
    tenant: &str,
    key: &str,
) -> Result<Option<KeyOwner>, C::Fault> {
    let rows = connection.query(PortableSql::IdempotencyOwner, &[&tenant, &key]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let fingerprint = row.get::<Vec<u8>>(1)?.try_into();
    let fingerprint = fingerprint.map_err(|_| Corrupt(format!("the digest of {key} cannot be read")))?;
    Ok(Some(KeyOwner { task: TaskId::from_uuid(row.get(0)?), fingerprint }))
}

pub(crate) async fn snapshot<C: OpenOccurrences>(
    connection: &mut C,
    tenant: &str,
    id: ScheduleId,
) -> Result<Option<ScheduleSnapshot>, C::Fault> {
    let Some(schedule) = get(connection, tenant, id).await? else { return Ok(None) };
    Ok(snapshots(connection, vec![schedule]).await?.pop())
}

pub(crate) async fn due<C: OpenOccurrences>(
    connection: &mut C,
    now: Timestamp,
    after: Option<CheckCursor>,
    limit: usize,
) -> Result<DueSchedules, C::Fault> {
    let (look_at, id) =
        after.map_or((i64::MIN, Uuid::nil()), |after| (after.next_check_at.as_millis(), after.id.uuid()));
    let parameters: [&dyn Parameter; 4] = [&now.as_millis(), &look_at, &id, &count_column(limit)];
    let rows = connection.query(PortableSql::ScheduleDue, &parameters).await?;
    let cursor = |row: &C::Row| {
        Ok::<_, Corrupt>(CheckCursor { next_check_at: row.instant(8)?, id: ScheduleId::from_uuid(row.get(0)?) })
    };
    let next = rows.last().filter(|_| rows.len() >= limit).map(cursor).transpose()?;
    let snapshots = snapshots(connection, readable(&rows, schedule)?).await?;
    Ok(DueSchedules { snapshots, next })
}

pub(crate) async fn next_check<C: Connection>(
    connection: &mut C,
    now: Timestamp,
) -> Result<Option<Timestamp>, C::Fault> {
    let rows = connection.query(PortableSql::ScheduleNextCheck, &[&now.as_millis()]).await?;
    Ok(rows.first().map(|row| row.instant(0)).transpose()?)
}

pub(crate) async fn occurrences<C: Connection>(
    connection: &mut C,
    id: ScheduleId,
    before: Option<Timestamp>,
    limit: usize,
) -> Result<Vec<Occurrence>, C::Fault> {
    let before = before.map_or(i64::MAX, Timestamp::as_millis);
    let rows = connection.query(PortableSql::OccurrenceList, &[&id.uuid(), &before, &count_column(limit)]).await?;
    Ok(rows.iter().map(occurrence).collect::<Result<_, _>>()?)
}

pub(crate) async fn covering<C: Connection>(
    connection: &mut C,
    id: ScheduleId,
    from: Timestamp,
    to: Timestamp,
) -> Result<Vec<CoveringRecord>, C::Fault> {
    // A backfill has no more instants, and no instant has two such records.
    let limit = count_column(BACKFILL_MAX);
    let parameters: [&dyn Parameter; 4] = [&id.uuid(), &from.as_millis(), &to.as_millis(), &limit];
    let rows = connection.query(PortableSql::OccurrenceCovering, &parameters).await?;
    let record = |row: &C::Row| {
        let covers = Covers { until: row.instant(1)?, at_least: row.number(2)? };
        Ok::<_, Corrupt>(CoveringRecord { instant: row.instant(0)?, covers })
    };
    Ok(rows.iter().map(record).collect::<Result<_, _>>()?)
}

/// Writes the parts of records that stand for many instants.
pub(crate) async fn cut<C: Connection>(connection: &mut C, advance: &Advance) -> Result<(), C::Fault> {
    let id = advance.id.uuid();
    for cut in &advance.cuts {
        for (instant, covers) in &cut.parts {
            let (until, count) = (covers.map(|of| of.until.as_millis()), covers.map(|of| number_column(of.at_least)));
            let parameters: [&dyn Parameter; 5] = [&id, &cut.instant.as_millis(), &instant.as_millis(), &until, &count];
            connection.execute(PortableSql::OccurrenceCut, &parameters).await?;
        }
    }
    Ok(())
}

async fn snapshots<C: OpenOccurrences>(
    connection: &mut C,
    schedules: Vec<Schedule>,
) -> Result<Vec<ScheduleSnapshot>, C::Fault> {
    if schedules.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<Uuid> = schedules.iter().map(|schedule| schedule.id.uuid()).collect();
    let [waiting, tasks] = connection.open_occurrences(&ids).await?;
    let mut buffered: HashMap<Uuid, Vec<WaitingOccurrence>> = HashMap::new();
    let mut promised: HashMap<Uuid, Vec<Promise>> = HashMap::new();
    for row in &waiting {
        let (id, instant, task): (_, _, Option<Uuid>) = (row.get(0)?, row.instant(1)?, row.get(3)?);
        let origin = origin_from_code(row.get(2)?).ok_or_else(|| unreadable("origin"))?;
        buffered.entry(id).or_default().push(WaitingOccurrence { instant, origin });
        if let Some(task) = task.map(TaskId::from_uuid) {
            promised.entry(id).or_default().push(Promise { instant, task, key: row.get(4)? });
        }
    }
    let mut watched: HashMap<Uuid, Vec<WatchedTask>> = HashMap::new();
    for row in &tasks {
        let (instant, task, state): (_, _, Option<i64>) = (row.instant(1)?, row.get(2)?, row.get(3)?);
        watched.entry(row.get(0)?).or_default().push(WatchedTask {
            instant,
            task: TaskId::from_uuid(task),
            state: state.and_then(State::from_code),
            stop_requested: row.get(4)?,
        });
    }
    let snapshot = |schedule: Schedule| {
        let id = schedule.id.uuid();
        ScheduleSnapshot {
            schedule,
            buffered: buffered.remove(&id).unwrap_or_default(),
            watched: watched.remove(&id).unwrap_or_default(),
            promised: promised.remove(&id).unwrap_or_default(),
        }
    };
    Ok(schedules.into_iter().map(snapshot).collect())
}

/// Reads rows of schedules, whose first column is the id. A row that cannot be read is logged and
/// left out.
pub(super) fn readable<R: Row, T>(rows: &[R], read: fn(&R) -> Result<T, Corrupt>) -> Result<Vec<T>, Corrupt> {
    let mut all = Vec::with_capacity(rows.len());
    for row in rows {
        match read(row) {
            Ok(one) => all.push(one),
            Err(Corrupt(fault)) => {
                let id = ScheduleId::from_uuid(row.get(0)?);
                tracing::error!(schedule.id = %id, error = fault, "cannot read a schedule; it is left out");
            }
        }
    }
    Ok(all)
}

fn schedule<R: Row>(row: &R) -> Result<Schedule, Corrupt> {
    let reason = row.get(14)?;
    let pause = row.instant_if_any(13)?.map(|at| SchedulePause { at, reason });
    let mut schedule = Schedule {
        id: ScheduleId::from_uuid(row.get(0)?),
        tenant: row.get(1)?,
        name: row.get(2)?,
        version: row.number(3)?,
        revision: row.number(4)?,
        created_at: row.instant(5)?,
        updated_at: row.instant(6)?,
        definition: definition(row, 15)?,
        pause: None,
        progress: Progress {
            next_run_at: row.instant_if_any(7)?,
            next_check_at: row.instant_if_any(8)?,
            last_run_at: row.instant_if_any(9)?,
            run_count: row.number(10)?,
            missed_count: row.number(11)?,
            skipped_count: row.number(12)?,
        },
    };
    schedule.set_pause(pause);
    Ok(schedule)
}

/// The definition in a column of a schedule.
pub(super) fn definition<R: Row>(row: &R, index: usize) -> Result<Definition, Corrupt> {
    serde_json::from_str(&row.get::<String>(index)?).map_err(|_| unreadable("definition"))
}

fn occurrence<R: Row>(row: &R) -> Result<Occurrence, Corrupt> {
    let (until, at_least): (_, Option<i64>) = (row.instant_if_any(6)?, row.get(7)?);
    let covers = until.zip(at_least).map(|(until, at_least)| Covers { until, at_least: at_least.cast_unsigned() });
    let outcome = OccurrenceOutcome::from_code(row.get(2)?).ok_or_else(|| unreadable("outcome"))?;
    let (detail, task): (Option<String>, Option<Uuid>) = (row.get(4)?, row.get(5)?);
    Ok(Occurrence {
        instant: row.instant(0)?,
        origin: origin_from_code(row.get(1)?).ok_or_else(|| unreadable("origin"))?,
        outcome,
        reason: row.get(3)?,
        // While an occurrence waits, these columns hold the key of its trigger and the id that its
        // task will have.
        detail: detail.filter(|_| outcome != OccurrenceOutcome::Buffered),
        task: task.filter(|_| outcome == OccurrenceOutcome::Fired).map(TaskId::from_uuid),
        covers,
        decided_at: row.instant(8)?,
    })
}

fn unreadable(column: &'static str) -> Corrupt {
    Corrupt::column("schedule", Unreadable(column))
}
