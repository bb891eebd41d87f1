//! What a worker works with, how it works, and what it reports at its end.

use std::sync::Arc;
use std::time::Duration;

use punctual_core::broker::WEBHOOK_POOL;
use punctual_core::clock::Clock;
use punctual_core::ids::NodeId;
use punctual_core::store::Store;
use punctual_core::webhook_secrets::WebhookSecrets;
use punctual_scheduler::breakers::Circuits;
use punctual_scheduler::targets::Targets;

use crate::stats::WorkerStats;
use crate::webhook::Webhooks;

/// What the worker works with.
#[derive(Clone)]
pub struct Deps {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The secrets that webhooks are signed with.
    pub secrets: Arc<dyn WebhookSecrets>,
    /// The store's clock.
    pub clock: Arc<dyn Clock>,
    /// The slots of webhook targets, shared with the dispatcher.
    pub targets: Arc<Targets>,
    /// The breakers, which count how runs end.
    pub circuits: Arc<Circuits>,
    /// The HTTP client.
    pub webhooks: Webhooks,
    /// The worker's counters.
    pub stats: Arc<WorkerStats>,
    /// This process.
    pub node: NodeId,
}

/// How the worker works.
#[derive(Clone, Debug)]
pub struct Config {
    /// The pool it consumes.
    pub pool: String,
    /// The name under which it runs tasks.
    pub worker: String,
    /// The maximum number of calls at a time.
    pub concurrency: usize,
    /// The maximum number of runs that are started or settled in one call to the store.
    pub batch: usize,
    /// How long after its timeout the node holds a run, so that it can settle it.
    pub grace: Duration,
    /// How long calls may continue after the shutdown began.
    pub drain: Duration,
    /// How long after the drain runs are still settled.
    pub flush: Duration,
}

impl Config {
    /// The usual numbers, under this name.
    pub fn named(worker: String) -> Self {
        Self {
            pool: WEBHOOK_POOL.to_owned(),
            worker,
            concurrency: 256,
            batch: 256,
            grace: Duration::from_secs(10),
            drain: Duration::from_secs(25),
            flush: Duration::from_secs(5),
        }
    }
}

/// What became of the runs and messages that the worker had at the shutdown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Calls that ended by themselves during the drain.
    pub drained: usize,
    /// Tasks given back: calls that were cut off, and runs that came too late to begin.
    pub given_back: usize,
}
