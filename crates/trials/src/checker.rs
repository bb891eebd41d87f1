//! Judges a history: a pure function from what was seen to the laws that were broken.
//!
//! Called by every trial when its server has drained. A file holds a family of laws; most look at
//! one [`Case`], which is everything that is known about one task, and some at how several tasks
//! stand to each other. The outside view (stamps, tokens, answers) and the server's testimony (the
//! audit trail) are held against each other, so that neither has to be believed.
//!
//! What has no answer may have happened or not: no law is broken by either. Times in the trail are
//! the store's and are compared exactly; stamps from outside are compared with an allowance for the
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

/// The laws that the history breaks; none, if all is well.
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

/// What the laws have found so far.
#[derive(Default)]
struct Findings {
    about: Option<TaskId>,
    violations: Vec<Violation>,
}

impl Findings {
    /// A law is broken unless `holds`.
    fn demand(&mut self, holds: bool, law: Law, evidence: impl FnOnce() -> String) {
        if !holds {
            self.violations.push(Violation { law, task: self.about, evidence: evidence() });
        }
    }
}
