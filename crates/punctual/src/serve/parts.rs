//! The adapters and the shared state that the roles of a node are built from.

use std::net::IpAddr;
use std::sync::Arc;

use nix::sys::socket::SockaddrStorage;
use punctual_api::metrics::{MeasuredStore, Metrics};
use punctual_core::breakers::Breakers;
use punctual_core::clock::Clock;
use punctual_core::coordinator::Coordinator;
use punctual_core::database::SidePorts;
use punctual_core::ids::NodeId;
use punctual_core::networks::AllowedNetworks;
use punctual_core::schedules::Schedules;
use punctual_core::store::Store;
use punctual_core::time::millis;
use punctual_leader::departures::DeclaredGone;
use punctual_leader::membership::{OwnPresence, Skew};
use punctual_scheduler::breakers::Circuits;
use punctual_scheduler::cron_waker::CronWaker;
use punctual_scheduler::fairness::LongestWaits;
use punctual_scheduler::finish_watch::FinishWatch;
use punctual_scheduler::hints::Hints;
use punctual_scheduler::notifying_store::NotifyingStore;
use punctual_scheduler::ownership::OwnedPartitions;
use punctual_scheduler::targets::Targets;
use punctual_store::ConnectionCounts;
use punctual_store::postgres::PostgresStore;
use punctual_submission::{QueueCache, SubmissionRules};
use punctual_worker::{WebhookConfig, Webhooks, WorkerStats};
use tokio::sync::Notify;

use super::store::{self, OpenStore};
use crate::cli::StoreWrapper;
use crate::config::{Config, CoordinatorChoice};

/// What the roles of a node share.
pub struct NodeParts {
    pub config: Config,
    pub node: NodeId,
    pub clock: Arc<dyn Clock>,
    pub skew: Skew,
    /// The tasks, with hints to the dispatcher. Every write of tasks goes through here.
    pub store: Arc<dyn Store>,
    /// The schedules, with hints to the cron loop. Every write of schedules goes through here.
    pub schedules: Arc<dyn Schedules>,
    /// Which node leads, and which node owns each partition.
    pub coordinator: Arc<dyn Coordinator>,
    /// The other ports of the store.
    pub database: Arc<dyn SidePorts>,
    /// The store itself, if nodes share it.
    pub postgres: Option<PostgresStore>,
    /// The connections of the store.
    pub connections: Arc<ConnectionCounts>,
    pub circuits: Arc<Circuits>,
    pub queue_cache: QueueCache,
    pub hints: Arc<Hints>,
    /// Who waits for which task to finish.
    pub finish_watch: Arc<FinishWatch>,
    /// Wakes the cron loop of this node.
    pub cron_waker: Arc<CronWaker>,
    pub owned: Arc<OwnedPartitions>,
    /// Wakes the elector of this node: the leader's lease may be free.
    pub leadership_freed: Arc<Notify>,
    pub own_presence: Arc<OwnPresence>,
    /// The nodes whose end this node has logged.
    pub declared_gone: Arc<DeclaredGone>,
    pub targets: Arc<Targets>,
    pub waits: Arc<LongestWaits>,
    pub webhooks: Webhooks,
    pub metrics: Metrics,
    pub worker_stats: Arc<WorkerStats>,
}

impl NodeParts {
    /// Opens the adapters that the configuration names.
    pub async fn open(config: Config, node: NodeId, wrap_store: StoreWrapper) -> anyhow::Result<Self> {
        let OpenStore { clock, skew, database, postgres, connections } = store::open(&config, node).await?;
        let coordinator: Arc<dyn Coordinator> = match config.coordinator {
            CoordinatorChoice::Store => database.clone(),
        };
        let (hints, cron_waker) = (Arc::<Hints>::default(), Arc::<CronWaker>::default());
        let metrics = Metrics::new(clock.now());
        let tasks = Arc::new(MeasuredStore::new(wrap_store(database.clone()), metrics.store.clone()));
        let store = NotifyingStore::new(tasks, database.clone(), Arc::clone(&hints), Arc::clone(&cron_waker));
        let finish_watch = Arc::<FinishWatch>::default();
        let store = Arc::new(store.announcing(Arc::clone(&finish_watch)));
        let lateness = metrics.clone();
        let owned = Arc::new(OwnedPartitions::nothing(config.scheduler.partitions));
        Ok(Self {
            node,
            store: store.clone(),
            schedules: store,
            coordinator,
            circuits: Arc::new(circuits(&config, database.clone(), Arc::clone(&owned))),
            queue_cache: QueueCache::default(),
            owned,
            leadership_freed: Arc::default(),
            declared_gone: Arc::default(),
            own_presence: Arc::new(OwnPresence::new(config.leader.lease)),
            targets: Arc::new(targets(&config)),
            waits: Arc::default(),
            webhooks: webhooks(&config),
            worker_stats: Arc::new(WorkerStats::new(move |late_millis| lateness.started_late(late_millis))),
            config,
            clock,
            skew,
            database,
            postgres,
            connections,
            hints,
            finish_watch,
            cron_waker,
            metrics,
        })
    }

    /// The rules of submissions, for the API, the cron loop and the inbox.
    pub fn submission_rules(&self) -> SubmissionRules {
        SubmissionRules {
            payload_bytes: self.config.limits.payload_bytes,
            retry_policy: self.config.tasks.retry_policy.clone(),
            timeout_millis: millis(self.config.tasks.timeout),
            queues: self.queue_cache.clone(),
            networks: networks(&self.config),
        }
    }
}

fn circuits(config: &Config, breakers: Arc<dyn Breakers>, owned: Arc<OwnedPartitions>) -> Circuits {
    if config.breakers.enabled {
        Circuits::new(breakers, config.breakers.rules(), config.breakers.probe_millis(), owned)
    } else {
        Circuits::off()
    }
}

fn targets(config: &Config) -> Targets {
    let webhooks = &config.webhooks;
    Targets::new(webhooks.per_target, webhooks.concurrency)
        .with_percents(webhooks.tenant_percent, webhooks.band_percent)
        .with_weights(config.fairness.tenants.clone())
}

/// The networks that webhooks may go to: never to this node's own API, whatever address of the
/// machine leads there.
fn networks(config: &Config) -> AllowedNetworks {
    let listeners = [Some(config.listen), config.admin_listen].into_iter().flatten();
    let allowed = config.webhooks.networks.clone();
    listeners.fold(allowed, |allowed, listen| allowed.without_own(listen, machine_addresses()))
}

/// The addresses that the interfaces of this machine have now.
fn machine_addresses() -> Vec<IpAddr> {
    let interfaces = match nix::ifaddrs::getifaddrs() {
        Ok(interfaces) => interfaces,
        Err(error) => {
            tracing::warn!(%error, "cannot read this machine's addresses; only `listen` and loopback are known as its own");
            return Vec::new();
        }
    };
    let address = |storage: SockaddrStorage| {
        let v4 = storage.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        v4.or_else(|| storage.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
    };
    interfaces.filter_map(|interface| interface.address).filter_map(address).collect()
}

fn webhooks(config: &Config) -> Webhooks {
    let settings = &config.webhooks;
    Webhooks::new(&WebhookConfig {
        allowed: networks(config),
        connect_timeout: settings.connect_timeout,
        response_bytes: settings.response_bytes,
        idle_per_target: settings.per_target,
        ..WebhookConfig::default()
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn the_addresses_of_the_machine_are_known() {
        assert!(machine_addresses().contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
    }
}
