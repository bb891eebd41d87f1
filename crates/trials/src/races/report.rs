//! The result of the races, in a table and in sentences.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::kind::Kind;
use super::legal::RoundOutcome;
use crate::checker::{Law, Violation};

/// The maximum number of illegal outcomes and of violations that are shown.
const SHOWN_MAX: usize = 10;

/// The result of all rounds of one kind.
#[derive(Debug)]
pub struct Report {
    /// The kind.
    pub kind: Kind,
    /// How many rounds were run.
    pub rounds: usize,
    /// How often each outcome of the kind's table was seen, in its order.
    pub seen: Vec<OutcomeCount>,
    /// Outcomes that are not in the table, with their evidence.
    pub illegal: Vec<String>,
    /// The laws that were broken.
    pub violations: Vec<Violation>,
    /// SQLite's check of its file in the end: `ok`.
    pub integrity: String,
    /// How the server ended after SIGTERM: 0.
    pub exit: Option<i32>,
    /// Panics and errors in the server's log.
    pub complaints: Vec<String>,
    /// Where the history is, if something was wrong.
    pub history: Option<PathBuf>,
    /// How long it took.
    pub took: Duration,
}

/// How often an outcome was seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct OutcomeCount {
    /// In all.
    pub times: usize,
    /// With the contenders' calls under way at the same time.
    pub raced: usize,
}

impl Report {
    /// No rounds yet.
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            rounds: 0,
            seen: vec![OutcomeCount::default(); kind.table().len()],
            illegal: Vec::new(),
            violations: Vec::new(),
            integrity: String::new(),
            exit: None,
            complaints: Vec::new(),
            history: None,
            took: Duration::ZERO,
        }
    }

    /// Counts one more round. Returns whether it was legal.
    pub fn count(&mut self, outcome: &RoundOutcome) -> bool {
        self.rounds += 1;
        let place = outcome.among(self.kind.table()).and_then(|legal| {
            let same = |other: &super::legal::Legal| std::ptr::eq(other, legal);
            self.kind.table().iter().position(same)
        });
        if let Some(seen) = place.map(|place| &mut self.seen[place]) {
            seen.times += 1;
            seen.raced += usize::from(outcome.raced);
        }
        place.is_some()
    }

    /// Whether nothing illegal happened.
    pub fn is_clean(&self) -> bool {
        self.illegal.is_empty()
            && self.violations.is_empty()
            && self.complaints.is_empty()
            && self.integrity == "ok"
            && self.exit == Some(0)
    }

    /// The required outcomes that were not seen, or only when the calls did not overlap.
    pub fn missing(&self) -> Vec<&'static str> {
        let outcomes = self.kind.table().iter().zip(&self.seen);
        outcomes.filter(|(legal, seen)| !legal.rare && seen.raced == 0).map(|(legal, _)| legal.name).collect()
    }

    /// The result in a line: rounds, seconds, how often each outcome was seen in the order of the
    /// table, and the faults.
    pub fn line(&self) -> String {
        let seen: Vec<String> = self.seen.iter().map(|seen| seen.times.to_string()).collect();
        format!(
            "{:31} {:6} {:6.1} s  {:24} {} illegal, {} violations, {} outcomes missing",
            self.kind.name(),
            self.rounds,
            self.took.as_secs_f64(),
            seen.join(" / "),
            self.illegal.len(),
            self.violations.len(),
            self.missing().len(),
        )
    }

    /// Whether this law was broken.
    pub fn broke(&self, law: Law) -> bool {
        self.violations.iter().any(|violation| violation.law == law)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, rounds) = (self.kind.name(), self.rounds);
        writeln!(f, "{kind}: {rounds} rounds in {:.1} s", self.took.as_secs_f64())?;
        for (legal, seen) in self.kind.table().iter().zip(&self.seen) {
            writeln!(f, "{:8} ({:6} raced)  {}", seen.times, seen.raced, legal.name)?;
        }
        write!(f, "{:8} illegal, {} violations", self.illegal.len(), self.violations.len())?;
        for illegal in self.illegal.iter().take(SHOWN_MAX) {
            write!(f, "\n- illegal: {illegal}")?;
        }
        for violation in self.violations.iter().take(SHOWN_MAX) {
            write!(f, "\n- {violation}")?;
        }
        for complaint in self.complaints.iter().take(SHOWN_MAX) {
            write!(f, "\n- the server logged: {complaint}")?;
        }
        if self.integrity != "ok" || self.exit != Some(0) {
            write!(f, "\n- integrity_check: {}; exit code after SIGTERM: {:?}", self.integrity, self.exit)?;
        }
        for name in self.missing() {
            write!(f, "\n- never seen: {name}")?;
        }
        if let Some(path) = &self.history {
            write!(f, "\nthe whole history: {}", path.display())?;
        }
        Ok(())
    }
}
