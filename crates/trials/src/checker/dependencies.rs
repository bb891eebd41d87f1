//! Law 13: a task with dependencies begins once all of them have finished as its policy requires. A
//! dependency that does not complete ends the task or releases it, by the policy.
//!
//! A dead letter counts as not completed, unless it was re-driven and completed in time.

use std::collections::{HashMap, HashSet};

use punctual_core::ids::TaskId;
use punctual_core::state::State;
use punctual_core::task::OnDependencyFailure;

use super::Findings;
use super::case::Case;
use super::law::Law;
use super::moments::{Moments, WriteMoment};
use crate::history::{CallAnswer, History, Op, TrailStep};

/// Checks every task with dependencies.
pub fn check(history: &History, cases: &[Case<'_>], moments: &Moments, findings: &mut Findings) {
    not_unknown(history, findings);
    let tasks: HashMap<TaskId, &Case<'_>> = cases.iter().map(|case| (case.task, case)).collect();
    for child in cases {
        let Some(submission) = child.submission().filter(|submission| !submission.depends_on.is_empty()) else {
            continue;
        };
        // Another law reports a missing task.
        let parents: Vec<&Case<'_>> = submission.depends_on.iter().filter_map(|id| tasks.get(id).copied()).collect();
        findings.about = Some(child.task);
        let family = Family { child, parents, policy: submission.on_failure, moments };
        family.begins_in_time(findings);
        family.follows_the_policy(findings);
        family.is_released(findings);
    }
}

/// No acknowledged task is refused as an unknown dependency.
fn not_unknown(history: &History, findings: &mut Findings) {
    findings.about = None;
    let mut known: HashSet<TaskId> = HashSet::new();
    // In the order of their answers.
    for call in history.calls() {
        let Op::Submit(submission) = &call.op else { continue };
        known.extend(call.answer.shown().and_then(|shown| shown.task));
        let is_refused = matches!(&call.answer, CallAnswer::Refused { code, .. } if code == "unknown_dependency");
        let is_known = submission.depends_on.iter().all(|id| known.contains(id));
        findings.demand(!is_refused || !is_known, Law::DependenciesHold, || {
            format!("all its dependencies were acknowledged before {call:?}")
        });
    }
}

/// A task and its dependencies.
struct Family<'a> {
    child: &'a Case<'a>,
    parents: Vec<&'a Case<'a>>,
    policy: OnDependencyFailure,
    moments: &'a Moments,
}

impl<'a> Family<'a> {
    /// It is neither released nor claimed before all dependencies are as its policy requires.
    fn begins_in_time(&self, findings: &mut Findings) {
        let steps = self.child.trail().iter();
        for step in steps.filter(|step| step.is("unblocked") || step.is("claimed")) {
            let Some(moment) = self.moments.at(self.child.task, step) else { continue };
            for parent in &self.parents {
                let suffices = |end: &TrailStep| end.to == State::Completed || self.policy == OnDependencyFailure::Run;
                findings.demand(self.ends(parent, moment).any(suffices), Law::DependenciesHold, || {
                    format!("{} before {}; {}", step.reason, named_summary(parent), self.child.summary())
                });
            }
        }
    }

    /// A dependency that did not complete ends it, by its policy.
    fn follows_the_policy(&self, findings: &mut Findings) {
        let Some(step) = self.child.trail().iter().find(|step| step.is("dependency_failed")) else { return };
        let Some(moment) = self.moments.at(self.child.task, step) else { return };
        let did_fail =
            self.parents.iter().any(|parent| self.ends(parent, moment).any(|end| end.to != State::Completed));
        let wanted = match self.policy {
            OnDependencyFailure::Cancel => Some(State::Cancelled),
            OnDependencyFailure::Fail => Some(State::Failed),
            OnDependencyFailure::Run => None,
        };
        findings.demand(did_fail && wanted == Some(step.to), Law::DependenciesHold, || {
            let parents: Vec<String> = self.parents.iter().map(|parent| named_summary(parent)).collect();
            format!("taken along ({:?}) by {parents:?}; {}", self.policy, self.child.summary())
        });
    }

    /// Once all dependencies have finished, it no longer waits.
    fn is_released(&self, findings: &mut Findings) {
        let is_at_rest = |case: &Case<'_>| case.dumped.is_some_and(|dumped| dumped.state.is_final());
        let waits = self.child.dumped.is_some_and(|dumped| dumped.state == State::Blocked);
        findings.demand(!waits || !self.parents.iter().all(|parent| is_at_rest(parent)), Law::DependenciesHold, || {
            let parents: Vec<String> = self.parents.iter().map(|parent| named_summary(parent)).collect();
            format!("waits, but all its dependencies have finished: {parents:?}; {}", self.child.summary())
        });
    }

    /// The steps with which a parent had finished at a moment: more than one if it was re-driven.
    fn ends(&self, parent: &Case<'a>, by: WriteMoment) -> impl Iterator<Item = &'a TrailStep> {
        let (task, moments) = (parent.task, self.moments);
        let is_in_time = move |step: &&TrailStep| moments.at(task, step).is_none_or(|moment| moment <= by);
        parent.trail().iter().filter(|step| step.to.is_final()).filter(is_in_time)
    }
}

fn named_summary(parent: &Case<'_>) -> String {
    format!("{}, {}", parent.task, parent.summary())
}
