//! The facts about a waiting task, from the store and from this node. Every read is bounded.

mod claimant;

use std::cmp::Reverse;
use std::collections::HashMap;

use punctual_core::breakers::{OpenBreaker, target_of};
use punctual_core::ids::TaskId;
use punctual_core::lane::LaneKey;
use punctual_core::obstacles::{Blockers, TasksAhead, TurnStatus};
use punctual_core::queues::{Bucket, Pause, Queue};
use punctual_core::state::State;
use punctual_core::store::StoreError;
use punctual_core::task::Task;
use punctual_core::time::Timestamp;

use crate::state::Api;

pub(crate) use claimant::{ExpectedClaimant, OwnerNode, PollingWorkers};

/// The maximum number of blocking tasks to name.
const NAMED_MAX: usize = 10;
/// The maximum number of tasks to count ahead of it with its ordering key, …
const AHEAD_OF_KEY_MAX: usize = 1_000;
/// … and in its queue.
const AHEAD_IN_QUEUE_MAX: usize = 10_000;

/// The facts about a task.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// The task.
    pub task: Task,
    /// When it was read, by the store's clock.
    pub now: Timestamp,
    /// The tasks it waits for, while it is `BLOCKED`.
    pub blockers: Blockers,
    /// Whose turn it is, if it has an ordering key and is `BLOCKED` or `PENDING`.
    pub turn: Option<TurnStatus>,
    /// Live tasks that it waits for: the first dependency and the holder of the turn. If the task
    /// expires, all named dependencies, since any of them may outlast it.
    pub in_the_way: Vec<Task>,
    /// What keeps the first dependency and the holder of the turn from being taken.
    pub obstacles: HashMap<TaskId, Obstacles>,
    /// Its queue, with its settings.
    pub queue: Queue,
    /// How many tasks of its queue are `QUEUED` or `RUNNING`.
    pub held: u64,
    /// How many of them have its concurrency key, if that is limited. Counted up to the limit.
    pub held_of_key: u64,
    /// The tokens of its queue, if it has a rate limit that was ever used.
    pub bucket: Option<Bucket>,
    /// The open breakers over it, the one with the latest probe first.
    pub breakers: Vec<OpenBreaker>,
    /// How many tasks of its queue go before it, if it could be claimed.
    pub ahead: TasksAhead,
    /// Who would take it, if it could be claimed.
    pub claimant: Option<ExpectedClaimant>,
}

/// What keeps a task in the way from being taken, beyond its own row.
#[derive(Clone, Debug, Default)]
pub(crate) struct Obstacles {
    /// The pause of its queue.
    pub pause: Option<Pause>,
    /// The open breakers over it, the one with the latest probe first.
    pub breakers: Vec<OpenBreaker>,
}

impl Facts {
    /// The facts of a task of which nothing else is known.
    pub fn of(task: Task, now: Timestamp) -> Self {
        let queue = Queue::unset(task.tenant(), &task.lane.key.queue);
        Self {
            task,
            now,
            blockers: Blockers::default(),
            turn: None,
            in_the_way: Vec::new(),
            obstacles: HashMap::new(),
            queue,
            held: 0,
            held_of_key: 0,
            bucket: None,
            breakers: Vec::new(),
            ahead: TasksAhead::default(),
            claimant: None,
        }
    }

    /// Whether a claim could take it, its queue and its claimants apart.
    pub fn is_claimable(&self) -> bool {
        let is_due = self.task.state() == State::Pending && self.task.due_at <= self.now;
        is_due && self.turn.as_ref().is_none_or(|turn| turn.is_own)
    }

    /// The first dependency and the holder of the turn, if they wait to be taken.
    fn first_in_the_way(&self) -> Vec<Task> {
        let dependency = self.blockers.first.iter().find(|blocker| !blocker.state.is_final()).map(|first| first.id);
        let holder = self.turn.filter(|turn| !turn.is_own).and_then(|turn| turn.holder).map(|(id, _)| id);
        let is_first = |task: &&Task| dependency == Some(task.id) || holder == Some(task.id);
        let waiting = self.in_the_way.iter().filter(|task| task.state() == State::Pending);
        waiting.filter(is_first).cloned().collect()
    }

    /// The ids of the live tasks that it waits for. A dead letter waits only for its re-drive.
    fn ids_in_the_way(&self) -> Vec<TaskId> {
        let max = if self.task.expires_at.is_some() { NAMED_MAX } else { 1 };
        let live = self.blockers.first.iter().filter(|blocker| !blocker.state.is_final());
        let holder = self.turn.filter(|turn| !turn.is_own).and_then(|turn| turn.holder);
        live.map(|blocker| blocker.id).take(max).chain(holder.map(|(id, _)| id)).collect()
    }
}

/// Reads the facts of a task.
pub(crate) async fn gather(api: &Api, task: Task) -> Result<Facts, StoreError> {
    let mut facts = Facts::of(task, api.clock.now());
    match facts.task.state() {
        State::Blocked => facts.blockers = api.database.blockers(&facts.task, NAMED_MAX).await?,
        State::Pending => {}
        _ => return Ok(facts),
    }
    if facts.task.body.ordering_key.is_some() {
        facts.turn = api.database.key_turn(&facts.task, AHEAD_OF_KEY_MAX).await?;
    }
    let in_the_way = facts.ids_in_the_way();
    if !in_the_way.is_empty() {
        facts.in_the_way = api.store.get(facts.task.tenant(), in_the_way).await?.into_iter().flatten().collect();
    }
    for task in facts.first_in_the_way() {
        facts.obstacles.insert(task.id, obstacles(api, &task, facts.now).await?);
    }
    let key = &facts.task.lane.key;
    if let Some(found) = api.database.queue(&key.tenant, &key.queue).await? {
        facts.held = found.live.queued + found.live.running;
        facts.queue = found.queue;
    }
    if api.dispatch_status.has_breakers() {
        facts.breakers = breakers_over(api, key).await?;
    }
    if facts.is_claimable() {
        facts.ahead =
            api.database.ahead(&facts.task, api.dispatch_status.aging().millis_for_one(), AHEAD_IN_QUEUE_MAX).await?;
        if let (Some(most), Some(_)) = (facts.queue.settings.max_per_key, &facts.task.body.concurrency_key) {
            facts.held_of_key = api.database.key_places(&facts.task, most).await?;
        }
        if facts.queue.settings.rate_limit.is_some() {
            facts.bucket = api.database.bucket(&facts.queue.tenant, &facts.queue.name).await?;
        }
        facts.claimant = Some(claimant::expected(api, &facts.task, facts.now).await?);
    }
    Ok(facts)
}

async fn obstacles(api: &Api, task: &Task, now: Timestamp) -> Result<Obstacles, StoreError> {
    let key = &task.lane.key;
    let queue = api.database.queue(&key.tenant, &key.queue).await?;
    let pause = queue.and_then(|found| found.queue.paused(now).cloned());
    let breakers = if api.dispatch_status.has_breakers() { breakers_over(api, key).await? } else { Vec::new() };
    Ok(Obstacles { pause, breakers })
}

/// The open breakers of its target and of its tenant. A task under both waits for both.
async fn breakers_over(api: &Api, key: &LaneKey) -> Result<Vec<OpenBreaker>, StoreError> {
    let first = api.database.breaker_over(&key.tenant, target_of(key)).await?;
    let is_of_target = first.as_ref().is_some_and(|breaker| !breaker.key.is_of_tenant());
    let second = if is_of_target { api.database.breaker_over(&key.tenant, "").await? } else { None };
    let mut breakers: Vec<OpenBreaker> = first.into_iter().chain(second).collect();
    breakers.sort_by_key(|breaker| Reverse(breaker.next_probe_at));
    Ok(breakers)
}
