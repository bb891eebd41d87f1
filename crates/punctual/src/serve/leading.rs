//! What one elected node does for all: it takes back what was lost, fires schedules, removes what
//! is over, and tends the tables that nodes share.

use std::sync::Arc;
use std::time::Duration;

use punctual_api::metrics::Metrics;
use punctual_core::clock::Clock;
use punctual_core::coordinator::Lease;
use punctual_leader::cron::{self, CronLoop};
use punctual_leader::membership::OwnPresence;
use punctual_leader::pruner::{self, Pruner};
use punctual_leader::reaper::{self, Reaper};
use punctual_store::postgres::PostgresStore;
use punctual_submission::occurrences::Occurrences;
use tokio_util::sync::CancellationToken;

use super::cluster;
use super::parts::Parts;
use crate::config::{Config, StoreChoice};

/// How often the reaper looks.
const REAP_INTERVAL: Duration = Duration::from_millis(500);

/// The cron loop looks this often at the least, since any node may write a schedule; and while one
/// waits for a task.
const CRON_INTERVAL: Duration = Duration::from_secs(1);
const CRON_WAITING: Duration = Duration::from_millis(250);

/// How often it is looked whether something is over: what is kept is kept for days.
const PRUNE_INTERVAL: Duration = Duration::from_mins(1);
/// How long a pull worker is listed after it was last seen.
const WORKERS_KEPT: Duration = Duration::from_hours(24);
/// How often all idempotency keys are looked at.
const KEYS_INTERVAL: Duration = Duration::from_hours(6);

/// The work of a leader.
pub struct Leading {
    reaper: Reaper,
    cron: CronLoop,
    pruner: Pruner,
    shared: Option<PostgresStore>,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
}

impl Leading {
    /// The work of a leader on these parts, whose own records are `presence`.
    pub fn new(config: &Config, parts: &Parts, presence: Arc<OwnPresence>, occurrences: Occurrences) -> Self {
        Self {
            reaper: reaper(config, parts, presence),
            cron: cron(config, parts, occurrences),
            pruner: pruner(config, parts),
            shared: parts.shared.clone(),
            clock: Arc::clone(&parts.clock),
            metrics: parts.metrics.clone(),
        }
    }

    /// Leads as the holder of `lease`, until told to stop or the store says that somebody else
    /// leads.
    pub async fn run(&self, lease: Lease, stop: CancellationToken) {
        let over = stop.child_token();
        let reaping = async {
            self.reaper.run(&lease, over.clone()).await;
            over.cancel();
        };
        let firing = async {
            self.cron.run(&lease, over.clone()).await;
            over.cancel();
        };
        let tending = async {
            match self.shared.clone() {
                Some(store) => cluster::tend(store, Arc::clone(&self.clock), over.clone()).await,
                None => over.cancelled().await,
            }
        };
        self.metrics.leader.set(1);
        tokio::join!(reaping, firing, self.pruner.run(over.clone()), tending);
        self.metrics.leader.set(0);
    }
}

fn reaper(config: &Config, parts: &Parts, presence: Arc<OwnPresence>) -> Reaper {
    let config = reaper::Config {
        interval: REAP_INTERVAL,
        lost_after: config.leader.lease,
        poison_after: config.workers.poison_after,
        // The embedded store is locked by one process: whoever else is in its registry is dead.
        presence: (config.store != StoreChoice::Sqlite).then_some(presence),
    };
    let (store, clock) = (Arc::clone(&parts.store), Arc::clone(&parts.clock));
    Reaper::new(store, parts.database.clone(), clock, parts.node, config).with_circuits(Arc::clone(&parts.circuits))
}

fn cron(config: &Config, parts: &Parts, occurrences: Occurrences) -> CronLoop {
    let metrics = parts.metrics.clone();
    let deps = cron::Deps {
        schedules: Arc::clone(&parts.schedules),
        upkeep: parts.database.clone(),
        occurrences,
        clock: Arc::clone(&parts.clock),
        waker: Arc::clone(&parts.cron_waker),
        count_occurrences: Arc::new(move |outcome, instants| metrics.occurrences(outcome, instants)),
    };
    let config = cron::Config {
        interval: CRON_INTERVAL,
        waiting: CRON_WAITING,
        kept: config.retention.history,
        prune_interval: PRUNE_INTERVAL,
    };
    CronLoop::new(deps, config)
}

fn pruner(config: &Config, parts: &Parts) -> Pruner {
    let config = pruner::Config {
        history: config.retention.history,
        keys: config.retention.keys,
        workers: Some(WORKERS_KEPT),
        interval: PRUNE_INTERVAL,
        keys_interval: KEYS_INTERVAL,
    };
    Pruner::new(parts.database.clone(), Arc::clone(&parts.clock), config)
}
