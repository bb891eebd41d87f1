//! The ports that the store implements: each call becomes a job of the writer or of a reader.

use async_trait::async_trait;
use punctual_core::coordinator::{Coordinator, CurrentLease, LeaderLease};
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::lane::LaneId;
use punctual_core::partitions::{Ownership, PartitionShare};
use punctual_core::queues::LiveCounts;
use punctual_core::registry::{NodePresence, Registry, WorkerPresence};
use punctual_core::state::Change;
use punctual_core::store::{
    Applied, Beat, Claim, Claimed, Count, Cursor, Filter, Head, Inserted, Page, Start, Store, StoreError, TaskResult,
};
use punctual_core::task::{Hold, NewTask, Task};
use punctual_core::time::Timestamp;

use super::job_queue::WriteClass;
use super::session::Session;
use super::{SqliteStore, apply, counts, extend, get, heads, list, overdue, partitions, parts, quarantine, start};
use crate::portable::partitions::{self as portable_partitions, PartitionRound};
use crate::portable::{leases, queues, ready, registry};
use crate::weights;
use crate::write_queue::Weight;

#[async_trait]
impl Store for SqliteStore {
    async fn insert(&self, tasks: Vec<NewTask>) -> Result<Vec<Inserted>, StoreError> {
        parts::insert(self.writer(), tasks).await
    }

    async fn insert_all(&self, tasks: Vec<NewTask>) -> Result<Vec<Inserted>, StoreError> {
        parts::insert_all(self.writer(), tasks).await
    }

    async fn claim(&self, claims: Vec<Claim>) -> Result<Vec<Claimed>, StoreError> {
        parts::claim(self.writer(), claims).await
    }

    async fn start(&self, starts: Vec<Start>) -> Result<Vec<Option<Task>>, StoreError> {
        let weight = weights::of_starts(&starts);
        self.writer().call(WriteClass::Progress, weight, move |session| start::start(session, &starts)).await
    }

    async fn apply(&self, changes: Vec<(TaskId, Change)>) -> Result<Vec<Applied>, StoreError> {
        parts::apply(self.writer(), changes).await
    }

    async fn apply_as(
        &self,
        lease: &LeaderLease,
        changes: Vec<(TaskId, Change)>,
    ) -> Result<Option<Vec<Applied>>, StoreError> {
        let (weight, lease) = (weights::of_changes(&changes), lease.clone());
        let work = move |session: &mut Session<'_>| apply::apply_as(session, &lease, &changes);
        self.writer().call(WriteClass::Progress, weight, work).await
    }

    async fn extend(&self, beats: Vec<Beat>) -> Result<Vec<Option<Hold>>, StoreError> {
        let weight = weights::of_beats(&beats);
        self.writer().call(WriteClass::Progress, weight, move |session| extend::extend(session, &beats)).await
    }

    async fn get(&self, tenant: &str, ids: Vec<TaskId>) -> Result<Vec<Option<Task>>, StoreError> {
        let tenant = tenant.to_owned();
        let got = self.readers().call(move |session| get::get(session, &tenant, &ids)).await?;
        self.quarantine_unreadable(got.unreadable).await;
        Ok(got.tasks)
    }

    async fn live(&self, ids: Vec<TaskId>) -> Result<Vec<TaskId>, StoreError> {
        self.readers().call(move |session| get::still_live(session, ids)).await
    }

    async fn results(&self, ids: Vec<TaskId>, max_bytes: usize) -> Result<Vec<Option<TaskResult>>, StoreError> {
        self.readers().call(move |session| get::results(session, &ids, max_bytes)).await
    }

    async fn list(&self, filter: Filter, after: Option<Cursor>, limit: usize) -> Result<Page, StoreError> {
        let listed = self.readers().call(move |session| list::list(session, &filter, after, limit)).await?;
        self.quarantine_unreadable(listed.unreadable).await;
        Ok(listed.page)
    }

    async fn heads(&self, after: Option<LaneId>, before: Timestamp, limit: usize) -> Result<Vec<Head>, StoreError> {
        let found = self.readers().call(move |session| heads::heads(session, after, before, limit)).await?;
        self.quarantine_unreadable(found.astray).await;
        Ok(found.heads)
    }

    async fn overdue(&self, dead: Vec<NodeId>, limit: usize) -> Result<Vec<Task>, StoreError> {
        let found = self.readers().call(move |session| overdue::overdue(session, &dead, limit)).await?;
        self.quarantine_unreadable(found.unreadable).await;
        Ok(found.tasks)
    }

    async fn counts(&self) -> Result<Vec<Count>, StoreError> {
        self.readers().call(counts::counts).await
    }

    async fn live_counts(&self) -> Result<LiveCounts, StoreError> {
        self.readers().call(|session| ready(queues::live_counts(session))).await
    }

    async fn quarantined(&self) -> Result<u64, StoreError> {
        self.readers().call(quarantine::count).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.check().await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.close().await
    }
}

#[async_trait]
impl Coordinator for SqliteStore {
    async fn acquire(&self, name: &str, holder: NodeId, ttl_millis: u64) -> Result<Option<LeaderLease>, StoreError> {
        let name = name.to_owned();
        let work = move |session: &mut Session<'_>| {
            let now = session.now();
            ready(leases::acquire(session, now, &name, holder, ttl_millis))
        };
        self.writer().call(WriteClass::Urgent, Weight::SMALL, work).await
    }

    async fn renew(&self, lease: &LeaderLease, ttl_millis: u64) -> Result<bool, StoreError> {
        let lease = lease.clone();
        let work = move |session: &mut Session<'_>| {
            let now = session.now();
            ready(leases::renew(session, now, &lease, ttl_millis))
        };
        self.writer().call(WriteClass::Urgent, Weight::SMALL, work).await
    }

    async fn holder(&self, name: &str) -> Result<Option<CurrentLease>, StoreError> {
        let name = name.to_owned();
        let work = move |session: &mut Session<'_>| {
            let now = session.now();
            ready(leases::holder(session, now, &name))
        };
        self.readers().call(work).await
    }

    async fn release(&self, lease: &LeaderLease) -> Result<(), StoreError> {
        let lease = lease.clone();
        let work = move |session: &mut Session<'_>| ready(leases::release(session, &lease));
        self.writer().call(WriteClass::Urgent, Weight::SMALL, work).await
    }

    async fn take_share(&self, node: NodeId, count: u16, ttl_millis: u64) -> Result<PartitionShare, StoreError> {
        let weight = Weight { rows: usize::from(count), ..Weight::SMALL };
        let round = PartitionRound { node, count, ttl_millis };
        self.writer().call(WriteClass::Urgent, weight, move |session| partitions::take_round(session, round)).await
    }

    async fn leave(&self, node: NodeId) -> Result<(), StoreError> {
        self.writer().call(WriteClass::Urgent, Weight::SMALL, move |session| partitions::leave(session, node)).await
    }

    /// One process has the store at a time, and it frees everything when it opens it.
    async fn declare_gone(&self, _: NodeId) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn ownership(&self) -> Result<Vec<Ownership>, StoreError> {
        self.readers().call(|session| ready(portable_partitions::ownership(session))).await
    }
}

#[async_trait]
impl Registry for SqliteStore {
    async fn record_workers(&self, presences: Vec<WorkerPresence>) -> Result<(), StoreError> {
        let weight = Weight { bytes: presences.len() * weights::TASK_BYTES, rows: presences.len() };
        let work = move |session: &mut Session<'_>| ready(registry::record_workers(session, &presences));
        self.writer().call(WriteClass::Progress, weight, work).await
    }

    async fn workers(
        &self,
        tenant: &str,
        after: Option<String>,
        limit: usize,
    ) -> Result<Vec<WorkerPresence>, StoreError> {
        let tenant = tenant.to_owned();
        self.readers().call(move |session| ready(registry::workers(session, &tenant, after.as_deref(), limit))).await
    }

    async fn record_node(&self, presence: NodePresence) -> Result<(), StoreError> {
        let work = move |session: &mut Session<'_>| {
            let now = session.now();
            ready(registry::record_node(session, now, &presence))
        };
        self.writer().call(WriteClass::Urgent, Weight::SMALL, work).await
    }

    async fn nodes(&self) -> Result<Vec<NodePresence>, StoreError> {
        self.readers().call(|session| ready(registry::nodes(session))).await
    }

    async fn remove_node(&self, node: NodeId) -> Result<(), StoreError> {
        self.writer()
            .call(WriteClass::Progress, Weight::SMALL, move |session| ready(registry::remove_node(session, node)))
            .await
    }
}
