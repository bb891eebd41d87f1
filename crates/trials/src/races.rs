//! The trial of races: two or more callers meet at a barrier and want what only one of them can have.
//!
//! ```text
//! many rounds at a time: set up ─▶ barrier ─▶ calls ─▶ how does the task stand? ─▶ in the table of legal outcomes?
//! and after the last round of a kind: dump ─▶ check
//! ```
//!
//! A kind of race ([`Kind`]) has a server and a history of its own. [`run`] is called by the program `trials`
//! (thousands of rounds) and by the tests (dozens). It returns what it found and never panics because the product
//! broke a law.

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
use self::legal::Outcome;
use self::pulse::Pulse;
pub use self::report::{Report, Seen};
use self::round::Round;
use crate::caller::Caller;
use crate::checker::check;
use crate::dump::dump;
use crate::history::Recorder;
use crate::machine::Machine;
use crate::planted::Bug;
use crate::workload::arrival;

/// What to try.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The server's program.
    pub program: PathBuf,
    /// A bug for `punctual-planted`.
    pub bug: Option<Bug>,
    /// How many rounds.
    pub rounds: usize,
    /// What the dice begin with.
    pub seed: u64,
    /// Where a history with something wrong in it is left.
    pub histories: PathBuf,
}

/// Holds all rounds of one kind; `progress` is told after each how many have been held.
pub async fn run(plan: &Plan, kind: Kind, progress: impl Fn(usize) + Send + Sync + 'static) -> Report {
    let begun = Instant::now();
    let recorder = Recorder::new();
    let mut machine = Machine::new(&plan.program, plan.bug, recorder.clone()).without_breakers();
    machine.start().await;
    let caller = Caller::new(recorder.clone(), machine.door());
    let sink = Arc::new(Sink::start());
    let all = Arc::new(Rounds {
        kind,
        count: plan.rounds,
        seed: plan.seed,
        next: AtomicUsize::new(0),
        report: Mutex::new(Report::new(kind)),
        progress: Box::new(progress),
    });
    let pulse = Arc::<Pulse>::default();
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

/// The rounds of a kind, held in several places at a time.
struct Rounds {
    kind: Kind,
    count: usize,
    seed: u64,
    next: AtomicUsize,
    report: Mutex<Report>,
    progress: Box<dyn Fn(usize) + Send + Sync>,
}

impl Rounds {
    /// Holds rounds in one place until there are enough.
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
                // What it may have left behind is not for the next round.
                queue = format!("{name}-{place}-{number}");
            }
        }
    }

    fn count(&self, outcome: &Outcome) -> bool {
        let (legal, held) = {
            let mut report = self.report.lock();
            (report.count(outcome), report.rounds)
        };
        (self.progress)(held);
        legal
    }
}

/// What somebody needs who looks into an illegal outcome.
async fn evidence(round: &Round, number: usize, outcome: &Outcome) -> String {
    let trail = match outcome.task {
        Some(task) => round.told(task).await,
        None => String::new(),
    };
    format!("round {number} ({}): {outcome}; contender {} was answered first; {trail}", round.key, outcome.first)
}
