//! Those it depends on, and those with its ordering key.

use punctual_core::obstacles::{Blocker, Blockers, TurnStatus};
use punctual_core::task::OnDependencyFailure;

use super::*;
use crate::explain::facts::Obstacles;
use crate::testing::open_breaker;

#[test]
fn those_it_depends_on() {
    let first = Blocker { id: TaskId::new(), state: State::Running, holds: false };
    let letter = Blocker { id: TaskId::new(), state: State::DeadLettered, holds: true };
    let blockers = Blockers { first: vec![first, letter], count: 10_000 };
    let facts = Facts { blockers, ..Facts::of(task(State::Blocked, 0, Route::Pull), NOW) };
    let expected = json!({
        "code": "waiting_for_dependencies",
        "message": format!(
            "it depends on 9,999 tasks that it still waits for; the first is {}, RUNNING; it depends on {}, which is a dead \
             letter, and its queue holds the tasks that depend on it (on_dead_letter: hold): re-drive it, and this task goes \
             on once it completes; if it ends otherwise, or its queue is set to continue, this task is then CANCELLED \
             (on_dependency_failure: cancel)",
            first.id, letter.id
        ),
        "tasks": [
            {"id": first.id, "state": "RUNNING"},
            {"id": letter.id, "state": "DEAD_LETTERED", "holds": true},
        ],
        "count": 10_000,
    });
    assert_eq!(shown(&facts), (expected, None));
    let released = Facts::of(task(State::Blocked, 0, Route::Pull), NOW);
    assert_eq!(shown(&released).0["count"], 0);
    assert!(message(&shown(&released).0).starts_with("all tasks that it depends on have finished"));
}

#[test]
fn dead_letters_that_hold_it_are_named_once() {
    let blocked_by = |states: &[State], holds: bool, on_failure: OnDependencyFailure| {
        let first: Vec<Blocker> =
            states.iter().map(|state| Blocker { id: TaskId::new(), state: *state, holds }).collect();
        let ids: Vec<TaskId> = first.iter().map(|blocker| blocker.id).collect();
        let blockers = Blockers { count: u64::try_from(first.len()).unwrap(), first };
        let mut facts = Facts { blockers, ..Facts::of(task(State::Blocked, 0, Route::Pull), NOW) };
        facts.task.body.dependencies.on_failure = on_failure;
        (message(&shown(&facts).0).to_owned(), ids)
    };
    let (text, ids) = blocked_by(&[State::DeadLettered], true, OnDependencyFailure::Fail);
    let expected = format!(
        "it depends on {}, which is a dead letter, and its queue holds the tasks that depend on it (on_dead_letter: hold): \
         re-drive it, and this task goes on once it completes; if it ends otherwise, or its queue is set to continue, this \
         task is then FAILED (on_dependency_failure: fail)",
        ids[0]
    );
    assert_eq!(text, expected);
    let (text, ids) = blocked_by(&[State::DeadLettered; 2], true, OnDependencyFailure::Run);
    assert!(text.starts_with(&format!("it depends on {}, {}, which are dead letters, and", ids[0], ids[1])), "{text}");
    assert!(text.ends_with("no longer waits for it and runs (on_dependency_failure: run)"), "{text}");
    // The resolver will soon handle a dead letter that holds nothing.
    let (text, ids) = blocked_by(&[State::DeadLettered], false, OnDependencyFailure::Cancel);
    let follows = "which will be noticed in a moment: this task is then CANCELLED (on_dependency_failure: cancel)";
    assert_eq!(text, format!("it depends on {}, DEAD_LETTERED, {follows}", ids[0]));
    let (text, ids) = blocked_by(&[State::Completed], false, OnDependencyFailure::Cancel);
    assert_eq!(text, format!("it depends on {}, COMPLETED, which will be noticed in a moment", ids[0]));
}

#[test]
fn its_turn() {
    let holder = TaskId::new();
    let turn = TurnStatus { is_own: false, holder: Some((holder, State::Running)), held_by: None, ahead: ahead(2) };
    let mut facts = Facts { turn: Some(turn), ..pulled() };
    facts.task.body.ordering_key = Some("k".into());
    let expected = json!({
        "code": "waiting_for_turn",
        "message": format!(
            "it waits for its turn among the tasks with ordering key \"k\": {holder} has it, RUNNING; 2 wait before it"
        ),
        "ordering_key": "k",
        "tasks": [{"id": holder, "state": "RUNNING"}],
        "position": 3,
    });
    assert_eq!(shown(&facts), (expected, None));

    let ahead = TasksAhead { tasks: 1_000, or_more: true };
    facts.turn = Some(TurnStatus { holder: None, held_by: Some(holder), ahead, ..turn });
    let (reason, _) = shown(&facts);
    assert_eq!(reason["tasks"], json!([{"id": holder, "state": "DEAD_LETTERED", "holds": true}]));
    assert_eq!((&reason["position"], &reason["position_or_later"]), (&json!(1_001), &json!(true)));
    let message = reason["message"].as_str().unwrap();
    assert!(message.contains("re-drive it") && message.ends_with("1,000 or more wait before it"), "{message}");

    facts.turn = Some(TurnStatus { holder: None, ahead: super::ahead(0), ..turn });
    assert!(shown(&facts).0["message"].as_str().unwrap().contains("will be decided in a moment"));
    facts.turn = Some(TurnStatus { is_own: true, ..turn });
    assert_eq!(codes(&facts), ["due_waiting_for_worker"]);
}

/// A task that depends on `first`, in the given state.
fn behind(first: Task) -> Facts {
    let blocker = Blocker { id: first.id, state: first.state(), holds: false };
    let blockers = Blockers { first: vec![blocker], count: 1 };
    Facts { blockers, in_the_way: vec![first], ..Facts::of(task(State::Blocked, 0, Route::Pull), NOW) }
}

#[test]
fn the_first_dependency_is_explained_too() {
    let expect = |first: Task, waits: &str| {
        let (id, state) = (first.id, first.state().as_str());
        let (reason, _) = shown(&behind(first));
        assert_eq!(message(&reason), format!("it depends on {id}, {state}, which {waits}"));
    };
    let at = "2026-05-22T18:00:01.500Z";
    expect(task(State::Pending, 1_500, Route::Pull), &format!("is due at {at}"));
    let mut retrying = task(State::Pending, 1_500, Route::Pull);
    retrying.position.attempts = 1;
    retrying.trail.push(&failed("boom"));
    expect(retrying, &format!("waits for its retry at {at} (attempt 1 failed (boom))"));
    expect(task(State::Pending, 0, Route::Pull), "is due and waits to be taken");
    expect(task(State::Blocked, 0, Route::Pull), "waits itself for tasks that it depends on");
    expect(task(State::Queued, 0, Route::Pull), "is about to start");
    let mut running = running();
    expect(running.clone(), "runs since 2026-05-22T18:00:00.000Z on w");
    running.position.cancel_requested = true;
    expect(running, "runs since 2026-05-22T18:00:00.000Z on w and was asked to stop");
    // It finished between two reads.
    let mut facts = behind(task(State::Running, 0, Route::Pull));
    facts.in_the_way[0].position.state = State::Completed;
    let expected = "RUNNING, which has finished since, which will be noticed in a moment";
    assert!(message(&shown(&facts).0).ends_with(expected), "{:?}", shown(&facts));
}

#[test]
fn it_expires_before_those_that_it_depends_on_can_end() {
    let parent = |state, due_in_millis| task(state, due_in_millis, Route::Pull);
    let parents = vec![parent(State::Running, 0), parent(State::Pending, 9_000), parent(State::Blocked, 5_000)];
    let first = parents.iter().map(|task| Blocker { id: task.id, state: task.state(), holds: false }).collect();
    let (last, blockers) = (parents[1].id, Blockers { first, count: 3 });
    let mut facts = Facts { blockers, in_the_way: parents, ..Facts::of(task(State::Blocked, 0, Route::Pull), NOW) };
    assert_eq!(codes(&facts), ["waiting_for_dependencies"], "it does not expire");
    facts.task.expires_at = Some(NOW.plus_millis(9_001));
    assert_eq!(codes(&facts), ["waiting_for_dependencies"]);
    facts.task.expires_at = Some(NOW.plus_millis(9_000));
    assert_eq!(codes(&facts), ["expires_first", "waiting_for_dependencies"]);
    let text = &explain(&facts).reasons[0].message;
    let expected = format!(
        "it expires at 2026-05-22T18:00:09.000Z, and as things stand it cannot run before 2026-05-22T18:00:09.000Z, since \
         {last}, which it depends on, waits at least until then: it will be FAILED with the code expired, unless its \
         expires_at is changed"
    );
    assert_eq!(*text, expected);
    // That one ends earlier, because it expires itself.
    facts.in_the_way[1].expires_at = Some(NOW.plus_millis(8_999));
    assert_eq!(codes(&facts), ["waiting_for_dependencies"]);
}

#[test]
fn it_expires_before_the_one_with_the_turn_can_end() {
    let mut holder = task(State::Pending, 9_000, Route::Pull);
    holder.position.attempts = 1;
    let turn = TurnStatus { is_own: false, holder: Some((holder.id, State::Pending)), held_by: None, ahead: ahead(0) };
    let mut facts = Facts { turn: Some(turn), in_the_way: vec![holder.clone()], ..pulled() };
    facts.task.expires_at = Some(NOW.plus_millis(9_000));
    assert_eq!(codes(&facts), ["expires_first", "waiting_for_turn"]);
    let text = &explain(&facts).reasons[0].message;
    let expected = format!(", since {}, which has its turn, waits at least until then: it will be FAILED", holder.id);
    assert!(text.contains(&expected), "{text}");
    facts.in_the_way[0].position.attempts = 0;
    assert_eq!(codes(&facts), ["waiting_for_turn"], "a task that has not begun gives way");
}

#[test]
fn the_holder_of_the_turn_is_explained_too() {
    let first = task(State::Pending, 1_500, Route::Pull);
    let turn = TurnStatus { is_own: false, holder: Some((first.id, State::Pending)), held_by: None, ahead: ahead(0) };
    let facts = Facts { turn: Some(turn), in_the_way: vec![first.clone()], ..pulled() };
    let expected = format!("{} has it, PENDING, which is due at 2026-05-22T18:00:01.500Z; no task waits", first.id);
    assert!(message(&shown(&facts).0).contains(&expected), "{:?}", shown(&facts));
}

#[test]
fn a_blocked_task_meets_those_with_its_key_afterwards() {
    let mut facts = behind(task(State::Pending, 0, Route::Pull));
    facts.task.body.ordering_key = Some("k".into());
    let holder = TaskId::new();
    let turn = TurnStatus { is_own: false, holder: Some((holder, State::Running)), held_by: None, ahead: ahead(1) };
    facts.turn = Some(turn);
    assert_eq!(codes(&facts), ["waiting_for_dependencies", "waiting_for_turn"]);
    let reason = serde_json::to_value(&explain(&facts).reasons[1]).unwrap();
    assert_eq!((&reason["comes_next"], &reason["position"]), (&json!(true), &json!(2)));
    assert!(message(&reason).starts_with("after that it waits for its turn"), "{reason}");
    assert!(message(&reason).contains(&format!("{holder} has it, RUNNING; 1 waits before it")), "{reason}");
    facts.turn = Some(TurnStatus { holder: None, ahead: ahead(0), ..turn });
    assert_eq!(codes(&facts), ["waiting_for_dependencies"], "no other task has its key");
}

/// The task that has the turn may be in another queue, and under a breaker.
#[test]
fn what_holds_the_holder_of_the_turn_is_named() {
    let holder = task(State::Pending, 0, Route::Push(TARGET.into()));
    let turn = TurnStatus { is_own: false, holder: Some((holder.id, State::Pending)), held_by: None, ahead: ahead(0) };
    let mut facts = Facts { turn: Some(turn), in_the_way: vec![holder.clone()], ..pulled() };
    let first = |facts: &Facts| shown(facts).0["tasks"][0].clone();
    assert_eq!(first(&facts).get("waits_for"), None);
    let pause = Pause { since: NOW, by: "client".into(), reason: Some("the printer burns".into()), until: None };
    let breakers = vec![open_breaker("acme", TARGET, 5_000)];
    facts.obstacles.insert(holder.id, Obstacles { pause: Some(pause), breakers });
    let (reason, eta) = shown(&facts);
    let says = format!(
        "{} has it, PENDING, which is due and waits to be taken, but its queue mail was paused by client at {NOW}, until it \
         is resumed: the printer burns, but the circuit breaker of target {TARGET} is open since {NOW} (19 of 20 runs \
         failed)",
        holder.id
    );
    assert!(message(&reason).contains(&says), "{reason:#}");
    assert_eq!((&first(&facts)["waits_for"], eta), (&json!(["queue_paused", "breaker_open"]), None));
    // Over before the task is due.
    facts.in_the_way[0].due_at = NOW.plus_millis(9_000);
    facts.obstacles.values_mut().for_each(|held| held.pause = None);
    assert_eq!(first(&facts).get("waits_for"), None);
}
