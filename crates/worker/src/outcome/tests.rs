use super::*;

fn now() -> Timestamp {
    Timestamp::parse("2026-05-22T18:00:00Z").unwrap()
}

fn answer(status: u16) -> Answered {
    Answered { status, body: Some(Vec::new()), ..Answered::default() }
}

fn outcome(answered: Answered) -> Outcome {
    Outcome::of(Answer::Answered(answered), now())
}

fn failed(outcome: Outcome) -> Failed {
    match outcome {
        Outcome::Failed(failed) => failed,
        other => panic!("not a failure: {other:?}"),
    }
}

#[test]
fn every_status_has_its_outcome() {
    for status in 100..1_000 {
        let mut answered = answer(status);
        answered.retry_after = Some("7".into());
        let outcome = outcome(answered);
        if (200..300).contains(&status) {
            assert_eq!(outcome, Outcome::Completed { result: None, http_status: status });
            continue;
        }
        let failed = failed(outcome);
        let waits = [408, 425, 429, 503].contains(&status);
        let hopeless = (400..500).contains(&status) && !waits;
        assert_eq!(failed.retryable, !hopeless, "{status}");
        assert_eq!(failed.retry_after_millis, waits.then_some(7_000), "{status}");
        assert_eq!(failed.http_status, Some(status));
        assert_eq!(failed.how, FailedHow::Failed);
        let code = if (300..400).contains(&status) { "redirected".to_owned() } else { format!("http_{status}") };
        assert_eq!(failed.error.code, code);
    }
}

#[test]
fn only_a_202_can_say_that_it_goes_on() {
    for (status, accepted) in [(202, true), (200, false), (204, false)] {
        let outcome = outcome(Answered { asynchronous: true, ..answer(status) });
        assert_eq!(outcome == Outcome::Accepted, accepted, "{status}");
    }
    assert!(matches!(outcome(answer(202)), Outcome::Completed { .. }));
    assert!(matches!(outcome(Answered { asynchronous: true, ..answer(503) }), Outcome::Failed(_)));
}

#[test]
fn a_json_body_within_the_bound_is_the_result() {
    let exact = format!("\"{}\"", "a".repeat(limits::RESULT - 2));
    let over = format!("\"{}\"", "a".repeat(limits::RESULT - 1));
    for (body, result) in [
        (Some(r#"{"ok": true}"#), Some(r#"{"ok": true}"#)),
        (Some(" 1 \r\n"), Some("1")),
        (Some("null"), Some("null")),
        (Some(exact.as_str()), Some(exact.as_str())),
        (Some(over.as_str()), None),
        (Some(""), None),
        (Some("OK"), None),
        (Some("<html>"), None),
        (Some("\u{feff}{}"), None),
        (Some(r#"{"a":1,"a":2}"#), None),
        (None, None),
    ] {
        let body = body.map(|text| text.as_bytes().to_vec());
        let wanted = Outcome::Completed { result: result.map(|text| Json::parse(text).unwrap()), http_status: 200 };
        assert_eq!(outcome(Answered { body, ..answer(200) }), wanted);
    }
    let outcome = outcome(Answered { body: Some(b"\"\xff\"".to_vec()), ..answer(200) });
    assert_eq!(outcome, Outcome::Completed { result: None, http_status: 200 });
}

#[test]
fn every_fault_has_its_code() {
    let why = || "because".to_owned();
    for (fault, code, retryable) in [
        (Fault::Timeout, "timeout", true),
        (Fault::Connection(why()), "connection_failed", true),
        (Fault::Dns(why()), "dns_failed", true),
        (Fault::Tls(why()), "tls_failed", true),
        (Fault::Invalid(why()), "invalid_response", true),
        (Fault::Blocked, "blocked_target", false),
        (Fault::NoTarget, "invalid_callback", false),
    ] {
        let how = if fault == Fault::Timeout { FailedHow::TimedOut } else { FailedHow::Failed };
        let failed = failed(Outcome::of(Answer::Broken { status: None, fault }, now()));
        assert_eq!((failed.error.code.as_ref(), failed.retryable, failed.how), (code, retryable, how));
    }
    let cut = Answer::Broken { status: Some(200), fault: Fault::Connection(why()) };
    assert_eq!(failed(Outcome::of(cut, now())).http_status, Some(200));
}

#[test]
fn kept_texts_are_bounded_and_plain() {
    let hostile = ["\0\u{1}\u{7f}\"\\\n".repeat(10_000), "\u{10ffff}".repeat(10_000)];
    for text in hostile {
        let refusal = failed(outcome(Answered { body: Some(text.clone().into_bytes()), ..answer(500) }));
        let details = refusal.error.details.unwrap();
        assert!(details.chars().count() <= limits::ERROR_TEXT && !details.contains('\0'), "{}", details.len());
        assert!(!details.contains("\\u0000"));
        Json::parse(&details).unwrap();
        let fault = Answer::Broken { status: None, fault: Fault::Connection(text) };
        let message = failed(Outcome::of(fault, now())).error.message;
        assert!(message.chars().count() <= limits::ERROR_TEXT && !message.contains('\0'));
    }
    assert_eq!(failed(outcome(answer(500))).error.details, None);
    let cut = failed(outcome(Answered { body: Some(vec![b'x'; 64 * 1_024]), ..answer(500) }));
    assert_eq!(cut.error.details.unwrap().matches('x').count(), EXCERPT);
}

#[test]
fn an_event_carries_what_the_target_said() {
    let policy = RetryPolicy::default();
    assert!(outcome(Answered { asynchronous: true, ..answer(202) }).event(policy, now(), 1).is_none());
    assert!(matches!(Outcome::GivenBack.event(policy, now(), 1), Some(Event::GiveBack(at)) if at == now()));
    let Some(Event::Complete { http_status, .. }) = outcome(answer(204)).event(policy, now(), 1) else { panic!() };
    assert_eq!(http_status, Some(204));
    let busy = outcome(Answered { retry_after: Some("100".into()), ..answer(429) });
    for (jitter, dice, millis) in [
        (Jitter::None, u64::MAX, 100_000),
        (Jitter::Full, 0, 100_000),
        (Jitter::Full, 10_000, 110_000),
        (Jitter::Full, 10_001, 100_000),
    ] {
        let event = busy.clone().event(RetryPolicy { jitter, ..policy }, now(), dice);
        let Some(Event::Fail(failure)) = event else { panic!() };
        assert_eq!(failure.retry_after_millis, Some(millis), "{jitter:?} {dice}");
    }
}
