//! What follows from what is known of a task: every reason that holds, and when it could run. Pure.
//!
//! Reasons stand in the order in which a task passes them: the tasks it depends on, its time, its turn, the limits of its
//! queue, and then whoever is to take it. What does not hold it yet stands behind what does, and says so.

mod breaker;
mod line;
mod others;
mod queue;
mod taker;
#[cfg(test)]
mod tests;
mod time;

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
            // First of all: nothing else matters to a task that will not live to see it.
            reasons.splice(0..0, expiry);
            (reasons, eta, task.expires_at)
        }
        state => (vec![under_way(task, state)], None, None),
    };
    Explanation { state: task.state().into(), reasons, eta, expires_at }
}

/// All that a task waits for.
fn waiting(facts: &Facts) -> Vec<Reason> {
    let mut reasons: Vec<Reason> =
        [others::dependencies(facts), time::due(facts), others::turn(facts), queue::pause(facts)]
            .into_iter()
            .flatten()
            .collect();
    reasons.extend(facts.breakers.iter().filter_map(|breaker| breaker::open(facts, breaker)));
    if facts.is_claimable() {
        let limits = [queue::concurrency(facts), queue::rate(facts)];
        let (next, hold): (Vec<Reason>, Vec<Reason>) = limits.into_iter().flatten().partition(|limit| limit.comes_next);
        reasons.extend(hold);
        reasons.extend(taker::obstacles(facts));
        if reasons.is_empty() {
            reasons.push(taker::about_to_be_taken(facts));
        }
        reasons.extend(next);
    }
    reasons
}

/// When all that is in the way is over, if that is known of everything.
fn eta(reasons: &[Reason]) -> Option<Timestamp> {
    let ends: Option<Vec<Timestamp>> = reasons.iter().map(|reason| reason.until).collect();
    ends?.into_iter().max()
}

fn reason(code: &str, message: String) -> Reason {
    Reason { code: code.to_owned(), message, ..Reason::default() }
}

/// A task that somebody holds, or that has come to rest.
fn under_way(task: &Task, state: State) -> Reason {
    let (code, message) = match state {
        State::Queued => ("queued", "it was handed to the webhook workers and is about to start"),
        State::Running if task.position.cancel_requested => ("stopping", "it runs, and was asked to stop"),
        State::Running => ("running", "it runs"),
        state => return at_rest(task, state),
    };
    let hold = task.hold.as_ref();
    Reason {
        since: hold.map(|hold| hold.since),
        until: hold.map(|hold| hold.expires_at),
        worker_id: hold.map(|hold| hold.worker.clone()),
        ..reason(code, message.to_owned())
    }
}

/// With the last error, unless it succeeded after all; of one that has expired also with that of its runs, if they failed,
/// and with the task that it depended on, if it was not run because of that.
fn at_rest(task: &Task, state: State) -> Reason {
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
            Some(TaskInTheWay { id: parent, state: ended.into(), holds: false })
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
