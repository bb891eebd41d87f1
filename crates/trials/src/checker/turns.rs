//! Law 12 for ordering keys: one task of a key is at work at a time, and when it has come to rest, the first of those that
//! wait is next, by `execute_at`, then in order of submission.
//!
//! Whoever has begun keeps its turn until it comes to rest, through retries and lost workers; one that was given back
//! before an attempt counted has not begun. Who is next is decided a moment after that, and what is submitted or edited
//! in between may be seen or not: only what surely waited before the turn was over, and stayed as it was until the next
//! began, must not be passed over.

use std::collections::BTreeMap;
use std::fmt;

use punctual_core::state::State;
use punctual_core::time::Timestamp;

use super::Findings;
use super::case::Case;
use super::law::Law;
use super::moments::{Moment, Moments};
use crate::history::{Answer, Op, Stamp, Step};

/// Looks at the tasks of every ordering key.
pub fn check(cases: &[Case<'_>], moments: &Moments, findings: &mut Findings) {
    let mut keys: BTreeMap<&str, Vec<&Case<'_>>> = BTreeMap::new();
    for case in cases {
        if let Some(key) = case.submission().and_then(|submission| submission.ordering_key.as_deref()) {
            keys.entry(key).or_default().push(case);
        }
    }
    for (key, cases) in keys {
        let mut tenures: Vec<Tenure<'_>> = cases.iter().flat_map(|case| tenures(case, moments)).collect();
        tenures.sort_by_key(|tenure| tenure.from);
        for pair in tenures.windows(2) {
            let (one, next) = (&pair[0], &pair[1]);
            findings.about = Some(next.case.task);
            let over = one.over.filter(|over| over.moment <= next.from);
            findings.demand(over.is_some(), Law::InTurn, || {
                format!("began before {one} of the key {key:?} was at rest; {}", next.case.told())
            });
            let Some(over) = over.filter(|over| is_left_alone(next.case, over.at)) else { continue };
            for first in cases.iter().filter(|first| goes_before(first, next.case)) {
                findings.demand(!waited(first, over.at, next.from, moments), Law::InTurn, || {
                    let (task, told) = (first.task, first.told());
                    format!(
                        "began before {task} of the key {key:?}, which waited, {told}; after {one}; {}",
                        next.case.told()
                    )
                });
            }
        }
    }
}

/// The time for which a task has its turn for good.
struct Tenure<'a> {
    case: &'a Case<'a>,
    from: Moment,
    /// None if it is not over.
    over: Option<Over>,
}

/// The end of a tenure.
#[derive(Clone, Copy)]
struct Over {
    moment: Moment,
    /// The same by the clock of whoever wrote it.
    at: Timestamp,
}

impl fmt::Display for Tenure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.case.task, self.case.told())
    }
}

/// The tenures of a task: more than one if it was given back, or re-driven. What took no time is none.
fn tenures<'a>(case: &'a Case<'a>, moments: &Moments) -> Vec<Tenure<'a>> {
    let Some(dumped) = case.dumped else { return Vec::new() };
    let (mut tenures, mut from, mut attempts): (_, Option<Moment>, u32) = (Vec::new(), None, 0);
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
            tenures.push(Tenure { case, from, over: Some(Over { moment, at: step.at }) });
        }
    }
    tenures.extend(from.map(|from| Tenure { case, from, over: None }));
    tenures
}

/// Whether a task comes before another of its key, as both stood in the end.
fn goes_before(one: &Case<'_>, other: &Case<'_>) -> bool {
    let (Some(first), Some(second)) = (one.dumped, other.dumped) else { return false };
    let submitted_before = || {
        let invoked = other.submits.iter().map(|call| call.invoked).min();
        acknowledged(one).zip(invoked).is_some_and(|(known, invoked)| known < invoked)
    };
    first.execute_at < second.execute_at || (first.execute_at == second.execute_at && submitted_before())
}

/// Whether a task was at an instant as it is in the end: nobody can have changed it since.
fn is_left_alone(case: &Case<'_>, since: Timestamp) -> bool {
    case.trail().iter().all(|step| match step.reason.as_str() {
        "edited" => edit_known(case, step).is_some_and(|known| known.surely_before(since)),
        "redriven" => false,
        _ => true,
    })
}

/// Whether a task that has never begun waited since before `over`, and still did, as it was, when another began at `until`.
fn waited(case: &Case<'_>, over: Timestamp, until: Moment, moments: &Moments) -> bool {
    let is_before = |step: &&Step| moments.at(case.task, step).is_some_and(|moment| moment <= until);
    let (before, after): (Vec<&Step>, Vec<&Step>) = case.trail().iter().partition(is_before);
    let is_waiting = |step: &&Step| step.to == State::Pending && (step.is("submitted") || step.is("edited"));
    let Some(last) = before.last().filter(|_| before.iter().all(is_waiting)) else { return false };
    // What is edited or re-driven later stands elsewhere in the end.
    if after.iter().any(|step| step.is("edited") || step.is("redriven")) {
        return false;
    }
    let known = if last.is("edited") { edit_known(case, last) } else { acknowledged(case) };
    known.is_some_and(|known| known.surely_before(over))
}

/// When somebody was told that the task is there.
fn acknowledged(case: &Case<'_>) -> Option<Stamp> {
    case.submits.iter().filter(|call| call.answer.shown().is_some()).map(|call| call.answered).min()
}

/// When somebody was told of this edit for sure.
fn edit_known(case: &Case<'_>, step: &Step) -> Option<Stamp> {
    let edits = case.calls.iter().filter(|call| matches!(call.op, Op::Edit { .. }) && case.may_be(call, step));
    let told: Option<Vec<Stamp>> =
        edits.map(|call| matches!(call.answer, Answer::Ok(_)).then_some(call.answered)).collect();
    told?.into_iter().max()
}
