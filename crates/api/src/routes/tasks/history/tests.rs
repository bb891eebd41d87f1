use punctual_core::ids::{RunId, TaskId};
use punctual_core::time::Timestamp;
use punctual_core::trail::{RecordedEnd, Run, RunEnded, RunError};

use super::*;

fn failed(http_status: Option<u16>, details: &str) -> wire::Run {
    let at = Timestamp::from_millis(0);
    let error = RunError { code: "http_402".into(), message: "".into(), details: Some(details.into()) };
    let end = RecordedEnd {
        at,
        outcome: RunEnded::Failed,
        error: Some(error),
        http_status,
        uncounted: None,
        result_dropped: None,
    };
    let id = RunId::of(TaskId::new(), 3, at);
    run(Run { id, attempt: 1, token: 3, worker: "w".into(), started_at: at, end: Some(end) })
}

#[test]
fn a_failed_webhook_run_shows_what_was_answered() {
    let details = r#"{"response_body": "card declined"}"#;
    assert_eq!(failed(Some(402), details).response_excerpt.as_deref(), Some("card declined"));
    assert_eq!(failed(Some(402), "{}").response_excerpt, None);
    assert_eq!(failed(None, details).response_excerpt, None, "a worker's details are its own");
}
