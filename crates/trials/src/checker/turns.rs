//! Law 12 for ordering keys: one task of a key runs at a time. When it has finished, the first
//! waiting task is next, by `execute_at`, then in order of submission.
//!
//! A task that has begun keeps its turn until it finishes, through retries and lost workers. A task
//! that was given back before an attempt counted has not begun. The next turn is decided a moment
//! after the last one ends, and may or may not see a submission or an edit in between. So the law
//! protects only a task that surely waited before the turn ended, and did not change until the next
//! one began.

use std::collections::BTreeMap;
use std::fmt;

use punctual_core::state::State;
use punctual_core::time::Timestamp;

use super::Findings;
use super::case::Case;
use super::law::Law;
use super::moments::{Moments, WriteMoment};
use crate::history::{CallAnswer, Op, Stamp, TrailStep};

/// Checks the tasks of every ordering key.
pub fn check(cases: &[Case<'_>], moments: &Moments, findings: &mut Findings) {
    let mut keys: BTreeMap<&str, Vec<&Case<'_>>> = BTreeMap::new();
    for case in cases {
        if let Some(key) = case.submission().and_then(|submission| submission.ordering_key.as_deref()) {
            keys.entry(key).or_default().push(case);
        }
    }
    for (key, cases) in keys {
        let mut tenures: Vec<KeyTenure<'_>> = cases.iter().flat_map(|case| tenures(case, moments)).collect();
        tenures.sort_by_key(|tenure| tenure.from);
        for pair in tenures.windows(2) {
            let (one, next) = (&pair[0], &pair[1]);
            findings.about = Some(next.case.task);
            let over = one.over.filter(|over| over.moment <= next.from);
            findings.demand(over.is_some(), Law::InTurn, || {
                format!("began before {one} of the key {key:?} had finished; {}", next.case.summary())
            });
            let Some(over) = over.filter(|over| is_left_alone(next.case, over.at)) else { continue };
            for first in cases.iter().filter(|first| goes_before(first, next.case)) {
                findings.demand(!waited(first, over.at, next.from, moments), Law::InTurn, || {
                    let (task, trail) = (first.task, first.summary());
                    format!(
                        "began before {task} of the key {key:?}, which was waiting: {trail}; after {one}; {}",
                        next.case.summary()
                    )
                });
            }
        }
    }
}

/// The time for which a task definitely has its turn.
struct KeyTenure<'a> {
    case: &'a Case<'a>,
    from: WriteMoment,
    /// None if it is not over.
    over: Option<Over>,
}

/// The end of a tenure.
#[derive(Clone, Copy)]
struct Over {
    moment: WriteMoment,
    /// The same by the clock of the node that wrote it.
    at: Timestamp,
}

impl fmt::Display for KeyTenure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.case.task, self.case.summary())
    }
}

/// The tenures of a task: more than one if it was given back or re-driven. Tenures of no length are
/// left out.
fn tenures<'a>(case: &'a Case<'a>, moments: &Moments) -> Vec<KeyTenure<'a>> {
    let Some(dumped) = case.dumped else { return Vec::new() };
    let (mut tenures, mut from, mut attempts): (_, Option<WriteMoment>, u32) = (Vec::new(), None, 0);
    let (mut runs, mut run) = (dumped.runs.iter(), None);
    for step in &dumped.trail {
        let Some(moment) = moments.at(case.task, step) else { continue };
        match step.reason.as_str() {
            "claimed" => {
                attempts += 1;
                from.get_or_insert(moment);
            }
            "started" => run = runs.next(),
            "given_back" => attempts = attempts.saturating_sub(1),
            "redriven" => attempts = 0,
            _ if step.is_failure() && run.is_some_and(|run| run.uncounted.is_some()) => {
                attempts = attempts.saturating_sub(1);
            }
            _ => {}
        }
        let is_over = step.to.is_final() || (step.to == State::Pending && attempts == 0);
        if let Some(from) = from.take_if(|_| is_over).filter(|from| *from < moment) {
            tenures.push(KeyTenure { case, from, over: Some(Over { moment, at: step.at }) });
        }
    }
    tenures.extend(from.map(|from| KeyTenure { case, from, over: None }));
    tenures
}

/// Whether a task comes before another of its key, by their final states.
fn goes_before(one: &Case<'_>, other: &Case<'_>) -> bool {
    let (Some(first), Some(second)) = (one.dumped, other.dumped) else { return false };
    let submitted_before = || {
        let invoked = other.submits.iter().map(|call| call.invoked).min();
        acknowledged(one).zip(invoked).is_some_and(|(known, invoked)| known < invoked)
    };
    first.execute_at < second.execute_at || (first.execute_at == second.execute_at && submitted_before())
}

/// Whether a task has been unchanged since an instant.
fn is_left_alone(case: &Case<'_>, since: Timestamp) -> bool {
    case.trail().iter().all(|step| match step.reason.as_str() {
        "edited" => edit_known(case, step).is_some_and(|known| known.surely_before(since)),
        "redriven" => false,
        _ => true,
    })
}

/// Whether a task that has never begun waited since before `over`, and still waited, unchanged,
/// when another began at `until`.
fn waited(case: &Case<'_>, over: Timestamp, until: WriteMoment, moments: &Moments) -> bool {
    let is_before = |step: &&TrailStep| moments.at(case.task, step).is_some_and(|moment| moment <= until);
    let (before, after): (Vec<&TrailStep>, Vec<&TrailStep>) = case.trail().iter().partition(is_before);
    let is_waiting = |step: &&TrailStep| step.to == State::Pending && (step.is("submitted") || step.is("edited"));
    let Some(last) = before.last().filter(|_| before.iter().all(is_waiting)) else { return false };
    // A task that is edited or re-driven later may have another place in the final order.
    if after.iter().any(|step| step.is("edited") || step.is("redriven")) {
        return false;
    }
    let known = if last.is("edited") { edit_known(case, last) } else { acknowledged(case) };
    known.is_some_and(|known| known.surely_before(over))
}

/// When a client knew that the task exists.
fn acknowledged(case: &Case<'_>) -> Option<Stamp> {
    case.submits.iter().filter(|call| call.answer.shown().is_some()).map(|call| call.answered).min()
}

/// When a client definitely knew of this edit.
fn edit_known(case: &Case<'_>, step: &TrailStep) -> Option<Stamp> {
    let edits = case.calls.iter().filter(|call| matches!(call.op, Op::Edit { .. }) && case.may_be(call, step));
    let answered: Option<Vec<Stamp>> =
        edits.map(|call| matches!(call.answer, CallAnswer::Ok(_)).then_some(call.answered)).collect();
    answered?.into_iter().max()
}
