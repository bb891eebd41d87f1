//! Its time, its retry, its expiry.

use punctual_core::ids::ScheduleId;
use punctual_core::trail::Trail;

use super::*;

#[test]
fn its_time() {
    let facts = Facts::of(task(State::Pending, 1_500, Route::Pull), NOW);
    let at = "2026-05-22T18:00:01.500Z";
    let expected = json!({"code": "not_due_yet", "message": format!("it is due at {at}"), "until": at});
    assert_eq!(shown(&facts), (expected, Some(1_500)));
}

#[test]
fn a_time_that_was_put_off_says_by_whom() {
    let mut facts = Facts::of(task(State::Pending, 1_500, Route::Pull), NOW);
    facts.task.execute_at = NOW;
    let spread = "it is due at 2026-05-22T18:00:01.500Z; it was to run at 2026-05-22T18:00:00.000Z, and queue mail spreads \
                  its tasks";
    assert_eq!(message(&shown(&facts).0), format!("{spread} (dispatch_jitter_seconds)"), "as it was set then");
    facts.queue.settings.dispatch_jitter_millis = 2_500;
    assert_eq!(message(&shown(&facts).0), format!("{spread} over 2.5 s (dispatch_jitter_seconds)"));
    let given_back = Entry { step: Step::GivenBack, ..failed("") };
    facts.task.trail.push(&given_back);
    assert_eq!(message(&shown(&facts).0), "it is due at 2026-05-22T18:00:01.500Z");

    let mut facts = Facts::of(task(State::Pending, 1_500, Route::Pull), NOW);
    facts.task.body.schedule_id = Some(ScheduleId::new());
    facts.task.trail = Trail::default();
    facts.task.trail.push(&Entry { step: Step::Scheduled { instant: NOW }, version: 1, ..failed("") });
    assert_eq!(
        message(&shown(&facts).0),
        "it is due at 2026-05-22T18:00:01.500Z; its instant is 2026-05-22T18:00:00.000Z, and its schedule spreads its tasks \
         (jitter_seconds)"
    );
    facts.task.execute_at = NOW;
    facts.task.due_at = NOW.plus_millis(1);
    assert!(!message(&shown(&facts).0).contains("schedule"), "it was not put off by that");
}

#[test]
fn its_retry() {
    let mut facts = Facts::of(task(State::Pending, 500, Route::Pull), NOW);
    facts.task.position.attempts = 2;
    facts.task.trail.push(&failed("boom"));
    let (reason, eta) = shown(&facts);
    assert_eq!((&reason["code"], eta), (&json!("waiting_for_retry"), Some(500)));
    assert_eq!(message(&reason), "attempt 2 failed (boom); the next is due at 2026-05-22T18:00:00.500Z");
    // Driven again, it waits for no retry.
    facts.task.position.attempts = 0;
    assert_eq!(codes(&facts), ["not_due_yet"]);
    let error = RunError { code: "boom".into(), message: "it broke".into(), details: None };
    let step = Step::FailedUncounted { outcome: FailedHow::Failed, error, http_status: None };
    facts.task.trail.push(&Entry { step, version: 6, ..failed("") });
    let (reason, _) = shown(&facts);
    assert_eq!(reason["code"], "waiting_for_retry");
    assert!(message(&reason).starts_with("an attempt failed and was not counted (boom)"), "{reason}");
}

#[test]
fn expiry_before_the_run_is_the_first_reason() {
    let mut facts = Facts::of(task(State::Pending, 5_000, Route::Pull), NOW);
    facts.task.expires_at = Some(NOW.plus_millis(5_001));
    assert_eq!(shown(&facts).1, Some(5_000));
    assert_eq!(explain(&facts).expires_at, facts.task.expires_at);
    facts.task.expires_at = Some(NOW.plus_millis(5_000));
    let explained = explain(&facts);
    assert_eq!((codes(&facts), explained.eta), (vec!["expires_first".to_owned(), "not_due_yet".to_owned()], None));
    assert_eq!(
        explained.reasons[0].message,
        "it expires at 2026-05-22T18:00:05.000Z, and as things stand it cannot run before 2026-05-22T18:00:05.000Z: it will \
         be FAILED with the code expired, unless its expires_at is changed"
    );
    facts.task.started_at = Some(NOW);
    let again = &explain(&facts).reasons[0].message;
    assert!(again.contains("it cannot run again before"), "{again}");
    // Also if the end of another reason is unknown.
    facts.queue.pause = Some(Pause { since: NOW, by: "client".into(), reason: None, until: None });
    assert_eq!(codes(&facts), ["expires_first", "not_due_yet", "queue_paused"]);
    facts.task.expires_at = Some(NOW.plus_millis(5_001));
    assert_eq!(codes(&facts), ["not_due_yet", "queue_paused"]);
    facts.task.expires_at = Some(NOW);
    let reason = &explain(&facts).reasons[0];
    assert_eq!((reason.code.as_str(), reason.since), ("expires_first", Some(NOW)));
    assert!(reason.message.contains("is about to be FAILED"), "{reason:?}");
}
