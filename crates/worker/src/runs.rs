//! The webhook runs of this process: the slots for calls, the executor and the settler.
//!
//! [`Consumer`](crate::Consumer) and [`WebhookWorker`](crate::WebhookWorker) begin runs here.
//! Invariant: every run that has begun is settled, unless its node gives up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::executor::{Executor, StartedRun};
use crate::settler::{FinishedRun, WebhookSettler};
use crate::shutdown::ShutdownPhases;
use crate::signing::SigningKeyCache;
use crate::{Config, Deps, Report};

/// The runs (see the module).
pub(crate) struct WebhookRuns {
    /// Bounds all calls together.
    pub(crate) call_slots: Arc<Semaphore>,
    pub(crate) phases: ShutdownPhases,
    executor: Arc<Executor>,
    drained: Arc<AtomicUsize>,
    settler: WebhookSettler,
    finished: mpsc::Receiver<FinishedRun>,
}

impl WebhookRuns {
    pub(crate) fn new(deps: &Deps, config: &Config) -> Self {
        let concurrency = config.concurrency.clamp(1, Semaphore::MAX_PERMITS);
        let (settler, finished) = mpsc::channel(concurrency);
        let (phases, drained) = (ShutdownPhases::default(), Arc::<AtomicUsize>::default());
        let executor = Executor {
            webhooks: deps.webhooks.clone(),
            clock: Arc::clone(&deps.clock),
            stats: Arc::clone(&deps.stats),
            store: Arc::clone(&deps.store),
            // The rest is left to settle.
            results_wait: config.grace / 2,
            slot_wait: config.grace / 8,
            keys: SigningKeyCache::new(Arc::clone(&deps.secrets)),
            keys_wait: config.grace / 4,
            settler,
            phases: phases.clone(),
            drained: Arc::clone(&drained),
        };
        let settler = WebhookSettler {
            store: Arc::clone(&deps.store),
            clock: Arc::clone(&deps.clock),
            node: deps.node,
            worker: config.worker.clone(),
            stats: Arc::clone(&deps.stats),
            circuits: Arc::clone(&deps.circuits),
            batch: config.batch.max(1),
        };
        let call_slots = Arc::new(Semaphore::new(concurrency));
        Self { call_slots, phases, executor: Arc::new(executor), drained, settler, finished }
    }

    /// The executor, for those who begin runs. The settler ends when it is dropped everywhere.
    pub(crate) fn executor(&self) -> &Arc<Executor> {
        &self.executor
    }

    /// Starts the settler. The shutdown begins with `shutdown`.
    pub(crate) fn begin(self, config: &Config, shutdown: CancellationToken) -> RunningWebhooks {
        let Self { call_slots, phases, executor, drained, settler, finished } = self;
        let timer = phases.follow(shutdown, config.drain, config.flush);
        let settler = tokio::spawn(settler.run(finished, phases.give_up.clone()));
        RunningWebhooks { call_slots, phases, executor, drained, settler, _timer: timer }
    }
}

/// The runs while the settler works.
pub(crate) struct RunningWebhooks {
    pub(crate) call_slots: Arc<Semaphore>,
    pub(crate) phases: ShutdownPhases,
    executor: Arc<Executor>,
    drained: Arc<AtomicUsize>,
    settler: JoinHandle<usize>,
    _timer: DropGuard,
}

impl RunningWebhooks {
    /// Calls the webhooks of started runs and settles them, each by itself.
    pub(crate) fn run(&self, started: Vec<StartedRun>) {
        self.executor.begin(started.into_iter());
    }

    /// Waits until every run is settled. No run may begin afterwards.
    pub(crate) async fn end(self) -> Report {
        // The last executor goes with the last run, which ends the settler.
        drop(self.executor);
        let given_back = self.settler.await.unwrap_or_default();
        Report { drained: self.drained.load(Ordering::Relaxed), given_back }
    }
}
