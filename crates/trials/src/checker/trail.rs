//! Law 10: the audit trail is a legal path without a gap, ends with the row, and has every
//! delivery.

use punctual_core::state::State;

use super::Findings;
use super::case::Case;
use super::law::Law;
use crate::history::TrailStep;

/// Checks the trail.
pub fn check(case: &Case<'_>, findings: &mut Findings) {
    let Some(dumped) = case.dumped else { return };
    let mut last: Option<&TrailStep> = None;
    for step in &dumped.trail {
        let gapless = step.version == last.map_or(0, |last| last.version) + 1;
        let joined = step.from == last.map(|last| last.to);
        findings.demand(gapless && joined && legal(last, step), Law::TrailIsTrue, || {
            format!("no legal step from {last:?} to {step:?}; {}", case.summary())
        });
        last = Some(step);
    }
    let ends = last.is_some_and(|last| (last.to, last.version) == (dumped.state, dumped.version));
    findings.demand(ends, Law::TrailIsTrue, || {
        format!("the row is {} at version {}; {}", dumped.state.as_str(), dumped.version, case.summary())
    });
    let starts: Vec<_> = dumped.trail.iter().filter(|step| step.is("started")).map(|step| step.at).collect();
    let runs: Vec<_> = dumped.runs.iter().map(|run| run.started_at).collect();
    findings.demand(starts == runs, Law::TrailIsTrue, || format!("starts {starts:?}, runs {runs:?}"));
    for delivery in case.deliveries() {
        let recorded = case.step(delivery.token).is_some_and(|step| step.is("started"));
        findings.demand(recorded, Law::TrailIsTrue, || {
            format!("{delivery:?} has no start in the trail; {}", case.summary())
        });
    }
}

/// The diagram of the documentation, written a second time: the machine under test must not judge
/// itself.
fn legal(last: Option<&TrailStep>, step: &TrailStep) -> bool {
    use State::{Blocked, Cancelled, Completed, DeadLettered, Failed, Pending, Queued, Running};
    let Some(last) = last else { return step.is("submitted") && matches!(step.to, Blocked | Pending) };
    let asked_to_stop = last.is("cancel_requested");
    match (last.to, step.reason.as_str(), step.to) {
        (Blocked, "unblocked", Pending)
        | (Blocked, "edited", Blocked)
        | (Blocked, "dependency_failed", Cancelled | Failed)
        | (Pending, "claimed", Queued)
        | (Pending, "edited" | "run_now", Pending)
        | (Queued, "started", Running)
        | (Queued, "given_back", Pending)
        | (Blocked | Pending | Queued, "cancelled", Cancelled)
        | (Blocked | Pending | Queued, "expired", Failed)
        | (DeadLettered, "redriven", Pending) => true,
        (Running, "cancelled", Cancelled) => asked_to_stop,
        (Running, "cancel_requested", Running)
        | (Running, "completed", Completed)
        | (Running, "given_back", Pending) => !asked_to_stop,
        (Running, _, Pending | DeadLettered) => !asked_to_stop && step.is_failure(),
        _ => false,
    }
}
