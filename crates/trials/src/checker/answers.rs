//! Law 18: answers are true. An accepted call is in the trail for good; a refused one is not.

use punctual_core::state::State;

use super::Findings;
use super::case::{Case, SettleCall};
use super::law::Law;
use crate::history::{CallAnswer, Op, RecordedCall, TrailStep, WorkerReport};

/// Compares every answer with the trail.
pub fn check(case: &Case<'_>, findings: &mut Findings) {
    let Some(dumped) = case.dumped else { return };
    for settle in case.settles().filter(|settle| settle.report != WorkerReport::Heartbeat) {
        settled(case, settle, findings);
    }
    let edits = calls(case, |op| matches!(op, Op::Edit { .. }));
    each_has_its_step(case, &edits, "edited", findings);
    let redrives = calls(case, |op| matches!(op, Op::Redrive { .. }));
    each_has_its_step(case, &redrives, "redriven", findings);
    let cancels = calls(case, |op| matches!(op, Op::Cancel { .. }));
    for call in cancels.iter().filter(|call| matches!(call.answer, CallAnswer::Ok(_))) {
        findings.demand(dumped.state == State::Cancelled || !dumped.state.is_final(), Law::AnswersHold, || {
            format!("{} in the end, in spite of {call:?}; {}", dumped.state.as_str(), case.summary())
        });
    }
    for call in &cancels {
        let shown = call.answer.shown().filter(|shown| shown.status == 200).and_then(|shown| shown.state.as_deref());
        findings.demand(shown.is_none_or(|state| state == State::Cancelled.as_str()), Law::AnswersHold, || {
            format!("answered as cancelled, but has another state: {call:?}; {}", case.summary())
        });
    }
    let stopped = case.trail().iter().any(|step| step.is("cancelled") || step.is("cancel_requested"));
    let asked = cancels.iter().any(|call| call.answer.may_have_happened());
    findings.demand(!stopped || asked, Law::AnswersHold, || {
        format!("cancelled, although no cancellation was accepted: {cancels:?}; {}", case.summary())
    });
}

/// Compares the answers to a worker's settlements with the steps after its token.
fn settled(case: &Case<'_>, settle: SettleCall<'_>, findings: &mut Findings) {
    let next = case.step(settle.token + 1);
    let recorded = next.is_some_and(|step| settle.is_recorded_by(step));
    match settle.call.answer {
        CallAnswer::Ok(_) => findings.demand(recorded, Law::AnswersHold, || {
            format!("accepted, and not in the trail: {:?}; {}", settle.call, case.summary())
        }),
        CallAnswer::Refused { .. } => {
            let same = |other: &SettleCall<'_>| {
                other.token == settle.token
                    && other.call.answer.may_have_happened()
                    && next.is_some_and(|step| other.is_recorded_by(step))
            };
            findings.demand(!recorded || case.settles().any(|other| same(&other)), Law::AnswersHold, || {
                format!("refused, but in the trail: {:?}; {}", settle.call, case.summary())
            });
        }
        CallAnswer::Unknown => {}
    }
}

/// Every accepted call has its own step, and every step has a call that may have made it.
fn each_has_its_step(case: &Case<'_>, calls: &[&RecordedCall], reason: &str, findings: &mut Findings) {
    let steps: Vec<&TrailStep> = case.trail().iter().filter(|step| step.is(reason)).collect();
    let accepted: Vec<&&RecordedCall> = calls.iter().filter(|call| matches!(call.answer, CallAnswer::Ok(_))).collect();
    let possible = calls.iter().filter(|call| call.answer.may_have_happened()).count();
    findings.demand((accepted.len()..=possible).contains(&steps.len()), Law::AnswersHold, || {
        format!("{} steps {reason:?} for {calls:?}; {}", steps.len(), case.summary())
    });
    for call in accepted {
        findings.demand(steps.iter().any(|step| case.may_be(call, step)), Law::AnswersHold, || {
            format!("accepted, and not in the trail: {call:?}; {}", case.summary())
        });
    }
    for (call, version) in calls.iter().filter_map(|call| Some((call, only_at(call)?))) {
        let held = case.step(version + 1).is_some_and(|step| step.is(reason) && case.may_be(call, step));
        findings.demand(held, Law::AnswersHold, || {
            format!("not applied at version {version}, as If-Match required: {call:?}; {}", case.summary())
        });
    }
    for step in steps {
        findings.demand(calls.iter().any(|call| case.may_be(call, step)), Law::AnswersHold, || {
            format!("no call made {step:?}: {calls:?}")
        });
    }
}

/// The version that an accepted call was bound to.
fn only_at(call: &RecordedCall) -> Option<u64> {
    match call {
        RecordedCall { op: Op::Edit { if_match, .. }, answer: CallAnswer::Ok(_), .. } => *if_match,
        _ => None,
    }
}

fn calls<'a>(case: &Case<'a>, of_kind: impl Fn(&Op) -> bool) -> Vec<&'a RecordedCall> {
    case.calls.iter().copied().filter(|call| of_kind(&call.op)).collect()
}
