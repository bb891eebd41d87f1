//! The worker role without a broker: the dispatcher of this process hands it runs that its claim
//! has started.
//!
//! [`Executor::begin`](crate::executor::Executor::begin) is the rest of a run. The dispatcher
//! claims no more tasks than may begin now, or as soon as calls under way have ended. Invariant: a
//! run that was handed over is called or given back, and settled.
//!
//! The shutdown has phases, by the clock. The dispatcher has ended before it begins. After the
//! drain the calls are aborted and given back. Runs are still settled until the flush is over.

use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use punctual_core::clock::Clock;
use punctual_core::task::Task;
use punctual_scheduler::targets::Targets;
use punctual_scheduler::webhook_path::{CallTurn, LocalWorker};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::executor::{Executor, StartedRun};
use crate::runs::WebhookRuns;
use crate::slots::TargetSlot;
use crate::{Config, Deps, Report};

/// The worker (see the module).
pub struct WebhookWorker {
    deps: Deps,
    config: Config,
    runs: WebhookRuns,
}

impl WebhookWorker {
    /// A worker.
    pub fn new(deps: Deps, config: Config) -> Self {
        Self { runs: WebhookRuns::new(&deps, &config), deps, config }
    }

    /// What the dispatcher hands runs over to. They begin at once, and are settled while the worker
    /// runs.
    pub fn handle(&self) -> Arc<dyn LocalWorker> {
        Arc::new(WorkerHandle {
            name: self.config.worker.clone(),
            grace: self.config.grace,
            call_slots: Arc::clone(&self.runs.call_slots),
            executor: Arc::downgrade(self.runs.executor()),
            targets: Arc::clone(&self.deps.targets),
            clock: Arc::clone(&self.deps.clock),
        })
    }

    /// Runs until `shutdown` is cancelled; returns when every run is settled.
    pub async fn run(self, shutdown: CancellationToken) -> Report {
        let runs = self.runs.begin(&self.config, shutdown);
        runs.phases.shutdown.cancelled().await;
        runs.end().await
    }
}

struct WorkerHandle {
    name: String,
    grace: Duration,
    call_slots: Arc<Semaphore>,
    /// Gone once the worker has ended.
    executor: Weak<Executor>,
    targets: Arc<Targets>,
    clock: Arc<dyn Clock>,
}

#[async_trait]
impl LocalWorker for WorkerHandle {
    fn claims_as(&self) -> (String, Duration) {
        (self.name.clone(), self.grace)
    }

    fn room(&self) -> usize {
        self.call_slots.available_permits()
    }

    async fn wait_for_room(&self) {
        drop(self.call_slots.acquire().await);
    }

    fn run(&self, tasks: Vec<Task>, turn: CallTurn) -> Result<(), Vec<Task>> {
        let Some(executor) = self.executor.upgrade() else { return Err(tasks) };
        let now = self.clock.now();
        executor.begin(tasks.into_iter().map(|task| {
            let call_slot = Arc::clone(&self.call_slots).try_acquire_owned().ok();
            let target_slot = TargetSlot::of_lane(&task.lane.key, &self.targets);
            let target_slot = match turn {
                CallTurn::InOrder => target_slot,
                CallTurn::AtOnce => target_slot.entered_at_once(),
            };
            StartedRun::new(task, now, call_slot, target_slot)
        }));
        Ok(())
    }
}
