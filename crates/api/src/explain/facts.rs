//! All that is known of why a task waits, gathered from the store and from this node. Every read is bounded.

use punctual_core::breakers::{OpenBreaker, target_of};
use punctual_core::ids::NodeId;
use punctual_core::lane::Route;
use punctual_core::obstacles::{Ahead, Blockers, Turn};
use punctual_core::partitions::Partition;
use punctual_core::queues::{Bucket, Queue};
use punctual_core::state::State;
use punctual_core::store::StoreError;
use punctual_core::task::Task;
use punctual_core::time::Timestamp;
use punctual_core::workers::WorkerSighting;
use punctual_scheduler::outlook::Dispatch;

use crate::state::Api;

/// Those in the way that are named.
const TASKS: usize = 10;
/// Those before it in its key that are counted.
const OF_KEY: usize = 1_000;
/// Those before it in its queue that are counted.
const OF_QUEUE: usize = 10_000;

/// A worker that has not asked for longer than this does not count as polling. A long poll lasts at most as long.
const POLLING_MILLIS: i64 = 60_000;
/// Workers looked at, at a time.
const PAGE: usize = 1_000;
/// At most so many pages of them: the answer may then say that nobody polls where the 20,001st does.
const PAGES: usize = 20;

/// What is known of a task.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// The task.
    pub task: Task,
    /// When it was read, by the store's clock.
    pub now: Timestamp,
    /// Whom it waits for, while it is `BLOCKED`.
    pub blockers: Blockers,
    /// Whose turn it is, if it has an ordering key and is `PENDING`.
    pub turn: Option<Turn>,
    /// What its queue is set to.
    pub queue: Queue,
    /// How many tasks of its queue are `QUEUED` or `RUNNING`.
    pub held: u64,
    /// The tokens of its queue, if it has a rate limit and anybody has taken from it.
    pub bucket: Option<Bucket>,
    /// The open breaker over it, of one that could be claimed.
    pub breaker: Option<OpenBreaker>,
    /// How many tasks of its queue go before it, of one that could be claimed.
    pub ahead: Ahead,
    /// Who would take it, of one that could be claimed.
    pub taker: Option<Taker>,
}

/// Who takes a task that could be claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Taker {
    /// Pull workers, of which some ask for such tasks, or none.
    Workers {
        /// Whether one has asked lately.
        are_polling: bool,
    },
    /// This node, which owns its partition.
    Here(Dispatch),
    /// Another node, which owns its partition.
    Elsewhere {
        /// The partition.
        partition: Partition,
        /// The node.
        node: NodeId,
        /// What that is called, if it is known.
        name: Option<String>,
    },
    /// Nobody: its partition has no owner.
    Nobody {
        /// The partition.
        partition: Partition,
        /// Since when, if that is known.
        since: Option<Timestamp>,
    },
}

impl Facts {
    /// Only the task itself is known.
    pub fn of(task: Task, now: Timestamp) -> Self {
        let queue = Queue::unset(task.tenant(), &task.lane.key.queue);
        Self {
            task,
            now,
            blockers: Blockers::default(),
            turn: None,
            queue,
            held: 0,
            bucket: None,
            breaker: None,
            ahead: Ahead::default(),
            taker: None,
        }
    }

    /// Whether a claim could take it, were it not for its queue and for those who claim.
    pub fn is_claimable(&self) -> bool {
        self.task.state() == State::Pending
            && self.task.due_at <= self.now
            && self.turn.as_ref().is_none_or(|turn| turn.is_own)
    }
}

/// Reads what there is to know of a task.
pub(crate) async fn gather(api: &Api, task: Task) -> Result<Facts, StoreError> {
    let mut facts = Facts::of(task, api.clock.now());
    let task = &facts.task;
    match task.state() {
        State::Blocked => facts.blockers = api.obstacles.blockers(task, TASKS).await?,
        State::Pending if task.body.ordering_key.is_some() => facts.turn = api.obstacles.turn(task, OF_KEY).await?,
        State::Pending => {}
        _ => return Ok(facts),
    }
    let key = &task.lane.key;
    if let Some(told) = api.queues.queue(&key.tenant, &key.queue).await? {
        facts.held = told.live.queued + told.live.running;
        facts.queue = told.queue;
    }
    if facts.is_claimable() {
        let key = &facts.task.lane.key;
        if api.outlook.has_breakers() {
            facts.breaker = api.breakers.breaker_over(&key.tenant, target_of(key)).await?;
        }
        facts.ahead = api.obstacles.ahead(&facts.task, OF_QUEUE).await?;
        if facts.queue.settings.rate_limit.is_some() {
            facts.bucket = api.obstacles.bucket(&facts.queue.tenant, &facts.queue.name).await?;
        }
        facts.taker = Some(taker(api, &facts.task, facts.now).await?);
    }
    Ok(facts)
}

async fn taker(api: &Api, task: &Task, now: Timestamp) -> Result<Taker, StoreError> {
    if task.lane.key.route == Route::Pull {
        return Ok(Taker::Workers { are_polling: is_polled(api, task, now).await? });
    }
    if let Some(dispatch) = api.outlook.dispatch(&task.lane.key, task.due_at, now) {
        return Ok(Taker::Here(dispatch));
    }
    let partition = api.outlook.partition(&task.lane.key);
    let row = api.partitions.ownership().await?.into_iter().find(|row| row.partition == partition);
    let Some(node) = row.and_then(|row| row.owner_at(now)) else {
        // Zero: the process that owned it has died, and nobody knows when.
        let since = row.map(|row| row.expires_at).filter(|at| at.as_millis() > 0);
        return Ok(Taker::Nobody { partition, since });
    };
    let name = api.registry.nodes().await?.into_iter().find(|known| known.id == node).map(|known| known.name);
    Ok(Taker::Elsewhere { partition, node, name })
}

/// Whether a worker asked lately for tasks such as this one.
async fn is_polled(api: &Api, task: &Task, now: Timestamp) -> Result<bool, StoreError> {
    let tenant = task.tenant();
    let suits = |worker: &WorkerSighting| {
        now.millis_since(worker.last_seen_at) <= POLLING_MILLIS
            && (worker.queues.contains(&task.lane.key.queue) || worker.kinds.contains(&task.lane.key.kind))
    };
    if api.sightings.of(tenant, None, usize::MAX).iter().any(suits) {
        return Ok(true);
    }
    let mut after = None;
    for _ in 0..PAGES {
        let workers = api.registry.workers(tenant, after, PAGE).await?;
        if workers.iter().any(suits) {
            return Ok(true);
        }
        match workers.last() {
            Some(last) if workers.len() == PAGE => after = Some(last.name.clone()),
            _ => break,
        }
    }
    Ok(false)
}
