//! Reasons that concern other tasks: dependencies, and tasks with the same ordering key. The reason
//! also shows what the first of these tasks waits for, as far as its row shows: one step, no more.

use punctual_client::{Reason, TaskInTheWay};
use punctual_core::ids::TaskId;
use punctual_core::obstacles::Blocker;
use punctual_core::state::State;
use punctual_core::task::{OnDependencyFailure, Task};
use punctual_core::time::Timestamp;

use super::wording::{quantity, thousands, turn_ahead, with_position};
use super::{breaker, reason, time};
use crate::explain::facts::{Facts, Obstacles};

/// The dependencies.
pub(super) fn dependencies(facts: &Facts) -> Option<Reason> {
    if facts.task.state() != State::Blocked {
        return None;
    }
    let blockers = &facts.blockers;
    let (letters, others): (Vec<&Blocker>, Vec<&Blocker>) = blockers.first.iter().partition(|blocker| blocker.holds);
    let waited_for = blockers.count.saturating_sub(u64::try_from(letters.len()).unwrap_or(u64::MAX));
    let waits = match (waited_for, others.first()) {
        (0, _) => None,
        (1, Some(only)) => Some(format!("it depends on {}", stands(facts, only))),
        (count, Some(first)) => {
            let count = thousands(count);
            Some(format!("it depends on {count} tasks that it still waits for; the first is {}", stands(facts, first)))
        }
        (count, None) => Some(format!("it depends on {} that it still waits for", quantity(count, "task"))),
    };
    let held = (!letters.is_empty()).then(|| format!("it depends on {}", dead_letters(facts, &letters)));
    let mut message = waits.into_iter().chain(held).collect::<Vec<String>>().join("; ");
    if message.is_empty() {
        "all tasks that it depends on have finished: it is about to be released".clone_into(&mut message);
    }
    let tasks = blockers.first.iter().map(|blocker| in_the_way(facts, blocker)).collect();
    Some(Reason { tasks, count: Some(blockers.count), ..reason("waiting_for_dependencies", message) })
}

/// A dependency and its state, for the end of a sentence.
fn stands(facts: &Facts, blocker: &Blocker) -> String {
    let Blocker { id, state, .. } = blocker;
    let follows = match state {
        State::Completed => ", which will be noticed in a moment".to_owned(),
        State::Cancelled | State::Failed | State::DeadLettered => {
            format!(", which will be noticed in a moment: {}", unsuccessful(facts))
        }
        State::Blocked | State::Pending | State::Queued | State::Running => itself(facts, *id),
    };
    format!("{id}, {}{follows}", state.as_str())
}

/// The fate of the task if a dependency does not complete.
fn unsuccessful(facts: &Facts) -> String {
    let policy = facts.task.body.dependencies.on_failure;
    let becomes = match policy {
        OnDependencyFailure::Cancel => "this task is then CANCELLED",
        OnDependencyFailure::Fail => "this task is then FAILED",
        OnDependencyFailure::Run => "this task then no longer waits for it and runs",
    };
    format!("{becomes} (on_dependency_failure: {})", policy.as_str())
}

/// Dead letters whose queues hold their dependents, whatever the policies of those are.
fn dead_letters(facts: &Facts, letters: &[&Blocker]) -> String {
    let ids = letters.iter().map(|letter| letter.id.to_string()).collect::<Vec<String>>().join(", ");
    let otherwise = unsuccessful(facts);
    if letters.len() == 1 {
        format!(
            "{ids}, which is a dead letter, and its queue holds the tasks that depend on it (on_dead_letter: hold): \
             re-drive it, and this task goes on once it completes; if it ends otherwise, or its queue is set to continue, \
             {otherwise}"
        )
    } else {
        format!(
            "{ids}, which are dead letters, and their queues hold the tasks that depend on them (on_dead_letter: hold): \
             re-drive them, and this task goes on once they complete; if one ends otherwise, or its queue is set to \
             continue, {otherwise}"
        )
    }
}

/// The latest instant until which a task in the way waits, as far as their rows show, and which
/// task that is, for the end of a sentence. A task that expires before it is due ends then.
pub(super) fn last(facts: &Facts) -> Option<(Timestamp, String)> {
    let rests = |task: &Task| task.expires_at.map_or(task.due_at, |expires_at| expires_at.min(task.due_at));
    let holder = facts.turn.filter(|turn| !turn.is_own).and_then(|turn| turn.holder).map(|(id, _)| id);
    let those = facts.in_the_way.iter().filter(|task| matches!(task.state(), State::Blocked | State::Pending));
    let lasting = those.filter_map(|task| {
        if facts.blockers.first.iter().any(|blocker| blocker.id == task.id) {
            let (id, at) = (task.id, rests(task));
            return Some((at, format!(", since {id}, which it depends on, waits at least until then")));
        }
        // A task that has the turn and has not begun yields to a task that is due earlier.
        let keeps_turn = holder == Some(task.id) && task.position.attempts > 0;
        keeps_turn.then(|| (rests(task), format!(", since {}, which has its turn, waits at least until then", task.id)))
    });
    lasting.max()
}

fn in_the_way(facts: &Facts, blocker: &Blocker) -> TaskInTheWay {
    let Blocker { id, state, holds } = *blocker;
    TaskInTheWay { id, state: state.into(), holds, waits_for: codes(facts, id) }
}

/// The tasks with its ordering key. A `BLOCKED` task waits for its turn only afterwards.
pub(super) fn turn(facts: &Facts) -> Option<Reason> {
    let turn = facts.turn.as_ref().filter(|turn| !turn.is_own)?;
    let key = facts.task.body.ordering_key.clone().unwrap_or_default();
    let mut tasks = Vec::new();
    let mut holders = Vec::new();
    if let Some((id, state)) = turn.holder {
        tasks.push(TaskInTheWay { id, state: state.into(), holds: false, waits_for: codes(facts, id) });
        holders.push(format!("{id} has it, {}{}", state.as_str(), itself(facts, id)));
    }
    if let Some(id) = turn.held_by {
        tasks.push(TaskInTheWay { id, state: State::DeadLettered.into(), holds: true, waits_for: Vec::new() });
        holders
            .push(format!("{id} is a dead letter, and its queue holds the tasks behind it: re-drive it or purge it"));
    }
    let is_blocked = facts.task.state() == State::Blocked;
    if is_blocked && holders.is_empty() && turn.ahead.tasks == 0 {
        return None;
    }
    if holders.is_empty() {
        holders.push("the next holder will be decided in a moment".to_owned());
    }
    let then = if is_blocked { "after that " } else { "" };
    let message = format!(
        "{then}it waits for its turn among the tasks with ordering key {key:?}: {}; {}",
        holders.join("; "),
        turn_ahead(turn.ahead)
    );
    let base = Reason { ordering_key: Some(key), tasks, comes_next: is_blocked, ..reason("waiting_for_turn", message) };
    Some(with_position(base, turn.ahead))
}

/// The wait of a task in the way, for the end of a sentence; empty if it was not read.
fn itself(facts: &Facts, id: TaskId) -> String {
    let task = facts.in_the_way.iter().find(|task| task.id == id);
    let waits = task.map(|task| format!(", which {}{}", waits(task, facts.now), held_up(facts, task)));
    waits.unwrap_or_default()
}

/// The pause and the breakers that keep a task in the way from being taken when it is due.
fn held_up(facts: &Facts, task: &Task) -> String {
    let Some(Obstacles { pause, breakers }) = facts.obstacles.get(&task.id) else { return String::new() };
    let queue = &task.lane.key.queue;
    let pause = pause.as_ref().filter(|pause| outlasts(pause.until, task)).map(|pause| {
        let ends = pause.until.map_or("until it is resumed".to_owned(), |until| format!("until {until}"));
        let why = pause.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        format!(", but its queue {queue} was paused by {} at {}, {ends}{why}", pause.by, pause.since)
    });
    let open = breakers.iter().filter(|breaker| outlasts(Some(breaker.next_probe_at), task)).map(|breaker| {
        let since = breaker.opened_at;
        format!(", but the circuit breaker of {} is open since {since} ({})", breaker::over(breaker), breaker.reason)
    });
    pause.into_iter().chain(open).collect()
}

/// The codes of the same.
fn codes(facts: &Facts, id: TaskId) -> Vec<String> {
    let task = facts.in_the_way.iter().find(|task| task.id == id);
    let (Some(task), Some(held)) = (task, facts.obstacles.get(&id)) else { return Vec::new() };
    let paused = held.pause.as_ref().is_some_and(|pause| outlasts(pause.until, task));
    let broken = held.breakers.iter().any(|breaker| outlasts(Some(breaker.next_probe_at), task));
    let codes = paused.then_some("queue_paused").into_iter().chain(broken.then_some("breaker_open"));
    codes.map(str::to_owned).collect()
}

/// Whether something that ends then holds the task when it is due.
fn outlasts(until: Option<Timestamp>, task: &Task) -> bool {
    until.is_none_or(|until| until > task.due_at)
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
            "has finished since, which will be noticed in a moment".to_owned()
        }
    }
}
