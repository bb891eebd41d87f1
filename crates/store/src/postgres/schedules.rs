//! Serves the port of schedules: single statements on the shared connections. Advances go to the
//! writers, like everything that makes tasks (`advance`). `portable/schedules.rs` has the calls
//! that both databases share.

mod advance;

pub(crate) use advance::{LedAdvances, advance};

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
use tokio_postgres::Row;
use uuid::Uuid;

use super::PostgresStore;
use super::connection::{Parameters, Session};
use super::fault::Fault;
use super::statements::Sql;
use crate::columns::{count_column, number_column};
use crate::portable::schedules::{self as portable, OpenOccurrences};
use crate::schedule_columns::weight_of;

/// The maximum number of advances that one transaction writes.
const ADVANCES_MAX: usize = 100;

#[async_trait]
impl Schedules for PostgresStore {
    async fn insert(&self, schedule: Schedule) -> Result<ScheduleInserted, StoreError> {
        self.reads().call(async |mut session| portable::insert(&mut session, &schedule).await).await
    }

    async fn replace(&self, schedule: Schedule) -> Result<Replaced, StoreError> {
        self.reads().call(async |mut session| portable::replace(&mut session, &schedule).await).await
    }

    async fn remove(&self, id: ScheduleId, revision: u64) -> Result<bool, StoreError> {
        let (id, revision) = (id.uuid(), number_column(revision));
        let removed = self.reads().call(async |session| session.query(Sql::ScheduleRemove, &[&id, &revision]).await);
        Ok(!removed.await?.is_empty())
    }

    async fn get(&self, tenant: &str, id: ScheduleId) -> Result<Option<Schedule>, StoreError> {
        self.reads().call(async |mut session| portable::get(&mut session, tenant, id).await).await
    }

    async fn named(&self, tenant: &str, name: &str) -> Result<Option<Schedule>, StoreError> {
        self.reads().call(async |mut session| portable::named(&mut session, tenant, name).await).await
    }

    async fn list(&self, tenant: &str, after: Option<String>, limit: usize) -> Result<Vec<Schedule>, StoreError> {
        let after = after.as_deref();
        self.reads().call(async |mut session| portable::list(&mut session, tenant, after, limit).await).await
    }

    async fn key_owner(&self, tenant: &str, key: &str) -> Result<Option<KeyOwner>, StoreError> {
        self.reads().call(async |mut session| portable::key_owner(&mut session, tenant, key).await).await
    }

    async fn snapshot(&self, tenant: &str, id: ScheduleId) -> Result<Option<ScheduleSnapshot>, StoreError> {
        self.reads().call(async |mut session| portable::snapshot(&mut session, tenant, id).await).await
    }

    async fn due(&self, now: Timestamp, after: Option<CheckCursor>, limit: usize) -> Result<DueSchedules, StoreError> {
        self.reads().call(async |mut session| portable::due(&mut session, now, after, limit).await).await
    }

    async fn next_check(&self, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        self.reads().call(async |mut session| portable::next_check(&mut session, now).await).await
    }

    async fn advance(
        &self,
        lease: Option<&LeaderLease>,
        advances: Vec<Advance>,
    ) -> Result<Option<Vec<Advanced>>, StoreError> {
        let mut all = Vec::with_capacity(advances.len());
        let mut advances = advances.into_iter();
        loop {
            let some: Vec<Advance> = advances.by_ref().take(ADVANCES_MAX).collect();
            if some.is_empty() {
                return Ok(Some(all));
            }
            let weight = weight_of(&some);
            let call = LedAdvances { lease: lease.cloned(), advances: some };
            let mut answers = self.write_queues().call(|verbs| &mut verbs.advance, vec![call], weight).await?;
            let Some(written) = answers.pop().flatten() else { return Ok(None) };
            all.extend(written);
        }
    }

    async fn occurrences(
        &self,
        id: ScheduleId,
        before: Option<Timestamp>,
        limit: usize,
    ) -> Result<Vec<Occurrence>, StoreError> {
        self.reads().call(async |mut session| portable::occurrences(&mut session, id, before, limit).await).await
    }

    async fn covering(
        &self,
        id: ScheduleId,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<CoveringRecord>, StoreError> {
        self.reads().call(async |mut session| portable::covering(&mut session, id, from, to).await).await
    }
}

impl OpenOccurrences for &Session {
    async fn open_occurrences(&mut self, schedules: &[Uuid]) -> Result<[Vec<Row>; 2], Fault> {
        let parameters: Parameters<'_> = &[&schedules, &count_column(PLAN_MAX)];
        let (waiting, watched) = tokio::join!(
            self.query(Sql::OccurrenceBuffered, parameters),
            self.query(Sql::OccurrenceWatched, parameters)
        );
        Ok([waiting?, watched?])
    }
}
