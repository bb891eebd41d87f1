//! Serves the port of reads that explain, on the shared connections.
//! `portable/{obstacles,forecast}.rs` have the calls.

use async_trait::async_trait;
use punctual_core::forecast::{Minute, UpcomingPage, UpcomingTask};
use punctual_core::ids::TaskId;
use punctual_core::insight::Insight;
use punctual_core::obstacles::{Blockers, Holders, TasksAhead, TurnStatus};
use punctual_core::queues::Bucket;
use punctual_core::store::StoreError;
use punctual_core::task::Task;
use punctual_core::time::Timestamp;
use tokio_postgres::Row;

use super::PostgresStore;
use super::statements::Sql;
use crate::columns::count_column;
use crate::places;
use crate::portable::{forecast, obstacles};

#[async_trait]
impl Insight for PostgresStore {
    async fn blockers(&self, task: &Task, first: usize) -> Result<Blockers, StoreError> {
        let parents = &task.body.dependencies.ids;
        self.reads().call(async |mut session| obstacles::blockers(&mut session, task.id, parents, first).await).await
    }

    async fn key_turn(&self, task: &Task, most: usize) -> Result<Option<TurnStatus>, StoreError> {
        self.reads().call(async |mut session| obstacles::key_turn(&mut session, task.id, most).await).await
    }

    async fn key_places(&self, task: &Task, most: u32) -> Result<u64, StoreError> {
        let Some(key) = places::concurrency_of(&task.lane.key, &task.body) else { return Ok(0) };
        self.reads().call(async |mut session| obstacles::key_places(&mut session, key, most).await).await
    }

    async fn ahead(&self, task: &Task, aging_millis: i64, most: usize) -> Result<TasksAhead, StoreError> {
        let (aging, after) = ((aging_millis, self.now()), |lane| self.writers().cursors.place(lane));
        self.reads()
            .call(async |mut session| obstacles::ahead(&mut session, (task.id, &task.lane), aging, most, after).await)
            .await
    }

    async fn bucket(&self, tenant: &str, queue: &str) -> Result<Option<Bucket>, StoreError> {
        self.reads().call(async |mut session| obstacles::bucket(&mut session, tenant, queue).await).await
    }

    async fn holders(&self, tenant: &str, most: usize) -> Result<Holders, StoreError> {
        let now = self.now();
        self.reads().call(async |mut session| obstacles::holders(&mut session, tenant, now, most).await).await
    }

    async fn waiting(&self, tenant: &str, from: Minute, to: Minute) -> Result<Vec<(Minute, u64)>, StoreError> {
        self.reads().call(async |mut session| forecast::waiting(&mut session, tenant, from, to).await).await
    }

    async fn upcoming(
        &self,
        tenant: &str,
        until: Timestamp,
        after: Option<String>,
        limit: usize,
    ) -> Result<UpcomingPage, StoreError> {
        let after = after.as_deref();
        self.reads().call(async |mut session| forecast::upcoming(&mut session, tenant, until, after, limit).await).await
    }

    async fn upcoming_count(&self, tenant: &str, until: Timestamp) -> Result<u64, StoreError> {
        self.reads().call(async |mut session| forecast::upcoming_count(&mut session, tenant, until).await).await
    }

    async fn upcoming_tasks(
        &self,
        tenant: &str,
        after: (Timestamp, i64),
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<UpcomingTask>, StoreError> {
        let (due_at, number, until, limit) = (after.0.as_millis(), after.1, until.as_millis(), count_column(limit));
        let rows = self
            .reads()
            .call(async |session| session.query(Sql::UpcomingTasks, &[&tenant, &due_at, &number, &until, &limit]).await)
            .await?;
        let task = |row: &Row| UpcomingTask {
            due_at: Timestamp::from_millis(row.get(0)),
            number: row.get(1),
            id: TaskId::from_uuid(row.get(2)),
            kind: row.get(3),
            queue: row.get(4),
        };
        Ok(rows.iter().map(task).collect())
    }
}
