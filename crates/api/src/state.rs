//! What every handler is given: the ports, the services, and the bounds of the interface.
//!
//! Built once by the binary from [`Parts`]; cheap to clone. Handlers take it as
//! `State<Api>`; nothing here is global.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use punctual_core::clock::Clock;
use punctual_core::coordinator::Coordinator;
use punctual_core::database::SidePorts;
use punctual_core::ids::NodeId;
use punctual_core::schedules::Schedules;
use punctual_core::store::Store;
use punctual_core::task::limits;
use punctual_scheduler::dispatch_status::DispatchStatus;
use punctual_scheduler::polls::PollQueue;
use punctual_scheduler::settle::LeaseSettler;
use punctual_submission::occurrences::Occurrences;
use punctual_submission::{SubmissionRules, TaskFactory};

use crate::admission::Admission;
use crate::cpu_pool::CpuPool;
use crate::forecast::Forecasts;
use crate::metrics::{Metrics, TaskCounts};
use crate::presence::WorkerPresence;
use crate::readiness::{Probes, ReadinessChecker};
use crate::schedules as scheduled;

/// The state of the interface. Cheap to clone.
#[derive(Clone)]
pub struct Api(Arc<Inner>);

/// What an [`Api`] holds: the parts it was given, and what it makes of them.
pub struct Inner {
    parts: Parts,
    /// What will be due.
    pub forecasts: Forecasts,
    /// Carries out what is asked of schedules.
    pub occurrences: Occurrences,
    /// Serialises the requests of this node that write one schedule.
    pub schedule_locks: scheduled::KeyedMutex,
    /// The tasks by state, for the metrics, at most a few seconds old.
    pub counts: TaskCounts,
    /// Pull workers seen since the last flush.
    pub presence: WorkerPresence,
    /// Whether this node can serve.
    pub readiness: ReadinessChecker,
    /// Admission control.
    pub admission: Admission,
    /// Where large requests are read and large answers written.
    pub cpu_pool: CpuPool,
    draining: AtomicBool,
}

/// What the binary hands over.
pub struct Parts {
    /// The tasks. Every write of tasks goes through here, so that the dispatcher gets a hint.
    pub store: Arc<dyn Store>,
    /// The recurring schedules. Every write of schedules goes through here, so that the cron loop
    /// gets a hint.
    pub schedules: Arc<dyn Schedules>,
    /// Who leads, and who owns which partition.
    pub coordinator: Arc<dyn Coordinator>,
    /// The other ports of the store.
    pub database: Arc<dyn SidePorts>,
    /// What this node knows of the dispatch of webhooks.
    pub dispatch_status: DispatchStatus,
    /// Where pull workers wait.
    pub polls: PollQueue,
    /// Settles what pull workers hold.
    pub settler: LeaseSettler,
    /// The store's time.
    pub clock: Arc<dyn Clock>,
    /// This process.
    pub node: NodeId,
    /// The bounds.
    pub config: ApiConfig,
    /// What is counted; other roles of the process count in a clone of it.
    pub metrics: Metrics,
    /// What readiness asks besides the store.
    pub probes: Probes,
}

/// The bounds of the interface.
#[derive(Clone, Debug)]
pub struct ApiConfig {
    /// The limits and defaults of submitted tasks.
    pub submission: SubmissionRules,
    /// Bytes of a request's body.
    pub body_bytes: usize,
    /// Bytes of the body of a batch, of a settle call too.
    pub batch_body_bytes: usize,
    /// Tasks in one batch.
    pub batch_tasks: usize,
    /// Requests handled at once, long polls apart.
    pub requests_in_flight: usize,
    /// Bytes of bodies held at once, roughly; one counts for a quarter of its share at the most.
    pub bodies_bytes: usize,
    /// Workers waiting in a long poll at once.
    pub waiting_workers: usize,
    /// How long a request may take once its body has arrived, the wait of a long poll not counted.
    pub request_deadline: Duration,
    /// A worker not seen for this long is shown as lost.
    pub worker_lost_after: Duration,
    /// How long leases are.
    pub leases: LeaseMillis,
}

/// How long leases are, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct LeaseMillis {
    /// For a worker that does not say it.
    pub default: u64,
    /// The longest that a worker can ask for.
    pub most: u64,
}

impl Default for LeaseMillis {
    fn default() -> Self {
        Self { default: 60_000, most: 3_600_000 }
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
            waiting_workers: 10_000,
            request_deadline: Duration::from_secs(30),
            worker_lost_after: Duration::from_mins(1),
            leases: LeaseMillis::default(),
        }
    }
}

impl Api {
    /// The interface over these parts.
    pub fn new(parts: Parts) -> Self {
        let Parts { store, config, metrics, node, .. } = &parts;
        let factory = TaskFactory::new(config.submission.clone(), *node);
        Self(Arc::new(Inner {
            forecasts: Forecasts::new(parts.database.clone()),
            occurrences: Occurrences::new(Arc::clone(store), factory, *node),
            schedule_locks: scheduled::KeyedMutex::default(),
            counts: TaskCounts::new(Arc::clone(store), metrics),
            presence: WorkerPresence::default(),
            readiness: ReadinessChecker::new(Arc::clone(store), parts.probes.clone()),
            admission: Admission::new(config, metrics),
            cpu_pool: CpuPool::default(),
            draining: AtomicBool::new(false),
            parts,
        }))
    }

    /// From now on the node says that it is not ready, so that nobody sends it more; it serves what
    /// comes all the same.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Whether [`Api::drain`] was called.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }
}

impl Deref for Api {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl Deref for Inner {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}
