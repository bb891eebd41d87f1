//! Who takes a task that could be claimed: pull workers, or the node that owns its partition.

use std::collections::HashMap;

use punctual_core::ids::NodeId;
use punctual_core::lane::Route;
use punctual_core::partitions::Partition;
use punctual_core::store::StoreError;
use punctual_core::task::Task;
use punctual_core::time::Timestamp;
use punctual_core::workers::{NodeSighting, WorkerSighting};
use punctual_scheduler::outlook::Dispatch;

use crate::presence::LEASES_MAX;
use crate::state::Api;

/// A worker that was not seen for longer than this, and holds nothing, does not count as polling. A long poll lasts at
/// most as long.
const POLLING_MILLIS: i64 = 60_000;
/// Workers looked at, at a time.
const PAGE: usize = 1_000;
/// At most so many pages of them: the answer may then say that nobody polls where the 20,001st does.
const PAGES: usize = 20;

/// Who takes a task that could be claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Taker {
    /// Pull workers.
    Workers(Workers),
    /// This node, which owns its partition.
    Here(Dispatch),
    /// Another node, which owns its partition.
    Elsewhere(Owner),
    /// Nobody: its partition has no owner.
    Nobody {
        /// The partition.
        partition: Partition,
        /// Since when, if that is known.
        since: Option<Timestamp>,
    },
}

/// The pull workers that ask for a task's queue or type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Workers {
    /// Those that were seen lately, or hold tasks.
    pub known: u64,
    /// Those of them that hold tasks, of whatever queue.
    pub busy: u64,
    /// How many tasks these hold.
    pub tasks: u64,
    /// Or more: nobody looked further.
    pub or_more: bool,
}

/// The node that owns a task's partition, where that is not this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// The partition.
    pub partition: Partition,
    /// The node.
    pub node: NodeId,
    /// What is known of it.
    pub seen: Option<NodeSighting>,
}

/// Who would take `task`, which could be claimed.
pub(super) async fn taker(api: &Api, task: &Task, now: Timestamp) -> Result<Taker, StoreError> {
    if task.lane.key.route == Route::Pull {
        return Ok(Taker::Workers(workers(api, task, now).await?));
    }
    if let Some(dispatch) = api.outlook.dispatch(&task.lane.key, task.due_at, now) {
        return Ok(Taker::Here(dispatch));
    }
    let partition = api.outlook.partition(&task.lane.key);
    let row = api.coordinator.ownership().await?.into_iter().find(|row| row.partition == partition);
    let Some(node) = row.and_then(|row| row.owner_at(now)) else {
        // Zero: the process that owned it has died, and nobody knows when.
        let since = row.map(|row| row.expires_at).filter(|at| at.as_millis() > 0);
        return Ok(Taker::Nobody { partition, since });
    };
    let seen = api.database.nodes().await?.into_iter().find(|known| known.id == node);
    Ok(Taker::Elsewhere(Owner { partition, node, seen }))
}

impl Workers {
    /// Counts a worker if it asks for such tasks and is there; `held` is how many tasks it holds, if any.
    fn count(&mut self, task: &Task, worker: &WorkerSighting, held: Option<u64>, now: Timestamp) {
        let asks = worker.queues.contains(&task.lane.key.queue) || worker.kinds.contains(&task.lane.key.kind);
        if asks && (held.is_some() || now.millis_since(worker.last_seen_at) <= POLLING_MILLIS) {
            self.known += 1;
            self.busy += u64::from(held.is_some());
            self.tasks += held.unwrap_or(0);
        }
    }
}

/// The workers that ask for tasks such as this one. Nobody looks beyond a page on which one is free.
async fn workers(api: &Api, task: &Task, now: Timestamp) -> Result<Workers, StoreError> {
    let tenant = task.tenant();
    let holders = api.database.holders(tenant, LEASES_MAX).await?;
    let held: HashMap<&str, u64> = holders.workers.iter().map(|held| (held.worker.as_str(), held.tasks)).collect();
    let held = |worker: &WorkerSighting| held.get(worker.name.as_str()).copied();
    let seen_here = api.presence.of(tenant, None, usize::MAX);
    let mut unwritten: HashMap<String, WorkerSighting> =
        seen_here.into_iter().map(|seen| (seen.name.clone(), seen)).collect();
    let mut workers = Workers { or_more: holders.or_more, ..Workers::default() };
    let mut after = None;
    for page in 1..=PAGES {
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
        if workers.known > workers.busy || page == PAGES {
            workers.or_more = true;
            break;
        }
    }
    for newer in unwritten.values() {
        workers.count(task, newer, held(newer), now);
    }
    Ok(workers)
}
