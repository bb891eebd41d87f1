//! Every law can fail: each is broken at least once, in an otherwise clean history.

use punctual_core::ids::TaskId;
use punctual_core::state::State;
use punctual_core::task::OnDependencyFailure;
use serde_json::json;

use super::law::Law;
use super::specimen::{Handover, LeaseAt, NODE, PARTITION, Specimen, Token, at, ok, refused, settle, stamp};
use super::{Violation, check};
use crate::history::{CallAnswer, Dumped, HistoryEvent, Op, Submission, TrailStep, WorkerReport, result_by};

fn broken(law: Law, spoil: impl FnOnce(&mut Specimen)) {
    let mut specimen = Specimen::clean();
    spoil(&mut specimen);
    let violations = check(&specimen.history);
    assert!(violations.iter().any(|violation| violation.law == law), "{law:?} was not noticed; {violations:#?}");
}

fn fine(what: &str, change: impl FnOnce(&mut Specimen)) {
    let mut specimen = Specimen::clean();
    change(&mut specimen);
    let violations = check(&specimen.history);
    assert!(violations.is_empty(), "{what}: {}", all(&violations));
}

fn all(violations: &[Violation]) -> String {
    violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_clean_history_breaks_nothing() {
    fine("as it is", |_| {});
}

#[test]
fn an_unanswered_call_may_have_happened_or_not() {
    fine("an unanswered submission that did not happen", |it| {
        let task = TaskId::new();
        it.submit_at(10, "void", task, None);
        it.calls(|op| matches!(op, Op::Submit(submission) if submission.key == "void"))
            .for_each(|call| call.answer = CallAnswer::Unknown);
    });
    fine("unanswered calls that had their effect", |it| {
        it.calls(|op| !matches!(op, Op::Submit(_)))
            .filter(|call| matches!(call.answer, CallAnswer::Ok(_)))
            .for_each(|call| call.answer = CallAnswer::Unknown);
    });
    fine("an unanswered edit that did not happen", |it| {
        let task = it.moved;
        it.call_at(1_500, Op::Edit { task, due_at: Some(at(700)), payload: None, if_match: None }, CallAnswer::Unknown);
    });
}

#[test]
fn a_clock_may_be_behind_but_not_ahead() {
    // The edit of `moved` at 100 has its step in the trail at that instant.
    broken(Law::AnswersHold, |it| it.dumped(it.moved).trail[1].at = at(70));
    fine("a step of a clock that is behind", |it| {
        it.dumped(it.moved).trail[1].at = at(70);
        it.history.lag_millis = 50;
    });
    broken(Law::AnswersHold, |it| {
        it.dumped(it.moved).trail[1].at = at(130);
        it.history.lag_millis = 50;
    });
}

#[test]
fn a_repeated_settlement_breaks_nothing() {
    fine("the same completion again", |it| {
        it.call_at(2_500, settle(it.lost, Token(6), WorkerReport::Completed), ok(200, it.lost));
        it.call_at(3_000, settle(it.hopeless, Token(3), WorkerReport::FailedForGood), ok(200, it.hopeless));
    });
}

#[test]
fn acknowledged_is_kept() {
    broken(Law::AcknowledgedIsKept, |it| it.history.dump.remove(2).task = it.lost);
    broken(Law::AcknowledgedIsKept, |it| {
        it.history
            .events
            .retain(|event| !matches!(event, HistoryEvent::Call(call) if matches!(call.op, Op::Submit(_))));
        it.history.dump.remove(0);
    });
}

#[test]
fn nothing_is_invented() {
    broken(Law::NothingInvented, |it| it.dumped(it.lost).key = Some("never submitted".to_owned()));
    broken(Law::NothingInvented, |it| it.dumped(it.lost).key = None);
    broken(Law::NothingInvented, |it| it.submit_at(10, "lost", it.moved, None));
    broken(Law::NothingInvented, |it| it.submit_at(10, "lost", it.lost, None));
    broken(Law::NothingInvented, |it| {
        let other = Submission { key: "lost".to_owned(), payload: json!("another"), ..Submission::default() };
        it.call_at(20, Op::Submit(other), ok(200, it.lost));
    });
    broken(Law::NothingInvented, |it| {
        let mut twin = it.dumped(it.cancelled).clone();
        twin.task = TaskId::new();
        it.history.dump.push(twin);
    });
}

#[test]
fn final_is_final() {
    broken(Law::FinalIsFinal, |it| {
        let mut again = it.dumped(it.lost).trail[4].clone();
        (again.from, again.version) = (Some(State::Completed), 8);
        it.dumped(it.lost).trail.push(again);
    });
}

#[test]
fn one_completion_by_the_newest_token() {
    broken(Law::OneCompletion, |it| {
        let again = TrailStep { version: 8, ..it.dumped(it.lost).trail[6].clone() };
        it.dumped(it.lost).trail.push(again);
    });
    broken(Law::OneCompletion, |it| {
        it.calls(|op| matches!(op, Op::Settle { token: 3, report: WorkerReport::Completed, .. }))
            .for_each(|call| call.answer = CallAnswer::Ok(crate::history::Shown::default()));
    });
    broken(Law::OneCompletion, |it| it.dumped(it.lost).trail[5].version = 5);
}

#[test]
fn tokens_fence() {
    broken(Law::TokensFence, |it| {
        it.grant(LeaseAt {
            task: it.lost,
            attempt: 2,
            token: Token(6),
            asked: 1_000,
            got: 1_701,
            expires: 4_000,
            payload: "lost",
        });
    });
    broken(Law::TokensFence, |it| it.granted(it.lost, Token(3)).asked = stamp(1_900));
    broken(Law::TokensFence, |it| {
        it.call_at(1_800, settle(it.lost, Token(3), WorkerReport::Heartbeat), ok(200, it.lost));
    });
    broken(Law::TokensFence, |it| it.call_at(1_800, settle(it.lost, Token(3), WorkerReport::Failed), ok(200, it.lost)));
    broken(Law::TokensFence, |it| {
        it.call_at(1_100, settle(it.lost, Token(3), WorkerReport::Heartbeat), ok(200, it.lost));
    });
}

#[test]
fn a_lease_is_kept() {
    broken(Law::LeaseIsKept, |it| it.granted(it.lost, Token(3)).expires_at = at(1_201));
}

#[test]
fn attempts_are_counted() {
    broken(Law::AttemptsCounted, |it| it.dumped(it.lost).runs[1].attempt = 3);
    broken(Law::AttemptsCounted, |it| it.granted(it.lost, Token(6)).attempt = 3);
    broken(Law::AttemptsCounted, |it| it.dumped(it.lost).max_retries = 0);
    broken(Law::AttemptsCounted, |it| {
        it.calls(|op| matches!(op, Op::Settle { report: WorkerReport::FailedForGood, .. }))
            .for_each(|call| call.answer = refused(409));
    });
    broken(Law::AttemptsCounted, |it| it.dumped(it.hopeless).trail[3].to = State::Pending);
    let spared = |it: &mut Specimen, second: u32| {
        let runs = &mut it.dumped(it.lost).runs;
        runs[0].uncounted = Some("breaker_open".to_owned());
        runs[1].attempt = second;
        it.granted(it.lost, Token(6)).attempt = second;
    };
    fine("an attempt that failed under a breaker is made once more", |it| spared(it, 1));
    broken(Law::AttemptsCounted, |it| spared(it, 2));
}

#[test]
fn never_early() {
    broken(Law::NeverEarly, |it| it.dumped(it.lost).trail[4].at = at(1_399));
    broken(Law::NeverEarly, |it| {
        it.calls(|op| matches!(op, Op::Submit(_))).for_each(|call| {
            if let Op::Submit(submission) = &mut call.op {
                submission.due_at = Some(at(11));
            }
        });
    });
    broken(Law::NeverEarly, |it| {
        it.calls(|op| matches!(op, Op::Edit { .. })).for_each(|call| call.answer = refused(409));
        it.dumped(it.moved).trail.remove(1);
        it.arrival().token = 4;
        it.arrival().at = stamp(490);
    });
}

#[test]
fn never_expired() {
    let expiring = |millis: i64| {
        move |it: &mut Specimen| {
            it.calls(|op| matches!(op, Op::Submit(submission) if submission.key == "lost")).for_each(|call| {
                if let Op::Submit(submission) = &mut call.op {
                    submission.expires_at = Some(at(millis));
                }
            });
        }
    };
    fine("in time", expiring(1_701));
    broken(Law::NeverExpired, expiring(1_700));
    broken(Law::NeverExpired, expiring(900));
}

#[test]
fn a_cancellation_holds() {
    broken(Law::CancelHolds, |it| {
        it.grant(LeaseAt {
            task: it.cancelled,
            attempt: 1,
            token: Token(3),
            asked: 300,
            got: 510,
            expires: 9_000,
            payload: "cancelled",
        });
    });
    broken(Law::CancelHolds, |it| {
        it.call_at(1_880, Op::Cancel { task: it.lost }, ok(202, it.lost));
    });
    // A worker that has polled since before the cancellation does not get it either.
    broken(Law::CancelHolds, |it| {
        it.grant(LeaseAt {
            task: it.cancelled,
            attempt: 1,
            token: Token(3),
            asked: 100,
            got: 510,
            expires: 9_000,
            payload: "cancelled",
        });
    });
}

#[test]
fn an_edit_holds() {
    broken(Law::EditHolds, |it| it.dumped(it.moved).trail[2].at = at(500));
    broken(Law::EditHolds, |it| it.arrival().at = stamp(800));
    broken(Law::EditHolds, |it| it.arrival().payload = json!("moved"));
}

#[test]
fn the_trail_is_true() {
    broken(Law::TrailIsTrue, |it| it.dumped(it.lost).version = 8);
    broken(Law::TrailIsTrue, |it| it.dumped(it.lost).state = State::Pending);
    broken(Law::TrailIsTrue, |it| drop(it.dumped(it.lost).trail.remove(4)));
    broken(Law::TrailIsTrue, |it| it.dumped(it.lost).trail[6].from = Some(State::Queued));
    broken(Law::TrailIsTrue, |it| it.dumped(it.lost).trail[3].reason = "cancelled".to_owned());
    broken(Law::TrailIsTrue, |it| drop(it.dumped(it.lost).runs.pop()));
    broken(Law::TrailIsTrue, |it| it.arrival().token = 5);
}

#[test]
fn answers_hold() {
    broken(Law::AnswersHold, |it| it.cut(it.lost, 6));
    broken(Law::AnswersHold, |it| {
        it.calls(|op| matches!(op, Op::Settle { token: 6, report: WorkerReport::Completed, .. }))
            .for_each(|call| call.answer = refused(409));
    });
    for kind in ["submit", "cancel", "edit", "redrive"] {
        broken(Law::AnswersHold, |it| {
            let named = |op: &Op| match op {
                Op::Submit(_) => "submit",
                Op::Cancel { .. } => "cancel",
                Op::Edit { .. } => "edit",
                Op::Redrive { .. } => "redrive",
                Op::Settle { .. } => "settle",
            };
            it.calls(|op| named(op) == kind).for_each(|call| call.answer = refused(409));
        });
    }
    broken(Law::AnswersHold, |it| it.call_at(1_500, Op::Cancel { task: it.lost }, ok(202, it.lost)));
    broken(Law::AnswersHold, |it| {
        let task = it.lost;
        it.call_at(1_500, Op::Edit { task, due_at: None, payload: Some(json!(1)), if_match: None }, ok(200, task));
    });
    broken(Law::AnswersHold, |it| it.dumped(it.moved).trail[1].at = at(300));
    broken(Law::AnswersHold, |it| {
        it.calls(|op| matches!(op, Op::Edit { .. })).for_each(|call| {
            if let Op::Edit { if_match, .. } = &mut call.op {
                *if_match = Some(2);
            }
        });
    });
    broken(Law::AnswersHold, |it| {
        it.calls(|op| matches!(op, Op::Cancel { .. })).for_each(|call| {
            if let CallAnswer::Ok(shown) = &mut call.answer {
                shown.state = Some("RUNNING".to_owned());
            }
        });
    });
}

#[test]
fn a_result_is_that_of_the_completion() {
    broken(Law::OneCompletion, |it| it.dumped(it.lost).result = Some(result_by("w", 3)));
    broken(Law::OneCompletion, |it| it.dumped(it.lost).result = None);
    broken(Law::OneCompletion, |it| {
        let other =
            Op::Settle { worker: "another".to_owned(), task: it.lost, token: 6, report: WorkerReport::Completed };
        it.call_at(2_000, other, ok(200, it.lost));
    });
}

#[test]
fn each_instant_of_a_schedule_fires_once() {
    // It was created at 500, and fired at 1,000 and 2,000; the trial ended at 2,500.
    broken(Law::EachInstantOnce, |it| drop(it.history.schedules[0].occurrences.pop()));
    broken(Law::EachInstantOnce, |it| it.history.schedules[0].until = at(3_000));
    broken(Law::EachInstantOnce, |it| it.history.schedules[0].created_at = at(-1));
    broken(Law::EachInstantOnce, |it| {
        let again = it.history.schedules[0].occurrences[1].clone();
        it.history.schedules[0].occurrences.push(again);
    });
    broken(Law::EachInstantOnce, |it| it.history.schedules[0].occurrences[1].task = None);
    broken(Law::EachInstantOnce, |it| it.history.schedules[0].occurrences[1].instant = at(2_001));
    broken(Law::EachInstantOnce, |it| {
        let twin = Dumped { task: TaskId::new(), ..it.dumped(it.fired[0]).clone() };
        it.history.dump.push(twin);
    });
    broken(Law::EachInstantOnce, |it| {
        let other = it.dumped(it.fired[0]).scheduled;
        it.dumped(it.fired[1]).scheduled = other;
    });
    broken(Law::NeverEarly, |it| it.dumped(it.fired[0]).trail[1].at = at(999));
    broken(Law::NothingInvented, |it| it.history.schedules.clear());
    fine("one more beyond the end", |it| it.history.schedules[0].until = at(1_500));
    broken(Law::OneOwner, |it| {
        it.hand_over(Handover { resource: "leader", holder: Some("node_2"), term: 2, before: it.fired[1], version: 1 });
    });
}

#[test]
fn tasks_of_a_key_take_turns() {
    // The first runs from 3,000 to 3,100, the next from 3,200 on.
    broken(Law::InTurn, |it| it.shift(it.turns[1], -101));
    broken(Law::InTurn, |it| {
        it.shift(it.turns[1], -101);
        it.history.witness = None;
    });
    fine("the next begins at once", |it| it.shift(it.turns[1], -100));
    // It keeps its turn while it waits for a retry or for its worker to be declared lost.
    broken(Law::InTurn, |it| {
        it.submission("lost").ordering_key = Some("key".to_owned());
        it.shift(it.turns[0], -1_700);
    });
    fine("one that was lost and has finished", |it| {
        it.submission("lost").ordering_key = Some("key".to_owned());
        it.shift(it.turns[0], -900);
    });
    broken(Law::InTurn, |it| it.cut(it.turns[0], 3));
}

#[test]
fn the_first_waiting_task_has_the_next_turn() {
    let swapped = |it: &mut Specimen| {
        it.shift(it.turns[1], 200);
        it.shift(it.turns[2], -200);
    };
    broken(Law::InTurn, swapped);
    broken(Law::InTurn, |it| {
        swapped(it);
        it.history.witness = None;
    });
    fine("the second is not due before the third", |it| {
        swapped(it);
        it.dumped(it.turns[1]).execute_at = at(2_401);
    });
    fine("the second was not acknowledged when the first finished", |it| {
        swapped(it);
        let key = |op: &Op| matches!(op, Op::Submit(submission) if submission.key == "turn-1");
        it.calls(key).for_each(|call| call.answered = stamp(3_100));
    });
}

#[test]
fn the_limit_of_a_queue_holds() {
    // The first has the only place from 4,100 to 4,200, the second from 4,500 on.
    broken(Law::LimitHolds, |it| it.shift(it.family[2], -301));
    broken(Law::LimitHolds, |it| {
        it.shift(it.family[2], -301);
        it.history.witness = None;
    });
    broken(Law::LimitHolds, |it| it.cut(it.family[1], 2));
    fine("the other one takes the place at once", |it| it.shift(it.family[2], -300));
    fine("there are two places", |it| {
        it.shift(it.family[2], -301);
        it.history.limits.insert("narrow".to_owned(), 2);
    });
}

#[test]
fn a_task_waits_for_its_dependencies_and_no_longer() {
    // The parents finish at 4,200 and 4,600, when the child is released; it begins at 4,700.
    broken(Law::DependenciesHold, |it| it.shift(it.family[2], 1));
    broken(Law::DependenciesHold, |it| {
        it.shift(it.family[2], 1);
        it.history.witness = None;
    });
    broken(Law::DependenciesHold, |it| {
        it.shift(it.family[2], 101);
        it.dumped(it.family[0]).trail.remove(1);
    });
    fine("the other one is the last", |it| {
        it.shift(it.family[2], -300);
        it.shift(it.family[1], 400);
    });
    broken(Law::DependenciesHold, |it| it.cut(it.family[0], 1));
    broken(Law::DependenciesHold, |it| {
        let child = Submission { key: "late".to_owned(), depends_on: it.family.to_vec(), ..Submission::default() };
        let code = "unknown_dependency".to_owned();
        it.call_at(5_000, Op::Submit(child), CallAnswer::Refused { status: 422, code });
    });
}

#[test]
fn a_failed_dependency_follows_the_childs_policy() {
    let dead = |it: &mut Specimen| it.dumped(it.family[2]).trail[3].to = State::DeadLettered;
    let taken_along = |it: &mut Specimen, to: State| {
        it.cut(it.family[0], 2);
        let last = &mut it.dumped(it.family[0]).trail[1];
        (last.to, last.reason) = (to, "dependency_failed".to_owned());
    };
    let wants = |it: &mut Specimen, policy: OnDependencyFailure| it.submission("child").on_failure = policy;
    let unbroken = |spoil: &dyn Fn(&mut Specimen)| {
        let mut specimen = Specimen::clean();
        spoil(&mut specimen);
        check(&specimen.history).iter().all(|violation| violation.law != Law::DependenciesHold)
    };
    broken(Law::DependenciesHold, dead);
    assert!(unbroken(&|it| {
        dead(it);
        wants(it, OnDependencyFailure::Run);
    }));
    for (policy, to) in [(OnDependencyFailure::Cancel, State::Cancelled), (OnDependencyFailure::Fail, State::Failed)] {
        assert!(unbroken(&|it| {
            dead(it);
            taken_along(it, to);
            wants(it, policy);
        }));
        broken(Law::DependenciesHold, |it| {
            taken_along(it, to);
            wants(it, policy);
        });
        broken(Law::DependenciesHold, |it| {
            dead(it);
            taken_along(it, to);
            wants(it, OnDependencyFailure::Run);
        });
    }
    broken(Law::DependenciesHold, |it| {
        dead(it);
        taken_along(it, State::Failed);
    });
}

#[test]
fn one_owner_in_terms_that_grow() {
    // The claim of `moved` is its third version, the reaper's step of `lost` its fourth.
    broken(Law::OneOwner, |it| {
        it.hand_over(Handover { resource: PARTITION, holder: Some("node_2"), term: 2, before: it.moved, version: 3 });
    });
    broken(Law::OneOwner, |it| {
        it.hand_over(Handover { resource: "leader", holder: Some("node_2"), term: 2, before: it.lost, version: 4 });
    });
    broken(Law::OneOwner, |it| {
        it.hand_over(Handover { resource: PARTITION, holder: Some("node_2"), term: 1, before: it.moved, version: 4 });
    });
    broken(Law::OneOwner, |it| {
        it.hand_over(Handover { resource: PARTITION, holder: Some(NODE), term: 0, before: it.moved, version: 4 });
    });
    broken(Law::OneOwner, |it| it.dumped(it.moved).trail[2].node = "node_2".to_owned());
    broken(Law::OneOwner, |it| it.dumped(it.lost).trail[3].node = "node_2".to_owned());
    broken(Law::OneOwner, |it| it.witness().terms.clear());
    broken(Law::OneOwner, |it| it.witness().writes.clear());
    // A claim that starts the run is one write, which the witness sees at the version of the start.
    let starts_at_once = |it: &mut Specimen| {
        let moved = it.moved;
        it.witness().writes.retain(|write| (write.task, write.version) != (moved, 3));
    };
    fine("the claim started the run", starts_at_once);
    broken(Law::OneOwner, |it| {
        starts_at_once(it);
        it.hand_over(Handover { resource: PARTITION, holder: Some("node_2"), term: 2, before: it.moved, version: 4 });
    });
    fine("a new owner after the claim", |it| {
        it.hand_over(Handover { resource: PARTITION, holder: Some("node_2"), term: 2, before: it.moved, version: 4 });
    });
    fine("given up before the claim was written, without a new owner yet", |it| {
        it.hand_over(Handover { resource: PARTITION, holder: None, term: 1, before: it.moved, version: 3 });
    });
    fine("another node owns it in between", |it| {
        it.hand_over(Handover { resource: PARTITION, holder: Some("node_2"), term: 2, before: it.moved, version: 1 });
        it.hand_over(Handover { resource: PARTITION, holder: Some(NODE), term: 3, before: it.moved, version: 2 });
    });
    // Any node may serve pull workers.
    fine("another node claims for a worker", |it| it.dumped(it.lost).trail[1].node = "node_2".to_owned());
    fine("there was no witness", |it| it.history.witness = None);
}

#[test]
fn nothing_is_left_behind() {
    broken(Law::NothingLeftBehind, |it| it.witness().left.push("a transaction".to_owned()));
    broken(Law::NothingHeldForever, |it| it.witness().held.push("a task".to_owned()));
}

#[test]
fn everything_ends_and_nothing_stays_held() {
    broken(Law::EverythingEnds, |it| it.cut(it.cancelled, 1));
    broken(Law::NothingHeldForever, |it| it.cut(it.lost, 3));
    broken(Law::NothingHeldForever, |it| it.cut(it.moved, 4));
}

#[test]
fn every_law_is_broken_by_some_test() {
    let tests = include_str!("tests.rs");
    for law in Law::ALL {
        assert!(tests.contains(&format!("broken(Law::{law:?},")), "{law:?} is never broken here");
    }
}
