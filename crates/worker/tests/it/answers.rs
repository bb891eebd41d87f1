//! What an answer means for its task, over the wire.

use punctual_core::json::Json;
use punctual_core::run_end::RunOutcome;
use punctual_core::task::limits;
use punctual_core::trail::ResultDropped;
use punctual_testkit::sink::{Sink, SinkAnswer};

use crate::support::{call, failed, failure};

async fn answered(answer: SinkAnswer) -> RunOutcome {
    let sink = Sink::start();
    sink.answer("/", answer);
    let outcome = call(&sink.url("/")).await;
    assert_eq!(sink.hits("/").len(), 1, "one request for one call");
    outcome
}

#[tokio::test]
async fn the_status_decides_the_outcome() {
    for status in [200, 201, 202, 204, 299] {
        let wanted = RunOutcome::Completed { result: None, http_status: Some(status), dropped: None };
        assert_eq!(answered(SinkAnswer::status(status)).await, wanted);
    }
    for (status, code, retryable) in [
        (300, "redirected", false),
        (304, "redirected", false),
        (400, "http_400", false),
        (404, "http_404", false),
        (408, "http_408", true),
        (410, "http_410", false),
        (425, "http_425", true),
        (429, "http_429", true),
        (500, "http_500", true),
        (503, "http_503", true),
        (599, "http_599", true),
        (999, "http_999", true),
    ] {
        assert_eq!(failure(answered(SinkAnswer::status(status)).await), (code.to_owned(), Some(status), retryable));
    }
}

#[tokio::test]
async fn a_json_body_is_the_result() {
    let exact = format!("\"{}\"", "a".repeat(limits::RESULT - 2));
    let over = format!("\"{}\"", "a".repeat(limits::RESULT - 1));
    for (body, result, dropped) in [
        (r#"{"invoice": 17.0}"#, Some(r#"{"invoice": 17.0}"#), None),
        ("", None, None),
        ("thanks", None, Some(ResultDropped::NotJson)),
        (exact.as_str(), Some(exact.as_str()), None),
        (over.as_str(), None, Some(ResultDropped::TooLarge)),
    ] {
        let result = result.map(|text| Json::parse(text).unwrap());
        let wanted = RunOutcome::Completed { result, http_status: Some(200), dropped };
        assert!(answered(SinkAnswer::status(200).body(body)).await == wanted, "{} bytes", body.len());
    }
}

#[tokio::test]
async fn a_refusal_keeps_the_beginning_of_its_body() {
    let failed = failed(answered(SinkAnswer::status(422).body("no such customer\0")).await);
    assert_eq!(failed.error.message, "the webhook answered 422");
    assert_eq!(failed.error.details.as_deref(), Some("{\"response_body\":\"no such customer\u{fffd}\"}"));
}

#[tokio::test]
async fn retry_after_is_read_from_the_answer() {
    for (status, value, millis) in [
        (429, "3", Some(3_000)),
        (503, " 3 ", Some(3_000)),
        (408, "Fri, 22 May 2026 18:00:05 GMT", Some(5_000)),
        (425, "Friday, 22-May-26 17:00:00 GMT", Some(0)),
        (429, "0", Some(0)),
        (429, "-10", None),
        (429, "1000000000000", Some(2_592_000_000)),
        (429, "tomorrow", None),
    ] {
        let failed = failed(answered(SinkAnswer::status(status).header("Retry-After", value)).await);
        assert_eq!(failed.retry_after_millis, millis, "{status} {value}");
    }
}

#[tokio::test]
async fn a_202_may_accept_for_later() {
    let going_on = SinkAnswer::status(202).header("Punctual-Completion", "async");
    assert_eq!(answered(going_on).await, RunOutcome::Accepted);
    let unknown = SinkAnswer::status(202).header("Punctual-Completion", "later");
    assert_eq!(answered(unknown).await, RunOutcome::Completed { result: None, http_status: Some(202), dropped: None });
}
