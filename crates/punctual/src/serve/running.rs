//! The roles of a process while they run, and the order in which they end.

use std::time::Duration;

use anyhow::bail;
use punctual_api::presence::PresenceFlusher;
use punctual_api::readiness::{Probes, ReadinessProbe, probe};
use punctual_api::server::ServerLimits;
use punctual_api::state::LeaseMillis;
use punctual_api::{Api, ApiConfig};
use punctual_core::broker::{Broker, WEBHOOK_POOL};
use punctual_core::coordinator::Lease;
use punctual_core::store::Store;
use punctual_core::workers::NodeSighting;
use punctual_leader::elector::{self, Elector};
use punctual_leader::membership::{Membership, OwnPresence};
use punctual_scheduler::breakers::{self, BreakerWatch};
use punctual_scheduler::dispatch_status::DispatchStatus;
use punctual_scheduler::dispatcher::{self, Dispatcher};
use punctual_scheduler::fairness::Aging;
use punctual_scheduler::ownership::{self, OwnershipLoop};
use punctual_scheduler::polls::PollQueue;
use punctual_scheduler::queue_watch::QueueWatch;
use punctual_scheduler::resolver_loop::ResolverLoop;
use punctual_scheduler::settle::LeaseSettler;
use punctual_store::postgres::PostgresStore;
use punctual_submission::occurrences::Occurrences;
use punctual_submission::{SubmissionRules, TaskFactory};
use punctual_worker::Consumer;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::cluster;
use super::inbox;
use super::leading::Leading;
use super::parts::Parts;
use super::tally::Tally;
use crate::config::{Config, Role};

/// How long open requests may take to end once the drain is over; no longer than the drain itself.
const HTTP_GOODBYE: Duration = Duration::from_secs(5);
/// What pull workers wait for is claimed so long before it is due. Nearly every claim is written by
/// then, also beside a flood of others.
const CLAIM_AHEAD: Duration = Duration::from_millis(20);
/// What a machine is called that does not say.
const NAMELESS: &str = "unnamed";

/// Roles that run, grouped by when they end.
pub struct Running {
    claiming: Group,
    owning: Group,
    draining: Group,
    serving: Group,
    leading: Group,
    api: Api,
    store: Arc<dyn Store>,
    broker: Arc<dyn Broker>,
}

impl Running {
    /// Starts every role the configuration names.
    pub async fn start(config: &Config, parts: Parts, listener: TcpListener) -> anyhow::Result<Self> {
        let has = |role: Role| config.roles.contains(&role);
        let (mut claiming, mut owning, mut draining) = (Group::default(), Group::default(), Group::default());
        let (mut serving, mut leading) = (Group::default(), Group::default());
        let me = sighting(config, &parts, &listener)?;
        if has(Role::Scheduler) {
            check_partitions(config, &parts).await?;
            let owner = owner(config, &parts);
            // Before the dispatcher's first look, so that it knows what is this node's to dispatch.
            if let Err(error) = owner.run_once().await {
                tracing::warn!(error = %error, "no partition could be taken yet");
            }
            owning.spawn("owner", |stop| owner.run(stop));
        }
        if config.breakers.enabled {
            let mut watch = breaker_watch(config, &parts);
            // Before the dispatcher's first look, so that it knows what is not to be dispatched.
            if let Err(error) = watch.run_once().await {
                tracing::warn!(error = %error, "the circuit breakers could not be read yet");
            }
            // As long as anybody settles.
            leading.spawn("breaker watch", |stop| watch.run(stop));
        }
        let (dispatcher, polls) = dispatcher(config, &parts);
        let api = api(config, &parts, polls);
        if has(Role::Api) || has(Role::Scheduler) {
            claiming.spawn("dispatcher", |stop| dispatcher.run(stop));
        }
        if let Some(store) = parts.shared.clone().filter(|_| has(Role::Api) || has(Role::Scheduler)) {
            let (rules, node, metrics) = (submission_rules(config, &parts), parts.node, parts.metrics.clone());
            claiming.spawn("inbox", |stop| inbox::receive(store, rules, node, metrics, stop));
        }
        if let Some(store) = parts.shared.clone() {
            let (hints, owned) = (Arc::clone(&parts.hints), Arc::clone(&parts.owned));
            claiming.spawn("listener", |stop| cluster::listen(store, hints, owned, stop));
        }
        let watch = QueueWatch::new(parts.database.clone(), parts.known_queues.clone(), Arc::clone(&parts.hints));
        // Before the first submission, so that it finds what its queue is set to.
        if let Err(error) = watch.run_once().await {
            tracing::warn!(error = %error, "the settings of the queues could not be read yet");
        }
        claiming.spawn("queue watch", |stop| watch.run(stop));
        if has(Role::Worker) {
            let consumer = consumer(config, &parts);
            draining.spawn("worker", |stop| async move {
                let report = consumer.run(stop).await;
                tracing::info!(drained = report.drained, given_back = report.given_back, "webhooks drained");
            });
        }
        let routes = if has(Role::Api) { punctual_api::router } else { punctual_api::operations_router };
        let (app, limits) = (routes(api.clone()), server_limits(config));
        serving.spawn("api", |stop| async move {
            if let Err(error) = punctual_api::server::serve(listener, app, limits, stop).await {
                tracing::error!(error = %error, "the HTTP interface failed");
            }
        });
        if has(Role::Api) {
            let flusher = PresenceFlusher::new(api.clone());
            serving.spawn("presence", |stop| flusher.run(stop));
        }
        let resolving = ResolverLoop::new(parts.database.clone(), Arc::clone(&parts.hints));
        // As long as anybody settles: whoever waits for that is told.
        leading.spawn("resolver", |stop| resolving.run(stop));
        let tally = Tally::new(&parts);
        serving.spawn("tally", |stop| tally.run(stop));
        let skew = Arc::clone(&parts.skew);
        let presence = Arc::new(OwnPresence::new(config.leader.lease, config.leader.renewal));
        let membership =
            Membership::new(parts.database.clone(), me, skew, config.leader.renewal, Arc::clone(&presence));
        leading.spawn("membership", |stop| membership.run(stop));
        if has(Role::Leader) {
            let elector = Elector::new(Arc::clone(&parts.coordinator), parts.node, leadership(config));
            let work = Arc::new(Leading::new(config, &parts, presence, occurrences(config, &parts)));
            leading.spawn("leader", |stop| {
                let lead = move |lease: Lease, stop: CancellationToken| {
                    let work = Arc::clone(&work);
                    async move { work.run(lease, stop).await }
                };
                elector.run(lead, stop)
            });
        }
        let Parts { store, broker, .. } = parts;
        Ok(Self { claiming, owning, draining, serving, leading, api, store, broker })
    }

    /// Runs until the signal, or until a role ends that should not; then ends everything in order.
    pub async fn until(mut self, signal: CancellationToken) -> anyhow::Result<()> {
        let ended = tokio::select! {
            () = signal.cancelled() => None,
            role = self.claiming.ended() => Some(role),
            role = self.owning.ended() => Some(role),
            role = self.draining.ended() => Some(role),
            role = self.serving.ended() => Some(role),
            role = self.leading.ended() => Some(role),
        };
        self.api.drain();
        self.claiming.stop().await;
        self.owning.stop().await;
        self.draining.stop().await;
        self.serving.stop().await;
        self.leading.stop().await;
        self.broker.close().await;
        if let Err(error) = self.store.close().await {
            tracing::warn!(error = %error, "the store was not closed cleanly; it recovers when it is opened");
        }
        match ended {
            Some(role) => bail!("the {role} ended by itself, so the process ended too; the log says why"),
            None => Ok(()),
        }
    }
}

/// Tasks that are stopped together.
#[derive(Default)]
struct Group {
    stop: CancellationToken,
    tasks: JoinSet<()>,
    names: Vec<(Id, &'static str)>,
}

impl Group {
    fn spawn<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        name: &'static str,
        run: impl FnOnce(CancellationToken) -> F,
    ) {
        let handle = self.tasks.spawn(run(self.stop.clone()));
        self.names.push((handle.id(), name));
    }

    /// Returns the name of the first task that ends, or never for an empty group.
    async fn ended(&mut self) -> &'static str {
        match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => self.name(id),
            Some(Err(error)) => {
                tracing::error!(error = %error, "a part of the server panicked");
                self.name(JoinError::id(&error))
            }
            None => std::future::pending().await,
        }
    }

    fn name(&self, id: Id) -> &'static str {
        self.names.iter().find(|(known, _)| *known == id).map_or("unknown part", |(_, name)| name)
    }

    async fn stop(&mut self) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(error = %error, "a part of the server panicked");
            }
        }
    }
}

/// With different numbers of partitions some queues would be dispatched by nobody.
async fn check_partitions(config: &Config, parts: &Parts) -> anyhow::Result<()> {
    let count = config.scheduler.partitions;
    let Ok(rows) = parts.coordinator.ownership().await else { return Ok(()) };
    if let Some(theirs) = ownership::another_count(&rows, count, parts.clock.now()) {
        anyhow::bail!(
            "scheduler.partitions is {count} here, but {theirs} on the nodes that run on this store: it must be the same \
             on all of them. To change it, end them all first"
        );
    }
    Ok(())
}

/// What this node says of itself.
fn sighting(config: &Config, parts: &Parts, listener: &TcpListener) -> anyhow::Result<NodeSighting> {
    let address = if config.roles.contains(&Role::Api) { listener.local_addr()?.to_string() } else { String::new() };
    let now = parts.clock.now();
    Ok(NodeSighting {
        id: parts.node,
        name: config.name.clone().unwrap_or_else(machine_name),
        address,
        roles: config.roles.iter().map(ToString::to_string).collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        skew_millis: 0,
        first_seen_at: now,
        last_seen_at: now,
    })
}

fn machine_name() -> String {
    // The path is there on Linux only; elsewhere the shell may have told.
    let told = std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::env::var("HOSTNAME"));
    let name = told.unwrap_or_default().trim().to_owned();
    if name.is_empty() { NAMELESS.to_owned() } else { name }
}

fn owner(config: &Config, parts: &Parts) -> OwnershipLoop {
    let config = ownership::Config {
        count: config.scheduler.partitions,
        lease: config.leader.lease,
        renewal: config.leader.renewal,
    };
    let (coordinator, owned) = (Arc::clone(&parts.coordinator), Arc::clone(&parts.owned));
    OwnershipLoop::new(coordinator, owned, Arc::clone(&parts.clock), parts.node, config)
}

/// How long it must be seen that a breaker has to open, where several nodes count: each tells what
/// it has every second.
const CONFIRM: Duration = Duration::from_millis(2_500);

fn breaker_watch(config: &Config, parts: &Parts) -> BreakerWatch {
    let config = breakers::Config {
        rules: config.breakers.rules(),
        probe_millis: config.breakers.probe_millis(),
        confirm: if parts.shared.is_some() { CONFIRM } else { Duration::ZERO },
    };
    let (store, circuits, hints) = (Arc::clone(&parts.database), Arc::clone(&parts.circuits), Arc::clone(&parts.hints));
    BreakerWatch::new(store, circuits, hints, Arc::clone(&parts.clock), parts.node, config)
}

fn dispatcher(config: &Config, parts: &Parts) -> (Dispatcher, PollQueue) {
    let deps = dispatcher::Deps {
        store: Arc::clone(&parts.store),
        broker: Arc::clone(&parts.broker),
        clock: Arc::clone(&parts.clock),
        hints: Arc::clone(&parts.hints),
        targets: Arc::clone(&parts.targets),
        owned: Arc::clone(&parts.owned),
        circuits: Arc::clone(&parts.circuits),
        waits: Arc::clone(&parts.waits),
        node: parts.node,
    };
    let config = dispatcher::Config {
        prefetch_window: config.scheduler.prefetch_window,
        sweep_interval: config.scheduler.sweep_interval,
        claim_ahead: CLAIM_AHEAD,
        claim_batch: config.scheduler.claim_batch,
        visibility: config.scheduler.visibility,
        waiting_workers: config.limits.waiting_workers,
        backlog_per_second: config.scheduler.backlog_per_second,
        fairness: config.fairness.clone(),
    };
    Dispatcher::new(deps, config)
}

fn consumer(config: &Config, parts: &Parts) -> Consumer {
    let deps = punctual_worker::Deps {
        store: Arc::clone(&parts.store),
        broker: Arc::clone(&parts.broker),
        clock: Arc::clone(&parts.clock),
        targets: Arc::clone(&parts.targets),
        circuits: Arc::clone(&parts.circuits),
        webhooks: parts.webhooks.clone(),
        stats: Arc::clone(&parts.worker_stats),
        node: parts.node,
    };
    let config = punctual_worker::Config {
        concurrency: config.webhooks.concurrency,
        drain: config.shutdown.drain,
        broker_ends_with_us: true,
        ..punctual_worker::Config::named(format!("worker_{:016x}", parts.node.number()))
    };
    Consumer::new(deps, config)
}

fn leadership(config: &Config) -> elector::Config {
    elector::Config { lease: config.leader.lease, renewal: config.leader.renewal }
}

fn submission_rules(config: &Config, parts: &Parts) -> SubmissionRules {
    SubmissionRules {
        payload_bytes: config.limits.payload_bytes,
        retry_policy: config.tasks.retry_policy,
        timeout_millis: millis(config.tasks.timeout),
        queues: parts.known_queues.clone(),
        networks: config.webhooks.allow_networks.clone(),
    }
}

fn occurrences(config: &Config, parts: &Parts) -> Occurrences {
    let factory = TaskFactory::new(submission_rules(config, parts), parts.node);
    Occurrences::new(Arc::clone(&parts.store), factory, parts.node)
}

fn api(config: &Config, parts: &Parts, polls: PollQueue) -> Api {
    let broker = Arc::clone(&parts.broker);
    let broker = probe(move || {
        let broker = Arc::clone(&broker);
        async move { broker.depth(WEBHOOK_POOL).await.map(drop) }
    });
    Api::new(punctual_api::Parts {
        store: Arc::clone(&parts.store),
        coordinator: Arc::clone(&parts.coordinator),
        database: Arc::clone(&parts.database),
        dispatch_status: dispatch_status(config, parts),
        schedules: Arc::clone(&parts.schedules),
        polls,
        settler: LeaseSettler::new(Arc::clone(&parts.store), Arc::clone(&parts.clock), parts.node)
            .with_circuits(Arc::clone(&parts.circuits)),
        clock: Arc::clone(&parts.clock),
        node: parts.node,
        config: ApiConfig {
            submission: submission_rules(config, parts),
            body_bytes: config.limits.body_bytes,
            batch_body_bytes: config.limits.batch_bytes,
            batch_tasks: config.limits.batch_tasks,
            requests_in_flight: config.limits.requests_in_flight,
            bodies_bytes: config.limits.bodies_bytes,
            waiting_workers: config.limits.waiting_workers,
            request_deadline: config.limits.request_timeout,
            worker_lost_after: config.workers.lost_after,
            leases: LeaseMillis { default: millis(config.leases.default), most: millis(config.leases.max) },
        },
        metrics: parts.metrics.clone(),
        probes: Probes { broker: Some(broker), migrations: parts.shared.clone().map(schema_probe) },
    })
}

/// What this node can tell of webhooks that wait.
fn dispatch_status(config: &Config, parts: &Parts) -> DispatchStatus {
    let (owned, targets) = (Arc::clone(&parts.owned), Arc::clone(&parts.targets));
    DispatchStatus::new(owned, targets, config.scheduler.backlog_per_second, Aging::new(config.fairness.aging))
        .with_breakers(config.breakers.enabled)
}

/// The embedded store is this process's alone, and up to date since it was opened; one that is
/// shared may be taken back.
fn schema_probe(store: PostgresStore) -> ReadinessProbe {
    probe(move || {
        let store = store.clone();
        async move { store.check_schema().await }
    })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn server_limits(config: &Config) -> ServerLimits {
    ServerLimits {
        connections: config.limits.connections,
        header_read: config.limits.header_read_timeout,
        drain: HTTP_GOODBYE.min(config.shutdown.drain),
        ..ServerLimits::default()
    }
    .within_open_files()
}
