//! Serves the port of schedules: reads on the readers, writes as jobs of the writer, each in one
//! transaction. `portable/schedules.rs` has the calls that both databases share; `advance` is this
//! store's own.

mod advance;

use std::future::ready as now;

use async_trait::async_trait;
use punctual_core::coordinator::LeaderLease;
use punctual_core::ids::ScheduleId;
use punctual_core::schedules::plan::{CoveringRecord, PLAN_MAX};
use punctual_core::schedules::{
    Advance, Advanced, CheckCursor, DueSchedules, KeyOwner, Occurrence, Replaced, Schedule, ScheduleInserted,
    ScheduleSnapshot, Schedules,
};
use punctual_core::store::StoreError;
use punctual_core::time::Timestamp;
use rusqlite::types::Value;
use uuid::Uuid;

use super::SqliteStore;
use super::fault::Fault;
use super::job_queue::WriteClass;
use super::portable::rows_of;
use super::session::Session;
use super::statements::Sql;
use crate::columns::{count_column, number_column};
use crate::portable::schedules::OpenOccurrences;
use crate::portable::{ready, schedules as portable};
use crate::schedule_columns::{ROW_BYTES, weight_of};
use crate::write_queue::Weight;

#[async_trait]
impl Schedules for SqliteStore {
    async fn insert(&self, schedule: Schedule) -> Result<ScheduleInserted, StoreError> {
        let weight = weight_of_one(&schedule);
        let work = move |session: &mut Session<'_>| ready(portable::insert(session, &schedule));
        self.writer().call(WriteClass::Submission, weight, work).await
    }

    async fn replace(&self, schedule: Schedule) -> Result<Replaced, StoreError> {
        let weight = weight_of_one(&schedule);
        let work = move |session: &mut Session<'_>| ready(portable::replace(session, &schedule));
        self.writer().call(WriteClass::Submission, weight, work).await
    }

    async fn remove(&self, id: ScheduleId, revision: u64) -> Result<bool, StoreError> {
        let work = move |session: &mut Session<'_>| remove(session, id, revision);
        self.writer().call(WriteClass::Submission, Weight::SMALL, work).await
    }

    async fn get(&self, tenant: &str, id: ScheduleId) -> Result<Option<Schedule>, StoreError> {
        let tenant = tenant.to_owned();
        self.readers().call(move |session| ready(portable::get(session, &tenant, id))).await
    }

    async fn named(&self, tenant: &str, name: &str) -> Result<Option<Schedule>, StoreError> {
        let (tenant, name) = (tenant.to_owned(), name.to_owned());
        self.readers().call(move |session| ready(portable::named(session, &tenant, &name))).await
    }

    async fn list(&self, tenant: &str, after: Option<String>, limit: usize) -> Result<Vec<Schedule>, StoreError> {
        let tenant = tenant.to_owned();
        self.readers().call(move |session| ready(portable::list(session, &tenant, after.as_deref(), limit))).await
    }

    async fn key_owner(&self, tenant: &str, key: &str) -> Result<Option<KeyOwner>, StoreError> {
        let (tenant, key) = (tenant.to_owned(), key.to_owned());
        self.readers().call(move |session| ready(portable::key_owner(session, &tenant, &key))).await
    }

    async fn snapshot(&self, tenant: &str, id: ScheduleId) -> Result<Option<ScheduleSnapshot>, StoreError> {
        let tenant = tenant.to_owned();
        self.readers().call(move |session| ready(portable::snapshot(session, &tenant, id))).await
    }

    async fn due(&self, now: Timestamp, after: Option<CheckCursor>, limit: usize) -> Result<DueSchedules, StoreError> {
        self.readers().call(move |session| ready(portable::due(session, now, after, limit))).await
    }

    async fn next_check(&self, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        self.readers().call(move |session| ready(portable::next_check(session, now))).await
    }

    async fn advance(
        &self,
        lease: Option<&LeaderLease>,
        advances: Vec<Advance>,
    ) -> Result<Option<Vec<Advanced>>, StoreError> {
        let (lease, weight) = (lease.cloned(), weight_of(&advances));
        let work = move |session: &mut Session<'_>| advance::write(session, lease.as_ref(), advances);
        self.writer().call(WriteClass::Progress, weight, work).await
    }

    async fn occurrences(
        &self,
        id: ScheduleId,
        before: Option<Timestamp>,
        limit: usize,
    ) -> Result<Vec<Occurrence>, StoreError> {
        self.readers().call(move |session| ready(portable::occurrences(session, id, before, limit))).await
    }

    async fn covering(
        &self,
        id: ScheduleId,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<CoveringRecord>, StoreError> {
        self.readers().call(move |session| ready(portable::covering(session, id, from, to))).await
    }
}

impl OpenOccurrences for Session<'_> {
    fn open_occurrences(
        &mut self,
        schedules: &[Uuid],
    ) -> impl Future<Output = Result<[Vec<Vec<Value>>; 2], Fault>> + Send {
        now(open_occurrences(self, schedules))
    }
}

fn open_occurrences(session: &mut Session<'_>, schedules: &[Uuid]) -> Result<[Vec<Vec<Value>>; 2], Fault> {
    let limit = count_column(PLAN_MAX);
    let mut found = [Vec::new(), Vec::new()];
    for id in schedules {
        for (sql, rows) in [Sql::OccurrenceBuffered, Sql::OccurrenceWatched].into_iter().zip(&mut found) {
            rows.extend(rows_of(session.statements.get(sql)?.query((id, limit))?)?);
        }
    }
    Ok(found)
}

/// Removes a schedule with its waiting occurrences; its tasks are no longer watched. PostgreSQL
/// does this by one statement, which SQLite cannot express.
fn remove(session: &mut Session<'_>, id: ScheduleId, revision: u64) -> Result<bool, Fault> {
    let id = id.uuid();
    if session.statements.get(Sql::ScheduleRemove)?.execute((id, number_column(revision)))? == 0 {
        return Ok(false);
    }
    session.statements.get(Sql::OccurrenceForget)?.execute([id])?;
    session.statements.get(Sql::OccurrenceUnwatch)?.execute([id])?;
    Ok(true)
}

fn weight_of_one(schedule: &Schedule) -> Weight {
    Weight { bytes: schedule.definition.task.get().len() + ROW_BYTES, rows: 1 }
}
