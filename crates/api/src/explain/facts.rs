//! All that is known of why a task waits, gathered from the store and from this node. Every read is bounded.

mod taker;

use std::cmp::Reverse;

use punctual_core::breakers::{OpenBreaker, target_of};
use punctual_core::ids::TaskId;
use punctual_core::lane::LaneKey;
use punctual_core::obstacles::{Ahead, Blockers, KeyTurn};
use punctual_core::queues::{Bucket, Queue};
use punctual_core::state::State;
use punctual_core::store::StoreError;
use punctual_core::task::Task;
use punctual_core::time::Timestamp;

use crate::state::Api;

pub(crate) use taker::{Owner, Taker, Workers};

/// Those in the way that are named.
const TASKS: usize = 10;
/// Those before it in its key that are counted.
const OF_KEY: usize = 1_000;
/// Those before it in its queue that are counted.
const OF_QUEUE: usize = 10_000;

/// What is known of a task.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// The task.
    pub task: Task,
    /// When it was read, by the store's clock.
    pub now: Timestamp,
    /// Whom it waits for, while it is `BLOCKED`.
    pub blockers: Blockers,
    /// Whose turn it is, if it has an ordering key and is `BLOCKED` or `PENDING`.
    pub turn: Option<KeyTurn>,
    /// Live tasks that it waits for, as they stand: the first of those it depends on, and whoever has the turn. Of a task
    /// that expires all those that it depends on and that are named, since one of them may last longer than that.
    pub in_the_way: Vec<Task>,
    /// What its queue is set to.
    pub queue: Queue,
    /// How many tasks of its queue are `QUEUED` or `RUNNING`.
    pub held: u64,
    /// The tokens of its queue, if it has a rate limit and anybody has taken from it.
    pub bucket: Option<Bucket>,
    /// The open breakers over it; first the one whose probe comes last, which the others wait for.
    pub breakers: Vec<OpenBreaker>,
    /// How many tasks of its queue go before it, of one that could be claimed.
    pub ahead: Ahead,
    /// Who would take it, of one that could be claimed.
    pub taker: Option<Taker>,
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
            in_the_way: Vec::new(),
            queue,
            held: 0,
            bucket: None,
            breakers: Vec::new(),
            ahead: Ahead::default(),
            taker: None,
        }
    }

    /// Whether a claim could take it, were it not for its queue and for those who claim.
    pub fn is_claimable(&self) -> bool {
        let is_due = self.task.state() == State::Pending && self.task.due_at <= self.now;
        is_due && self.turn.as_ref().is_none_or(|turn| turn.is_own)
    }

    /// The live tasks that it waits for and that are to be read. A dead letter that holds others waits for nothing but to be
    /// driven again.
    fn those_in_the_way(&self) -> Vec<TaskId> {
        let most = if self.task.expires_at.is_some() { TASKS } else { 1 };
        let live = self.blockers.first.iter().filter(|blocker| !blocker.state.is_final());
        let holder = self.turn.filter(|turn| !turn.is_own).and_then(|turn| turn.holder);
        live.map(|blocker| blocker.id).take(most).chain(holder.map(|(id, _)| id)).collect()
    }
}

/// Reads what there is to know of a task.
pub(crate) async fn gather(api: &Api, task: Task) -> Result<Facts, StoreError> {
    let mut facts = Facts::of(task, api.clock.now());
    match facts.task.state() {
        State::Blocked => facts.blockers = api.database.blockers(&facts.task, TASKS).await?,
        State::Pending => {}
        _ => return Ok(facts),
    }
    if facts.task.body.ordering_key.is_some() {
        facts.turn = api.database.key_turn(&facts.task, OF_KEY).await?;
    }
    let in_the_way = facts.those_in_the_way();
    if !in_the_way.is_empty() {
        facts.in_the_way = api.store.get(facts.task.tenant(), in_the_way).await?.into_iter().flatten().collect();
    }
    let key = &facts.task.lane.key;
    if let Some(told) = api.database.queue(&key.tenant, &key.queue).await? {
        facts.held = told.live.queued + told.live.running;
        facts.queue = told.queue;
    }
    if api.outlook.has_breakers() {
        facts.breakers = breakers_over(api, key).await?;
    }
    if facts.is_claimable() {
        facts.ahead = api.database.ahead(&facts.task, api.outlook.aging().millis_for_one(), OF_QUEUE).await?;
        if facts.queue.settings.rate_limit.is_some() {
            facts.bucket = api.database.bucket(&facts.queue.tenant, &facts.queue.name).await?;
        }
        facts.taker = Some(taker::taker(api, &facts.task, facts.now).await?);
    }
    Ok(facts)
}

/// The target's own, and the tenant's: a task that is under both is taken when neither minds.
async fn breakers_over(api: &Api, key: &LaneKey) -> Result<Vec<OpenBreaker>, StoreError> {
    let first = api.database.breaker_over(&key.tenant, target_of(key)).await?;
    let is_of_target = first.as_ref().is_some_and(|breaker| !breaker.key.is_of_tenant());
    let second = if is_of_target { api.database.breaker_over(&key.tenant, "").await? } else { None };
    let mut breakers: Vec<OpenBreaker> = first.into_iter().chain(second).collect();
    breakers.sort_by_key(|breaker| Reverse(breaker.next_probe_at));
    Ok(breakers)
}
