//! Law 8: a task that was cancelled before it began is not delivered afterwards. A running one is
//! refused its next heartbeat.

use super::Findings;
use super::case::Case;
use super::law::Law;
use crate::history::{Op, WorkerReport};

/// Checks the deliveries and heartbeats after a cancellation.
pub fn check(case: &Case<'_>, findings: &mut Findings) {
    heartbeats_are_refused(case, findings);
    let cancelled = case
        .calls
        .iter()
        .filter(|call| matches!(call.op, Op::Cancel { .. }))
        // 202 is a request to a run in progress; 200 means that nothing runs any more.
        .filter(|call| call.answer.shown().is_some_and(|shown| shown.status == 200))
        .map(|call| call.answered)
        .min();
    let Some(cancelled) = cancelled else { return };
    let ended = case.trail().iter().find(|step| step.is("cancelled"));
    for delivery in case.deliveries() {
        // A webhook that began before may still be in flight; a lease that was requested later was
        // not.
        let begun_before = ended.is_some_and(|ended| delivery.token < ended.version) && delivery.asked.is_none();
        let later = delivery.asked.unwrap_or(delivery.at) > cancelled;
        // A poll from before the cancellation must not get a lease that began after it.
        let begun_after = ended.is_some_and(|ended| delivery.token >= ended.version);
        findings.demand((!later || begun_before) && !begun_after, Law::CancelHolds, || {
            format!("cancelled by {}, and then {delivery:?}; {}", cancelled.wall(), case.summary())
        });
    }
}

/// No heartbeat of a cancelled run is accepted.
fn heartbeats_are_refused(case: &Case<'_>, findings: &mut Findings) {
    let cancels = case.calls.iter().filter(|call| matches!(call.op, Op::Cancel { .. }));
    let Some(cancel) = cancels.filter(|call| call.answer.shown().is_some()).min_by_key(|call| call.answered) else {
        return;
    };
    for beat in case.settles().filter(|settle| settle.report == WorkerReport::Heartbeat && settle.accepted()) {
        findings.demand(beat.call.invoked <= cancel.answered, Law::CancelHolds, || {
            format!("{cancel:?}, and then {:?}; {}", beat.call, case.summary())
        });
    }
}
