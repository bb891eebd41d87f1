//! A store in memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;
use punctual_core::clock::{Clock, ManualClock};
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::lane::{Lane, LaneId, LaneKey};
use punctual_core::state::{By, Change, Event, Position, State, transition};
use punctual_core::store::{
    Applied, Beat, Claim, Claimed, Count, Cursor, Filter, Head, Inserted, Page, Start, Store, StoreError, Taker,
};
use punctual_core::task::{Hold, NewTask, Task};
use punctual_core::time::Timestamp;
use punctual_core::trail::Actor;

/// Tasks in memory. As much of the store's contract as the tests of this crate need.
pub(crate) struct MemoryStore {
    clock: Arc<ManualClock>,
    tasks: Mutex<BTreeMap<TaskId, Task>>,
    lanes: Mutex<HashMap<LaneKey, Arc<Lane>>>,
    keys: Mutex<HashMap<(String, String), Submission>>,
    pub broken: AtomicBool,
    pub extended: AtomicUsize,
    pub checked: AtomicUsize,
    pub counted: AtomicUsize,
}

/// What was submitted under a key, and a digest of it.
type Submission = (TaskId, [u8; 32]);

impl MemoryStore {
    pub fn new(clock: Arc<ManualClock>) -> Self {
        Self {
            clock,
            tasks: Mutex::default(),
            lanes: Mutex::default(),
            keys: Mutex::default(),
            broken: AtomicBool::new(false),
            extended: AtomicUsize::new(0),
            checked: AtomicUsize::new(0),
            counted: AtomicUsize::new(0),
        }
    }

    fn works(&self) -> Result<(), StoreError> {
        if self.broken.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable("the disk at /dev/secret is gone".into()));
        }
        Ok(())
    }

    fn lane(&self, key: LaneKey) -> Arc<Lane> {
        let mut lanes = self.lanes.lock();
        let id = LaneId::new(i64::try_from(lanes.len()).unwrap() + 1);
        Arc::clone(lanes.entry(key.clone()).or_insert_with(|| Arc::new(Lane { id, key })))
    }
}

fn insert(store: &MemoryStore, new: NewTask) -> Inserted {
    if let Some(idempotency) = &new.idempotency {
        let key = (new.lane.tenant.clone(), idempotency.key.clone());
        match store.keys.lock().entry(key) {
            std::collections::hash_map::Entry::Occupied(known) => {
                let (id, fingerprint) = *known.get();
                return if fingerprint == idempotency.fingerprint {
                    Inserted::Replayed(store.tasks.lock()[&id].clone())
                } else {
                    Inserted::KeyReused(id)
                };
            }
            std::collections::hash_map::Entry::Vacant(free) => drop(free.insert((new.id, idempotency.fingerprint))),
        }
    }
    let task = Task {
        id: new.id,
        lane: store.lane(new.lane),
        position: Position { state: State::Pending, version: 1, attempts: 0, crashes: 0, cancel_requested: false },
        created_at: new.created_at,
        execute_at: new.execute_at,
        due_at: new.execute_at,
        expires_at: new.expires_at,
        hold: None,
        worker: None,
        started_at: None,
        completed_at: None,
        result: None,
        progress: None,
        checkpoint: None,
        body: new.body,
        trail: new.trail,
    };
    store.tasks.lock().insert(task.id, task.clone());
    Inserted::Created(task)
}

fn apply(store: &MemoryStore, task: &mut Task, change: Change) -> bool {
    let tenant = change.tenant.as_deref().is_none_or(|tenant| tenant == task.tenant());
    if !tenant || task.state() != change.from || task.position.version != change.expected_version {
        return false;
    }
    task.position = Position {
        state: change.to,
        version: change.version,
        attempts: change.attempts.unwrap_or(task.position.attempts),
        crashes: change.crashes.unwrap_or(task.position.crashes),
        cancel_requested: change.cancel_requested,
    };
    task.due_at = change.due_at.unwrap_or(task.due_at);
    task.result = change.result.or(task.result.take());
    if !change.cancel_requested {
        task.hold = change.hold;
    }
    if let Some(hold) = task.hold.as_ref().filter(|_| change.to == State::Running) {
        (task.worker, task.started_at) = (Some(hold.worker.clone()), Some(hold.since));
    }
    if change.to.is_final() {
        task.completed_at = Some(change.at);
    }
    if let Some(edit) = change.edit {
        task.execute_at = edit.execute_at.unwrap_or(task.execute_at);
        task.expires_at = edit.expires_at.unwrap_or(task.expires_at);
        task.body.payload = edit.payload.unwrap_or_else(|| task.body.payload.clone());
        task.body.retry_policy = edit.retry_policy.unwrap_or(task.body.retry_policy);
        task.body.metadata = edit.metadata.unwrap_or_else(|| std::mem::take(&mut task.body.metadata));
        if let Some(priority) = edit.priority {
            task.lane = store.lane(LaneKey { priority, ..task.lane.key.clone() });
        }
    }
    task.trail.extend(&change.trail);
    true
}

fn matches(task: &Task, filter: &Filter) -> bool {
    let key = &task.lane.key;
    let is = |wanted: &Option<String>, value: &str| wanted.as_deref().is_none_or(|wanted| wanted == value);
    let within = |at: Timestamp, after: Option<Timestamp>, before: Option<Timestamp>| {
        after.is_none_or(|after| at >= after) && before.is_none_or(|before| at < before)
    };
    key.tenant == filter.tenant
        && (filter.states.is_empty() || filter.states.contains(&task.state()))
        && is(&filter.kind, &key.kind)
        && is(&filter.queue, &key.queue)
        && filter.schedule_id.is_none_or(|id| task.body.schedule_id == Some(id))
        && filter.priority_min.is_none_or(|least| key.priority >= least)
        && within(task.created_at, filter.created_after, filter.created_before)
        && within(task.execute_at, filter.execute_after, filter.execute_before)
        && filter.metadata.iter().all(|(name, value)| task.body.metadata.get(name) == Some(value))
}

#[async_trait]
impl Store for MemoryStore {
    async fn insert(&self, tasks: Vec<NewTask>) -> Result<Vec<Inserted>, StoreError> {
        self.works()?;
        Ok(tasks.into_iter().map(|new| insert(self, new)).collect())
    }

    async fn claim(&self, claims: Vec<Claim>) -> Result<Vec<Claimed>, StoreError> {
        self.works()?;
        let now = self.clock.now();
        let mut tasks = self.tasks.lock();
        let mut claim_one = |claim: Claim| {
            let mut claimed = Claimed::default();
            let Taker::Worker { name, lease_millis } = claim.taker else { return claimed };
            for (lane, most) in claim.lanes {
                let room = most.min(claim.limit - claimed.tasks.len());
                let mut due: Vec<(Timestamp, TaskId)> = tasks
                    .values()
                    .filter(|task| task.lane.id == lane && task.state() == State::Pending)
                    .map(|task| (task.due_at, task.id))
                    .collect();
                due.sort_unstable();
                for (_, id) in due.iter().filter(|(at, _)| *at <= now).take(room) {
                    let task = tasks.get_mut(id).unwrap();
                    let lease = i64::try_from(lease_millis).unwrap();
                    let deadline_at = now.plus_millis(i64::try_from(task.body.timeout_millis).unwrap());
                    let hold = Hold {
                        worker: name.clone(),
                        node: None,
                        since: now,
                        expires_at: now.plus_millis(lease).min(deadline_at),
                        deadline_at,
                        lease_millis,
                    };
                    let by = By { now, node: NodeId::new(1), actor: Actor::Worker(name.as_str().into()) };
                    let change = transition(&task.position, Event::Lease(hold), &by).unwrap();
                    assert!(apply(self, task, change));
                    claimed.tasks.push(task.clone());
                }
                claimed.next_due.push((lane, due.get(claimed.tasks.len()).map(|(at, _)| *at)));
            }
            claimed
        };
        Ok(claims.into_iter().map(&mut claim_one).collect())
    }

    async fn start(&self, starts: Vec<Start>) -> Result<Vec<Option<Task>>, StoreError> {
        Ok(starts.iter().map(|_| None).collect())
    }

    async fn apply(&self, changes: Vec<(TaskId, Change)>) -> Result<Vec<Applied>, StoreError> {
        self.works()?;
        let mut tasks = self.tasks.lock();
        let mut apply_one = |(id, change): (TaskId, Change)| {
            let Some(task) = tasks.get_mut(&id) else { return Applied::Lost };
            if !apply(self, task, change) {
                return Applied::Lost;
            }
            Applied::Done((task.state() == State::Pending).then(|| (Arc::clone(&task.lane), task.due_at)))
        };
        Ok(changes.into_iter().map(&mut apply_one).collect())
    }

    async fn extend(&self, beats: Vec<Beat>) -> Result<Vec<Option<Hold>>, StoreError> {
        self.works()?;
        self.extended.fetch_add(beats.len(), Ordering::SeqCst);
        let now = self.clock.now();
        let mut tasks = self.tasks.lock();
        let mut extend_one = |beat: Beat| {
            let task = tasks.get_mut(&beat.id).filter(|task| {
                let position = task.position;
                task.tenant() == beat.tenant && position.state == State::Running && position.version == beat.token
            })?;
            task.progress = beat.progress.or(task.progress.take());
            task.checkpoint = beat.checkpoint.or(task.checkpoint.take());
            let hold = task.hold.as_mut()?;
            hold.expires_at = now.plus_millis(i64::try_from(hold.lease_millis).unwrap()).min(hold.deadline_at);
            Some(hold.clone())
        };
        Ok(beats.into_iter().map(&mut extend_one).collect())
    }

    async fn get(&self, tenant: &str, ids: Vec<TaskId>) -> Result<Vec<Option<Task>>, StoreError> {
        self.works()?;
        let tasks = self.tasks.lock();
        Ok(ids.iter().map(|id| tasks.get(id).filter(|task| task.tenant() == tenant).cloned()).collect())
    }

    async fn list(&self, filter: Filter, after: Option<Cursor>, limit: usize) -> Result<Page, StoreError> {
        self.works()?;
        let tasks = self.tasks.lock();
        let mut found: Vec<&Task> = tasks.values().filter(|task| matches(task, &filter)).collect();
        if filter.by_execute_at {
            found.sort_by_key(|task| (task.execute_at, task.id));
            found.retain(|task| after.is_none_or(|after| (task.execute_at, task.id) > (after.execute_at, after.id)));
        } else {
            found.reverse();
            found.retain(|task| after.is_none_or(|after| task.id < after.id));
        }
        let more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().filter(|_| more).map(|task| Cursor { execute_at: task.execute_at, id: task.id });
        Ok(Page { tasks: found.into_iter().cloned().collect(), next })
    }

    async fn heads(&self, after: Option<LaneId>, before: Timestamp, limit: usize) -> Result<Vec<Head>, StoreError> {
        self.works()?;
        let tasks = self.tasks.lock();
        let mut heads: BTreeMap<LaneId, Head> = BTreeMap::new();
        for task in tasks.values().filter(|task| task.state() == State::Pending && task.due_at < before) {
            let head = heads.entry(task.lane.id).or_insert(Head { lane: Arc::clone(&task.lane), due_at: task.due_at });
            head.due_at = head.due_at.min(task.due_at);
        }
        Ok(heads
            .into_iter()
            .filter(|(id, _)| after.is_none_or(|after| *id > after))
            .map(|(_, head)| head)
            .take(limit)
            .collect())
    }

    async fn overdue(&self, _: Vec<NodeId>, _: usize) -> Result<Vec<Task>, StoreError> {
        Ok(Vec::new())
    }

    async fn counts(&self) -> Result<Vec<Count>, StoreError> {
        self.counted.fetch_add(1, Ordering::SeqCst);
        self.works()?;
        let tasks = self.tasks.lock();
        let live = tasks.values().filter(|task| !task.state().is_final());
        Ok(live.map(|task| Count { lane: Arc::clone(&task.lane), state: task.state(), tasks: 1 }).collect())
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.checked.fetch_add(1, Ordering::SeqCst);
        self.works()
    }

    async fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
