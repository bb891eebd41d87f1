//! The trial of races: two or more callers start together at a barrier, and only one of them can
//! win.
//!
//! ```text
//! many rounds at a time: set up ─▶ barrier ─▶ calls ─▶ read the task ─▶ in the table of legal outcomes?
//! and after the last round of a kind: dump ─▶ check
//! ```
//!
//! A kind of race ([`Kind`]) has its own server and history. The program `trials` (thousands of
//! rounds) and the tests (dozens) call [`run`]. It returns its findings and never panics because
//! the product broke a law.

mod dispatch;
mod expiry;
mod keys;
mod kind;
mod legal;
mod pulse;
mod report;
mod round;
mod settling;
mod twice;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use punctual_testkit::sink::Sink;
use tokio::task::JoinSet;

pub use self::kind::Kind;
pub use self::legal::Legal;
use self::legal::RoundOutcome;
use self::pulse::LastVisit;
pub use self::report::{OutcomeCount, Report};
use self::round::Round;
use crate::caller::Caller;
use crate::checker::check;
use crate::dump::dump;
use crate::history::Recorder;
use crate::machine::Machine;
use crate::planted::Bug;
use crate::workload::arrival;

/// The plan of one trial.
#[derive(Clone, Debug)]
pub struct RacePlan {
    /// The server's program.
    pub program: PathBuf,
    /// A bug for `punctual-planted`.
    pub bug: Option<Bug>,
    /// How many rounds.
    pub rounds: usize,
    /// The seed of the random numbers.
    pub seed: u64,
    /// Where the history is left if something is wrong.
    pub histories: PathBuf,
}

/// Runs all rounds of one kind; `progress` gets the number of rounds so far after each.
pub async fn run(plan: &RacePlan, kind: Kind, progress: impl Fn(usize) + Send + Sync + 'static) -> Report {
    let begun = Instant::now();
    let recorder = Recorder::new();
    let mut machine = Machine::new(&plan.program, plan.bug, recorder.clone()).without_breakers();
    machine.start().await;
    let caller = Caller::new(recorder.clone(), machine.door());
    let sink = Arc::new(Sink::start());
    let all = Arc::new(RoundsOfKind {
        kind,
        count: plan.rounds,
        seed: plan.seed,
        next: AtomicUsize::new(0),
        report: Mutex::new(Report::new(kind)),
        progress: Box::new(progress),
    });
    let pulse = Arc::<LastVisit>::default();
    let mut places = JoinSet::new();
    for place in 0..kind.at_once().min(plan.rounds) {
        let round = Round::new(&caller, kind.seats(), kind.jitter(), Arc::clone(&sink), Arc::clone(&pulse)).await;
        places.spawn(Arc::clone(&all).hold(round, place));
    }
    while let Some(ended) = places.join_next().await {
        ended.expect("a round does not panic");
    }
    let tasks = dump(&caller.api().await, &recorder).await;
    let exit = machine.stop().await;
    for hit in sink.all_hits() {
        recorder.arrived(arrival(&hit));
    }
    let history = recorder.finish(tasks);
    let all = Arc::into_inner(all).expect("invariant: every place has ended");
    let mut report = all.report.into_inner();
    report.violations = check(&history);
    report.integrity = machine.integrity();
    report.exit = exit.code;
    report.complaints = machine.complaints().to_vec();
    report.took = begun.elapsed();
    if !report.is_clean() {
        let path = plan.histories.join(format!("{}-{}.jsonl", plan.bug.map_or(kind.name(), Bug::name), plan.seed));
        let left = history.write_to(&path);
        report.history = Some(left.unwrap_or_else(|error| panic!("{}: {error}", path.display())));
    }
    report
}

/// The rounds of a kind, several of them at a time.
struct RoundsOfKind {
    kind: Kind,
    count: usize,
    seed: u64,
    next: AtomicUsize,
    report: Mutex<Report>,
    progress: Box<dyn Fn(usize) + Send + Sync>,
}

impl RoundsOfKind {
    /// Runs one round after the other until all are done.
    async fn hold(self: Arc<Self>, mut round: Round, place: usize) {
        let name = self.kind.name();
        let mut queue = format!("{name}-{place}");
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.count {
                return;
            }
            let seed = self.seed ^ (self.kind as u64) << 32 ^ number as u64;
            round.begin(format!("{name}-{number}"), &queue, seed);
            let outcome = self.kind.play(&mut round).await;
            if !self.count(&outcome) {
                let evidence = evidence(&round, number, &outcome).await;
                self.report.lock().illegal.push(evidence);
                // The next round must not find tasks that this one may have left.
                queue = format!("{name}-{place}-{number}");
            }
        }
    }

    fn count(&self, outcome: &RoundOutcome) -> bool {
        let (legal, held) = {
            let mut report = self.report.lock();
            (report.count(outcome), report.rounds)
        };
        (self.progress)(held);
        legal
    }
}

/// The evidence for an illegal outcome.
async fn evidence(round: &Round, number: usize, outcome: &RoundOutcome) -> String {
    let trail = match outcome.task {
        Some(task) => round.trail(task).await,
        None => String::new(),
    };
    format!("round {number} ({}): {outcome}; contender {} was answered first; {trail}", round.key, outcome.first)
}
