//! The load of a trial: submitters, workers, webhook targets and meddlers, all at once and at
//! random.
//!
//! All actors use generators seeded by the trial's seed, so a seed repeats their requests, but not
//! the order in which the server handles them. Submitters and meddlers stop when the faults do.
//! Workers continue until the trial is over, so that everything can drain.

mod meddlers;
mod submitters;
mod targets;
mod workers;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use punctual_core::ids::TaskId;
use punctual_core::time::Timestamp;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;

use crate::caller::Caller;

pub use targets::{TemperTargets, arrival};

/// The queue that the workers of the load work for.
pub const QUEUE: &str = "work";

/// How many of each.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadSize {
    /// Submitters of single tasks.
    pub submitters: usize,
    /// Pull workers.
    pub workers: usize,
    /// The longest pause of a submitter between two tasks.
    pub pause: Duration,
}

impl WorkloadSize {
    /// Enough to have every kind of request in flight at any moment.
    pub const USUAL: Self = Self { submitters: 4, workers: 3, pause: Duration::from_millis(40) };
    /// Enough to keep a server busy.
    pub const LIGHT: Self = Self { submitters: 1, workers: 2, pause: Duration::from_millis(100) };
}

/// The state that all actors share.
#[derive(Clone)]
pub struct Scene {
    /// The caller of the server.
    pub caller: Caller,
    /// Where webhooks go.
    pub targets: Arc<TemperTargets>,
    /// Tasks that were submitted for later, for meddlers.
    waiting: Arc<Mutex<Vec<TaskId>>>,
    /// Tasks that were acknowledged, as dependencies for other tasks.
    known: Arc<Mutex<Vec<TaskId>>>,
    over: Arc<AtomicBool>,
    keys: Arc<AtomicUsize>,
}

impl Scene {
    /// An empty scene.
    pub fn new(caller: Caller) -> Self {
        let targets = Arc::new(TemperTargets::start());
        let (waiting, known) = (Arc::default(), Arc::default());
        Self { caller, targets, waiting, known, over: Arc::default(), keys: Arc::default() }
    }

    /// An unused key.
    pub fn key(&self, of: &str) -> String {
        format!("{of}-{}", self.keys.fetch_add(1, Ordering::Relaxed))
    }

    /// The instant in this many milliseconds.
    pub fn in_millis(&self, millis: i64) -> Timestamp {
        self.caller.recorder().now().wall().plus_millis(millis)
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// The actors of a load.
pub struct Workload {
    scene: Scene,
    /// Actors that end by themselves once the load is over.
    wanting: JoinSet<()>,
    /// Actors that work until they are dropped.
    working: JoinSet<()>,
}

impl Workload {
    /// Starts all actors.
    pub fn start(scene: &Scene, load: WorkloadSize, seed: u64) -> Self {
        let (mut wanting, mut working) = (JoinSet::new(), JoinSet::new());
        let mut seeds = StdRng::seed_from_u64(seed);
        let mut dice = || StdRng::seed_from_u64(seeds.random());
        for _ in 0..load.submitters {
            wanting.spawn(submitters::singles(scene.clone(), dice(), load.pause));
        }
        wanting.spawn(submitters::batches(scene.clone(), dice(), load.pause * 8));
        wanting.spawn(submitters::ordered(scene.clone(), dice(), load.pause * 5));
        wanting.spawn(submitters::dependent(scene.clone(), dice(), load.pause * 5));
        wanting.spawn(meddlers::canceller(scene.clone(), dice()));
        wanting.spawn(meddlers::editor(scene.clone(), dice()));
        for number in 0..load.workers {
            working.spawn(workers::worker(scene.clone(), format!("worker-{number}"), dice()));
        }
        Self { scene: scene.clone(), wanting, working }
    }

    /// Stops submitters and meddlers. Returns when their last call was answered.
    pub async fn enough(&mut self) {
        self.scene.over.store(true, Ordering::Relaxed);
        while let Some(ended) = self.wanting.join_next().await {
            ended.expect("an actor does not panic");
        }
    }

    /// Starts a worker for queues that no longer have one.
    pub fn sweep_up(&mut self, queues: &'static [&'static str]) {
        self.working.spawn(workers::sweeper(self.scene.caller.clone(), queues));
    }

    /// Stops the workers.
    pub async fn end(mut self) {
        self.working.abort_all();
        while let Some(ended) = self.working.join_next().await {
            if let Err(error) = ended {
                assert!(error.is_cancelled(), "a worker does not panic: {error}");
            }
        }
    }
}

/// One of the last `last` tasks, if there is any.
fn recent(tasks: &[TaskId], last: usize, dice: &mut StdRng) -> Option<TaskId> {
    let back = dice.random_range(0..last).min(tasks.len().checked_sub(1)?);
    Some(tasks[tasks.len() - 1 - back])
}

/// Waits for a random time up to `most`: the pace of an actor, not a wait for a condition.
async fn dawdle(dice: &mut StdRng, most: Duration) {
    tokio::time::sleep(most.mul_f64(dice.random())).await;
}
