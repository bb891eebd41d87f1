//! The due instant and the payload of a task at each of its versions, as clients asked for them.
//!
//! The trail shows that there was an edit, but not which one. An edit that was answered has its
//! step between its call and its answer. If more than one call fits, each is a candidate: a law is
//! broken only if no candidate allows the observation.

use punctual_core::time::Timestamp;
use serde_json::Value;

use super::case::Case;
use crate::history::{CallAnswer, Op, RecordedCall, TrailStep};

/// Where a due instant came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DueOrigin {
    /// The submission, or the delay before a retry.
    First,
    /// An edit.
    Edit,
}

/// What is planned between two steps of a trail.
#[derive(Clone, Debug)]
pub struct DuePlan<'a> {
    /// Not before this.
    pub due_at: Timestamp,
    /// Where the due instant came from.
    pub origin: DueOrigin,
    /// The candidates for the payload; empty if it is not known.
    pub payloads: Vec<&'a Value>,
    /// The expiry: not to be started after it.
    pub expires_at: Option<Timestamp>,
}

/// The steps of the trail, each with the plan just before it.
pub fn plans<'a>(case: &Case<'a>) -> Vec<(&'a TrailStep, DuePlan<'a>)> {
    let (Some(first), Some(submission), Some(dumped)) = (case.trail().first(), case.submission(), case.dumped) else {
        return Vec::new();
    };
    let mut plan = DuePlan {
        due_at: submission.due_at.unwrap_or(first.at),
        origin: DueOrigin::First,
        payloads: vec![&submission.payload],
        expires_at: submission.expires_at,
    };
    let mut plans = Vec::new();
    for step in case.trail() {
        plans.push((step, plan.clone()));
        if step.is("edited") {
            edited(case, step, &mut plan);
        } else if step.is("redriven") || step.is("run_now") {
            plan.due_at = step.at;
            plan.expires_at = plan.expires_at.filter(|_| step.is("run_now"));
        } else if step.is("unblocked") {
            plan.due_at = plan.due_at.max(step.at);
        } else if step.is_failure() {
            let delay = i64::try_from(dumped.backoff_millis).unwrap_or(i64::MAX);
            (plan.due_at, plan.origin) = (step.at.plus_millis(delay), DueOrigin::First);
        }
    }
    plans
}

fn edited<'a>(case: &Case<'a>, step: &TrailStep, plan: &mut DuePlan<'a>) {
    let candidates: Vec<(&Option<Timestamp>, &'a Option<Value>)> = case
        .calls
        .iter()
        .filter(|call| case.may_be(call, step))
        .filter_map(|call| match &call.op {
            Op::Edit { due_at, payload, .. } => Some((due_at, payload)),
            _ => None,
        })
        .collect();
    if let Some(earliest) = candidates.iter().map(|(due_at, _)| due_at.unwrap_or(plan.due_at)).min() {
        if candidates.iter().any(|(due_at, _)| due_at.is_some()) {
            plan.origin = DueOrigin::Edit;
        }
        plan.due_at = earliest;
    }
    let certain = candidates.iter().all(|(_, payload)| payload.is_some()) && !candidates.is_empty();
    if certain {
        plan.payloads.clear();
    }
    plan.payloads.extend(candidates.iter().filter_map(|(_, payload)| payload.as_ref()));
}

impl Case<'_> {
    /// Whether this call may have made that step, by the clocks.
    pub(super) fn may_be(&self, call: &RecordedCall, step: &TrailStep) -> bool {
        let begun = !call.invoked.surely_after(step.at, self.lag_millis);
        match call.answer {
            CallAnswer::Ok(_) => begun && !call.answered.surely_before(step.at),
            CallAnswer::Unknown => begun,
            CallAnswer::Refused { .. } => false,
        }
    }
}
