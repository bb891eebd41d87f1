//! The state of the API's handlers: the ports, the services, and the bounds.
//!
//! The binary builds one [`Api`] from [`ApiParts`] on a node with the role `api`, and none on other
//! nodes. Handlers take it as `State<Api>`; nothing here is global.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use punctual_core::clock::Clock;
use punctual_core::coordinator::Coordinator;
use punctual_core::database::SidePorts;
use punctual_core::ids::NodeId;
use punctual_core::schedules::Schedules;
use punctual_core::store::Store;
use punctual_core::task::limits;
use punctual_scheduler::dispatch_status::DispatchStatus;
use punctual_scheduler::finish_watch::FinishWatch;
use punctual_scheduler::polls::PollQueue;
use punctual_scheduler::settle::LeaseSettler;
use punctual_submission::occurrences::Occurrences;
use punctual_submission::{SubmissionRules, TaskFactory};

use crate::admission::Admission;
use crate::cluster::ClusterCache;
use crate::cpu_pool::CpuPool;
use crate::forecast::Forecasts;
use crate::operations::Operations;
use crate::presence::UnflushedPresence;
use crate::schedules::KeyedMutex;
use crate::shared_reads::SharedReads;
use crate::upcoming::UpcomingPages;

/// The state of the API. Cheap to clone.
#[derive(Clone)]
pub struct Api(Arc<Inner>);

/// What an [`Api`] holds: the parts it was given, and what it made of them.
pub struct Inner {
    parts: ApiParts,
    /// How many tasks are due when.
    pub forecasts: Forecasts,
    /// Makes pages of what will run.
    pub upcoming: UpcomingPages,
    /// Decides the instants of schedules.
    pub occurrences: Occurrences,
    /// Serialises the requests of this node that write one schedule.
    pub schedule_locks: KeyedMutex,
    /// The nodes and what they own, as last read.
    pub cluster: ClusterCache,
    /// Pull workers seen since the last flush.
    pub presence: UnflushedPresence,
    /// Admission control.
    pub admission: Arc<Admission>,
    /// Reads large requests and writes large answers.
    pub cpu_pool: CpuPool,
    /// Reads of tasks that come at the same time.
    pub shared_reads: SharedReads,
}

/// What the binary builds an [`Api`] from.
pub struct ApiParts {
    /// The tasks. Every write of tasks goes through here, so that the dispatcher gets a hint.
    pub store: Arc<dyn Store>,
    /// The schedules. Every write of schedules goes through here, so that the cron loop
    /// gets a hint.
    pub schedules: Arc<dyn Schedules>,
    /// Which node leads, and which node owns each partition.
    pub coordinator: Arc<dyn Coordinator>,
    /// The other ports of the store.
    pub database: Arc<dyn SidePorts>,
    /// What this node knows of the dispatch of webhooks.
    pub dispatch_status: DispatchStatus,
    /// Who waits for which task to finish.
    pub finish_watch: Arc<FinishWatch>,
    /// The waiting polls of pull workers.
    pub polls: PollQueue,
    /// Settles the runs of pull workers.
    pub settler: LeaseSettler,
    /// The store's time.
    pub clock: Arc<dyn Clock>,
    /// This process.
    pub node: NodeId,
    /// The bounds.
    pub config: ApiConfig,
    /// The state of the routes that every node serves.
    pub operations: Arc<Operations>,
}

/// The bounds of the API.
#[derive(Clone, Debug)]
pub struct ApiConfig {
    /// The limits and defaults of submitted tasks.
    pub submission: SubmissionRules,
    /// The maximum bytes of a request's body.
    pub body_bytes: usize,
    /// The maximum bytes of the body of a batch or a settle call.
    pub batch_body_bytes: usize,
    /// The maximum number of tasks in a batch.
    pub batch_tasks: usize,
    /// The maximum number of requests handled at once, without long polls.
    pub requests_in_flight: usize,
    /// The maximum bytes of bodies held at once, roughly. One body counts for at most a quarter of
    /// its share.
    pub bodies_bytes: usize,
    /// The maximum bytes of answers that clients have yet to read, roughly, half of them for reads.
    pub answers_bytes: usize,
    /// The maximum number of workers that wait in long polls at once.
    pub waiting_workers: usize,
    /// The maximum number of clients that wait for a task to finish at once.
    pub waiting_clients: usize,
    /// A worker not seen for this long is shown as lost.
    pub worker_lost_after: Duration,
    /// The durations of leases.
    pub leases: LeaseMillis,
    /// How often the presence of pull workers is written, unless they are a crowd.
    pub presence_interval: Duration,
    /// The lease of a node that does not say its own.
    pub node_lease: Duration,
}

/// The durations of leases, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct LeaseMillis {
    /// For a worker that asks for none.
    pub default: u64,
    /// The longest that a worker can ask for.
    pub max: u64,
}

impl Default for LeaseMillis {
    fn default() -> Self {
        Self { default: 60_000, max: 3_600_000 }
    }
}

impl Default for ApiConfig {
    fn default() -> Self {
        Self {
            submission: SubmissionRules::default(),
            body_bytes: 1024 * 1024,
            batch_body_bytes: 64 * 1024 * 1024,
            batch_tasks: limits::BATCH,
            requests_in_flight: 4_096,
            bodies_bytes: 16 * 1024 * 1024,
            answers_bytes: 64 * 1024 * 1024,
            waiting_workers: 10_000,
            waiting_clients: 10_000,
            worker_lost_after: Duration::from_mins(1),
            leases: LeaseMillis::default(),
            presence_interval: Duration::from_secs(5),
            node_lease: Duration::from_secs(30),
        }
    }
}

impl Api {
    /// The API over these parts.
    pub fn new(parts: ApiParts) -> Self {
        let ApiParts { store, config, node, .. } = &parts;
        let factory = TaskFactory::new(config.submission.clone(), *node);
        Self(Arc::new(Inner {
            forecasts: Forecasts::new(parts.database.clone()),
            upcoming: UpcomingPages::new(parts.database.clone()),
            occurrences: Occurrences::new(Arc::clone(store), factory, *node),
            schedule_locks: KeyedMutex::default(),
            cluster: ClusterCache::default(),
            presence: UnflushedPresence::default(),
            admission: Arc::new(Admission::new(config, &parts.operations.metrics)),
            cpu_pool: CpuPool::default(),
            shared_reads: SharedReads::new(Arc::clone(store)),
            parts,
        }))
    }
}

impl Deref for Api {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl Deref for Inner {
    type Target = ApiParts;

    fn deref(&self) -> &ApiParts {
        &self.parts
    }
}
