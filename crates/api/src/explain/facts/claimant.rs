//! The expected claimant of a task that could be claimed: pull workers, or the node that owns its
//! partition.

use std::collections::HashMap;

use punctual_core::ids::NodeId;
use punctual_core::lane::Route;
use punctual_core::partitions::Partition;
use punctual_core::registry::{NodePresence, WorkerPresence};
use punctual_core::store::StoreError;
use punctual_core::task::Task;
use punctual_core::time::Timestamp;
use punctual_scheduler::dispatch_status::WebhookStatus;

use crate::presence::LEASES_MAX;
use crate::state::Api;

/// A worker that holds no task counts as polling for this long after it was seen. No long poll
/// lasts longer.
const POLLING_MILLIS: i64 = 60_000;
/// Workers on a page.
const PAGE: usize = 1_000;
/// The maximum number of pages to read: a worker beyond the first 20,000 is not seen.
const PAGES_MAX: usize = 20;

/// The expected taker of a task that could be claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExpectedClaimant {
    /// Pull workers.
    Workers(PollingWorkers),
    /// This node, which owns its partition.
    Here(WebhookStatus),
    /// Another node, which owns its partition.
    Elsewhere(OwnerNode),
    /// No node: its partition has no owner.
    None {
        /// The partition.
        partition: Partition,
        /// Since when, if known.
        since: Option<Timestamp>,
    },
}

/// The pull workers that poll for a task's queue or type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PollingWorkers {
    /// Workers that were seen lately or hold tasks.
    pub known: u64,
    /// Those of them that hold tasks of any queue.
    pub busy: u64,
    /// How many tasks these hold.
    pub tasks: u64,
    /// Whether there may be more that were not read.
    pub or_more: bool,
}

/// Another node, which owns a task's partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnerNode {
    /// The partition.
    pub partition: Partition,
    /// The node.
    pub node: NodeId,
    /// Its presence, if it is recorded.
    pub seen: Option<NodePresence>,
    /// When another node takes the partition over, if it is silent.
    pub taken_over_at: Option<Timestamp>,
}

/// The expected claimant of `task`, which could be claimed.
pub(super) async fn expected(api: &Api, task: &Task, now: Timestamp) -> Result<ExpectedClaimant, StoreError> {
    if task.lane.key.route == Route::Pull {
        return Ok(ExpectedClaimant::Workers(workers(api, task, now).await?));
    }
    if let Some(dispatch) = api.dispatch_status.webhook(&task.lane.key, task.due_at) {
        return Ok(ExpectedClaimant::Here(dispatch));
    }
    let partition = api.dispatch_status.partition(&task.lane.key);
    let row = api.coordinator.ownership().await?.into_iter().find(|row| row.partition == partition);
    let owner = row.and_then(|row| Some((row.owner_at(now)?, row.expires_at)));
    let Some((node, expires_at)) = owner else {
        // Zero: its owner has died, at an unknown time.
        let since = row.map(|row| row.expires_at).filter(|at| at.as_millis() > 0);
        return Ok(ExpectedClaimant::None { partition, since });
    };
    let seen = api.database.nodes().await?.into_iter().find(|known| known.id == node);
    let is_silent = seen.as_ref().is_some_and(|seen| seen.is_silent(now, api.config.node_lease));
    let taken_over_at = is_silent.then_some(expires_at);
    Ok(ExpectedClaimant::Elsewhere(OwnerNode { partition, node, seen, taken_over_at }))
}

impl PollingWorkers {
    /// Counts a worker if it polls for such tasks; `held` is how many tasks it holds, if any.
    fn count(&mut self, task: &Task, worker: &WorkerPresence, held: Option<u64>, now: Timestamp) {
        let asks = worker.queues.contains(&task.lane.key.queue) || worker.kinds.contains(&task.lane.key.kind);
        if asks && (held.is_some() || now.millis_since(worker.last_seen_at) <= POLLING_MILLIS) {
            self.known += 1;
            self.busy += u64::from(held.is_some());
            self.tasks += held.unwrap_or(0);
        }
    }
}

/// The workers that poll for such tasks, read up to the first page with a free one.
async fn workers(api: &Api, task: &Task, now: Timestamp) -> Result<PollingWorkers, StoreError> {
    let tenant = task.tenant();
    let holders = api.database.holders(tenant, LEASES_MAX).await?;
    let held: HashMap<&str, u64> = holders.workers.iter().map(|held| (held.worker.as_str(), held.tasks)).collect();
    let held = |worker: &WorkerPresence| held.get(worker.name.as_str()).copied();
    let seen_here = api.presence.of(tenant, None, usize::MAX);
    let mut unwritten: HashMap<String, WorkerPresence> =
        seen_here.into_iter().map(|seen| (seen.name.clone(), seen)).collect();
    let mut workers = PollingWorkers { or_more: holders.or_more, ..PollingWorkers::default() };
    let mut after = None;
    for page in 1..=PAGES_MAX {
        let mut known = api.database.workers(tenant, after, PAGE).await?;
        let is_last = known.len() < PAGE;
        after = known.last().map(|last| last.name.clone());
        for older in &mut known {
            if let Some(newer) = unwritten.remove(&older.name) {
                *older = newer.following(older);
            }
            workers.count(task, older, held(older), now);
        }
        if is_last {
            break;
        }
        if workers.known > workers.busy || page == PAGES_MAX {
            workers.or_more = true;
            break;
        }
    }
    for newer in unwritten.values() {
        workers.count(task, newer, held(newer), now);
    }
    Ok(workers)
}
