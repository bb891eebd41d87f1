//! Serves the port of reads that explain, each call as one job of a reader.
//! `portable/{obstacles,forecast}.rs` have the calls.

use std::sync::Arc;

use async_trait::async_trait;
use punctual_core::forecast::{Minute, UpcomingPage, UpcomingTask};
use punctual_core::insight::Insight;
use punctual_core::obstacles::{Blockers, Holders, TasksAhead, TurnStatus};
use punctual_core::queues::Bucket;
use punctual_core::store::StoreError;
use punctual_core::task::Task;
use punctual_core::time::Timestamp;

use super::session::Session;
use super::{SqliteStore, upcoming};
use crate::places;
use crate::portable::{forecast, obstacles, ready};

#[async_trait]
impl Insight for SqliteStore {
    async fn blockers(&self, task: &Task, first: usize) -> Result<Blockers, StoreError> {
        let (child, parents) = (task.id, task.body.dependencies.ids.clone());
        self.readers().call(move |session| ready(obstacles::blockers(session, child, &parents, first))).await
    }

    async fn key_turn(&self, task: &Task, most: usize) -> Result<Option<TurnStatus>, StoreError> {
        let id = task.id;
        self.readers().call(move |session| ready(obstacles::key_turn(session, id, most))).await
    }

    async fn key_places(&self, task: &Task, most: u32) -> Result<u64, StoreError> {
        let Some(key) = places::concurrency_of(&task.lane.key, &task.body) else { return Ok(0) };
        self.readers().call(move |session| ready(obstacles::key_places(session, key, most))).await
    }

    async fn ahead(&self, task: &Task, aging_millis: i64, most: usize) -> Result<TasksAhead, StoreError> {
        let (id, lane) = (task.id, Arc::clone(&task.lane));
        let work = move |session: &mut Session<'_>| {
            let aging = (aging_millis, session.now());
            ready(obstacles::ahead(session, (id, &lane), aging, most, |_| (i64::MIN, i64::MIN)))
        };
        self.readers().call(work).await
    }

    async fn bucket(&self, tenant: &str, queue: &str) -> Result<Option<Bucket>, StoreError> {
        let (tenant, queue) = (tenant.to_owned(), queue.to_owned());
        self.readers().call(move |session| ready(obstacles::bucket(session, &tenant, &queue))).await
    }

    async fn holders(&self, tenant: &str, most: usize) -> Result<Holders, StoreError> {
        let tenant = tenant.to_owned();
        let work = move |session: &mut Session<'_>| {
            let now = session.now();
            ready(obstacles::holders(session, &tenant, now, most))
        };
        self.readers().call(work).await
    }

    async fn waiting(&self, tenant: &str, from: Minute, to: Minute) -> Result<Vec<(Minute, u64)>, StoreError> {
        let tenant = tenant.to_owned();
        self.readers().call(move |session| ready(forecast::waiting(session, &tenant, from, to))).await
    }

    async fn upcoming(
        &self,
        tenant: &str,
        until: Timestamp,
        after: Option<String>,
        limit: usize,
    ) -> Result<UpcomingPage, StoreError> {
        let tenant = tenant.to_owned();
        let work = move |session: &mut Session<'_>| {
            ready(forecast::upcoming(session, &tenant, until, after.as_deref(), limit))
        };
        self.readers().call(work).await
    }

    async fn upcoming_count(&self, tenant: &str, until: Timestamp) -> Result<u64, StoreError> {
        let tenant = tenant.to_owned();
        self.readers().call(move |session| ready(forecast::upcoming_count(session, &tenant, until))).await
    }

    async fn upcoming_tasks(
        &self,
        tenant: &str,
        after: (Timestamp, i64),
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<UpcomingTask>, StoreError> {
        let tenant = tenant.to_owned();
        self.readers().call(move |session| upcoming::tasks(session, &tenant, after, until, limit)).await
    }
}
