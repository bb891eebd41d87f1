use super::*;

fn now() -> Timestamp {
    Timestamp::parse("2026-05-22T18:00:00Z").unwrap()
}

fn answer(status: u16) -> WebhookAnswer {
    WebhookAnswer { status, body: Some(Vec::new()), ..WebhookAnswer::default() }
}

fn outcome(answer: WebhookAnswer) -> RunOutcome {
    judge(WebhookResult::Answered(answer), now())
}

fn failed(outcome: RunOutcome) -> RunFailure {
    match outcome {
        RunOutcome::Failed(failed) => failed,
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
            assert_eq!(outcome, RunOutcome::Completed { result: None, http_status: Some(status), dropped: None });
            continue;
        }
        let failed = failed(outcome);
        let waits = [408, 425, 429, 503].contains(&status);
        let hopeless = (300..500).contains(&status) && !waits;
        assert_eq!(failed.retryable, !hopeless, "{status}");
        let fitted = fit_retry_after(RunOutcome::Failed(failed.clone()), &policy(Jitter::None, 0), 0);
        assert_eq!(self::failed(fitted).retry_after_millis, waits.then_some(7_000), "{status}");
        assert_eq!((failed.http_status, failed.cause), (Some(status), FailureCause::Status(status)));
        let code = if (300..400).contains(&status) { "redirected".to_owned() } else { format!("http_{status}") };
        assert_eq!(failed.error.code, code);
    }
}

#[test]
fn only_a_202_can_accept_for_later() {
    for (status, accepted) in [(202, true), (200, false), (204, false)] {
        let outcome = outcome(WebhookAnswer { asynchronous: true, ..answer(status) });
        assert_eq!(outcome == RunOutcome::Accepted, accepted, "{status}");
    }
    assert!(matches!(outcome(answer(202)), RunOutcome::Completed { .. }));
    assert!(matches!(outcome(WebhookAnswer { asynchronous: true, ..answer(503) }), RunOutcome::Failed(_)));
}

#[test]
fn a_json_body_within_the_bound_is_the_result() {
    let exact = format!("\"{}\"", "a".repeat(limits::RESULT - 2));
    for (body, result) in [
        (r#"{"ok": true}"#, Some(r#"{"ok": true}"#)),
        (" 1 \r\n", Some("1")),
        ("null", Some("null")),
        (exact.as_str(), Some(exact.as_str())),
        ("", None),
    ] {
        let result = result.map(|text| Json::parse(text).unwrap());
        let wanted = RunOutcome::Completed { result, http_status: Some(200), dropped: None };
        assert_eq!(outcome(WebhookAnswer { body: Some(body.into()), ..answer(200) }), wanted);
    }
}

#[test]
fn any_other_body_is_dropped_for_a_reason() {
    let over = format!("\"{}\"", "a".repeat(limits::RESULT - 1));
    let nested = |levels| format!("{}{}", "[".repeat(levels), "]".repeat(levels)).into_bytes();
    for (body, dropped) in [
        (None, ResultDropped::TooLarge),
        (Some(over.into_bytes()), ResultDropped::TooLarge),
        (Some(b"\"\xff\"".to_vec()), ResultDropped::NotUtf8),
        (Some(b" ".to_vec()), ResultDropped::NotJson),
        (Some(b"OK".to_vec()), ResultDropped::NotJson),
        (Some("\u{feff}{}".into()), ResultDropped::NotJson),
        (Some(br#"{"a":1,"a":2}"#.to_vec()), ResultDropped::NotJson),
        (Some(nested(128)), ResultDropped::TooDeep),
    ] {
        let outcome = outcome(WebhookAnswer { body, ..answer(200) });
        assert_eq!(
            outcome,
            RunOutcome::Completed { result: None, http_status: Some(200), dropped: Some(dropped) },
            "{dropped:?}"
        );
    }
    let deepest = outcome(WebhookAnswer { body: Some(nested(127)), ..answer(200) });
    assert!(matches!(deepest, RunOutcome::Completed { result: Some(_), dropped: None, .. }));
}

#[test]
fn every_fault_has_its_code() {
    let why = || "because".to_owned();
    for (fault, code, retryable) in [
        (CallFault::Timeout, "timeout", true),
        (CallFault::Connection(why()), "connection_failed", true),
        (CallFault::Dns(why()), "dns_failed", true),
        (CallFault::Tls(why()), "tls_failed", true),
        (CallFault::Invalid(why()), "invalid_response", true),
        (CallFault::Blocked, "blocked_target", false),
        (CallFault::NoTarget, "invalid_callback", false),
    ] {
        let cause = match fault {
            CallFault::Timeout => FailureCause::Timeout,
            _ if retryable => FailureCause::Connection,
            _ => FailureCause::NotCalled,
        };
        let failed = failed(judge(WebhookResult::Broken { status: None, fault }, now()));
        assert_eq!((failed.error.code.as_ref(), failed.retryable, failed.cause), (code, retryable, cause));
    }
    let cut = WebhookResult::Broken { status: Some(200), fault: CallFault::Connection(why()) };
    assert_eq!(failed(judge(cut, now())).http_status, Some(200));
}

#[test]
fn kept_texts_are_bounded_and_plain() {
    let hostile = ["\0\u{1}\u{7f}\"\\\n".repeat(10_000), "\u{10ffff}".repeat(10_000)];
    for text in hostile {
        let refusal = failed(outcome(WebhookAnswer { body: Some(text.clone().into_bytes()), ..answer(500) }));
        let details = refusal.error.details.unwrap();
        assert!(details.chars().count() <= limits::ERROR_TEXT && !details.contains('\0'), "{}", details.len());
        assert!(!details.contains("\\u0000"));
        Json::parse(&details).unwrap();
        let fault = WebhookResult::Broken { status: None, fault: CallFault::Connection(text) };
        let message = failed(judge(fault, now())).error.message;
        assert!(message.chars().count() <= limits::ERROR_TEXT && !message.contains('\0'));
    }
    assert_eq!(failed(outcome(answer(500))).error.details, None);
    let cut = failed(outcome(WebhookAnswer { body: Some(vec![b'x'; 64 * 1_024]), ..answer(500) }));
    assert_eq!(cut.error.details.unwrap().matches('x').count(), EXCERPT_BYTES);
}

fn policy(jitter: Jitter, backoff_millis: u64) -> RetryPolicy {
    RetryPolicy { jitter, backoff_millis, ..RetryPolicy::default() }
}

#[test]
fn jitter_adds_up_to_a_tenth_to_the_delay_asked_for() {
    let busy = outcome(WebhookAnswer { retry_after: Some("100".into()), ..answer(429) });
    for (jitter, random, millis) in [
        (Jitter::None, u64::MAX, 100_000),
        (Jitter::Full, 0, 100_000),
        (Jitter::Full, 10_000, 110_000),
        (Jitter::Full, 10_001, 100_000),
    ] {
        let fitted = failed(fit_retry_after(busy.clone(), &policy(jitter, 1_000), random));
        assert_eq!(fitted.retry_after_millis, Some(millis), "{jitter:?} {random}");
    }
    let unasked = failed(fit_retry_after(outcome(answer(500)), &policy(Jitter::Full, 1_000), 7));
    assert_eq!(unasked.retry_after_millis, None);
    let done = outcome(answer(200));
    assert_eq!(fit_retry_after(done.clone(), &policy(Jitter::Full, 1_000), 7), done);
}

#[test]
fn no_target_shortens_the_first_delay_of_the_policy() {
    for (asked, jitter, random, millis) in [
        ("0", Jitter::None, 7, 30_000),
        ("29", Jitter::None, 7, 30_000),
        ("31", Jitter::None, 7, 31_000),
        ("Fri, 22 May 2026 17:00:00 GMT", Jitter::None, 7, 30_000),
        ("0", Jitter::Full, 12_345, 12_345),
        ("0", Jitter::Full, 30_000, 30_000),
    ] {
        let busy = outcome(WebhookAnswer { retry_after: Some(asked.into()), ..answer(429) });
        let fitted = failed(fit_retry_after(busy, &policy(jitter, 30_000), random));
        assert_eq!(fitted.retry_after_millis, Some(millis), "{asked} {jitter:?} {random}");
    }
}

#[test]
fn a_chosen_status_may_ask_for_a_delay() {
    let retry_on = Some(["402".parse().unwrap()].into());
    let chosen = RetryPolicy { retry_on, ..policy(Jitter::None, 0) };
    let declined = outcome(WebhookAnswer { retry_after: Some("259200".into()), ..answer(402) });
    let delay = |policy| failed(fit_retry_after(declined.clone(), policy, 0)).retry_after_millis;
    assert_eq!(delay(&chosen), Some(259_200_000));
    assert_eq!(delay(&policy(Jitter::None, 0)), None);
}

#[test]
fn a_retry_after_that_is_not_followed_is_recorded() {
    let message = |asked: &str| {
        let failure = failed(outcome(WebhookAnswer { retry_after: Some(asked.into()), ..answer(503) }));
        failure.error.message.into_owned()
    };
    assert_eq!(message("2592000"), "the webhook answered 503");
    assert_eq!(message("2592001"), "the webhook answered 503; its Retry-After was cut to 30 days");
    assert!(message("soon").ends_with("and was ignored"), "{}", message("soon"));
    let long = outcome(WebhookAnswer { retry_after: Some("2592000".into()), ..answer(503) });
    let fitted = failed(fit_retry_after(long, &policy(Jitter::Full, 0), 999_999));
    assert_eq!(fitted.retry_after_millis, Some(limits::RETRY_DELAY_MILLIS), "jitter adds nothing to the longest");
}
