//! The harness of these tests: a store in a temporary directory, a dispatcher and its poll queue.

use std::sync::Arc;
use std::time::Duration;

use punctual_broker::memory::MemoryBroker;
use punctual_core::breakers::window::BreakerRules;
use punctual_core::broker::{Broker, WEBHOOK_POOL};
use punctual_core::clock::{Clock, ManualClock};
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::store::{Inserted, Store};
use punctual_core::task::Task;
use punctual_scheduler::breakers::{self, BreakerWatch, Circuits};
use punctual_scheduler::cron_waker::CronWaker;
use punctual_scheduler::dispatcher::{Config, Deps, Dispatcher};
use punctual_scheduler::fairness::{self, LongestWaits};
use punctual_scheduler::hints::Hints;
use punctual_scheduler::notifying_store::NotifyingStore;
use punctual_scheduler::ownership::{self, OwnedPartitions, OwnershipLoop};
use punctual_scheduler::polls::{PollFilter, PollQueue, PollRequest};
use punctual_scheduler::settle::LeaseSettler;
use punctual_scheduler::targets::{Slot, Targets};
use punctual_scheduler::webhook_path::WebhookPath;
use punctual_store::sqlite::{Options, SqliteStore};
use punctual_testkit::fixtures::{START, TENANT, TaskBuilder};
use tempfile::TempDir;

use crate::spy::Spy;

pub const NODE: NodeId = NodeId::new(1);

/// How many partitions there are.
pub const PARTITIONS: u16 = 8;
/// For how long they are owned.
pub const LEASE: Duration = Duration::from_secs(30);

/// How often breakers are probed.
pub const PROBE_MILLIS: i64 = 60_000;

/// When breakers open.
pub const BREAKERS: breakers::Config = breakers::Config {
    rules: BreakerRules { window_millis: 300_000, minimum: 20, failure_percent: 90 },
    probe_millis: PROBE_MILLIS,
    confirm: Duration::ZERO,
};

pub struct Harness {
    pub store: Arc<dyn Store>,
    pub sqlite: Arc<SqliteStore>,
    pub spy: Arc<Spy>,
    pub owner: OwnershipLoop,
    pub clock: Arc<ManualClock>,
    pub broker: Arc<MemoryBroker>,
    pub targets: Arc<Targets>,
    pub dispatcher: Dispatcher,
    pub polls: PollQueue,
    pub settler: LeaseSettler,
    pub cron: Arc<CronWaker>,
    pub circuits: Arc<Circuits>,
    pub watch: BreakerWatch,
    pub waits: Arc<LongestWaits>,
    pub hints: Arc<Hints>,
    _directory: TempDir,
}

impl Harness {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    /// A node that owns everything and shares it with no other; two slots for each target.
    pub fn with(configure: impl FnOnce(&mut Config)) -> Self {
        Self::made_of(OwnedPartitions::everything(), Targets::new(2, 1_000), configure)
    }

    /// A node that owns nothing yet; as many slots for a target as the broker takes.
    pub fn of_many(configure: impl FnOnce(&mut Config)) -> Self {
        Self::made_of(OwnedPartitions::nothing(PARTITIONS), Targets::new(200, 1_000), configure)
    }

    /// A node that owns everything, with these slots.
    pub fn with_targets(targets: Targets, configure: impl FnOnce(&mut Config)) -> Self {
        Self::made_of(OwnedPartitions::everything(), targets, configure)
    }

    /// How many webhooks were published and not taken yet.
    pub async fn depth(&self) -> usize {
        self.broker.depth(WEBHOOK_POOL).await.unwrap()
    }

    /// The breakers of a node that runs the webhooks of `owned`.
    pub fn circuits_in(sqlite: &Arc<SqliteStore>, owned: &Arc<OwnedPartitions>) -> Arc<Circuits> {
        Arc::new(Circuits::new(Arc::clone(sqlite) as _, BREAKERS.rules, PROBE_MILLIS, Arc::clone(owned)))
    }

    fn made_of(owned: OwnedPartitions, targets: Targets, configure: impl FnOnce(&mut Config)) -> Self {
        let directory = TempDir::new().unwrap();
        let clock = Arc::new(ManualClock::new(START));
        let inner = SqliteStore::open(directory.path(), Arc::clone(&clock) as Arc<dyn Clock>, NODE, Options::default());
        let (sqlite, hints) = (Arc::new(inner.unwrap()), Arc::new(Hints::default()));
        let spy = Arc::new(Spy::new(Arc::clone(&sqlite) as _));
        let cron = Arc::<CronWaker>::default();
        let store: Arc<dyn Store> =
            Arc::new(NotifyingStore::new(spy.clone(), sqlite.clone(), hints.clone(), cron.clone()));
        let (broker, targets, owned) = (Arc::new(MemoryBroker::new(100)), Arc::new(targets), Arc::new(owned));
        let owning = ownership::Config { count: PARTITIONS, lease: LEASE, renewal: LEASE / 3 };
        let owner =
            OwnershipLoop::new(Arc::clone(&sqlite) as _, Arc::clone(&owned), Arc::clone(&clock) as _, NODE, owning);
        let mut config = Config {
            prefetch_window: Duration::from_secs(30),
            // Long, so that only hints and the first sweep find tasks.
            sweep_interval: Duration::from_hours(1),
            claim_ahead: Duration::ZERO,
            claim_batch: 1_000,
            visibility: Duration::from_mins(1),
            waiting_workers: 100,
            backlog_per_second: 20,
            fairness: fairness::Config::default(),
        };
        let waits = Arc::new(LongestWaits::default());
        let circuits = Self::circuits_in(&sqlite, &owned);
        let (shared, hinted) = (Arc::clone(&circuits), Arc::clone(&hints));
        let watch =
            BreakerWatch::new(Arc::clone(&sqlite) as _, shared, hinted, Arc::clone(&clock) as _, NODE, BREAKERS);
        configure(&mut config);
        let deps = Deps {
            store: Arc::clone(&store),
            webhooks: WebhookPath::Broker(Arc::clone(&broker) as _),
            clock: Arc::clone(&clock) as _,
            hints: Arc::clone(&hints),
            targets: Arc::clone(&targets),
            owned,
            circuits: Arc::clone(&circuits),
            waits: Arc::clone(&waits),
            node: NODE,
        };
        let (dispatcher, polls) = Dispatcher::new(deps, config);
        let settler = LeaseSettler::new(Arc::clone(&store), Arc::clone(&clock) as _, NODE);
        let settler = settler.with_circuits(Arc::clone(&circuits));
        Self {
            store,
            sqlite,
            spy,
            owner,
            clock,
            broker,
            targets,
            dispatcher,
            polls,
            settler,
            cron,
            circuits,
            watch,
            waits,
            hints,
            _directory: directory,
        }
    }

    pub async fn submit(&self, task: TaskBuilder) -> TaskId {
        match self.store.insert(vec![task.build()]).await.unwrap().remove(0) {
            Inserted::Created(task) => task.id,
            other => panic!("{other:?}"),
        }
    }

    /// Submits many tasks at once, in order.
    pub async fn submit_all(&self, tasks: impl IntoIterator<Item = TaskBuilder>) -> Vec<TaskId> {
        let tasks = tasks.into_iter().map(TaskBuilder::build).collect();
        let created = |inserted: Inserted| match inserted {
            Inserted::Created(task) => task.id,
            other => panic!("{other:?}"),
        };
        self.store.insert(tasks).await.unwrap().into_iter().map(created).collect()
    }

    /// Takes what was published and not taken yet, in order.
    pub async fn published(&self) -> Vec<TaskId> {
        let waiting = self.broker.depth(WEBHOOK_POOL).await.unwrap();
        let mut subscription = self.broker.subscribe(WEBHOOK_POOL, 1_000).await.unwrap();
        let mut taken = Vec::new();
        for _ in 0..waiting {
            let delivery = subscription.recv().await.unwrap();
            self.targets.give_back(&Slot::of(&delivery.message));
            taken.push(delivery.message.task_id);
            delivery.ack();
        }
        taken
    }

    pub async fn task(&self, id: TaskId) -> Task {
        self.store.get(TENANT, vec![id]).await.unwrap().remove(0).unwrap()
    }

    /// Runs passes of the dispatcher until nothing is left to do.
    pub async fn passes(&mut self) {
        while self.dispatcher.run_once().await.unwrap().more {}
    }

    /// Leases at once, through the dispatcher.
    pub async fn lease(&mut self, queue: &str, max_tasks: usize) -> Vec<Task> {
        let polls = self.polls.clone();
        let request = request(queue_of(queue), max_tasks, Duration::ZERO);
        let polled = tokio::spawn(async move { polls.poll(request).await });
        while !polled.is_finished() {
            self.dispatcher.run_once().await.unwrap();
            tokio::task::yield_now().await;
        }
        polled.await.unwrap().unwrap()
    }
}

fn queue_of(queue: &str) -> PollFilter {
    PollFilter::Queues(vec![queue.to_owned()])
}

pub fn request(filter: PollFilter, max_tasks: usize, wait: Duration) -> PollRequest {
    PollRequest { tenant: TENANT.into(), worker: "worker_a".into(), filter, max_tasks, lease_millis: 60_000, wait }
}

/// Polls a future once; returns its output, if it is ready.
pub fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::Pin::new(future).poll(&mut context) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
}
