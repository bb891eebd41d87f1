//! Serves the port of reads that explain: each call reads what [`obstacles`] or the forecast has.

use async_trait::async_trait;
use punctual_core::forecast::{Minute, UpcomingPage};
use punctual_core::insight::Insight;
use punctual_core::obstacles::{Blockers, Holders, TasksAhead, TurnStatus};
use punctual_core::queues::Bucket;
use punctual_core::store::StoreError;
use punctual_core::task::Task;
use punctual_core::time::Timestamp;
use tokio_postgres::Row;

use super::connection::Session;
use super::forecast::upcoming_columns;
use super::statements::Sql;
use super::{PostgresStore, obstacles};
use crate::schedule_columns::upcoming_page;

#[async_trait]
impl Insight for PostgresStore {
    async fn blockers(&self, task: &Task, first: usize) -> Result<Blockers, StoreError> {
        self.reads().call(async |session| obstacles::blockers(session, task, first).await).await
    }

    async fn key_turn(&self, task: &Task, most: usize) -> Result<Option<TurnStatus>, StoreError> {
        self.reads().call(async |session| obstacles::key_turn(session, task.id, most).await).await
    }

    async fn ahead(&self, task: &Task, aging_millis: i64, most: usize) -> Result<TasksAhead, StoreError> {
        let (cursors, now) = (&self.writers().cursors, self.now());
        self.reads()
            .call(async |session| obstacles::ahead(session, cursors, task, (aging_millis, now), most).await)
            .await
    }

    async fn bucket(&self, tenant: &str, queue: &str) -> Result<Option<Bucket>, StoreError> {
        let read = async |session: &Session| session.query(Sql::BucketGet, &[&tenant, &queue]).await;
        let rows = self.reads().call(read).await?;
        let bucket = |row: &Row| Bucket { tokens: row.get(0), refilled_at: Timestamp::from_millis(row.get(1)) };
        Ok(rows.first().map(bucket))
    }

    async fn holders(&self, tenant: &str, most: usize) -> Result<Holders, StoreError> {
        let now = self.now();
        self.reads().call(async |session| obstacles::holders(session, tenant, now, most).await).await
    }

    async fn waiting(&self, tenant: &str, from: Minute, to: Minute) -> Result<Vec<(Minute, u64)>, StoreError> {
        let (from, to) = (from.number(), to.number());
        let read = async |session: &Session| session.query(Sql::ForecastList, &[&tenant, &from, &to]).await;
        let counted = |row: &Row| (Minute::numbered(row.get(0)), row.get::<_, i64>(1).cast_unsigned());
        Ok(self.reads().call(read).await?.iter().map(counted).collect())
    }

    async fn upcoming(&self, tenant: &str, after: Option<String>, limit: usize) -> Result<UpcomingPage, StoreError> {
        let (after, most) = (after.unwrap_or_default(), i64::try_from(limit).unwrap_or(i64::MAX));
        let read = async |session: &Session| session.query(Sql::ForecastSchedules, &[&tenant, &after, &most]).await;
        Ok(upcoming_page(self.reads().call(read).await?.iter().map(upcoming_columns).collect(), limit))
    }

    async fn upcoming_count(&self, tenant: &str) -> Result<u64, StoreError> {
        let read = async |session: &Session| session.query(Sql::ForecastSchedulesCount, &[&tenant]).await;
        Ok(self.reads().call(read).await?.first().map_or(0, |row| row.get::<_, i64>(0).cast_unsigned()))
    }
}
