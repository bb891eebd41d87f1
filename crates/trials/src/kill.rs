//! The trial of `kill -9`: a server under load is killed many times and must drain afterwards. Then
//! its history is checked.
//!
//! ```text
//! stages ─▶ cycle: load, something at stake, kill -9, start ─▶ … ─▶ quiet ─▶ drain ─▶ dump ─▶ check
//! ```
//!
//! The program `trials` (hundreds of cycles) and the tests (a few) call [`run`]. It returns its
//! findings and never panics because the product broke a law.

mod nemesis;
mod report;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use punctual_testkit::eventually::look;
use punctual_testkit::http::ApiClient;

use self::nemesis::Nemesis;
pub use self::report::Report;
use crate::caller::Caller;
use crate::checker::check;
use crate::dump::{dump, unfinished};
use crate::history::{History, Recorder};
use crate::machine::Machine;
use crate::orders::{self, StandingOrders};
use crate::planted::Bug;
use crate::stages;
use crate::workload::{Scene, Workload, WorkloadSize};

/// The plan of one trial.
#[derive(Clone, Debug)]
pub struct KillPlan {
    /// The server's program.
    pub program: PathBuf,
    /// A bug for `punctual-planted`.
    pub bug: Option<Bug>,
    /// How often the server is killed under load.
    pub cycles: usize,
    /// The seed of the random numbers.
    pub seed: u64,
    /// How many submitters, workers and targets there are.
    pub load: WorkloadSize,
    /// How long the server has to finish every task.
    pub drain: Duration,
    /// Where the history is left if it breaks a law.
    pub histories: PathBuf,
}

/// Runs the trial; `progress` gets the number of cycles done after each.
pub async fn run(plan: &KillPlan, mut progress: impl FnMut(usize)) -> Report {
    let begun = Instant::now();
    let recorder = Recorder::new();
    let mut machine = Machine::new(&plan.program, plan.bug, recorder.clone());
    let scene = Scene::new(Caller::new(recorder.clone(), machine.door()));
    machine.start().await;
    let orders = StandingOrders::give(&scene).await;
    let mut workload = Workload::start(&scene, plan.load, plan.seed);
    // A dozen calls at a time make a large future.
    Box::pin(stages::play(&scene)).await;
    let mut nemesis = Nemesis::new(scene.clone(), plan.seed);
    for cycle in 0..plan.cycles {
        nemesis.strike(&mut machine, cycle).await;
        progress(cycle + 1);
    }
    workload.enough().await;
    // On a busy machine a stage may have given up waiting for a task.
    workload.sweep_up(&stages::QUEUES);
    let api = scene.caller.api().await;
    let until = orders.end(&scene, &api, plan.drain).await;
    drain(&api, plan.drain).await;
    workload.end().await;
    let tasks = dump(&api, &recorder).await;
    let schedules = vec![orders.obeyed(&api, until).await];
    let exit = machine.stop().await;
    scene.targets.record_arrivals(&recorder);
    let history = History { limits: orders::limits(), schedules, ..recorder.finish(tasks) };
    let mut report = Report::of(&history, check(&history), begun.elapsed());
    report.integrity = machine.integrity();
    report.exit = exit.code;
    report.complaints = machine.complaints().to_vec();
    if !report.is_clean() {
        let of = plan.bug.map_or("kills", Bug::name);
        let path = plan.histories.join(format!("{of}-{}.jsonl", plan.seed));
        let left = history.write_to(&path);
        report.history = Some(left.unwrap_or_else(|error| panic!("{}: {error}", path.display())));
    }
    report
}

/// Waits until every task has finished, or the time is up.
async fn drain(api: &ApiClient, within: Duration) {
    // The checker reports unfinished tasks.
    look(within, async || if unfinished(api).await == 0 { Ok(()) } else { Err(()) }).await.ok();
}
