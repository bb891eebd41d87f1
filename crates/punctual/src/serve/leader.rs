//! The role `leader`: stands for election, and runs the loops of the leader while it leads.

use std::sync::Arc;
use std::time::Duration;

use punctual_core::coordinator::LeaderLease;
use punctual_leader::bulk::{self, BulkWorker};
use punctual_leader::cron::{self, CronLoop};
use punctual_leader::elector::{self, Elector};
use punctual_leader::pruner::{self, Pruner};
use punctual_leader::reaper::{self, Reaper};
use punctual_submission::TaskFactory;
use punctual_submission::occurrences::Occurrences;
use tokio_util::sync::CancellationToken;

use super::cluster;
use super::groups::Groups;
use super::parts::NodeParts;
use crate::config::StoreChoice;

/// The time between two passes of the reaper.
const REAP_INTERVAL: Duration = Duration::from_millis(500);
/// The longest time between two passes of the cron loop, since any node may write a schedule.
const CRON_INTERVAL: Duration = Duration::from_secs(1);
/// The same while a schedule waits for a task.
const CRON_WAITING_INTERVAL: Duration = Duration::from_millis(250);
/// The time between two looks for bulk operations.
const BULK_INTERVAL: Duration = Duration::from_secs(1);
/// The time between two passes of the pruner, which keeps things for days.
const PRUNE_INTERVAL: Duration = Duration::from_mins(1);
/// The time between two scans of all idempotency keys.
const KEYS_INTERVAL: Duration = Duration::from_hours(6);
/// The time between two rounds over all lanes.
const LANES_INTERVAL: Duration = Duration::from_hours(1);
/// How long a pull worker is listed after it was last seen.
const WORKER_RETENTION: Duration = Duration::from_hours(24);

/// Starts the elector.
pub fn start(groups: &mut Groups, parts: &Arc<NodeParts>) {
    let leader = &parts.config.leader;
    let config = elector::Config { lease: leader.lease, renewal: leader.renewal };
    let elector = Elector::new(Arc::clone(&parts.coordinator), Arc::clone(&parts.clock), parts.node, config)
        .woken_by(Arc::clone(&parts.leadership_freed));
    let work = Arc::new(LeaderWork::new(Arc::clone(parts)));
    let lead = move |lease: LeaderLease, stop: CancellationToken| {
        let work = Arc::clone(&work);
        async move { work.run(lease, stop).await }
    };
    groups.cluster.spawn("leader", |stop| elector.run(lead, stop));
}

/// The loops of a leader.
struct LeaderWork {
    parts: Arc<NodeParts>,
    reaper: Reaper,
    cron: CronLoop,
    bulk: BulkWorker,
    pruner: Pruner,
}

impl LeaderWork {
    fn new(parts: Arc<NodeParts>) -> Self {
        Self { reaper: reaper(&parts), cron: cron(&parts), bulk: bulk(&parts), pruner: pruner(&parts), parts }
    }

    /// Leads as the holder of `lease`, until `stop` or until the store reports another leader.
    async fn run(&self, lease: LeaderLease, stop: CancellationToken) {
        let over = stop.child_token();
        let reaper = async {
            self.reaper.run(&lease, over.clone()).await;
            over.cancel();
        };
        let cron = async {
            self.cron.run(&lease, over.clone()).await;
            over.cancel();
        };
        let bulk = async {
            self.bulk.run(&lease, over.clone()).await;
            over.cancel();
        };
        let tables = async {
            match self.parts.postgres.clone() {
                Some(store) => cluster::prepare_tables(store, Arc::clone(&self.parts.clock), over.clone()).await,
                None => over.cancelled().await,
            }
        };
        self.parts.metrics.leader.set(1);
        tokio::join!(reaper, cron, bulk, self.pruner.run(over.clone()), tables);
        self.parts.metrics.leader.set(0);
    }
}

fn reaper(parts: &NodeParts) -> Reaper {
    let config = reaper::Config {
        interval: REAP_INTERVAL,
        lost_after: parts.config.leader.lease,
        poison_after: parts.config.workers.poison_after,
        // One process locks the embedded store: every other node in its registry is dead.
        presence: (parts.config.store != StoreChoice::Sqlite).then(|| Arc::clone(&parts.own_presence)),
    };
    let (store, clock) = (Arc::clone(&parts.store), Arc::clone(&parts.clock));
    Reaper::new(store, parts.database.clone(), clock, parts.node, config).with_circuits(Arc::clone(&parts.circuits))
}

fn cron(parts: &NodeParts) -> CronLoop {
    let metrics = parts.metrics.clone();
    let factory = TaskFactory::new(parts.submission_rules(), parts.node);
    let deps = cron::Deps {
        schedules: Arc::clone(&parts.schedules),
        upkeep: parts.database.clone(),
        occurrences: Occurrences::new(Arc::clone(&parts.store), factory, parts.node),
        clock: Arc::clone(&parts.clock),
        waker: Arc::clone(&parts.cron_waker),
        count_occurrences: Arc::new(move |outcome, instants| metrics.occurrences(outcome, instants)),
    };
    let config = cron::Config {
        interval: CRON_INTERVAL,
        waiting: CRON_WAITING_INTERVAL,
        kept: parts.config.retention.history,
        prune_interval: PRUNE_INTERVAL,
    };
    CronLoop::new(deps, config)
}

fn bulk(parts: &NodeParts) -> BulkWorker {
    let config =
        bulk::Config { interval: BULK_INTERVAL, kept: parts.config.retention.history, prune_interval: PRUNE_INTERVAL };
    BulkWorker::new(Arc::clone(&parts.store), parts.database.clone(), Arc::clone(&parts.clock), parts.node, config)
}

fn pruner(parts: &NodeParts) -> Pruner {
    let config = pruner::Config {
        history: parts.config.retention.history,
        keys: parts.config.retention.keys,
        workers: Some(WORKER_RETENTION),
        interval: PRUNE_INTERVAL,
        keys_interval: KEYS_INTERVAL,
        lanes_interval: LANES_INTERVAL,
    };
    Pruner::new(parts.database.clone(), Arc::clone(&parts.clock), config)
}
