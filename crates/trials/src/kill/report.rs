//! The result of a trial, in numbers and sentences.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use punctual_core::state::State;

use punctual_client::RunEnded;

use crate::checker::{Law, Violation};
use crate::history::{CallAnswer, Dumped, History, Op, Submission};

/// The maximum number of violations that are shown; the history has them all.
const SHOWN_MAX: usize = 20;

/// The outcome of a trial.
#[derive(Debug)]
pub struct Report {
    /// Submissions that were acknowledged, by key.
    pub acknowledged: usize,
    /// Calls that ended without an answer.
    pub unanswered: usize,
    /// Tasks that exist in the end.
    pub tasks: usize,
    /// Tasks that are completed in the end.
    pub completed: usize,
    /// Completed tasks with an ordering key.
    pub ordered: usize,
    /// Completed tasks with dependencies.
    pub dependent: usize,
    /// Completed tasks of a queue with a limit.
    pub limited: usize,
    /// Completed tasks that a schedule made.
    pub scheduled: usize,
    /// Deliveries of tasks.
    pub deliveries: usize,
    /// Runs that were lost with their worker or their server, and so may have done their work
    /// twice.
    pub repeated: usize,
    /// How often the server was killed.
    pub kills: usize,
    /// How long the trial took.
    pub took: Duration,
    /// SQLite's check of its file in the end: `ok`.
    pub integrity: String,
    /// How the server ended after SIGTERM: 0.
    pub exit: Option<i32>,
    /// Panics and errors in the server's log.
    pub complaints: Vec<String>,
    /// The laws that were broken.
    pub violations: Vec<Violation>,
    /// Where the history is, if it is not clean.
    pub history: Option<PathBuf>,
}

impl Report {
    /// The numbers of a history.
    pub fn of(history: &History, violations: Vec<Violation>, took: Duration) -> Self {
        let acknowledged: BTreeSet<&str> = history
            .calls()
            .filter_map(|call| match (&call.op, &call.answer) {
                (Op::Submit(submission), CallAnswer::Ok(_)) => Some(submission.key.as_str()),
                _ => None,
            })
            .collect();
        let lost = |outcome| matches!(outcome, Some(RunEnded::Lost | RunEnded::TimedOut));
        let runs = history.dump.iter().flat_map(|dumped| &dumped.runs);
        Self {
            acknowledged: acknowledged.len(),
            unanswered: history.calls().filter(|call| matches!(call.answer, CallAnswer::Unknown)).count(),
            tasks: history.dump.len(),
            completed: completed(history).count(),
            ordered: ran(history, |submission| submission.ordering_key.is_some()),
            dependent: ran(history, |submission| !submission.depends_on.is_empty()),
            limited: ran(history, |submission| history.limits.contains_key(&submission.queue)),
            scheduled: completed(history).filter(|dumped| dumped.scheduled.is_some()).count(),
            deliveries: history.grants().count() + history.arrivals().count(),
            repeated: runs.filter(|run| lost(run.outcome)).count(),
            kills: history.acts().filter(|act| act.what.ends_with("kill")).count(),
            took,
            integrity: String::new(),
            exit: None,
            complaints: Vec::new(),
            violations,
            history: None,
        }
    }

    /// Whether the trial found no fault.
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty() && self.complaints.is_empty() && self.integrity == "ok" && self.exit == Some(0)
    }

    /// Whether this law was broken.
    pub fn broke(&self, law: Law) -> bool {
        self.violations.iter().any(|violation| violation.law == law)
    }
}

fn completed(history: &History) -> impl Iterator<Item = &Dumped> {
    history.dump.iter().filter(|dumped| dumped.state == State::Completed)
}

/// How many tasks of the `wanted` submissions are completed.
fn ran(history: &History, wanted: impl Fn(&Submission) -> bool) -> usize {
    let submissions = history.calls().filter_map(|call| call.op.submission());
    let keys: BTreeSet<&str> =
        submissions.filter(|submission| wanted(submission)).map(|submission| submission.key.as_str()).collect();
    completed(history).filter(|dumped| dumped.key.as_deref().is_some_and(|key| keys.contains(key))).count()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { acknowledged, unanswered, tasks, completed, deliveries, repeated, kills, took, .. } = self;
        writeln!(f, "{kills} kills in {:.1} s", took.as_secs_f64())?;
        writeln!(f, "{acknowledged} submissions acknowledged, {unanswered} calls unanswered, {tasks} tasks")?;
        writeln!(f, "{deliveries} deliveries, {completed} tasks completed, {repeated} runs lost and repeated")?;
        let Self { ordered, dependent, limited, scheduled, .. } = self;
        writeln!(
            f,
            "completed: {ordered} with an ordering key, {dependent} dependent, {limited} limited, {scheduled} scheduled"
        )?;
        writeln!(f, "integrity_check: {}; exit code after SIGTERM: {:?}", self.integrity, self.exit)?;
        for complaint in self.complaints.iter().take(SHOWN_MAX) {
            writeln!(f, "the server logged: {complaint}")?;
        }
        write!(f, "{} violations", self.violations.len())?;
        for violation in self.violations.iter().take(SHOWN_MAX) {
            write!(f, "\n- {violation}")?;
        }
        if let Some(path) = &self.history {
            write!(f, "\nthe whole history: {}", path.display())?;
        }
        Ok(())
    }
}
