//! Properties of the effects: random histories, counted as they go and counted from scratch.

use std::collections::BTreeMap;

use proptest::prelude::*;
use punctual_core::failure::FailureCause;
use punctual_core::forecast::Minute;
use punctual_core::ids::NodeId;
use punctual_core::retry::RetryPolicy;
use punctual_core::state::{By, Event, Failure, Position, transition};
use punctual_core::task::{Edit, Hold};
use punctual_core::trail::{Actor, RunError};

use super::*;
use crate::tally::TransactionTally;

const NOW: Timestamp = Timestamp::from_millis(1_779_472_830_000);

/// A task of the model: its row, if it is live or in the history.
#[derive(Clone, Copy, Debug)]
struct ModelTask {
    position: Position,
    at: LaneInstant,
}

/// One random step: which task, which event, and the lane and the instant that the step needs.
#[derive(Clone, Copy, Debug)]
struct RandomStep {
    task: usize,
    kind: u8,
    lane: i64,
    after_millis: i64,
    retryable: bool,
}

fn steps() -> impl Strategy<Value = Vec<RandomStep>> {
    let step = (0..6_usize, 0..16_u8, 1..4_i64, -60_000..240_000_i64, any::<bool>());
    let step = step.prop_map(|(task, kind, lane, after_millis, retryable)| RandomStep {
        task,
        kind,
        lane,
        after_millis,
        retryable,
    });
    proptest::collection::vec(step, 1..80)
}

fn hold() -> Hold {
    Hold { worker: "w".into(), node: None, since: NOW, expires_at: NOW, deadline_at: NOW, lease_millis: 1 }
}

fn failure(step: &RandomStep) -> Failure<'static> {
    Failure {
        cause: FailureCause::Reported,
        error: RunError { code: "x".into(), message: "x".into(), details: None },
        http_status: None,
        retryable: step.retryable,
        retry_after_millis: Some(step.after_millis.unsigned_abs()),
        policy: RetryPolicy::default(),
        poison_after: 0,
        is_under_breaker: false,
        random: 7,
    }
}

fn event(step: &RandomStep) -> Event<'static> {
    let instant = NOW.plus_millis(step.after_millis);
    match step.kind {
        0 | 1 => Event::Claim(hold()),
        2 | 3 => Event::Start(hold()),
        4 => Event::Lease(hold()),
        5 => Event::Complete { result: None, http_status: None, dropped: None },
        6 | 7 => Event::Fail(failure(step)),
        8 => Event::GiveBack(instant),
        9 => Event::Cancel,
        10 => Event::Expire,
        11 => Event::Edit(Box::new(Edit { execute_at: Some(instant), ..Edit::default() })),
        12 => Event::RunNow,
        13 => Event::Redrive(None),
        14 => Event::Unblock(instant),
        _ => Event::DependencyFailed { fail: true, parent: None },
    }
}

/// Takes one step: an insert where there is no task, else an event or, rarely, the quarantine.
fn take(tasks: &mut BTreeMap<usize, ModelTask>, step: &RandomStep) -> Option<Effects> {
    let at = LaneInstant { lane: step.lane, due_at: NOW.plus_millis(step.after_millis) };
    let Some(task) = tasks.get_mut(&step.task) else {
        let state = if step.kind.is_multiple_of(3) { State::Blocked } else { State::Pending };
        let position = Position { state, version: 1, attempts: 0, crashes: 0, cancel_requested: false };
        tasks.insert(step.task, ModelTask { position, at });
        return Some(Effects::of_insert(state, at));
    };
    if step.kind == 15 && step.retryable && !task.position.state.is_final() {
        let effects = Effects::of_quarantine(Some(task.position.state), task.at);
        tasks.remove(&step.task);
        return Some(effects);
    }
    let by = By { now: NOW, node: NodeId::new(1), actor: Actor::Client };
    let change = transition(&task.position, event(step), &by).ok()?;
    let before = task.at;
    // An edit may bring the task to another lane, as a new priority does.
    let lane = if change.edit.is_some() { step.lane } else { before.lane };
    task.at = LaneInstant { lane, due_at: change.due_at.unwrap_or(before.due_at) };
    task.position = change.position_after(&task.position);
    Some(Effects::of(&change, before, task.at))
}

type Counts = BTreeMap<(i64, u8), i64>;
type Forecast = BTreeMap<(i64, Minute), i64>;

/// Counts all rows.
fn from_scratch(tasks: &BTreeMap<usize, ModelTask>) -> (Counts, Forecast) {
    let (mut counts, mut forecast) = (Counts::new(), Forecast::new());
    for task in tasks.values().filter(|task| !task.position.state.is_final()) {
        *counts.entry((task.at.lane, task.position.state.code())).or_default() += 1;
        let minute = Minute::of(task.at.due_at);
        if task.position.state == State::Pending && minute > Minute::of(NOW) {
            *forecast.entry((task.at.lane, minute)).or_default() += 1;
        }
    }
    (counts, forecast)
}

proptest! {
    #[test]
    fn effects_of_a_history_equal_a_count_from_scratch(steps in steps()) {
        let (mut tasks, mut tally) = (BTreeMap::new(), TransactionTally::default());
        for step in &steps {
            if let Some(effects) = take(&mut tasks, step) {
                tally.record(&effects, || NOW);
            }
        }
        tally.keep();
        let forecast: Forecast = tally.forecast.take().map(|(lane, minute, count)| ((lane, minute), count)).collect();
        // A change of zero only shows that its lane was used.
        let changed = tally.take().into_iter().filter(|(.., count)| *count != 0);
        let counts: Counts = changed.map(|(lane, state, count)| ((lane, state), count)).collect();
        prop_assert_eq!((counts, forecast), from_scratch(&tasks));
    }

    /// The resolver gets a note of every task that begins to wait and of every task that leaves.
    #[test]
    fn a_note_is_left_when_a_task_begins_to_wait_or_leaves(steps in steps()) {
        let mut tasks = BTreeMap::new();
        for step in &steps {
            let Some(effects) = take(&mut tasks, step) else { continue };
            let now = tasks.get(&step.task).map(|task| task.position.state);
            let is_gone = now.is_none_or(State::is_final);
            prop_assert_eq!(effects.ended, is_gone.then_some(now.unwrap_or(State::Failed)));
            prop_assert_eq!(effects.turn.is_some(), is_gone || now == Some(State::Pending));
            let is_dead = now == Some(State::DeadLettered);
            prop_assert_eq!(effects.turn == Some(TurnNote::DeadLetter), is_dead);
        }
    }
}

#[test]
fn claims_and_starts_leave_no_note() {
    let by = By { now: NOW, node: NodeId::new(1), actor: Actor::Client };
    let at = LaneInstant { lane: 1, due_at: NOW };
    let new = |state| Position { state, version: 1, attempts: 0, crashes: 0, cancel_requested: false };
    let steps = [
        (State::Pending, Event::Claim(hold())),
        (State::Pending, Event::Lease(hold())),
        (State::Queued, Event::Start(hold())),
        (State::Running, Event::Cancel),
    ];
    for (state, event) in steps {
        let change = transition(&new(state), event, &by).expect("the step is legal");
        assert!(Effects::in_place(&change, at).leaves_no_note(), "{change:?}");
    }
}

#[test]
fn a_row_in_an_unreadable_state_was_never_counted() {
    let effects = Effects::of_quarantine(None, LaneInstant { lane: 1, due_at: NOW });
    assert_eq!((effects.before, effects.after), (None, None));
    assert_eq!((effects.turn, effects.ended), (Some(TurnNote::MayPass), Some(State::Failed)));
}
