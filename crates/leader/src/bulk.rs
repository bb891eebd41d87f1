//! Works off bulk operations: cancels, re-drives and purges all tasks that a filter matches.
//!
//! The leader runs it. Invariant: a page of tasks is changed first and recorded second, each by one
//! conditional write under the leader's lease. A crash in between repeats the page, whose changed
//! tasks no longer match, so nothing is done twice; `done` may then miss that page.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use punctual_core::bulk::{BulkOperation, BulkOperations, BulkProgress, BulkState};
use punctual_core::clock::Clock;
use punctual_core::coordinator::LeaderLease;
use punctual_core::ids::{NodeId, OperationId, TaskId};
use punctual_core::state::{By, Change, transition};
use punctual_core::store::{Applied, Store, StoreError};
use punctual_core::task::Task;
use punctual_core::time::Timestamp;
use punctual_core::trail::Actor;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The tasks of one page: some milliseconds of the store's time.
const PAGE_TASKS: usize = 200;

/// The operations that take turns, a page each. Others wait until one of them has ended.
const OPERATIONS_AT_ONCE: usize = 16;

/// How often a task that others change meanwhile is tried.
const ROUNDS: usize = 8;

/// How long an operation is left alone after it failed; twice as long after each further time.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// The longest of these pauses.
const RETRY_PAUSE_MAX: Duration = Duration::from_mins(1);

/// Ended operations that are removed at once.
const PRUNED_AT_ONCE: usize = 100;

/// How often it looks for operations, and how long it keeps them.
#[derive(Clone, Debug)]
pub struct Config {
    /// The pause while there is no operation.
    pub interval: Duration,
    /// How long an operation can be read after it ended; none means forever.
    pub kept: Option<Duration>,
    /// How often it looks for old ones.
    pub prune_interval: Duration,
}

/// Works off bulk operations (see the module).
pub struct BulkWorker {
    store: Arc<dyn Store>,
    operations: Arc<dyn BulkOperations>,
    clock: Arc<dyn Clock>,
    node: NodeId,
    config: Config,
    /// When it looks for old ones next.
    prune_at: Mutex<Instant>,
    /// The running operations that failed when they were last tried.
    failing: Mutex<HashMap<OperationId, Failing>>,
}

/// An operation that fails.
#[derive(Clone, Copy, Debug)]
struct Failing {
    pause: Duration,
    /// When it is tried again.
    retry_at: Instant,
}

/// What a pass found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkPass {
    /// No operation runs, or those that do have failed and are not to be tried yet.
    Idle,
    /// A page was worked off of each running operation that did not fail.
    Worked,
    /// Another node has led since.
    NotLeader,
}

impl BulkWorker {
    /// A worker that writes as `node`.
    pub fn new(
        store: Arc<dyn Store>,
        operations: Arc<dyn BulkOperations>,
        clock: Arc<dyn Clock>,
        node: NodeId,
        config: Config,
    ) -> Self {
        Self { store, operations, clock, node, config, prune_at: Mutex::new(Instant::now()), failing: Mutex::default() }
    }

    /// Works as the holder of `lease`, until `shutdown`, or until another node has led since.
    pub async fn run(&self, lease: &LeaderLease, shutdown: CancellationToken) {
        while !shutdown.is_cancelled() {
            let begun = Instant::now();
            let pause = match self.run_once(lease).await {
                // As long as the page took, so that other writes have half of the time.
                Ok(BulkPass::Worked) => begun.elapsed().min(self.config.interval),
                Ok(BulkPass::Idle) => self.config.interval,
                Ok(BulkPass::NotLeader) => return,
                Err(error) => {
                    tracing::warn!(error = %error, "cannot work off bulk operations; retrying");
                    self.config.interval
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Works off a page of each running operation. One that fails is left alone for a while; an
    /// error is returned if none advanced.
    pub async fn run_once(&self, lease: &LeaderLease) -> Result<BulkPass, StoreError> {
        let running = self.operations.running_operations(OPERATIONS_AT_ONCE).await?;
        self.failing.lock().retain(|id, _| running.iter().any(|operation| operation.id == *id));
        let (mut has_advanced, mut failure) = (false, None);
        for operation in running {
            let id = operation.id;
            if self.is_put_off(id) {
                continue;
            }
            match self.advance(lease, operation).await {
                Ok(true) => {
                    has_advanced = true;
                    self.failing.lock().remove(&id);
                }
                Ok(false) => return Ok(BulkPass::NotLeader),
                // The others go on.
                Err(error) => {
                    self.put_off(id);
                    failure = Some((id, error));
                }
            }
        }
        match failure {
            Some((id, error)) if has_advanced => {
                let failing = self.failing.lock().len();
                tracing::warn!(
                    operation.id = %id,
                    failing,
                    error = %error,
                    "cannot work off a bulk operation; retrying within a minute, and the others go on"
                );
            }
            Some((_, error)) => return Err(error),
            None if has_advanced => {}
            None => {
                self.prune().await?;
                return Ok(BulkPass::Idle);
            }
        }
        Ok(BulkPass::Worked)
    }

    /// Whether an operation has failed and is not to be tried yet.
    fn is_put_off(&self, id: OperationId) -> bool {
        self.failing.lock().get(&id).is_some_and(|failing| Instant::now() < failing.retry_at)
    }

    fn put_off(&self, id: OperationId) {
        let mut failing = self.failing.lock();
        let pause = failing.get(&id).map_or(RETRY_PAUSE, |failing| (failing.pause * 2).min(RETRY_PAUSE_MAX));
        failing.insert(id, Failing { pause, retry_at: Instant::now() + pause });
    }

    /// Works off a page of an operation. False if another node has led since.
    async fn advance(&self, lease: &LeaderLease, operation: BulkOperation) -> Result<bool, StoreError> {
        match self.work_off(lease, &operation).await {
            Ok(Some(page)) => self.record(lease, operation, page).await?,
            Ok(None) => return Ok(false),
            Err(error) if error.is_retryable() => return Err(error),
            Err(error) => self.give_up(operation, &error).await?,
        }
        Ok(true)
    }

    /// Changes the tasks of the next page. None if another node has led since.
    async fn work_off(
        &self,
        lease: &LeaderLease,
        operation: &BulkOperation,
    ) -> Result<Option<BulkProgress>, StoreError> {
        let page = self.operations.list_current(operation.filter.clone(), operation.after, PAGE_TASKS).await?;
        let mut progress = BulkProgress { next: page.next, ..BulkProgress::default() };
        let mut tasks = page.tasks;
        for _ in 0..ROUNDS {
            let changes: Vec<(TaskId, Change)> = tasks.iter().filter_map(|task| self.decide(operation, task)).collect();
            // Also without changes: only the leader may record a page.
            let tried: Vec<TaskId> = changes.iter().map(|(id, _)| *id).collect();
            let Some(applied) = self.store.apply_as(lease, changes).await? else { return Ok(None) };
            let is_done = |applied: &&Applied| matches!(applied, Applied::Done(_));
            progress.done += applied.iter().filter(is_done).count() as u64;
            let lost = tried.into_iter().zip(&applied).filter(|(_, applied)| !is_done(applied));
            let lost: Vec<TaskId> = lost.map(|(id, _)| id).collect();
            if lost.is_empty() {
                return Ok(Some(progress));
            }
            tasks = self.store.get(operation.tenant(), lost).await?.into_iter().flatten().collect();
        }
        progress.failed += tasks.iter().filter(|task| operation.wants(task)).count() as u64;
        Ok(Some(progress))
    }

    /// The change of a task; none if it is no longer one of those that match.
    fn decide(&self, operation: &BulkOperation, task: &Task) -> Option<(TaskId, Change)> {
        let by = By { now: self.clock.now(), node: self.node, actor: Actor::Operation(operation.id) };
        let change = operation.wants(task).then(|| transition(&task.position, operation.event(), &by))?.ok()?;
        Some((task.id, change.shortening(&task.trail)))
    }

    /// Records a page. If a client has ended the operation meanwhile, the page still counts. If
    /// another node has gone on with it, the page is not recorded: its cursor must not go back.
    async fn record(
        &self,
        lease: &LeaderLease,
        mut operation: BulkOperation,
        page: BulkProgress,
    ) -> Result<(), StoreError> {
        let after = operation.after;
        for _ in 0..ROUNDS {
            let (tenant, id, now) = (operation.tenant().to_owned(), operation.id, self.clock.now());
            let advanced = operation.after_page(page, now);
            if self.operations.advance_operation(lease, advanced.clone()).await? {
                log_end(&advanced, now);
                return Ok(());
            }
            match self.operations.operation(&tenant, id).await? {
                Some(current) if current.after == after => operation = current,
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    /// Ends an operation that meets tasks which cannot be read.
    async fn give_up(&self, operation: BulkOperation, error: &StoreError) -> Result<(), StoreError> {
        tracing::error!(operation.id = %operation.id, error = %error, "a bulk operation cannot go on; it has failed");
        if let Some(failed) = operation.ended(BulkState::Failed, Some(error.to_string()), self.clock.now()) {
            // If a client has ended it meanwhile, it is as well.
            self.operations.write_operation(failed).await?;
        }
        Ok(())
    }

    async fn prune(&self) -> Result<(), StoreError> {
        if let Some(kept) = self.config.kept
            && *self.prune_at.lock() <= Instant::now()
        {
            *self.prune_at.lock() = Instant::now() + self.config.prune_interval;
            self.operations.prune_operations(self.clock.now().minus(kept), PRUNED_AT_ONCE).await?;
        }
        Ok(())
    }
}

fn log_end(operation: &BulkOperation, now: Timestamp) {
    if operation.state != BulkState::Running && operation.finished_at == Some(now) {
        let (kind, done, failed) = (operation.kind.as_str(), operation.done, operation.failed);
        tracing::info!(operation.id = %operation.id, kind, done, failed, "a bulk operation has ended");
    }
}
