//! Those it depends on, and those with its ordering key.

use punctual_core::obstacles::{Blocker, Blockers, Turn};

use super::*;

#[test]
fn those_it_depends_on() {
    let first = Blocker { id: TaskId::new(), state: State::Running, holds: false };
    let letter = Blocker { id: TaskId::new(), state: State::DeadLettered, holds: true };
    let blockers = Blockers { first: vec![first, letter], count: 10_000 };
    let facts = Facts { blockers, ..Facts::of(task(State::Blocked, 0, Route::Pull), NOW) };
    let expected = json!({
        "code": "waiting_for_dependencies",
        "message": format!(
            "it depends on 10,000 tasks that did not come to rest yet; the first is {}, RUNNING; {} is a dead letter, and \
             its queue holds what depends on it: re-drive it",
            first.id, letter.id
        ),
        "tasks": [
            {"id": first.id, "state": "RUNNING"},
            {"id": letter.id, "state": "DEAD_LETTERED", "holds": true},
        ],
        "count": 10_000,
    });
    assert_eq!(told(&facts), (expected, None));
    let released = Facts::of(task(State::Blocked, 0, Route::Pull), NOW);
    assert_eq!(told(&released).0["count"], 0);
}

#[test]
fn its_turn() {
    let holder = TaskId::new();
    let turn = Turn { is_own: false, holder: Some((holder, State::Running)), held_by: None, ahead: ahead(2) };
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
    assert_eq!(told(&facts), (expected, None));

    let ahead = Ahead { tasks: 1_000, or_more: true };
    facts.turn = Some(Turn { holder: None, held_by: Some(holder), ahead, ..turn });
    let (reason, _) = told(&facts);
    assert_eq!(reason["tasks"], json!([{"id": holder, "state": "DEAD_LETTERED", "holds": true}]));
    assert_eq!((&reason["position"], &reason["position_or_later"]), (&json!(1_001), &json!(true)));
    let message = reason["message"].as_str().unwrap();
    assert!(message.contains("re-drive it") && message.ends_with("1,000 or more wait before it"), "{message}");

    facts.turn = Some(Turn { holder: None, ahead: super::ahead(0), ..turn });
    assert!(told(&facts).0["message"].as_str().unwrap().contains("is about to be decided"));
    facts.turn = Some(Turn { is_own: true, ..turn });
    assert_eq!(codes(&facts), ["due_waiting_for_worker"]);
}

/// A task that waits for another, which stands so.
fn behind(first: Task) -> Facts {
    let blocker = Blocker { id: first.id, state: first.state(), holds: false };
    let blockers = Blockers { first: vec![blocker], count: 1 };
    Facts { blockers, in_the_way: Some(first), ..Facts::of(task(State::Blocked, 0, Route::Pull), NOW) }
}

#[test]
fn what_the_first_in_the_way_waits_for_itself() {
    let says = |first: Task, waits: &str| {
        let (id, state) = (first.id, first.state().as_str());
        let (reason, _) = told(&behind(first));
        let expected = format!("the first is {id}, {state}, which {waits}");
        assert!(message(&reason).ends_with(&expected), "{reason}, not {expected}");
    };
    let at = "2026-05-22T18:00:01.500Z";
    says(task(State::Pending, 1_500, Route::Pull), &format!("is due at {at}"));
    let mut retrying = task(State::Pending, 1_500, Route::Pull);
    retrying.position.attempts = 1;
    retrying.trail.push(&failed("boom"));
    says(retrying, &format!("waits for its retry at {at} (attempt 1 failed (boom))"));
    says(task(State::Pending, 0, Route::Pull), "is due and waits to be taken");
    says(task(State::Blocked, 0, Route::Pull), "waits itself for tasks that it depends on");
    says(task(State::Queued, 0, Route::Pull), "is about to start");
    says(task(State::Completed, 0, Route::Pull), "has come to rest since, as is about to be noticed");
    let mut running = task(State::Running, 0, Route::Pull);
    running.hold = Some(Hold {
        worker: "w".into(),
        node: None,
        since: NOW,
        expires_at: NOW.plus_millis(60_000),
        deadline_at: NOW.plus_millis(90_000),
        lease_millis: 60_000,
    });
    says(running.clone(), "runs since 2026-05-22T18:00:00.000Z on w");
    running.position.cancel_requested = true;
    says(running, "runs since 2026-05-22T18:00:00.000Z on w and was asked to stop");
}

#[test]
fn what_the_one_with_the_turn_waits_for_itself() {
    let first = task(State::Pending, 1_500, Route::Pull);
    let turn = Turn { is_own: false, holder: Some((first.id, State::Pending)), held_by: None, ahead: ahead(0) };
    let facts = Facts { turn: Some(turn), in_the_way: Some(first.clone()), ..pulled() };
    let expected = format!("{} has it, PENDING, which is due at 2026-05-22T18:00:01.500Z; nobody waits", first.id);
    assert!(message(&told(&facts).0).contains(&expected), "{:?}", told(&facts));
}

#[test]
fn a_blocked_task_meets_those_with_its_key_afterwards() {
    let mut facts = behind(task(State::Pending, 0, Route::Pull));
    facts.task.body.ordering_key = Some("k".into());
    let holder = TaskId::new();
    let turn = Turn { is_own: false, holder: Some((holder, State::Running)), held_by: None, ahead: ahead(1) };
    facts.turn = Some(turn);
    assert_eq!(codes(&facts), ["waiting_for_dependencies", "waiting_for_turn"]);
    let reason = serde_json::to_value(&explain(&facts).reasons[1]).unwrap();
    assert_eq!((&reason["comes_next"], &reason["position"]), (&json!(true), &json!(2)));
    assert!(message(&reason).starts_with("after that it waits for its turn"), "{reason}");
    assert!(message(&reason).contains(&format!("{holder} has it, RUNNING; 1 waits before it")), "{reason}");
    facts.turn = Some(Turn { holder: None, ahead: ahead(0), ..turn });
    assert_eq!(codes(&facts), ["waiting_for_dependencies"], "nobody else has its key");
}
