//! A store under test, with its clock and short forms of frequent calls. A failed call fails the
//! test.

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_core::clock::{Clock, ManualClock};
use punctual_core::database::Database;
use punctual_core::failure::FailureCause;
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::lane::{LaneId, LaneKey};
use punctual_core::schedules::Schedules;
use punctual_core::state::{By, Change, Event, Failure, State, transition};
use punctual_core::store::{Applied, Beat, Claim, Claimant, Claimed, DispatchTo, Filter, Inserted, Start, Store};
use punctual_core::task::{Hold, NewTask, Task};
use punctual_core::time::Timestamp;
use punctual_core::trail::{Actor, RunError};

use super::{RowDamage, StoreFactory};
use crate::fixtures::{START, TaskBuilder, json};

/// How long the worker of [`StoreFixture::lease`] holds a task.
pub const LEASE_MILLIS: u64 = 60_000;

/// How long a task of [`StoreFixture::dispatch`] may stay unstarted.
pub const VISIBILITY_MILLIS: u64 = 30_000;

/// What [`StoreFixture::start`] adds to the timeout.
pub const GRACE_MILLIS: u64 = 5_000;

/// The worker of [`StoreFixture::lease`] and [`StoreFixture::start`].
pub const WORKER: &str = "worker-1";

/// A store under test.
pub struct StoreFixture<'a> {
    /// All of its ports.
    pub database: Arc<dyn Database>,
    /// The tasks. They and the schedules both have `insert`, `get` and `list`.
    pub store: Arc<dyn Store>,
    /// The recurring schedules.
    pub schedules: Arc<dyn Schedules>,
    /// The store's clock, which begins at [`START`].
    pub clock: Arc<ManualClock>,
    /// The process that has the store open.
    pub node: NodeId,
    factory: &'a dyn StoreFactory,
}

impl<'a> StoreFixture<'a> {
    /// Opens a store over a place that is empty.
    pub async fn open(factory: &'a dyn StoreFactory) -> Self {
        Self::open_with(factory, Arc::new(ManualClock::new(START))).await
    }

    async fn open_with(factory: &'a dyn StoreFactory, clock: Arc<ManualClock>) -> Self {
        let node = NodeId::random();
        let database = factory.open(clock.clone(), node).await;
        let (store, schedules) = (database.clone(), database.clone());
        Self { database, store, schedules, clock, node, factory }
    }

    /// Closes the store and opens it again, over the same data, as another process.
    pub async fn reopen(self) -> Self {
        let (factory, clock) = (self.factory, Arc::clone(&self.clock));
        self.store.close().await.expect("a store closes");
        drop(self);
        Self::open_with(factory, clock).await
    }

    /// Makes the database refuse every new task, or accept them again.
    pub async fn refuse_tasks(&self, refused: bool) {
        self.factory.refuse_tasks(refused).await;
    }

    /// Damages a row behind the store's back.
    pub async fn damage(&self, damage: RowDamage<'_>) {
        self.factory.damage(damage).await;
    }

    /// The instant of the store's clock.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Lets time pass.
    pub fn advance(&self, millis: u64) {
        self.clock.advance_millis(i64::try_from(millis).expect("a test lasts less than ages"));
    }

    /// A client that changes something now.
    pub fn by(&self) -> By<'static> {
        By { now: self.now(), node: self.node, actor: Actor::Client }
    }

    /// Stores tasks that are all new.
    pub async fn insert(&self, tasks: Vec<NewTask>) -> Vec<Task> {
        let answers = self.store.insert(tasks).await.expect("insert answers");
        answers.into_iter().map(created).collect()
    }

    /// Stores one task.
    pub async fn insert_one(&self, task: TaskBuilder) -> Task {
        self.insert(vec![task.build()]).await.pop().expect("one task was inserted")
    }

    /// Makes one claim.
    pub async fn claim(&self, claim: Claim) -> Claimed {
        let mut answers = self.store.claim(vec![claim]).await.expect("claim answers");
        assert_eq!(answers.len(), 1, "one answer to one claim");
        answers.pop().expect("there is one")
    }

    /// Takes up to `limit` due tasks of a lane for [`WORKER`] to run.
    pub async fn lease(&self, lane: LaneId, limit: usize) -> Vec<Task> {
        self.claim(Claim { lanes: vec![(lane, limit)], limit, claimant: worker(WORKER) }).await.tasks
    }

    /// Takes up to `limit` due tasks of a lane to dispatch them.
    pub async fn dispatch(&self, lane: LaneId, limit: usize) -> Vec<Task> {
        self.claim(Claim { lanes: vec![(lane, limit)], limit, claimant: dispatcher() }).await.tasks
    }

    /// Stores a task and leases it.
    pub async fn running(&self, task: TaskBuilder) -> Task {
        let task = self.insert_one(task).await;
        let leased = self.lease(task.lane.id, 1).await.pop().expect("a due task is leased");
        assert_eq!(leased.id, task.id, "the test's task is the first of its lane");
        leased
    }

    /// Begins the run of a queued task.
    pub async fn start(&self, id: TaskId, version: u64) -> Option<Task> {
        let start = Start { id, version, worker: WORKER.into(), grace_millis: GRACE_MILLIS };
        let mut answers = self.store.start(vec![start]).await.expect("start answers");
        assert_eq!(answers.len(), 1, "one answer to one start");
        answers.pop().expect("there is one")
    }

    /// The change of `task` by `event`.
    pub fn change(&self, task: &Task, event: Event<'_>) -> (TaskId, Change) {
        (task.id, transition(&task.position, event, &self.by()).expect("the test's event is legal"))
    }

    /// Applies one change.
    pub async fn apply_change(&self, change: (TaskId, Change)) -> Applied {
        let mut answers = self.store.apply(vec![change]).await.expect("apply answers");
        assert_eq!(answers.len(), 1, "one answer to one change");
        answers.pop().expect("there is one")
    }

    /// Applies the change of `task` by `event`, and reads the task again.
    pub async fn apply(&self, task: &Task, event: Event<'_>) -> Task {
        let applied = self.apply_change(self.change(task, event)).await;
        assert!(is_done(&applied), "the task was no longer at {:?}: {applied:?}", task.position);
        self.get(task).await
    }

    /// A heartbeat from the holder of `task`.
    pub async fn beat(
        &self,
        task: &Task,
        token: u64,
        progress: Option<&str>,
        checkpoint: Option<&str>,
    ) -> Option<Hold> {
        let beat = Beat {
            tenant: task.tenant().into(),
            id: task.id,
            token,
            progress: progress.map(json),
            checkpoint: checkpoint.map(json),
            detach: false,
        };
        let mut answers = self.store.extend(vec![beat]).await.expect("extend answers");
        assert_eq!(answers.len(), 1, "one answer to one beat");
        answers.pop().expect("there is one")
    }

    /// Reads a task that must exist.
    pub async fn get(&self, task: &Task) -> Task {
        self.find(task.tenant(), task.id).await.unwrap_or_else(|| panic!("{} is gone", task.id))
    }

    /// Reads a task that may exist.
    pub async fn find(&self, tenant: &str, id: TaskId) -> Option<Task> {
        let mut answers = self.store.get(tenant, vec![id]).await.expect("get answers");
        assert_eq!(answers.len(), 1, "one answer to one id");
        answers.pop().expect("there is one")
    }

    /// All pages of a listing.
    pub async fn list(&self, filter: Filter, page: usize) -> Vec<Task> {
        let (mut tasks, mut after) = (Vec::new(), None);
        for _ in 0..10_000 {
            let answer = self.store.list(filter.clone(), after, page).await.expect("list answers");
            assert!(answer.tasks.len() <= page, "a page of {}, but the limit is {page}", answer.tasks.len());
            tasks.extend(answer.tasks);
            let Some(next) = answer.next else { return tasks };
            assert_ne!(Some(next), after, "the cursor does not advance");
            after = Some(next);
        }
        panic!("the listing does not end");
    }

    /// Every head due before an instant, read page by page.
    pub async fn heads(&self, before: Timestamp, page: usize) -> Vec<(LaneId, LaneKey, Timestamp)> {
        let (mut heads, mut after) = (Vec::new(), None);
        loop {
            let answer = self.store.heads(after, before, page).await.expect("heads answers");
            assert!(answer.len() <= page, "a page of {}, but the limit is {page}", answer.len());
            let Some(last) = answer.last() else { return heads };
            assert!(Some(last.lane.id) > after, "the lanes do not grow");
            after = Some(last.lane.id);
            heads.extend(answer.into_iter().map(|head| (head.lane.id, head.lane.key.clone(), head.due_at)));
        }
    }

    /// How many live tasks are in each lane and state.
    pub async fn counts(&self) -> BTreeMap<(LaneId, State), u64> {
        let counts = self.store.counts().await.expect("counts answers");
        let mut found = BTreeMap::new();
        for count in counts.into_iter().filter(|count| count.tasks > 0) {
            let before = found.insert((count.lane.id, count.state), count.tasks);
            assert_eq!(before, None, "{:?} {:?} is counted twice", count.lane, count.state);
        }
        found
    }

    /// Runs the resolver until nothing is left, and returns how many tasks it touched.
    pub async fn resolve(&self) -> usize {
        let mut tasks = 0;
        loop {
            let resolved = self.database.resolve().await.expect("resolve answers");
            tasks += resolved.tasks;
            if !resolved.more {
                return tasks;
            }
        }
    }

    /// The ids of overdue tasks, in any order.
    pub async fn overdue(&self, dead: Vec<NodeId>) -> Vec<TaskId> {
        let mut ids: Vec<TaskId> =
            self.store.overdue(dead, 10_000).await.expect("overdue answers").iter().map(|task| task.id).collect();
        ids.sort_unstable();
        ids
    }
}

/// A worker of this name, for [`LEASE_MILLIS`].
pub fn worker(name: &str) -> Claimant {
    Claimant::Worker { name: name.into(), lease_millis: LEASE_MILLIS, due_by: None }
}

/// The scheduler, for [`VISIBILITY_MILLIS`].
pub fn dispatcher() -> Claimant {
    dispatcher_from(None)
}

/// The scheduler, for tasks that are due from an instant on.
pub fn dispatcher_from(from: Option<Timestamp>) -> Claimant {
    Claimant::Dispatch { to: DispatchTo::Broker { visibility_millis: VISIBILITY_MILLIS }, terms: Vec::new(), from }
}

/// The scheduler, for the webhook worker of its process.
pub fn webhook_worker() -> Claimant {
    let to = DispatchTo::Worker { name: WORKER.into(), grace_millis: GRACE_MILLIS };
    Claimant::Dispatch { to, terms: Vec::new(), from: None }
}

/// A run that succeeded.
pub fn complete(result: Option<&str>) -> Event<'static> {
    Event::Complete { result: result.map(json), http_status: None, dropped: None }
}

/// A run that failed, and may be retried by the policy.
pub fn fail(task: &Task) -> Event<'static> {
    Event::Fail(failure(task, FailureCause::Reported, true))
}

/// A run that failed while a breaker was open over its task.
pub fn fail_under_breaker(task: &Task) -> Event<'static> {
    Event::Fail(Failure { is_under_breaker: true, ..failure(task, FailureCause::Reported, true) })
}

/// A run that failed for good.
pub fn fail_for_good(task: &Task) -> Event<'static> {
    Event::Fail(failure(task, FailureCause::Reported, false))
}

/// A run that failed for this cause.
pub fn failure(task: &Task, cause: FailureCause, retryable: bool) -> Failure<'static> {
    Failure {
        cause,
        error: RunError {
            code: "boom".into(), message: "it bröke 🧨".into(), details: Some(r#"{"line": 7}"#.into())
        },
        http_status: Some(500),
        retryable,
        retry_after_millis: None,
        policy: task.body.retry_policy.clone(),
        poison_after: 3,
        is_under_breaker: false,
        random: 0,
    }
}

/// The listing of all tasks of a tenant.
pub fn all_of(tenant: &str) -> Filter {
    Filter { tenant: tenant.into(), ..Filter::default() }
}

/// The task that an insert created.
pub fn created(answer: Inserted) -> Task {
    match answer {
        Inserted::Created(task) => task,
        other => panic!("not created: {other:?}"),
    }
}

/// The task that an insert recognised.
pub fn replayed(answer: Inserted) -> Task {
    match answer {
        Inserted::Replayed(task) => task,
        other => panic!("not a replay: {other:?}"),
    }
}

/// Whether a change was applied.
pub fn is_done(applied: &Applied) -> bool {
    matches!(applied, Applied::Done(_))
}

/// The ids of tasks, in their order.
pub fn ids(tasks: &[Task]) -> Vec<TaskId> {
    tasks.iter().map(|task| task.id).collect()
}

/// Asserts that two tasks are equal.
#[track_caller]
pub fn assert_same(left: &Task, right: &Task) {
    if same(left, right) {
        return;
    }
    let (left_text, right_text) = (format!("{left:#?}"), format!("{right:#?}"));
    let field = |line: &&str| line.starts_with("    ") && !line[4..].starts_with([' ', '}', ')', ']']);
    let alike = left_text.lines().zip(right_text.lines()).take_while(|(a, b)| a == b).count();
    let within = left_text.lines().take(alike + 1).filter(field).last();
    let (a, b) = (left_text.lines().nth(alike), right_text.lines().nth(alike));
    panic!("two versions of {} differ, first in {within:?}: {a:?} and {b:?}", left.id);
}

/// Whether two tasks are equal. Names every field, so that no new one is forgotten.
fn same(left: &Task, right: &Task) -> bool {
    let Task {
        id,
        lane,
        position,
        created_at,
        execute_at,
        due_at,
        expires_at,
        hold,
        worker,
        started_at,
        completed_at,
        result,
        progress,
        checkpoint,
        body,
        trail,
    } = left;
    (id, lane, position, trail) == (&right.id, &right.lane, &right.position, &right.trail)
        && (created_at, execute_at, due_at) == (&right.created_at, &right.execute_at, &right.due_at)
        && (expires_at, started_at, completed_at) == (&right.expires_at, &right.started_at, &right.completed_at)
        && (hold, worker) == (&right.hold, &right.worker)
        && (result, progress, checkpoint) == (&right.result, &right.progress, &right.checkpoint)
        && *body == right.body
}
