//! Law 8: what was cancelled before it began is not delivered afterwards; what runs is told at its next heartbeat.

use super::Findings;
use super::case::Case;
use super::law::Law;
use crate::history::{Op, Said};

/// Looks at what came after a cancellation.
pub fn check(case: &Case<'_>, findings: &mut Findings) {
    told_to_stop(case, findings);
    let cancelled = case
        .calls
        .iter()
        .filter(|call| matches!(call.op, Op::Cancel { .. }))
        // 202 is a request to a run that goes on; 200 means that nothing runs any more.
        .filter(|call| call.answer.shown().is_some_and(|shown| shown.status == 200))
        .map(|call| call.answered)
        .min();
    let Some(cancelled) = cancelled else { return };
    let ended = case.trail().iter().find(|step| step.is("cancelled"));
    for delivery in case.deliveries() {
        // A webhook that was begun before may still be under way; a lease that was asked for later was not.
        let begun_before = ended.is_some_and(|ended| delivery.token < ended.version) && delivery.asked.is_none();
        let later = delivery.asked.unwrap_or(delivery.at) > cancelled;
        // One that was waited for since before the cancellation is no better if it began after it.
        let begun_after = ended.is_some_and(|ended| delivery.token >= ended.version);
        findings.demand((!later || begun_before) && !begun_after, Law::CancelHolds, || {
            format!("cancelled by {}, and then {delivery:?}; {}", cancelled.wall(), case.told())
        });
    }
}

/// Nobody whose task was cancelled is answered that they should go on.
fn told_to_stop(case: &Case<'_>, findings: &mut Findings) {
    let cancels = case.calls.iter().filter(|call| matches!(call.op, Op::Cancel { .. }));
    let Some(cancel) = cancels.filter(|call| call.answer.shown().is_some()).min_by_key(|call| call.answered) else {
        return;
    };
    for beat in case.settles().filter(|settle| settle.said == Said::Heartbeat && settle.accepted()) {
        findings.demand(beat.call.invoked <= cancel.answered, Law::CancelHolds, || {
            format!("{cancel:?}, and then {:?}; {}", beat.call, case.told())
        });
    }
}
