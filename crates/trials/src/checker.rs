//! Judges a history: a pure function from the observed events to the broken laws.
//!
//! Every trial calls it when its server has drained. A file holds a family of laws. Most laws
//! examine one [`Case`], which is everything that is known about one task; some compare several
//! tasks. The checker compares the outside view (stamps, tokens, answers) with the server's
//! testimony (the audit trail), and trusts neither.
//!
//! A call without an answer may have happened or not: neither breaks a law. Times in the trail are
//! the store's and are compared exactly. Stamps from outside are compared with an allowance for the
//! clocks.

mod answers;
mod attempts;
mod cancelling;
mod case;
mod dependencies;
mod ends;
mod existence;
mod fencing;
mod law;
mod leftovers;
mod limits;
mod liveness;
mod moments;
mod planned;
mod schedules;
#[cfg(test)]
mod specimen;
mod terms;
#[cfg(test)]
mod tests;
mod timing;
mod trail;
mod turns;

use punctual_core::ids::TaskId;

pub use case::Case;
pub use law::{Law, Violation};
use moments::Moments;

use crate::history::History;

/// The laws that the history breaks.
pub fn check(history: &History) -> Vec<Violation> {
    let mut findings = Findings::default();
    existence::check(history, &mut findings);
    terms::check(history, &mut findings);
    leftovers::check(history, &mut findings);
    schedules::check(history, &mut findings);
    let cases = case::cases(history);
    for case in &cases {
        findings.about = Some(case.task);
        ends::check(case, &mut findings);
        fencing::check(case, &mut findings);
        attempts::check(case, &mut findings);
        timing::check(case, &mut findings);
        cancelling::check(case, &mut findings);
        trail::check(case, &mut findings);
        answers::check(case, &mut findings);
        liveness::check(case, &mut findings);
    }
    let moments = Moments::of(history);
    turns::check(&cases, &moments, &mut findings);
    limits::check(history, &cases, &moments, &mut findings);
    dependencies::check(history, &cases, &moments, &mut findings);
    findings.violations
}

/// The violations found so far.
#[derive(Default)]
struct Findings {
    about: Option<TaskId>,
    violations: Vec<Violation>,
}

impl Findings {
    /// Records a violation of the law unless `holds`.
    fn demand(&mut self, holds: bool, law: Law, evidence: impl FnOnce() -> String) {
        if !holds {
            self.violations.push(Violation { law, task: self.about, evidence: evidence() });
        }
    }
}
