//! Open circuit breakers.

use punctual_core::breakers::{FailedProbe, OpenBreaker};
use punctual_core::obstacles::TurnStatus;

use super::*;
use crate::testing::open_breaker;

fn breaker(target: &str, probe_in_millis: i64) -> OpenBreaker {
    open_breaker("acme", target, probe_in_millis)
}

#[test]
fn an_open_breaker() {
    let mut facts = Facts { breakers: vec![breaker(TARGET, 3_000)], ..pushed() };
    let expected = json!({
        "code": "breaker_open",
        "message": format!(
            "the circuit breaker of target {TARGET} is open since 2026-05-22T18:00:00.000Z (19 of 20 runs failed); at \
             2026-05-22T18:00:03.000Z at the earliest one task under it is tried, which may be this one or another; the \
             others follow if that succeeds, and wait for the next probe if not"
        ),
        "since": "2026-05-22T18:00:00.000Z",
        "until": "2026-05-22T18:00:03.000Z",
        "reason": "19 of 20 runs failed",
        "target": TARGET,
    });
    assert_eq!(shown(&facts), (expected, Some(3_000)));
    let probe = TaskId::new();
    facts.breakers = vec![OpenBreaker { half_open: true, probe: Some(probe), ..breaker(TARGET, 3_000) }];
    let (reason, eta) = shown(&facts);
    assert!(message(&reason).contains(&format!("{probe} runs as a probe")), "{reason}");
    assert_eq!((eta, reason.get("position")), (None, None));
    let last_probe = Some(FailedProbe::new(NOW, "connection refused"));
    facts.breakers = vec![OpenBreaker { last_probe, ..breaker("", 3_000) }];
    let (reason, _) = shown(&facts);
    assert!(message(&reason).starts_with("the circuit breaker of tenant acme"), "{reason}");
    assert!(message(&reason).ends_with("; the last probe failed at 2026-05-22T18:00:00.000Z: connection refused"));
    assert_eq!(reason.get("target"), None);
}

#[test]
fn both_breakers_over_a_task() {
    let facts = Facts { breakers: vec![breaker("", 9_000), breaker(TARGET, 3_000)], ..pushed() };
    let explained = explain(&facts);
    assert_eq!(codes(&facts), ["breaker_open", "breaker_open"]);
    let targets: Vec<Option<&str>> = explained.reasons.iter().map(|reason| reason.target.as_deref()).collect();
    assert_eq!(targets, [None, Some(TARGET)]);
    assert_eq!(explained.eta, Some(NOW.plus_millis(9_000)), "neither lets it go before");
}

#[test]
fn a_breaker_over_a_task_that_is_not_due() {
    let of = |state, probe_in_millis| {
        let task = task(state, 5_000, Route::Push(TARGET.into()));
        let facts = Facts { breakers: vec![breaker(TARGET, probe_in_millis)], ..Facts::of(task, NOW) };
        (codes(&facts).join(" "), explain(&facts).eta.map(|eta| eta.millis_since(NOW)))
    };
    assert_eq!(of(State::Pending, 9_000), ("not_due_yet breaker_open".to_owned(), Some(9_000)));
    assert_eq!(of(State::Pending, 5_000), ("not_due_yet".to_owned(), Some(5_000)), "it may be closed by then");
    assert_eq!(of(State::Blocked, 9_000), ("waiting_for_dependencies not_due_yet breaker_open".to_owned(), None));
    let task = task(State::Pending, 5_000, Route::Push(TARGET.into()));
    let mut facts = Facts { breakers: vec![breaker(TARGET, 9_000)], ..Facts::of(task, NOW) };
    facts.task.expires_at = Some(NOW.plus_millis(9_000));
    assert_eq!(codes(&facts), ["expires_first", "not_due_yet", "breaker_open"]);
    facts.breakers[0].half_open = true;
    assert_eq!((codes(&facts).len(), explain(&facts).eta), (2, None), "how long the probe takes is unknown");
}

#[test]
fn a_breaker_over_a_task_that_waits_for_its_turn() {
    let turn =
        TurnStatus { is_own: false, holder: Some((TaskId::new(), State::Running)), held_by: None, ahead: ahead(0) };
    let facts = Facts { turn: Some(turn), breakers: vec![breaker(TARGET, 3_000)], ..pushed() };
    assert_eq!(codes(&facts), ["waiting_for_turn", "breaker_open"]);
}
