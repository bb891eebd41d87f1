//! Recurring schedules: reads through the connections, and one conditional write for whatever
//! changes.
//!
//! Advances go to the writers, as everything that makes tasks does (`advance`); the rest is single
//! statements. A look reads the schedule first, with its revision, and then what hangs on it:
//! whatever changes in between moves the revision, and the advance that was decided by it is lost.

mod advance;

pub(crate) use advance::{LedAdvances, advance};

use std::collections::HashMap;

use async_trait::async_trait;
use punctual_core::coordinator::LeaderLease;
use punctual_core::ids::{ScheduleId, TaskId};
use punctual_core::schedules::plan::{PLAN_MAX, WaitingOccurrence};
use punctual_core::schedules::{
    Advance, Advanced, CheckCursor, DueSchedules, KeyOwner, Occurrence, Promise, Replaced, Schedule, ScheduleInserted,
    ScheduleSnapshot, Schedules, WatchedTask, origin_from_code,
};
use punctual_core::state::State;
use punctual_core::store::StoreError;
use punctual_core::time::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::PostgresStore;
use super::connection::Session;
use super::fault::Fault;
use super::statements::Sql;
use crate::columns::{Unreadable, number_column};
use crate::schedule_columns::{OccurrenceColumns, ScheduleColumns, page_end, promise, readable, size_of};
use crate::write_queue::Weight;

/// Schedules whose advances are written in one transaction at the most.
const TURNS: usize = 100;

#[async_trait]
impl Schedules for PostgresStore {
    async fn insert(&self, schedule: Schedule) -> Result<ScheduleInserted, StoreError> {
        self.reads().call(async |session| insert(session, &schedule).await).await
    }

    async fn replace(&self, schedule: Schedule) -> Result<Replaced, StoreError> {
        self.reads().call(async |session| replace(session, &schedule).await).await
    }

    async fn remove(&self, id: ScheduleId, revision: u64) -> Result<bool, StoreError> {
        let (id, revision) = (id.uuid(), number_column(revision));
        let removed = self.reads().call(async |session| session.query(Sql::ScheduleRemove, &[&id, &revision]).await);
        Ok(!removed.await?.is_empty())
    }

    async fn get(&self, tenant: &str, id: ScheduleId) -> Result<Option<Schedule>, StoreError> {
        self.reads().call(async |session| get(session, tenant, id).await).await
    }

    async fn named(&self, tenant: &str, name: &str) -> Result<Option<Schedule>, StoreError> {
        let named = async |session: &Session| {
            let rows = session.query(Sql::ScheduleNamed, &[&tenant, &name]).await?;
            rows.first().map(|row| schedule_columns(row).read()).transpose().map_err(unreadable)
        };
        self.reads().call(named).await
    }

    async fn list(&self, tenant: &str, after: Option<String>, limit: usize) -> Result<Vec<Schedule>, StoreError> {
        let (after, limit) = (after.unwrap_or_default(), count(limit));
        let rows = self
            .reads()
            .call(async |session| session.query(Sql::ScheduleList, &[&tenant, &after, &limit]).await)
            .await?;
        Ok(rows.iter().map(schedule_columns).filter_map(readable).collect())
    }

    async fn key_owner(&self, tenant: &str, key: &str) -> Result<Option<KeyOwner>, StoreError> {
        let (tenants, keys) = (vec![tenant], vec![key]);
        let look = async |session: &Session| {
            let rows = session.query(Sql::IdempotencyGet, &[&tenants, &keys]).await?;
            let Some(row) = rows.first() else { return Ok(None) };
            let fingerprint = row.get::<_, &[u8]>(2).try_into();
            let fingerprint = fingerprint.map_err(|_| Fault::Corrupt(format!("the digest of {key} cannot be read")))?;
            Ok(Some(KeyOwner { task: TaskId::from_uuid(row.get(1)), fingerprint }))
        };
        self.reads().call(look).await
    }

    async fn snapshot(&self, tenant: &str, id: ScheduleId) -> Result<Option<ScheduleSnapshot>, StoreError> {
        let snapshot = async |session: &Session| {
            let Some(schedule) = get(session, tenant, id).await? else { return Ok(None) };
            Ok(snapshots(session, vec![schedule]).await?.pop())
        };
        self.reads().call(snapshot).await
    }

    async fn due(&self, now: Timestamp, after: Option<CheckCursor>, limit: usize) -> Result<DueSchedules, StoreError> {
        let (look_at, id) =
            after.map_or((i64::MIN, Uuid::nil()), |after| (after.next_check_at.as_millis(), after.id.uuid()));
        let due = async |session: &Session| {
            let rows = session.query(Sql::ScheduleDue, &[&now.as_millis(), &look_at, &id, &count(limit)]).await?;
            let columns: Vec<ScheduleColumns> = rows.iter().map(schedule_columns).collect();
            let next = page_end(&columns, limit);
            let snapshots = snapshots(session, columns.into_iter().filter_map(readable).collect()).await?;
            Ok(DueSchedules { snapshots, next })
        };
        self.reads().call(due).await
    }

    async fn next_check(&self, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        let now = now.as_millis();
        let rows = self.reads().call(async |session| session.query(Sql::ScheduleNextCheck, &[&now]).await).await?;
        Ok(rows.first().map(|row| Timestamp::from_millis(row.get(0))))
    }

    async fn advance(
        &self,
        lease: Option<&LeaderLease>,
        advances: Vec<Advance>,
    ) -> Result<Option<Vec<Advanced>>, StoreError> {
        let mut all = Vec::with_capacity(advances.len());
        let mut advances = advances.into_iter();
        loop {
            let some: Vec<Advance> = advances.by_ref().take(TURNS).collect();
            if some.is_empty() {
                break;
            }
            let (bytes, rows) = size_of(&some);
            let call = LedAdvances { lease: lease.cloned(), advances: some };
            let mut answers =
                self.write_queues().call(|verbs| &mut verbs.advance, vec![call], Weight { bytes, rows }).await?;
            let Some(written) = answers.pop().flatten() else { return Ok(None) };
            all.extend(written);
        }
        Ok(Some(all))
    }

    async fn occurrences(
        &self,
        id: ScheduleId,
        before: Option<Timestamp>,
        limit: usize,
    ) -> Result<Vec<Occurrence>, StoreError> {
        let (id, before, limit) = (id.uuid(), before.map_or(i64::MAX, Timestamp::as_millis), count(limit));
        let list = async |session: &Session| {
            let rows = session.query(Sql::OccurrenceList, &[&id, &before, &limit]).await?;
            rows.iter().map(|row| occurrence_columns(row).read().map_err(unreadable)).collect()
        };
        self.reads().call(list).await
    }
}

async fn insert(session: &Session, schedule: &Schedule) -> Result<ScheduleInserted, Fault> {
    let of = ScheduleColumns::of(schedule);
    let made = session
        .execute(
            Sql::ScheduleInsert,
            &[
                &of.id,
                &of.tenant,
                &of.name,
                &of.version,
                &of.revision,
                &of.created_at,
                &of.updated_at,
                &of.next_run_at,
                &of.look_at,
                &of.last_run_at,
                &of.run_count,
                &of.missed_count,
                &of.skipped_count,
                &of.paused_at,
                &of.pause_reason,
                &of.definition,
            ],
        )
        .await?;
    Ok(if made == 1 { ScheduleInserted::Created } else { ScheduleInserted::NameTaken })
}

async fn replace(session: &Session, schedule: &Schedule) -> Result<Replaced, Fault> {
    let of = ScheduleColumns::of(schedule);
    let written = session
        .execute(
            Sql::ScheduleReplace,
            &[
                &of.id,
                &of.revision,
                &of.name,
                &of.version,
                &of.updated_at,
                &of.next_run_at,
                &of.look_at,
                &of.last_run_at,
                &of.run_count,
                &of.missed_count,
                &of.skipped_count,
                &of.paused_at,
                &of.pause_reason,
                &of.definition,
            ],
        )
        .await;
    match written {
        Err(fault) if fault.is_unique_violation() => Ok(Replaced::NameTaken),
        Err(fault) => Err(fault),
        Ok(1) => Ok(Replaced::Done),
        Ok(_) => Ok(Replaced::Lost),
    }
}

async fn get(session: &Session, tenant: &str, id: ScheduleId) -> Result<Option<Schedule>, Fault> {
    let rows = session.query(Sql::ScheduleGet, &[&id.uuid(), &tenant]).await?;
    rows.first().map(|row| schedule_columns(row).read()).transpose().map_err(unreadable)
}

/// What of schedules an advance is decided by.
async fn snapshots(session: &Session, schedules: Vec<Schedule>) -> Result<Vec<ScheduleSnapshot>, Fault> {
    if schedules.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<Uuid> = schedules.iter().map(|schedule| schedule.id.uuid()).collect();
    let most = count(PLAN_MAX);
    let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&ids, &most];
    let (waiting, tasks) = tokio::join!(
        session.query(Sql::OccurrenceBuffered, &parameters),
        session.query(Sql::OccurrenceWatched, &parameters)
    );
    let mut buffered: HashMap<Uuid, Vec<WaitingOccurrence>> = HashMap::new();
    let mut promised: HashMap<Uuid, Vec<Promise>> = HashMap::new();
    for row in waiting? {
        let origin = origin_from_code(i64::from(row.get::<_, i16>(2)));
        let origin = origin.ok_or_else(|| unreadable(Unreadable("origin")))?;
        let instant = Timestamp::from_millis(row.get(1));
        buffered.entry(row.get(0)).or_default().push(WaitingOccurrence { instant, origin });
        promised.entry(row.get(0)).or_default().extend(promise(instant, row.get(3), row.get(4)));
    }
    let mut watched: HashMap<Uuid, Vec<WatchedTask>> = HashMap::new();
    for row in tasks? {
        let state: Option<i16> = row.get(3);
        let one = WatchedTask {
            instant: Timestamp::from_millis(row.get(1)),
            task: TaskId::from_uuid(row.get(2)),
            state: state.and_then(|code| State::from_code(i64::from(code))),
            stop_requested: row.get(4),
        };
        watched.entry(row.get(0)).or_default().push(one);
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

fn schedule_columns(row: &Row) -> ScheduleColumns {
    ScheduleColumns {
        id: row.get(0),
        tenant: row.get(1),
        name: row.get(2),
        version: row.get(3),
        revision: row.get(4),
        created_at: row.get(5),
        updated_at: row.get(6),
        next_run_at: row.get(7),
        look_at: row.get(8),
        last_run_at: row.get(9),
        run_count: row.get(10),
        missed_count: row.get(11),
        skipped_count: row.get(12),
        paused_at: row.get(13),
        pause_reason: row.get(14),
        definition: row.get(15),
    }
}

fn occurrence_columns(row: &Row) -> OccurrenceColumns {
    OccurrenceColumns {
        instant: row.get(0),
        origin: i64::from(row.get::<_, i16>(1)),
        outcome: i64::from(row.get::<_, i16>(2)),
        reason: row.get(3),
        detail: row.get(4),
        task_id: row.get(5),
        covers_until: row.get(6),
        covers_at_least: row.get(7),
        decided_at: row.get(8),
    }
}

fn unreadable(Unreadable(column): Unreadable) -> Fault {
    Fault::Corrupt(format!("the {column} of a schedule cannot be read"))
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
