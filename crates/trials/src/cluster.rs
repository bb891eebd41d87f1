//! The trial of a cluster: three nodes on one PostgreSQL under load, one fault after the other, and
//! then the check.
//!
//! Each node reaches the database through its own proxy, which leads to the standby after a
//! failover. The load calls any node that is up, as clients behind a balancer do. The database also
//! records what the nodes write. The program `trials` (hundreds of faults) and the tests (each
//! fault once) call [`run`].

mod nemesis;
mod owners;
mod witness;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use punctual_testkit::eventually::look;
use punctual_testkit::postgres::{self, Postgres};
use punctual_testkit::proxy::FaultProxy;

pub use self::nemesis::ClusterFault;
use self::nemesis::Nemesis;
pub use self::witness::{held, left, left_in_the_end};
use crate::caller::Caller;
use crate::checker::check;
use crate::dump::{dump, unfinished};
use crate::history::{History, Recorder};
use crate::kill::Report;
use crate::machine::Machine;
use crate::orders::{self, StandingOrders};
use crate::planted::Bug;
use crate::stages;
use crate::workload::{Scene, Workload, WorkloadSize};

/// The nodes' names.
const NODES: [&str; 3] = ["a", "b", "c"];

/// How far a node's estimate of the database's time may be behind. The estimate is late by the time
/// an answer took to arrive, and a node that has just started on a busy machine has only one.
const LAG_MILLIS: i64 = 500;

/// After every task has finished, leftovers may take this long to disappear: longer than any lease,
/// and longer than the database keeps a session that has lost its client.
const QUIET: Duration = Duration::from_secs(20);

/// The plan of one trial.
#[derive(Clone, Debug)]
pub struct ClusterPlan {
    /// The server's program.
    pub program: PathBuf,
    /// A bug for `punctual-planted`.
    pub bug: Option<Bug>,
    /// The faults, in order; the rest is drawn if there are fewer than `cycles`.
    pub faults: Vec<ClusterFault>,
    /// How many faults.
    pub cycles: usize,
    /// The seed of the random numbers.
    pub seed: u64,
    /// How many submitters, workers and targets there are.
    pub load: WorkloadSize,
    /// How long the database is frozen or out of reach: longer than every lease. A node is frozen
    /// until the others have taken over from it.
    pub freeze: Duration,
    /// How long the cluster has to finish every task.
    pub drain: Duration,
    /// Where the history is left if it breaks a law.
    pub histories: PathBuf,
}

/// The nodes, their proxies, and the database.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Machine>,
    pub(crate) proxies: Vec<FaultProxy>,
    /// The primary.
    pub(crate) postgres: Postgres,
    database: String,
    quiet: Duration,
}

impl Cluster {
    async fn start(plan: &ClusterPlan, recorder: &Recorder) -> Self {
        let postgres = Postgres::start().await;
        let url = postgres.create_database().await;
        let database = url.rsplit('/').next().expect("invariant: a split has a last part").to_owned();
        let (mut nodes, mut proxies) = (Vec::new(), Vec::new());
        for name in NODES {
            let proxy = FaultProxy::before_postgres(postgres.address());
            let node = Machine::new(&plan.program, plan.bug, recorder.clone()).sharing(name, proxy.through(&url));
            nodes.push(node);
            proxies.push(proxy);
        }
        make_schema(&plan.program, &url);
        witness::begin(&url).await;
        for node in &mut nodes {
            node.start().await;
        }
        Self { nodes, proxies, postgres, database, quiet: plan.drain.min(QUIET) }
    }

    /// The URL of the current primary.
    fn url(&self) -> String {
        self.postgres.url(&self.database)
    }

    /// Whether the tables are consistent: `ok`, or the faults.
    async fn integrity(&self) -> String {
        let faults = "SELECT 'tasks that live and are finished: ' || count(*) FROM punctual.tasks
                JOIN punctual.history USING (id) HAVING count(*) > 0
            UNION ALL
            SELECT 'live tasks are ' || t.live || ', but counted as ' || c.counted
            FROM (SELECT count(*) AS live FROM punctual.tasks) t,
                 (SELECT coalesce(sum(tasks), 0) AS counted FROM punctual.counts) c
            WHERE t.live <> c.counted";
        let rows = postgres::execute(&self.url(), faults).await;
        if rows.is_empty() { "ok".to_owned() } else { format!("{rows:?}") }
    }
}

/// Creates the tables, so that they can be watched before the first write.
pub fn make_schema(program: &Path, url: &str) {
    let mut command = Command::new(program);
    let done = command.args(["migrate", "up"]).env("PUNCTUAL_STORE", url).env_remove(Bug::VARIABLE).output();
    let done = done.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Runs the trial; `progress` gets the number of faults so far after each.
pub async fn run(plan: &ClusterPlan, mut progress: impl FnMut(usize)) -> Report {
    let begun = Instant::now();
    let recorder = Recorder::new();
    let mut cluster = Cluster::start(plan, &recorder).await;
    let doors = cluster.nodes.iter().map(Machine::door).collect();
    let scene = Scene::new(Caller::of_many(recorder.clone(), doors));
    let orders = StandingOrders::give(&scene).await;
    let mut workload = Workload::start(&scene, plan.load, plan.seed);
    Box::pin(stages::play(&scene)).await;
    let mut nemesis = Nemesis::new(scene.clone(), plan);
    for cycle in 0..plan.cycles {
        nemesis.strike(&mut cluster, cycle).await;
        progress(cycle + 1);
    }
    workload.enough().await;
    workload.sweep_up(&stages::QUEUES);
    let api = scene.caller.api().await;
    let until = orders.end(&scene, &api, plan.drain).await;
    // The checker reports unfinished tasks.
    look(plan.drain, async || if unfinished(&api).await == 0 { Ok(()) } else { Err(()) }).await.ok();
    workload.end().await;
    let leftovers = cluster.leftovers().await;
    let tasks = dump(&api, &recorder).await;
    let schedules = vec![orders.obeyed(&api, until).await];
    let mut exits = Vec::new();
    for node in &mut cluster.nodes {
        exits.push(node.stop().await.code);
    }
    scene.targets.record_arrivals(&recorder);
    let witness = Some(cluster.witness(leftovers).await);
    let limits = orders::limits();
    let history = History { witness, lag_millis: LAG_MILLIS, limits, schedules, ..recorder.finish(tasks) };
    let mut report = Report::of(&history, check(&history), begun.elapsed());
    report.integrity = cluster.integrity().await;
    report.exit = exits.into_iter().find(|code| *code != Some(0)).unwrap_or(Some(0));
    report.complaints = cluster.nodes.iter().flat_map(Machine::complaints).cloned().collect();
    if !report.is_clean() {
        let of = plan.bug.map_or("cluster", Bug::name);
        let path = plan.histories.join(format!("{of}-{}.jsonl", plan.seed));
        let left = history.write_to(&path);
        report.history = Some(left.unwrap_or_else(|error| panic!("{}: {error}", path.display())));
    }
    report
}
