//! The adapters and the shared state that the roles are built from.

use std::sync::Arc;

use punctual_api::metrics::Metrics;
use punctual_broker::embedded::EmbeddedBroker;
use punctual_core::breakers::Breakers;
use punctual_core::broker::Broker;
use punctual_core::clock::Clock;
use punctual_core::coordinator::Coordinator;
use punctual_core::database::SidePorts;
use punctual_core::ids::NodeId;
use punctual_core::schedules::Schedules;
use punctual_core::store::Store;
use punctual_leader::membership::Skew;
use punctual_scheduler::breakers::Circuits;
use punctual_scheduler::cron_waker::CronWaker;
use punctual_scheduler::fairness::LongestWaits;
use punctual_scheduler::hints::Hints;
use punctual_scheduler::notifying_store::NotifyingStore;
use punctual_scheduler::ownership::OwnedPartitions;
use punctual_scheduler::targets::Targets;
use punctual_store::postgres::PostgresStore;
use punctual_submission::KnownQueues;
use punctual_worker::{WebhookConfig, Webhooks, WorkerStats};

use crate::cli::Around;
use crate::config::{BrokerChoice, Config, CoordinatorChoice};
use crate::serve::store::{self, Opened};

/// What the roles of a process share.
pub struct Parts {
    pub node: NodeId,
    pub clock: Arc<dyn Clock>,
    pub skew: Skew,
    /// The tasks, with hints to the dispatcher. Every write of tasks goes through here.
    pub store: Arc<dyn Store>,
    /// The schedules, with hints to the cron loop. Every write of schedules goes through here.
    pub schedules: Arc<dyn Schedules>,
    /// Who leads, and who owns which partition.
    pub coordinator: Arc<dyn Coordinator>,
    /// The other ports of the store.
    pub database: Arc<dyn SidePorts>,
    pub circuits: Arc<Circuits>,
    pub known_queues: KnownQueues,
    /// Calls the cron loop of this node.
    pub cron_waker: Arc<CronWaker>,
    pub shared: Option<PostgresStore>,
    pub broker: Arc<dyn Broker>,
    pub hints: Arc<Hints>,
    pub owned: Arc<OwnedPartitions>,
    pub targets: Arc<Targets>,
    pub waits: Arc<LongestWaits>,
    pub webhooks: Webhooks,
    pub metrics: Metrics,
    pub worker_stats: Arc<WorkerStats>,
}

impl Parts {
    /// Opens what the configuration names.
    pub async fn open(config: &Config, node: NodeId, around: Around) -> anyhow::Result<Self> {
        let Opened { clock, skew, database, shared } = store::open(config, node).await?;
        let coordinator: Arc<dyn Coordinator> = match config.coordinator {
            CoordinatorChoice::Store => database.clone(),
        };
        let hints = Arc::new(Hints::default());
        let cron_waker = Arc::<CronWaker>::default();
        let tasks = around(database.clone());
        let store = NotifyingStore::new(tasks, database.clone(), Arc::clone(&hints), Arc::clone(&cron_waker));
        let store = Arc::new(store);
        let BrokerChoice::Embedded = config.broker;
        let metrics = Metrics::new(clock.now());
        let lateness = metrics.clone();
        Ok(Self {
            node,
            store: store.clone(),
            skew,
            coordinator,
            circuits: Arc::new(circuits(config, database.clone())),
            database,
            known_queues: KnownQueues::default(),
            schedules: store,
            cron_waker,
            shared,
            // A message leaves the broker when its run begins, so this is what waits ahead of the
            // free slots.
            broker: Arc::new(EmbeddedBroker::new(config.webhooks.concurrency)),
            hints,
            owned: Arc::new(OwnedPartitions::nothing(config.scheduler.partitions)),
            targets: Arc::new(targets(config)),
            waits: Arc::default(),
            webhooks: Webhooks::new(WebhookConfig {
                allowed: config.webhooks.allow_networks.clone(),
                connect_timeout: config.webhooks.connect_timeout,
                response_bytes: config.webhooks.response_bytes,
                idle_per_target: config.webhooks.per_target,
                ..WebhookConfig::default()
            })?,
            worker_stats: Arc::new(WorkerStats::new(move |late_millis| lateness.started_late(late_millis))),
            metrics,
            clock,
        })
    }
}

fn circuits(config: &Config, breakers: Arc<dyn Breakers>) -> Circuits {
    if config.breakers.enabled { Circuits::new(breakers, config.breakers.probe_millis()) } else { Circuits::off() }
}

fn targets(config: &Config) -> Targets {
    let webhooks = &config.webhooks;
    Targets::new(webhooks.per_target, webhooks.concurrency)
        .with_pools(webhooks.tenant_percent, webhooks.band_percent)
        .with_weights(config.fairness.tenants.clone())
}
