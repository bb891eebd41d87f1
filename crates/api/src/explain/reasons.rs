//! Every reason why a task waits, and when it could run, derived from its facts. Pure.
//!
//! Reasons are in the order in which a task passes them: its dependencies, its time, its turn, the
//! limits of its queue, its claimant. A reason that does not hold the task yet comes after those
//! that do, with `comes_next`.

mod breaker;
mod claimant;
mod other_tasks;
mod queue;
#[cfg(test)]
mod tests;
mod time;
mod wording;

use punctual_client::{Explanation, Reason, TaskInTheWay};
use punctual_core::state::State;
use punctual_core::task::Task;
use punctual_core::time::Timestamp;
use punctual_core::trail::Step;

use super::facts::Facts;

/// The explanation.
pub(crate) fn explain(facts: &Facts) -> Explanation {
    let task = &facts.task;
    let (reasons, eta, expires_at) = match task.state() {
        State::Blocked | State::Pending => {
            let mut reasons = waiting(facts);
            let expiry = time::expiry(facts, &reasons);
            let eta = eta(&reasons).filter(|_| expiry.is_none());
            // It comes first: nothing else matters to a task that expires before.
            reasons.splice(0..0, expiry);
            (reasons, eta, task.expires_at)
        }
        state => (vec![in_progress(task, state)], None, None),
    };
    Explanation { state: task.state().into(), reasons, eta, expires_at }
}

/// All reasons of a waiting task.
fn waiting(facts: &Facts) -> Vec<Reason> {
    let mut reasons: Vec<Reason> =
        [other_tasks::dependencies(facts), time::due(facts), other_tasks::turn(facts), queue::pause(facts)]
            .into_iter()
            .flatten()
            .collect();
    reasons.extend(facts.breakers.iter().filter_map(|breaker| breaker::open(facts, breaker)));
    if facts.is_claimable() {
        let limits = [queue::concurrency_key(facts), queue::concurrency(facts), queue::rate(facts)];
        let (next, hold): (Vec<Reason>, Vec<Reason>) = limits.into_iter().flatten().partition(|limit| limit.comes_next);
        reasons.extend(hold);
        reasons.extend(claimant::obstacles(facts));
        if reasons.is_empty() {
            reasons.push(claimant::about_to_be_taken(facts));
        }
        reasons.extend(next);
    }
    reasons
}

/// When the last reason ends, if the ends of all are known.
fn eta(reasons: &[Reason]) -> Option<Timestamp> {
    let ends: Option<Vec<Timestamp>> = reasons.iter().map(|reason| reason.until).collect();
    ends?.into_iter().max()
}

fn reason(code: &str, message: String) -> Reason {
    Reason { code: code.to_owned(), message, ..Reason::default() }
}

/// A task that is held, or that has finished.
fn in_progress(task: &Task, state: State) -> Reason {
    let (code, message) = match state {
        State::Queued => ("queued", "it was handed to the webhook workers and is about to start"),
        State::Running if task.position.cancel_requested => ("stopping", "it runs, and was asked to stop"),
        State::Running => ("running", "it runs"),
        state => return finished(task, state),
    };
    let hold = task.hold.as_ref();
    Reason {
        since: hold.map(|hold| hold.since),
        until: hold.map(|hold| hold.expires_at),
        worker_id: hold.map(|hold| hold.worker.clone()),
        ..reason(code, message.to_owned())
    }
}

/// A finished task, with its last error unless it completed. An expired task also has the last
/// error of its runs, and a task that did not run because of a dependency names that task.
fn finished(task: &Task, state: State) -> Reason {
    let error = task.trail.last_error().filter(|_| state != State::Completed).map(|(_, error)| error);
    let failed =
        task.trail.entries().filter(|entry| entry.step != Step::Expired).filter_map(|entry| entry.error()).last();
    let has_expired = task.trail.last().is_some_and(|entry| entry.step == Step::Expired);
    let why = match (&error, failed.filter(|_| has_expired)) {
        (Some(_), Some(failed)) => format!("; it expired, and its last error before that was {}", failed.code),
        (Some(error), None) => format!("; its last error is {}", error.code),
        (None, _) => String::new(),
    };
    let message = format!("it is {} and will not run again by itself{why}", state.as_str());
    let parent = match task.trail.last().map(|entry| entry.step) {
        Some(Step::ParentFailed { parent, ended }) => {
            Some(TaskInTheWay { id: parent, state: ended.into(), holds: false, waits_for: Vec::new() })
        }
        _ => None,
    };
    Reason {
        since: task.completed_at,
        tasks: parent.into_iter().collect(),
        error_code: error.as_ref().map(|error| error.code.clone().into_owned()),
        reason: error.map(|error| error.message.into_owned()).filter(|message| !message.is_empty()),
        ..reason("final", message)
    }
}
