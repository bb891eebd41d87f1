//! Tests of the state machine: every state and every event against a table, and random lives
//! against the diagram of the API.

mod diagram;
mod lives;
mod table;

use super::*;
use crate::retry::{Backoff, Jitter};

const NOW: Timestamp = Timestamp::from_millis(1_779_472_800_000);
const NODE: NodeId = NodeId::new(7);

fn by() -> By<'static> {
    By { now: NOW, node: NODE, actor: Actor::Worker("w1".into()) }
}

fn at(state: State) -> Position {
    let attempts = u32::from(state.is_held());
    Position { state, version: 5, attempts, crashes: 0, cancel_requested: false }
}

fn hold() -> Hold {
    Hold {
        worker: "w1".into(),
        node: Some(NODE),
        since: NOW,
        expires_at: NOW.plus_millis(60_000),
        deadline_at: NOW.plus_millis(300_000),
        lease_millis: 60_000,
    }
}

fn policy(max_retries: u32) -> RetryPolicy {
    RetryPolicy {
        max_retries,
        backoff: Backoff::Linear,
        backoff_millis: 1_000,
        max_backoff_millis: 60_000,
        jitter: Jitter::None,
        delays_millis: Vec::new(),
        retry_on: None,
    }
}

/// A failure that may be retried three times; the third lost worker makes the task poison.
fn failure(cause: FailureCause) -> Failure<'static> {
    Failure {
        cause,
        error: RunError { code: "boom".into(), message: "it broke".into(), details: None },
        http_status: Some(500),
        retryable: true,
        retry_after_millis: None,
        policy: policy(3),
        poison_after: 3,
        is_under_breaker: false,
        random: 0,
    }
}

/// The same under an open breaker.
fn under_breaker(cause: FailureCause) -> Failure<'static> {
    Failure { is_under_breaker: true, ..failure(cause) }
}

fn step(position: &Position, event: Event<'_>) -> ChangeFields {
    transition(position, event, &by()).expect("the event is legal here").into_fields()
}

fn error_of(change: &ChangeFields) -> (String, String) {
    let (_, error) = change.trail.last_error().expect("it has an error");
    (error.code.into_owned(), error.message.into_owned())
}

#[test]
fn a_claim_counts_the_attempt_and_holds() {
    let before = Position { attempts: 2, ..at(State::Pending) };
    let claimed = step(&before, Event::Claim(hold()));
    assert_eq!((claimed.to, claimed.version, claimed.attempts), (State::Queued, 6, Some(3)));
    assert_eq!(claimed.hold, Some(hold()));
    let leased = step(&before, Event::Lease(hold()));
    assert_eq!((leased.to, leased.version, leased.attempts), (State::Running, 7, Some(3)));
    assert_eq!(leased.hold, Some(hold()));
    assert_eq!(leased.trail.last().unwrap().step, Step::Started { attempt: 3 });
    let started = step(&Position { attempts: 3, ..at(State::Queued) }, Event::Start(hold()));
    assert_eq!((started.to, started.version, started.attempts), (State::Running, 6, None));
    assert_eq!(started.trail.last().unwrap().step, Step::Started { attempt: 3 });
}

#[test]
fn a_token_holds_until_the_task_changes() {
    let held = at(State::Running);
    assert!(held.is_held_by(5) && !held.is_asked_to_stop(5) && !held.is_held_by(4));
    let after = |before: &Position, event| transition(before, event, &by()).unwrap().position_after(before);
    let stopping = after(&held, Event::Cancel);
    assert!(stopping.is_asked_to_stop(5) && !stopping.is_held_by(5) && !stopping.is_asked_to_stop(4));
    let stopped = after(&stopping, Event::Stopped);
    assert!(!stopped.is_asked_to_stop(5) && !stopped.is_asked_to_stop(6));
    assert!(!at(State::Queued).is_held_by(5), "it has not begun");
}

#[test]
fn a_completion_needs_no_read_of_the_task() {
    let unread = Change::complete_held("acme", 5, None, &by());
    let read = step(&at(State::Running), Event::Complete { result: None, http_status: None, dropped: None });
    assert_eq!((unread.from, unread.expected_version, unread.to), (read.from, read.expected_version, read.to));
    assert_eq!((&unread.trail, unread.attempts, unread.crashes), (&read.trail, None, None));
    assert_eq!(unread.tenant.as_deref(), Some("acme"));
}

#[test]
fn giving_back_uncounts_the_attempt() {
    let later = NOW.plus_millis(5);
    for state in [State::Queued, State::Running] {
        for attempts in [1, 4] {
            let back = step(&Position { attempts, crashes: 2, ..at(state) }, Event::GiveBack(later));
            assert_eq!((back.to, back.attempts, back.crashes), (State::Pending, Some(attempts - 1), None));
            assert_eq!((back.due_at, back.hold), (Some(later), None));
        }
    }
}

#[test]
fn a_task_that_loses_its_workers_is_poison() {
    for poison_after in [1, 2, 3, 10] {
        for crashes in 0..poison_after {
            let failure = Failure { policy: policy(1_000), poison_after, ..failure(FailureCause::Lost) };
            let change = step(&Position { crashes, ..at(State::Running) }, Event::Fail(failure));
            let poisoned = crashes + 1 == poison_after;
            assert_eq!(change.to, if poisoned { State::DeadLettered } else { State::Pending });
            assert_eq!((change.crashes, change.due_at.is_none()), (Some(crashes + 1), poisoned));
            let (code, message) = error_of(&change);
            assert_eq!(code, if poisoned { "poisoned" } else { "boom" });
            assert!(message.contains("it broke"), "the last error is lost: {message}");
            let times =
                if poison_after == 1 { "lost 1 time while".to_owned() } else { format!("lost {poison_after} times") };
            assert!(!poisoned || message.contains(&times), "{message}");
        }
    }
    let never = Failure { poison_after: 0, policy: policy(1_000), ..failure(FailureCause::Lost) };
    let change = step(&Position { crashes: 500, ..at(State::Running) }, Event::Fail(never));
    assert_eq!((change.to, change.crashes), (State::Pending, Some(501)));
}

#[test]
fn only_lost_workers_count_as_crashes() {
    for cause in [FailureCause::Reported, FailureCause::Timeout] {
        let change = step(&Position { crashes: 5, ..at(State::Running) }, Event::Fail(failure(cause)));
        assert_eq!((change.to, change.crashes), (State::Pending, Some(5)));
        assert_eq!(error_of(&change).0, "boom");
    }
}

#[test]
fn after_the_last_retry_a_task_is_a_dead_letter() {
    for max_retries in [0, 1, 3, 1_000] {
        let fail = |attempts| {
            let failure = Failure { policy: policy(max_retries), ..failure(FailureCause::Reported) };
            step(&Position { attempts, ..at(State::Running) }, Event::Fail(failure))
        };
        let last = fail(max_retries + 1);
        assert_eq!((last.to, last.due_at), (State::DeadLettered, None));
        if max_retries > 0 {
            assert_eq!(fail(max_retries).to, State::Pending);
        }
    }
    let hopeless = Failure { retryable: false, ..failure(FailureCause::Reported) };
    assert_eq!(step(&at(State::Running), Event::Fail(hopeless)).to, State::DeadLettered);
}

#[test]
fn a_failure_under_a_breaker_does_not_use_up_an_attempt() {
    for cause in [FailureCause::Reported, FailureCause::Timeout, FailureCause::Lost] {
        // The last attempt, and attempts beyond the policy (it may have been edited since).
        for attempts in [1, 3, 4, 9] {
            let change = step(&Position { attempts, ..at(State::Running) }, Event::Fail(under_breaker(cause)));
            assert_eq!((change.to, change.attempts), (State::Pending, Some(attempts - 1)));
            let wait = i64::from(attempts) * 1_000;
            assert_eq!(change.due_at, Some(NOW.plus_millis(wait)), "the delay is that of its attempt");
            let found = change.trail.last().unwrap();
            assert!(
                matches!(found.step, Step::FailedUncounted { outcome, http_status: Some(500), .. } if outcome == cause.how())
            );
            assert_eq!((found.uncounted(), error_of(&change).0.as_str()), (Some("breaker_open"), "boom"));
            assert_eq!(
                change.crashes,
                Some(u32::from(cause == FailureCause::Lost)),
                "lost workers are counted as always"
            );
        }
    }
    for (asked, waits) in [(7_000, 7_000), (7, 1_000)] {
        let asked = Failure { retry_after_millis: Some(asked), ..under_breaker(FailureCause::Reported) };
        let change = step(&at(State::Running), Event::Fail(asked));
        assert_eq!(change.due_at, Some(NOW.plus_millis(waits)), "never faster than once a second");
    }
}

/// A task becomes a dead letter if no attempt can help, if it kills its workers, or if it may run
/// only once.
#[test]
fn a_breaker_spares_only_failures_worth_a_retry() {
    let fail = |position: Position, failure: Failure<'static>| step(&position, Event::Fail(failure));
    let counted = |change: &ChangeFields| {
        let found = change.trail.last().unwrap();
        change.attempts.is_none() && matches!(found.step, Step::Failed { .. }) && found.uncounted().is_none()
    };
    let hopeless = Failure { retryable: false, ..under_breaker(FailureCause::Reported) };
    let once = Failure { policy: policy(0), ..under_breaker(FailureCause::Reported) };
    let poison = Failure { poison_after: 1, ..under_breaker(FailureCause::Lost) };
    for failure in [hopeless, once, poison] {
        let change = fail(at(State::Running), failure);
        assert!(change.to == State::DeadLettered && counted(&change), "{change:?}");
    }
    let last = Position { version: 1_000_000, attempts: 4, ..at(State::Running) };
    let spared = fail(last, under_breaker(FailureCause::Reported));
    assert_eq!((spared.to, spared.attempts), (State::Pending, Some(3)), "however often it was tried");
}

#[test]
fn a_retry_waits_as_the_policy_or_the_worker_says() {
    let due = |attempts, retry_after_millis| {
        let failure = Failure { retry_after_millis, ..failure(FailureCause::Reported) };
        let change = step(&Position { attempts, ..at(State::Running) }, Event::Fail(failure));
        change.due_at.expect("it is retried").millis_since(NOW)
    };
    assert_eq!([due(1, None), due(2, None), due(3, None)], [1_000, 2_000, 3_000]);
    assert_eq!([due(1, Some(0)), due(3, Some(7))], [0, 7]);
    let month = 30 * 86_400_000;
    assert_eq!([due(1, Some(2_592_000_000)), due(1, Some(u64::MAX))], [month, month], "30 days at most");

    // A requested delay does not add attempts, and no instant is after the last one that can be
    // written.
    let asked = Failure { retry_after_millis: Some(1), policy: policy(0), ..failure(FailureCause::Reported) };
    assert_eq!(step(&at(State::Running), Event::Fail(asked)).to, State::DeadLettered);
    let for_ever = RetryPolicy { backoff_millis: u64::MAX, max_backoff_millis: u64::MAX, ..policy(3) };
    let change =
        step(&at(State::Running), Event::Fail(Failure { policy: for_ever, ..failure(FailureCause::Reported) }));
    assert_eq!(change.due_at, Some(Timestamp::MAX));
}

#[test]
fn a_run_asked_to_stop_ends_cancelled_whatever_its_outcome() {
    let asked = step(&at(State::Running), Event::Cancel);
    assert_eq!((asked.from, asked.to, asked.cancel_requested), (State::Running, State::Running, true));
    assert_eq!((asked.attempts, asked.hold.is_none()), (None, true));
    let position = Position { cancel_requested: true, version: asked.version, ..at(State::Running) };
    let outcomes = [
        Event::Complete { result: Some(Json::null()), http_status: Some(200), dropped: None },
        Event::Fail(failure(FailureCause::Reported)),
        Event::Fail(failure(FailureCause::Timeout)),
        Event::Fail(failure(FailureCause::Lost)),
        Event::Fail(under_breaker(FailureCause::Reported)),
        Event::Fail(Failure { retryable: false, ..failure(FailureCause::Reported) }),
        Event::GiveBack(NOW),
        Event::Stopped,
    ];
    for outcome in outcomes {
        let change = step(&position, outcome);
        assert_eq!((change.to, change.result, change.due_at), (State::Cancelled, None, None));
        assert!(!change.cancel_requested);
    }
    assert_eq!(
        transition(&position, Event::Cancel, &by()).unwrap_err().state,
        State::Running,
        "a second request is illegal"
    );
    assert!(transition(&at(State::Running), Event::Stopped, &by()).is_err(), "it was not asked to stop");
}

#[test]
fn a_redrive_starts_over() {
    let dead = Position { attempts: 4, crashes: 3, ..at(State::DeadLettered) };
    let change = step(&dead, Event::Redrive(None));
    assert_eq!((change.to, change.attempts, change.crashes), (State::Pending, Some(0), Some(0)));
    let edit = change.edit.expect("the expiry is taken away");
    assert_eq!((change.due_at, edit.expires_at, edit.payload), (Some(NOW), Some(None), None));
    let payload = Json::parse("[1]").unwrap();
    let edit = step(&dead, Event::Redrive(Some(payload.clone()))).edit.expect("it has a new payload");
    assert_eq!(edit.payload, Some(payload));
    assert!(edit.execute_at.is_none() && edit.priority.is_none() && edit.metadata.is_none());
}

#[test]
fn an_edit_moves_the_due_instant_with_the_time_asked_for() {
    let later = NOW.plus_millis(9);
    for state in [State::Blocked, State::Pending] {
        let edit = Edit { execute_at: Some(later), priority: Some(9), ..Edit::default() };
        let change = step(&at(state), Event::Edit(Box::new(edit)));
        assert_eq!((change.to, change.due_at), (state, Some(later)));
        assert_eq!(change.edit.expect("it is kept").priority, Some(9));
        let change = step(&at(state), Event::Edit(Box::default()));
        assert_eq!((change.to, change.due_at, change.attempts), (state, None, None));
    }
    let now = step(&at(State::Pending), Event::RunNow);
    assert_eq!((now.due_at, now.edit.unwrap().execute_at), (Some(NOW), Some(NOW)));
}

#[test]
fn a_result_is_kept_with_the_status_it_came_with() {
    let result = Json::parse("{\"a\": 1}").unwrap();
    let change = step(
        &at(State::Running),
        Event::Complete { result: Some(result.clone()), http_status: Some(201), dropped: None },
    );
    assert_eq!((change.result, change.hold), (Some(result), None));
    assert_eq!(change.trail.last().unwrap().step, Step::Completed { http_status: Some(201) });
}

#[test]
fn a_submission_is_the_first_step() {
    let trail = by().submitted(State::Blocked);
    let entries: Vec<_> = trail.entries().map(|entry| (entry.version, entry.to, entry.step, entry.at)).collect();
    assert_eq!(entries, [(1, State::Blocked, Step::Submitted, NOW)]);
}

#[test]
fn names_and_numbers_of_states_read_back() {
    let names: Vec<&str> = State::ALL.into_iter().map(State::as_str).collect();
    let written = ["BLOCKED", "PENDING", "QUEUED", "RUNNING", "COMPLETED", "CANCELLED", "FAILED", "DEAD_LETTERED"];
    assert_eq!(names, written);
    for (code, state) in State::ALL.into_iter().enumerate() {
        assert_eq!(State::from_name(state.as_str()), Some(state));
        assert_eq!(usize::from(state.code()), code);
        assert_eq!(State::from_code(i64::from(state.code())), Some(state));
    }
    assert_eq!((State::from_name("pending"), State::from_code(8), State::from_code(-1)), (None, None, None));
}

#[test]
fn a_condition_can_be_narrowed_and_nothing_else() {
    let made = transition(&at(State::Running), Event::GiveBack(NOW), &by()).expect("a run can be given back");
    assert_eq!((&made.tenant, made.expected_hold), (&None, None));
    let narrowed = made.clone().of_tenant("acme").expecting_hold(Some(&hold()));
    assert_eq!(narrowed.tenant.as_deref(), Some("acme"));
    assert_eq!(narrowed.expected_hold, Some(ExpectedHold { expires_at: hold().expires_at, node: hold().node }));
    assert_eq!((narrowed.to, narrowed.version, narrowed.due_at), (made.to, made.version, made.due_at));
    assert_eq!(narrowed.expecting_hold(None).expected_hold, None);
}
