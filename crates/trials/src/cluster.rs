//! The trial of a cluster: three nodes on one PostgreSQL under load, one fault after the other, and then the judgement.
//!
//! Each node reaches the database through a proxy of its own. The load talks to any node that is up, as clients behind a
//! balancer would. [`run`] is called by the program `trials` (hundreds of faults) and by the tests (each fault once).

mod nemesis;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use punctual_testkit::eventually::look;
use punctual_testkit::postgres::{self, Postgres};
use punctual_testkit::proxy::FaultProxy;

pub use self::nemesis::Fault;
use self::nemesis::Nemesis;
use crate::caller::Caller;
use crate::checker::check;
use crate::dump::{dump, unfinished};
use crate::history::Recorder;
use crate::kill::Report;
use crate::machine::Machine;
use crate::stages;
use crate::workload::{Load, Scene, Workload};

/// The nodes' names.
const NODES: [&str; 3] = ["a", "b", "c"];

/// What to try.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The server's program.
    pub program: PathBuf,
    /// The faults, one after the other; drawn when there are fewer than cycles.
    pub faults: Vec<Fault>,
    /// How many faults.
    pub cycles: usize,
    /// What the dice begin with.
    pub seed: u64,
    /// Who does what.
    pub load: Load,
    /// How long something stays frozen: longer than every lease.
    pub freeze: Duration,
    /// How long the cluster has to bring everything to its end.
    pub drain: Duration,
    /// Where a history with a violation in it is left.
    pub histories: PathBuf,
}

/// The nodes, their ways to the database, and the database.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Machine>,
    pub(crate) proxies: Vec<FaultProxy>,
    pub(crate) postgres: Postgres,
    url: String,
}

impl Cluster {
    async fn start(plan: &Plan, recorder: &Recorder) -> Self {
        let postgres = Postgres::start().await;
        let url = postgres.create_database().await;
        let (mut nodes, mut proxies) = (Vec::new(), Vec::new());
        for name in NODES {
            let proxy = FaultProxy::before_postgres(postgres.address());
            let node = Machine::new(&plan.program, None, recorder.clone()).sharing(name, proxy.through(&url));
            nodes.push(node);
            proxies.push(proxy);
        }
        for node in &mut nodes {
            node.start().await;
        }
        Self { nodes, proxies, postgres, url }
    }

    /// What the tables say about each other: `ok`, or what does not fit.
    async fn integrity(&self) -> String {
        let faults = "SELECT 'tasks that live and are finished: ' || count(*) FROM punctual.tasks
                JOIN punctual.history USING (id) HAVING count(*) > 0
            UNION ALL
            SELECT 'live tasks are ' || t.live || ', but counted as ' || c.counted
            FROM (SELECT count(*) AS live FROM punctual.tasks) t,
                 (SELECT coalesce(sum(tasks), 0) AS counted FROM punctual.counts) c
            WHERE t.live <> c.counted";
        let rows = postgres::execute(&self.url, faults).await;
        if rows.is_empty() { "ok".to_owned() } else { format!("{rows:?}") }
    }
}

/// Tries it; `progress` is told after every fault how many there have been.
pub async fn run(plan: &Plan, mut progress: impl FnMut(usize)) -> Report {
    let begun = Instant::now();
    let recorder = Recorder::new();
    let mut cluster = Cluster::start(plan, &recorder).await;
    let doors = cluster.nodes.iter().map(Machine::door).collect();
    let scene = Scene::new(Caller::of_many(recorder.clone(), doors));
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
    // What is left then is told by the checker.
    look(plan.drain, async || if unfinished(&api).await == 0 { Ok(()) } else { Err(()) }).await.ok();
    workload.end().await;
    let tasks = dump(&api, &recorder).await;
    let mut exits = Vec::new();
    for node in &mut cluster.nodes {
        exits.push(node.stop().await.code);
    }
    scene.targets.tell(&recorder);
    let history = recorder.finish(tasks);
    let mut report = Report::of(&history, check(&history), begun.elapsed());
    report.integrity = cluster.integrity().await;
    report.exit = exits.into_iter().find(|code| *code != Some(0)).unwrap_or(Some(0));
    report.complaints = cluster.nodes.iter().flat_map(Machine::complaints).cloned().collect();
    if !report.is_clean() {
        let path = plan.histories.join(format!("cluster-{}.jsonl", plan.seed));
        let left = history.write_to(&path);
        report.history = Some(left.unwrap_or_else(|error| panic!("{}: {error}", path.display())));
    }
    report
}
