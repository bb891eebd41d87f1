//! The tasks that a task waits for: those it depends on, and those with its ordering key. Of the first of them it is told
//! what that waits for itself, as far as its row tells: one step, and no further.

use punctual_client::{Reason, TaskInTheWay};
use punctual_core::ids::TaskId;
use punctual_core::obstacles::Blocker;
use punctual_core::state::State;
use punctual_core::task::Task;
use punctual_core::time::Timestamp;

use super::line::{before, in_line, thousands};
use super::{reason, time};
use crate::explain::facts::Facts;

/// Those it depends on.
pub(super) fn dependencies(facts: &Facts) -> Option<Reason> {
    if facts.task.state() != State::Blocked {
        return None;
    }
    let blockers = &facts.blockers;
    let waits = match (blockers.count, blockers.first.first()) {
        (0, _) => "all that it depends on has come to rest: it is about to be released".to_owned(),
        (count, Some(first)) => {
            let whom = if count == 1 { "a task".to_owned() } else { format!("{} tasks", thousands(count)) };
            let (id, state, waits) = (first.id, first.state.as_str(), itself(facts, first.id));
            format!("it depends on {whom} that did not come to rest yet; the first is {id}, {state}{waits}")
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

/// Those with its ordering key. One that is `BLOCKED` has no turn to wait for yet, and meets them afterwards.
pub(super) fn turn(facts: &Facts) -> Option<Reason> {
    let turn = facts.turn.as_ref().filter(|turn| !turn.is_own)?;
    let key = facts.task.body.ordering_key.clone().unwrap_or_default();
    let mut tasks = Vec::new();
    let mut says = Vec::new();
    if let Some((id, state)) = turn.holder {
        tasks.push(TaskInTheWay { id, state: state.into(), holds: false });
        says.push(format!("{id} has it, {}{}", state.as_str(), itself(facts, id)));
    }
    if let Some(id) = turn.held_by {
        tasks.push(TaskInTheWay { id, state: State::DeadLettered.into(), holds: true });
        says.push(format!("{id} is a dead letter, and its queue holds what is behind it: re-drive it"));
    }
    let is_blocked = facts.task.state() == State::Blocked;
    if is_blocked && says.is_empty() && turn.ahead.tasks == 0 {
        return None;
    }
    if says.is_empty() {
        says.push("whose it is, is about to be decided".to_owned());
    }
    let then = if is_blocked { "after that " } else { "" };
    let message = format!(
        "{then}it waits for its turn among the tasks with ordering key {key:?}: {}; {}",
        says.join("; "),
        before(turn.ahead)
    );
    let told = Reason { ordering_key: Some(key), tasks, comes_next: is_blocked, ..reason("waiting_for_turn", message) };
    Some(in_line(told, turn.ahead))
}

/// What the task in the way waits for itself, for the end of a sentence that names it; nothing if that was not read.
fn itself(facts: &Facts, id: TaskId) -> String {
    let task = facts.in_the_way.as_ref().filter(|task| task.id == id);
    task.map(|task| format!(", which {}", waits(task, facts.now))).unwrap_or_default()
}

fn waits(task: &Task, now: Timestamp) -> String {
    match task.state() {
        State::Blocked => "waits itself for tasks that it depends on".to_owned(),
        State::Pending if task.due_at > now => match time::failed_attempt(task) {
            Some(failed) => format!("waits for its retry at {} ({failed})", task.due_at),
            None => format!("is due at {}", task.due_at),
        },
        State::Pending => "is due and waits to be taken".to_owned(),
        State::Queued => "is about to start".to_owned(),
        State::Running => {
            let worker = task.hold.as_ref().map(|hold| format!(" on {}", hold.worker)).unwrap_or_default();
            let since = task.hold.as_ref().map(|hold| format!(" since {}", hold.since)).unwrap_or_default();
            let stops = if task.position.cancel_requested { " and was asked to stop" } else { "" };
            format!("runs{since}{worker}{stops}")
        }
        State::Completed | State::Cancelled | State::Failed | State::DeadLettered => {
            "has come to rest since, as is about to be noticed".to_owned()
        }
    }
}
