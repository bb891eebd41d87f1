//! The ports that the store implements: each call goes to the writers or to a connection.

use std::collections::HashSet;
use std::time::Duration;

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

use super::apply::LeaderChanges;
use super::cluster::notifier::partitions_are_free;
use super::connection::Session;
use super::partitions::RoundResult;
use super::{PostgresStore, Sql, get, gone, list, overdue, partitions, quarantine, reads};
use crate::portable::partitions::{self as portable_partitions, PartitionRound};
use crate::portable::{leases, queues, registry};
use crate::weights;
use crate::write_queue::Weight;

/// How often a round is retried, and the pause between, if the last owner's claim still runs in a
/// partition to be taken. Such a claim lasts for milliseconds, unless its node is frozen.
const ROUNDS_MAX: usize = 5;
const ROUND_PAUSE: Duration = Duration::from_millis(20);

#[async_trait]
impl Store for PostgresStore {
    async fn insert(&self, tasks: Vec<NewTask>) -> Result<Vec<Inserted>, StoreError> {
        self.take_in(&parents_outside(&tasks)).await?;
        let weight = weights::of_insert(&tasks);
        self.write_queues().call(|verbs| &mut verbs.insert, tasks, weight).await
    }

    async fn insert_all(&self, tasks: Vec<NewTask>) -> Result<Vec<Inserted>, StoreError> {
        self.take_in(&parents_outside(&tasks)).await?;
        let weight = weights::of_insert(&tasks);
        let mut answers = self.write_queues().call(|verbs| &mut verbs.insert_all, vec![tasks], weight).await?;
        Ok(answers.pop().unwrap_or_default())
    }

    async fn claim(&self, claims: Vec<Claim>) -> Result<Vec<Claimed>, StoreError> {
        let rows =
            claims.iter().map(|claim| claim.limit.saturating_add(claim.lanes.len())).fold(0, usize::saturating_add);
        let weight = Weight { bytes: claims.len() * weights::TASK_BYTES, rows };
        self.write_queues().call(|verbs| &mut verbs.claim, claims, weight).await
    }

    async fn start(&self, starts: Vec<Start>) -> Result<Vec<Option<Task>>, StoreError> {
        let weight = weights::of_starts(&starts);
        self.write_queues().call(|verbs| &mut verbs.start, starts, weight).await
    }

    async fn apply(&self, changes: Vec<(TaskId, Change)>) -> Result<Vec<Applied>, StoreError> {
        let weight = weights::of_changes(&changes);
        self.write_queues().call(|verbs| &mut verbs.apply, changes, weight).await
    }

    async fn apply_as(
        &self,
        lease: &LeaderLease,
        changes: Vec<(TaskId, Change)>,
    ) -> Result<Option<Vec<Applied>>, StoreError> {
        let weight = weights::of_changes(&changes);
        let call = LeaderChanges { lease: lease.clone(), changes };
        let mut answers = self.write_queues().call(|verbs| &mut verbs.apply_as, vec![call], weight).await?;
        Ok(answers.pop().flatten())
    }

    async fn extend(&self, beats: Vec<Beat>) -> Result<Vec<Option<Hold>>, StoreError> {
        let weight = weights::of_beats(&beats);
        self.write_queues().call(|verbs| &mut verbs.extend, beats, weight).await
    }

    async fn get(&self, tenant: &str, ids: Vec<TaskId>) -> Result<Vec<Option<Task>>, StoreError> {
        let read = async |session: &Session| get::with_pending(session, self.lanes(), tenant, &ids).await;
        let (mut got, is_pending) = self.reads().call(read).await?;
        if is_pending {
            self.take_in(&ids).await?;
            (got, _) = self.reads().call(read).await?;
        }
        self.quarantine_unreadable(got.unreadable).await;
        Ok(got.tasks)
    }

    async fn live(&self, ids: Vec<TaskId>) -> Result<Vec<TaskId>, StoreError> {
        self.reads().call(async |session| get::live(session, &ids).await).await
    }

    async fn results(&self, ids: Vec<TaskId>, max_bytes: usize) -> Result<Vec<Option<TaskResult>>, StoreError> {
        self.reads().call(async |session| get::results(session, &ids, max_bytes).await).await
    }

    async fn list(&self, filter: Filter, after: Option<Cursor>, limit: usize) -> Result<Page, StoreError> {
        if let Some(standby) = self.standby() {
            let listing = async |session: &_, lanes: &_| list::list(session, lanes, &filter, after, limit).await;
            if let Some(listed) = standby.read(listing).await {
                return Ok(listed.page);
            }
        }
        self.list_from_primary(&filter, after, limit).await
    }

    async fn heads(&self, after: Option<LaneId>, before: Timestamp, limit: usize) -> Result<Vec<Head>, StoreError> {
        self.reads().call(async |session| reads::heads(session, self.writers(), after, before, limit).await).await
    }

    async fn overdue(&self, dead: Vec<NodeId>, limit: usize) -> Result<Vec<Task>, StoreError> {
        let found =
            self.reads().call(async |session| overdue::overdue(session, self.writers(), &dead, limit).await).await?;
        self.quarantine_unreadable(found.unreadable).await;
        Ok(found.tasks)
    }

    async fn counts(&self) -> Result<Vec<Count>, StoreError> {
        if let Some(standby) = self.standby()
            && let Some(counts) = standby.read(async |session, lanes| reads::counts(session, lanes).await).await
        {
            return Ok(counts);
        }
        self.reads().call(async |session| reads::counts(session, self.lanes()).await).await
    }

    async fn live_counts(&self) -> Result<LiveCounts, StoreError> {
        if let Some(standby) = self.standby()
            && let Some(live) = standby.read(async |mut session, _| queues::live_counts(&mut session).await).await
        {
            return Ok(live);
        }
        self.reads().call(async |mut session| queues::live_counts(&mut session).await).await
    }

    async fn quarantined(&self) -> Result<u64, StoreError> {
        self.reads().call(async |session| quarantine::count(session).await).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.check().await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.close().await
    }
}

/// The tasks that others depend on and that are not submitted with them.
fn parents_outside(tasks: &[NewTask]) -> Vec<TaskId> {
    let named = || tasks.iter().flat_map(|task| &task.body.dependencies.ids);
    if named().next().is_none() {
        return Vec::new();
    }
    let own: HashSet<TaskId> = tasks.iter().map(|task| task.id).collect();
    let outside: HashSet<TaskId> = named().copied().filter(|parent| !own.contains(parent)).collect();
    outside.into_iter().collect()
}

#[async_trait]
impl Coordinator for PostgresStore {
    async fn acquire(&self, name: &str, holder: NodeId, ttl_millis: u64) -> Result<Option<LeaderLease>, StoreError> {
        let now = self.now();
        self.leases().call(async |mut session| leases::acquire(&mut session, now, name, holder, ttl_millis).await).await
    }

    async fn renew(&self, lease: &LeaderLease, ttl_millis: u64) -> Result<bool, StoreError> {
        let now = self.now();
        self.leases().call(async |mut session| leases::renew(&mut session, now, lease, ttl_millis).await).await
    }

    async fn holder(&self, name: &str) -> Result<Option<CurrentLease>, StoreError> {
        let now = self.now();
        self.leases().call(async |mut session| leases::holder(&mut session, now, name).await).await
    }

    async fn release(&self, lease: &LeaderLease) -> Result<(), StoreError> {
        let notification = partitions_are_free(self.node());
        let work = async |mut session: &_| {
            leases::release(&mut session, lease).await?;
            session.query(Sql::Notify, &[&notification]).await.map(drop)
        };
        self.leases().call(work).await
    }

    async fn take_share(&self, node: NodeId, count: u16, ttl_millis: u64) -> Result<PartitionShare, StoreError> {
        let (round, notification) = (PartitionRound { node, count, ttl_millis }, partitions_are_free(self.node()));
        let clock = &*self.shared.writers.clock;
        let mut rounds = 1;
        loop {
            let work = async |session: &_| partitions::take_round(session, clock, round, &notification).await;
            let RoundResult { share, is_short } = self.rounds().transact(work).await?;
            if !is_short || rounds == ROUNDS_MAX {
                return Ok(share);
            }
            tokio::time::sleep(ROUND_PAUSE).await;
            rounds += 1;
        }
    }

    async fn leave(&self, node: NodeId) -> Result<(), StoreError> {
        let (now, notification) = (self.now(), partitions_are_free(self.node()));
        self.rounds().transact(async |session| partitions::leave(session, now, node, &notification).await).await
    }

    async fn declare_gone(&self, node: NodeId) -> Result<bool, StoreError> {
        let (now, notification) = (self.now(), partitions_are_free(self.node()));
        let work = async |session: &_| gone::declare(session, now, node, &notification).await;
        let is_gone = self.rounds().transact(work).await?;
        if is_gone {
            self.shared.listener.notify_freed();
        }
        Ok(is_gone)
    }

    async fn ownership(&self) -> Result<Vec<Ownership>, StoreError> {
        self.reads().call(async |mut session| portable_partitions::ownership(&mut session).await).await
    }
}

#[async_trait]
impl Registry for PostgresStore {
    async fn record_workers(&self, presences: Vec<WorkerPresence>) -> Result<(), StoreError> {
        self.reads().call(async |mut session| registry::record_workers(&mut session, &presences).await).await
    }

    async fn workers(
        &self,
        tenant: &str,
        after: Option<String>,
        limit: usize,
    ) -> Result<Vec<WorkerPresence>, StoreError> {
        self.reads()
            .call(async |mut session| registry::workers(&mut session, tenant, after.as_deref(), limit).await)
            .await
    }

    async fn record_node(&self, presence: NodePresence) -> Result<(), StoreError> {
        let now = self.now();
        let work = async |mut session: &Session| {
            registry::record_node(&mut session, now, &presence).await?;
            if presence.id == self.node() { self.writers().node_lock.record(session).await } else { Ok(()) }
        };
        self.leases().call(work).await
    }

    async fn nodes(&self) -> Result<Vec<NodePresence>, StoreError> {
        self.leases().call(async |mut session| registry::nodes(&mut session).await).await
    }

    async fn remove_node(&self, node: NodeId) -> Result<(), StoreError> {
        self.leases().call(async |mut session| registry::remove_node(&mut session, node).await).await
    }
}
