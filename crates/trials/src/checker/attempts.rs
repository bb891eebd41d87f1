//! Law 6: attempts are counted one by one, bounded, and a dead letter has a reason.

use punctual_client::RunEnded;
use punctual_core::state::State;

use super::Findings;
use super::case::{Case, SettleCall};
use super::law::Law;
use crate::history::{Dumped, TrailStep, WorkerReport};

/// This many lost workers make a task poison: the product's default.
const POISON_AFTER: usize = 3;

/// Checks the attempts of the task.
pub fn check(case: &Case<'_>, findings: &mut Findings) {
    let Some(dumped) = case.dumped else { return };
    counted(case, dumped, findings);
    for delivery in case.deliveries() {
        let Some(attempt) = attempt_at(dumped, delivery.token) else { continue };
        findings.demand(attempt == delivery.attempt, Law::AttemptsCounted, || {
            format!("attempt {attempt} in its runs, but {delivery:?}; {}", case.summary())
        });
    }
    for step in case.trail().iter().filter(|step| step.to == State::DeadLettered) {
        findings.demand(is_hopeless(case, dumped, step), Law::AttemptsCounted, || {
            format!("a dead letter without a reason ({} retries allowed); {}", dumped.max_retries, case.summary())
        });
    }
    for settle in case.settles().filter(|settle| settle.report == WorkerReport::FailedForGood && settle.accepted()) {
        let buried = case.step(settle.token + 1).is_none_or(|step| step.to == State::DeadLettered);
        findings.demand(buried, Law::AttemptsCounted, || {
            format!("failed for good, but not a dead letter: {:?}; {}", settle.call, case.summary())
        });
    }
}

/// The attempts are 1, 2, 3 … and never more than allowed. A released attempt, or one that failed
/// under a breaker, is repeated; a re-drive begins at 1 again.
fn counted(case: &Case<'_>, dumped: &Dumped, findings: &mut Findings) {
    let mut runs = dumped.runs.iter();
    let mut expected = 1;
    for step in case.trail() {
        if step.is("redriven") {
            expected = 1;
        }
        let Some(run) = step.is("started").then(|| runs.next()).flatten() else { continue };
        findings.demand(run.attempt == expected && run.attempt <= dumped.max_retries + 1, Law::AttemptsCounted, || {
            format!("attempt {expected} of at most {} expected: {:?}", dumped.max_retries + 1, dumped.runs)
        });
        let is_repeated = run.outcome == Some(RunEnded::Released) || run.uncounted.is_some();
        expected = if is_repeated { run.attempt } else { run.attempt + 1 };
    }
}

/// The attempt that began at this version.
fn attempt_at(dumped: &Dumped, token: u64) -> Option<u32> {
    let started = dumped.trail.iter().filter(|step| step.is("started"));
    started.zip(&dumped.runs).find(|(step, _)| step.version == token).map(|(_, run)| run.attempt)
}

/// Whether the run that `step` ended was the last that the task could have.
fn is_hopeless(case: &Case<'_>, dumped: &Dumped, step: &TrailStep) -> bool {
    let token = step.version - 1;
    let run = dumped.trail.iter().filter(|step| step.is("started")).zip(&dumped.runs);
    let run = run.filter(|(started, _)| started.version == token).map(|(_, run)| run).next();
    let used_up = run.is_some_and(|run| run.attempt > dumped.max_retries);
    let declared = |settle: &SettleCall<'_>| {
        settle.token == token && settle.report == WorkerReport::FailedForGood && settle.call.answer.may_have_happened()
    };
    let refused = run.and_then(|run| run.http_status).is_some_and(|status| (400..500).contains(&status));
    let life = dumped.trail.iter().take_while(|other| other.version <= step.version);
    let losses = life.fold(0, |losses, step| match step.reason.as_str() {
        "redriven" => 0,
        "worker_lost" | "poisoned" => losses + 1,
        _ => losses,
    });
    used_up
        || refused
        || case.settles().any(|settle| declared(&settle))
        || (step.is("poisoned") && losses >= POISON_AFTER)
}
