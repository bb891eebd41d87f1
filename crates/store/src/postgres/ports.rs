//! The ports that the store implements: each call goes to the hands, or through a link.

use async_trait::async_trait;
use punctual_core::coordinator::{Coordinator, Lease};
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::json::Json;
use punctual_core::lane::LaneId;
use punctual_core::state::Change;
use punctual_core::store::{
    Applied, Beat, Claim, Claimed, Count, Cursor, Filter, Head, Inserted, Page, Start, Store, StoreError,
};
use punctual_core::task::{Hold, NewTask, Task};
use punctual_core::time::Timestamp;
use punctual_core::workers::{Registry, WorkerSighting};

use super::lines::Weight;
use super::{PostgresStore, get, leases, list, reads, registry};

/// What a task takes beside its texts, roughly.
const TASK_BYTES: usize = 512;

#[async_trait]
impl Store for PostgresStore {
    async fn insert(&self, tasks: Vec<NewTask>) -> Result<Vec<Inserted>, StoreError> {
        let bytes = tasks.iter().map(|task| task.body.payload.get().len() + TASK_BYTES).sum();
        let weight = Weight { bytes, rows: tasks.len() };
        self.lines().call(|all| &mut all.insert, tasks, weight).await
    }

    async fn claim(&self, claims: Vec<Claim>) -> Result<Vec<Claimed>, StoreError> {
        let rows =
            claims.iter().map(|claim| claim.limit.saturating_add(claim.lanes.len())).fold(0, usize::saturating_add);
        let weight = Weight { bytes: claims.len() * TASK_BYTES, rows };
        self.lines().call(|all| &mut all.claim, claims, weight).await
    }

    async fn start(&self, starts: Vec<Start>) -> Result<Vec<Option<Task>>, StoreError> {
        let weight = Weight { bytes: starts.len() * TASK_BYTES, rows: starts.len() };
        self.lines().call(|all| &mut all.start, starts, weight).await
    }

    async fn apply(&self, changes: Vec<(TaskId, Change)>) -> Result<Vec<Applied>, StoreError> {
        let bytes = changes.iter().map(|(_, change)| length(change.result.as_ref()) + TASK_BYTES).sum();
        let weight = Weight { bytes, rows: changes.len() };
        self.lines().call(|all| &mut all.apply, changes, weight).await
    }

    async fn extend(&self, beats: Vec<Beat>) -> Result<Vec<Option<Hold>>, StoreError> {
        let texts = |beat: &Beat| length(beat.progress.as_ref()) + length(beat.checkpoint.as_ref());
        let weight = Weight { bytes: beats.iter().map(|beat| texts(beat) + TASK_BYTES).sum(), rows: beats.len() };
        self.lines().call(|all| &mut all.extend, beats, weight).await
    }

    async fn get(&self, tenant: &str, ids: Vec<TaskId>) -> Result<Vec<Option<Task>>, StoreError> {
        self.reads().call(async |session| get::get(session, self.lanes(), tenant, &ids).await).await
    }

    async fn list(&self, filter: Filter, after: Option<Cursor>, limit: usize) -> Result<Page, StoreError> {
        let listed = self.reads().call(async |session| list::list(session, self.lanes(), &filter, after, limit).await);
        let listed = listed.await?;
        self.review(listed.unreadable).await;
        Ok(listed.page)
    }

    async fn heads(&self, after: Option<LaneId>, before: Timestamp, limit: usize) -> Result<Vec<Head>, StoreError> {
        self.reads().call(async |session| reads::heads(session, self.lanes(), after, before, limit).await).await
    }

    async fn overdue(&self, dead: Vec<NodeId>, limit: usize) -> Result<Vec<Task>, StoreError> {
        let now = self.now();
        let found = self.reads().call(async |session| reads::overdue(session, self.lanes(), now, &dead, limit).await);
        let found = found.await?;
        self.review(found.unreadable).await;
        Ok(found.tasks)
    }

    async fn counts(&self) -> Result<Vec<Count>, StoreError> {
        self.reads().call(async |session| reads::counts(session, self.lanes()).await).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.check().await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.close().await
    }
}

#[async_trait]
impl Coordinator for PostgresStore {
    async fn acquire(&self, name: &str, holder: NodeId, ttl_millis: u64) -> Result<Option<Lease>, StoreError> {
        let now = self.now();
        self.leases().call(async |session| leases::acquire(session, now, name, holder, ttl_millis).await).await
    }

    async fn renew(&self, lease: &Lease, ttl_millis: u64) -> Result<bool, StoreError> {
        let now = self.now();
        self.leases().call(async |session| leases::renew(session, now, lease, ttl_millis).await).await
    }

    async fn release(&self, lease: &Lease) -> Result<(), StoreError> {
        self.leases().call(async |session| leases::release(session, lease).await).await
    }
}

#[async_trait]
impl Registry for PostgresStore {
    async fn saw_workers(&self, sightings: Vec<WorkerSighting>) -> Result<(), StoreError> {
        self.reads().call(async |session| registry::saw_workers(session, &sightings).await).await
    }

    async fn workers(
        &self,
        tenant: &str,
        after: Option<String>,
        limit: usize,
    ) -> Result<Vec<WorkerSighting>, StoreError> {
        self.reads().call(async |session| registry::workers(session, tenant, after.as_deref(), limit).await).await
    }

    async fn forget_workers(&self, before: Timestamp) -> Result<u64, StoreError> {
        self.reads().call(async |session| registry::forget_workers(session, before).await).await
    }

    async fn saw_node(&self, node: NodeId) -> Result<(), StoreError> {
        let now = self.now();
        self.leases().call(async |session| registry::saw_node(session, now, node).await).await
    }

    async fn dead_nodes(&self, before: Timestamp) -> Result<Vec<NodeId>, StoreError> {
        self.leases().call(async |session| registry::dead_nodes(session, before).await).await
    }

    async fn bury(&self, node: NodeId) -> Result<(), StoreError> {
        self.leases().call(async |session| registry::bury(session, node).await).await
    }
}

fn length(json: Option<&Json>) -> usize {
    json.map_or(0, |json| json.get().len())
}
