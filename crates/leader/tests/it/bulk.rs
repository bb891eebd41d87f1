//! Bulk operations, page by page, through crashes and changes of the leader.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use punctual_core::bulk::{BulkKind, BulkOperation, BulkOperations, BulkState};
use punctual_core::coordinator::LeaderLease;
use punctual_core::ids::{NodeId, OperationId};
use punctual_core::state::State;
use punctual_core::store::{Cursor, Filter, Page, Store, StoreError};
use punctual_core::time::Timestamp;
use punctual_leader::bulk::{BulkPass, BulkWorker, Config};
use punctual_store::sqlite::SqliteStore;
use punctual_testkit::fixtures::{TENANT, at, task};

use crate::{DEAD, Harness, NODE};

/// More than two pages.
const TASKS: usize = 450;

fn worker(harness: &Harness, node: NodeId) -> BulkWorker {
    worker_on(harness, node, Arc::clone(&harness.store) as _)
}

fn worker_on(harness: &Harness, node: NodeId, operations: Arc<dyn BulkOperations>) -> BulkWorker {
    let config =
        Config { interval: Duration::from_secs(1), kept: Some(Duration::from_mins(1)), prune_interval: Duration::ZERO };
    BulkWorker::new(Arc::clone(&harness.store) as _, operations, Arc::clone(&harness.clock) as _, node, config)
}

/// A store that cannot list the tasks of customer "a" in time.
struct SlowToList {
    store: Arc<SqliteStore>,
    is_slow: AtomicBool,
    tried: AtomicUsize,
}

#[async_trait]
impl BulkOperations for SlowToList {
    async fn list_current(&self, filter: Filter, after: Option<Cursor>, limit: usize) -> Result<Page, StoreError> {
        if filter.metadata.get("customer").is_some_and(|customer| customer == "a") {
            self.tried.fetch_add(1, Ordering::Relaxed);
            if self.is_slow.load(Ordering::Relaxed) {
                return Err(StoreError::Unavailable("statement timeout".to_owned()));
            }
        }
        self.store.list_current(filter, after, limit).await
    }

    async fn insert_operation(&self, operation: BulkOperation) -> Result<(), StoreError> {
        self.store.insert_operation(operation).await
    }

    async fn write_operation(&self, operation: BulkOperation) -> Result<bool, StoreError> {
        self.store.write_operation(operation).await
    }

    async fn advance_operation(&self, lease: &LeaderLease, operation: BulkOperation) -> Result<bool, StoreError> {
        self.store.advance_operation(lease, operation).await
    }

    async fn operation(&self, tenant: &str, id: OperationId) -> Result<Option<BulkOperation>, StoreError> {
        self.store.operation(tenant, id).await
    }

    async fn list_operations(
        &self,
        tenant: &str,
        after: Option<OperationId>,
        limit: usize,
    ) -> Result<Vec<BulkOperation>, StoreError> {
        self.store.list_operations(tenant, after, limit).await
    }

    async fn running_operations(&self, limit: usize) -> Result<Vec<BulkOperation>, StoreError> {
        self.store.running_operations(limit).await
    }

    async fn prune_operations(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        self.store.prune_operations(before, limit).await
    }
}

async fn submit_many(harness: &Harness) {
    let of = |customer: &str| task().due(at(100)).label("customer", customer).build();
    let tasks = (0..TASKS).flat_map(|_| [of("a"), of("b")]).collect();
    harness.store.insert(tasks).await.unwrap();
}

async fn begin(harness: &Harness, kind: BulkKind, customer: &str) -> BulkOperation {
    let metadata = [("customer".to_owned(), customer.to_owned())].into();
    let filter = Filter { tenant: TENANT.to_owned(), states: kind.states(), metadata, ..Filter::default() };
    let operation = BulkOperation::begun(kind, filter, None, at(0));
    harness.store.insert_operation(operation.clone()).await.unwrap();
    operation
}

async fn read(harness: &Harness, operation: &BulkOperation) -> BulkOperation {
    harness.store.operation(TENANT, operation.id).await.unwrap().unwrap()
}

/// The versions of the tasks of a customer in a state.
async fn versions(harness: &Harness, customer: &str, state: State) -> Vec<u64> {
    let metadata = [("customer".to_owned(), customer.to_owned())].into();
    let filter = Filter { tenant: TENANT.to_owned(), states: vec![state], metadata, ..Filter::default() };
    let (mut versions, mut after) = (Vec::new(), None);
    loop {
        let page = harness.store.list(filter.clone(), after, 1_000).await.unwrap();
        versions.extend(page.tasks.iter().map(|task| task.position.version));
        after = page.next;
        if after.is_none() {
            return versions;
        }
    }
}

#[tokio::test]
async fn another_leader_goes_on_with_an_operation() {
    let harness = Harness::new(true);
    submit_many(&harness).await;
    let operation = begin(&harness, BulkKind::Cancel, "a").await;
    let (first, lease) = (worker(&harness, NODE), harness.lead(NODE).await);
    assert_eq!(first.run_once(&lease).await.unwrap(), BulkPass::Worked);
    let begun = read(&harness, &operation).await;
    assert!(begun.state == BulkState::Running && (1..TASKS as u64).contains(&begun.done), "{begun:?}");
    let (second, next_lease) = (worker(&harness, DEAD), harness.lead(DEAD).await);
    assert_eq!(first.run_once(&lease).await.unwrap(), BulkPass::NotLeader);
    assert_eq!(read(&harness, &operation).await, begun, "a former leader changes nothing");
    while second.run_once(&next_lease).await.unwrap() == BulkPass::Worked {}
    let done = read(&harness, &operation).await;
    assert_eq!((done.state, done.done, done.failed), (BulkState::Done, TASKS as u64, 0));
    assert_eq!(versions(&harness, "a", State::Cancelled).await, vec![2; TASKS]);
    assert_eq!(versions(&harness, "b", State::Pending).await, vec![1; TASKS], "others are left alone");
}

#[tokio::test]
async fn a_page_that_was_not_recorded_is_not_done_twice() {
    let harness = Harness::new(true);
    submit_many(&harness).await;
    let operation = begin(&harness, BulkKind::Cancel, "a").await;
    let (worker, lease) = (worker(&harness, NODE), harness.lead(NODE).await);
    worker.run_once(&lease).await.unwrap();
    // As if the process had died before it recorded the page.
    let recorded = read(&harness, &operation).await;
    let before = BulkOperation { revision: recorded.revision + 1, ..operation.clone() };
    assert!(harness.store.write_operation(before).await.unwrap());
    while worker.run_once(&lease).await.unwrap() == BulkPass::Worked {}
    assert_eq!(read(&harness, &operation).await.state, BulkState::Done);
    assert_eq!(versions(&harness, "a", State::Cancelled).await, vec![2; TASKS], "each was changed once");
}

#[tokio::test]
async fn a_cancelled_operation_stops() {
    let harness = Harness::new(true);
    submit_many(&harness).await;
    let operation = begin(&harness, BulkKind::Cancel, "a").await;
    let (worker, lease) = (worker(&harness, NODE), harness.lead(NODE).await);
    worker.run_once(&lease).await.unwrap();
    let ended = read(&harness, &operation).await.ended(BulkState::Cancelled, None, at(1)).unwrap();
    assert!(harness.store.write_operation(ended.clone()).await.unwrap());
    assert_eq!(worker.run_once(&lease).await.unwrap(), BulkPass::Idle);
    assert_eq!(read(&harness, &operation).await, ended);
    assert_eq!(versions(&harness, "a", State::Cancelled).await.len() as u64, ended.done);
    harness.clock.advance_millis(3_600_000);
    worker.run_once(&lease).await.unwrap();
    assert!(harness.store.operation(TENANT, operation.id).await.unwrap().is_none(), "old ones are removed");
}

#[tokio::test]
async fn dead_letters_are_redriven_and_purged() {
    for (kind, state) in [(BulkKind::Redrive, State::Pending), (BulkKind::Purge, State::Cancelled)] {
        let harness = Harness::new(true);
        let task = harness.submit(task().label("customer", "a")).await;
        let running = harness.lease(task.lane.id).await;
        let by = punctual_core::state::By { now: at(0), node: NODE, actor: punctual_core::trail::Actor::Reaper };
        let failure = punctual_testkit::store::fail_for_good(&running);
        let change = punctual_core::state::transition(&running.position, failure, &by).unwrap();
        harness.store.apply(vec![(task.id, change)]).await.unwrap();
        assert_eq!(harness.task(task.id).await.state(), State::DeadLettered);
        let operation = begin(&harness, kind, "a").await;
        let lease = harness.lead(NODE).await;
        worker(&harness, NODE).run_once(&lease).await.unwrap();
        assert_eq!(harness.task(task.id).await.state(), state);
        let done = read(&harness, &operation).await;
        assert_eq!((done.state, done.done), (BulkState::Done, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_failing_operation_is_left_alone_for_a_while() {
    let harness = Harness::new(true);
    submit_many(&harness).await;
    let (failing, other) = (begin(&harness, BulkKind::Cancel, "a").await, begin(&harness, BulkKind::Cancel, "b").await);
    let (store, lease) = (Arc::clone(&harness.store), harness.lead(NODE).await);
    let slow = Arc::new(SlowToList { store, is_slow: AtomicBool::new(true), tried: AtomicUsize::new(0) });
    let worker = worker_on(&harness, NODE, Arc::clone(&slow) as _);
    let tried = || slow.tried.load(Ordering::Relaxed);
    while read(&harness, &other).await.state == BulkState::Running {
        assert_eq!(worker.run_once(&lease).await.unwrap(), BulkPass::Worked, "the other one goes on");
    }
    assert_eq!(tried(), 1, "and does not wait for it again and again");
    for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
        let before = tried();
        assert_eq!(worker.run_once(&lease).await.unwrap(), BulkPass::Idle);
        tokio::time::advance(Duration::from_millis(seconds * 1_000 - 1)).await;
        assert_eq!((worker.run_once(&lease).await.unwrap(), tried()), (BulkPass::Idle, before), "{seconds} s");
        tokio::time::advance(Duration::from_millis(1)).await;
        worker.run_once(&lease).await.unwrap_err();
        assert_eq!(tried(), before + 1, "{seconds} s");
    }
    slow.is_slow.store(false, Ordering::Relaxed);
    tokio::time::advance(Duration::from_mins(1)).await;
    while worker.run_once(&lease).await.unwrap() == BulkPass::Worked {}
    assert_eq!(read(&harness, &failing).await.state, BulkState::Done);
}
