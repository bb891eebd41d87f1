//! What follows from what is known of a task: every reason that holds, and when it could run. Pure.
//!
//! Reasons stand in the order in which a task passes them: the tasks it depends on, its time, its turn, the limits of its
//! queue, and then whoever is to take it.

mod breaker;
mod queue;
mod taker;
#[cfg(test)]
mod tests;

use punctual_client::{Explanation, Reason, TaskInTheWay};
use punctual_core::obstacles::{Ahead, Blocker};
use punctual_core::state::State;
use punctual_core::task::Task;
use punctual_core::time::Timestamp;

use super::facts::Facts;

/// The explanation.
pub(crate) fn explain(facts: &Facts) -> Explanation {
    let task = &facts.task;
    let (reasons, eta) = match task.state() {
        State::Blocked | State::Pending => {
            let reasons = waiting(facts);
            // Past its expiry it would not run but fail.
            let eta = eta(&reasons).filter(|eta| task.expires_at.is_none_or(|expires_at| *eta < expires_at));
            (reasons, eta)
        }
        state => (vec![under_way(task, state)], None),
    };
    Explanation { state: task.state().into(), reasons, eta }
}

/// All that a task waits for.
fn waiting(facts: &Facts) -> Vec<Reason> {
    let mut reasons: Vec<Reason> =
        [dependencies(facts), time(facts), turn(facts), queue::pause(facts)].into_iter().flatten().collect();
    if facts.is_claimable() {
        let limits = [breaker::open(facts), queue::concurrency(facts), queue::rate(facts)];
        reasons.extend(limits.into_iter().flatten());
        reasons.extend(taker::obstacles(facts));
        if reasons.is_empty() {
            reasons.push(taker::about_to_be_taken(facts));
        }
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
        state => return reason("final", format!("it is {} and will not run again by itself", state.as_str())),
    };
    let hold = task.hold.as_ref();
    Reason {
        since: hold.map(|hold| hold.since),
        until: hold.map(|hold| hold.expires_at),
        worker_id: hold.map(|hold| hold.worker.clone()),
        ..reason(code, message.to_owned())
    }
}

fn dependencies(facts: &Facts) -> Option<Reason> {
    if facts.task.state() != State::Blocked {
        return None;
    }
    let blockers = &facts.blockers;
    let waits = match (blockers.count, blockers.first.first()) {
        (0, _) => "all that it depends on has come to rest: it is about to be released".to_owned(),
        (count, Some(first)) => {
            let whom = if count == 1 { "a task".to_owned() } else { format!("{} tasks", thousands(count)) };
            let (id, state) = (first.id, first.state.as_str());
            format!("it depends on {whom} that did not come to rest yet; the first is {id}, {state}")
        }
        (count, None) => format!("it depends on {} tasks that did not come to rest yet", thousands(count)),
    };
    let holding = blockers.first.iter().filter(|blocker| blocker.holds);
    let held = holding
        .map(|letter| format!("{} is a dead letter, and its queue holds what depends on it: re-drive it", letter.id));
    let message = [waits].into_iter().chain(held).collect::<Vec<String>>().join("; ");
    let tasks = blockers.first.iter().map(in_the_way).collect();
    Some(Reason { tasks, count: Some(blockers.count), ..reason("waiting_for_dependencies", message) })
}

fn in_the_way(blocker: &Blocker) -> TaskInTheWay {
    TaskInTheWay { id: blocker.id, state: blocker.state.into(), holds: blocker.holds }
}

fn time(facts: &Facts) -> Option<Reason> {
    let (task, due_at) = (&facts.task, facts.task.due_at);
    if due_at <= facts.now {
        return None;
    }
    let told = match task.trail.last_error() {
        Some((_, error)) if task.position.attempts > 0 => {
            let attempts = task.position.attempts;
            reason(
                "waiting_for_retry",
                format!("attempt {attempts} failed ({}); the next is due at {due_at}", error.code),
            )
        }
        _ => reason("not_due_yet", format!("it is due at {due_at}")),
    };
    Some(Reason { until: Some(due_at), ..told })
}

fn turn(facts: &Facts) -> Option<Reason> {
    let turn = facts.turn.as_ref().filter(|turn| !turn.is_own)?;
    let key = facts.task.body.ordering_key.clone().unwrap_or_default();
    let mut tasks = Vec::new();
    let mut says = Vec::new();
    if let Some((id, state)) = turn.holder {
        tasks.push(TaskInTheWay { id, state: state.into(), holds: false });
        says.push(format!("{id} has it, {}", state.as_str()));
    }
    if let Some(id) = turn.held_by {
        tasks.push(TaskInTheWay { id, state: State::DeadLettered.into(), holds: true });
        says.push(format!("{id} is a dead letter, and its queue holds what is behind it: re-drive it"));
    }
    if says.is_empty() {
        says.push("whose it is, is about to be decided".to_owned());
    }
    let before = match turn.ahead {
        Ahead { tasks: 0, .. } => "nobody waits before it".to_owned(),
        ahead => format!("{} before it", wait(ahead)),
    };
    let message =
        format!("it waits for its turn among the tasks with ordering key {key:?}: {}; {before}", says.join("; "));
    let told = Reason { ordering_key: Some(key), tasks, ..reason("waiting_for_turn", message) };
    Some(in_line(told, turn.ahead))
}

/// A reason that tells the place of the task in its line.
fn in_line(told: Reason, ahead: Ahead) -> Reason {
    Reason { position: Some(ahead.tasks.saturating_add(1)), position_or_later: ahead.or_more, ..told }
}

/// How many go before it, for a sentence.
fn others(ahead: Ahead) -> String {
    match ahead {
        Ahead { tasks: 0, or_more: false } => "it is the next".to_owned(),
        Ahead { tasks: 1, or_more: false } => "one other task of the queue goes before it".to_owned(),
        ahead => format!("{} other tasks of the queue go before it", number(ahead)),
    }
}

fn wait(ahead: Ahead) -> String {
    if ahead == (Ahead { tasks: 1, or_more: false }) { "1 waits".to_owned() } else { format!("{} wait", number(ahead)) }
}

fn number(ahead: Ahead) -> String {
    let or_more = if ahead.or_more { " or more" } else { "" };
    format!("{}{or_more}", thousands(ahead.tasks))
}

/// A number as people write it.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The instant so many tasks later, at so many a second.
fn later(now: Timestamp, tasks: f64, per_second: f64) -> Timestamp {
    #[expect(clippy::cast_possible_truncation, reason = "the cast saturates, and so does the instant")]
    let millis = (tasks.max(0.0) / per_second * 1_000.0).ceil() as i64;
    now.plus_millis(millis)
}
