//! Laws 3 and 4: a task ends once, and is completed by its newest token.

use std::collections::BTreeSet;

use punctual_core::state::State;

use super::Findings;
use super::case::Case;
use super::law::Law;
use crate::history::{TrailStep, WorkerReport, result_by};

/// Checks how the task ended.
pub fn check(case: &Case<'_>, findings: &mut Findings) {
    let trail = case.trail();
    for pair in trail.windows(2) {
        let redriven = pair[0].to == State::DeadLettered && pair[1].is("redriven");
        findings.demand(!pair[0].to.is_final() || redriven, Law::FinalIsFinal, || case.summary());
    }
    for generation in trail.split(|step| step.is("redriven")) {
        let completions = generation.iter().filter(|step| step.to == State::Completed).count();
        findings
            .demand(completions <= 1, Law::OneCompletion, || format!("{completions} completions; {}", case.summary()));
    }
    for (at, step) in trail.iter().enumerate().filter(|(_, step)| step.to == State::Completed) {
        let newest = trail[..at].iter().rev().find(|step| step.is("started"));
        let by_newest = newest.is_some_and(|started| started.version + 1 == step.version);
        findings.demand(by_newest, Law::OneCompletion, || {
            format!("completed at version {}, not right after its newest start; {}", step.version, case.summary())
        });
    }
    accepted(case, findings);
    result_of_completion(case, findings);
}

/// A completed task has the result of the worker that completed it. The history does not have a
/// webhook's answer.
fn result_of_completion(case: &Case<'_>, findings: &mut Findings) {
    let Some(dumped) = case.dumped.filter(|dumped| dumped.state == State::Completed && !dumped.pushed) else { return };
    let token = dumped.version - 1;
    let completions = case.settles().filter(|settle| settle.report == WorkerReport::Completed && settle.token == token);
    let (mut possible, mut certain) = (false, true);
    for settle in completions.filter(|settle| settle.call.answer.may_have_happened()) {
        let this = dumped.result.as_ref() == Some(&result_by(settle.worker, token));
        possible |= this;
        certain &= this || !settle.accepted();
    }
    findings.demand(possible && certain, Law::OneCompletion, || {
        let reports: Vec<_> = case.settles().map(|settle| settle.call).collect();
        format!("the result is {:?}, but {reports:?}", dumped.result)
    });
}

/// The answers to workers' completions.
fn accepted(case: &Case<'_>, findings: &mut Findings) {
    let completions: Vec<_> =
        case.settles().filter(|settle| settle.report == WorkerReport::Completed && settle.accepted()).collect();
    for settle in &completions {
        let newer = case.deliveries().find(|other| other.token > settle.token && other.at < settle.call.invoked);
        findings.demand(newer.is_none(), Law::OneCompletion, || {
            format!("token {} completed after {newer:?} was handed out: {:?}", settle.token, settle.call)
        });
    }
    // Between two re-drives: tokens up to the version of a re-drive belong to the life before it.
    let redrives: Vec<u64> =
        case.trail().iter().filter(|step| step.is("redriven")).map(|step: &TrailStep| step.version).collect();
    let life = |token: u64| redrives.iter().filter(|version| **version < token).count();
    let tokens: BTreeSet<u64> = completions.iter().map(|settle| settle.token).collect();
    let lives: BTreeSet<usize> = tokens.iter().map(|token| life(*token)).collect();
    findings.demand(tokens.len() == lives.len(), Law::OneCompletion, || {
        format!("completions of the tokens {tokens:?} were all accepted; {}", case.summary())
    });
}
