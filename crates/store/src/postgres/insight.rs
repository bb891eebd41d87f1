//! Serves the port of reads that explain, on the shared connections.
//! `portable/{obstacles,forecast}.rs` have the calls.

use async_trait::async_trait;
use punctual_core::forecast::{Minute, UpcomingPage};
use punctual_core::insight::Insight;
use punctual_core::obstacles::{Blockers, Holders, TasksAhead, TurnStatus};
use punctual_core::queues::Bucket;
use punctual_core::store::StoreError;
use punctual_core::task::Task;

use super::PostgresStore;
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

    async fn upcoming(&self, tenant: &str, after: Option<String>, limit: usize) -> Result<UpcomingPage, StoreError> {
        let after = after.as_deref();
        self.reads().call(async |mut session| forecast::upcoming(&mut session, tenant, after, limit).await).await
    }

    async fn upcoming_count(&self, tenant: &str) -> Result<u64, StoreError> {
        self.reads().call(async |mut session| forecast::upcoming_count(&mut session, tenant).await).await
    }
}
