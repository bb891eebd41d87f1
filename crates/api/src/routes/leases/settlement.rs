//! Checks what a pull worker reports about one run, and makes a [`Settlement`] of it.
//!
//! The settle routes call it. It reports all faults of an item at once.

use std::borrow::Cow;

use punctual_client::lease::WorkerError;
use punctual_client::{SettleItem, SettleOutcome};
use punctual_core::failure::FailureCause;
use punctual_core::json::Json;
use punctual_core::run_end::{RunFailure, RunOutcome};
use punctual_core::task::limits;
use punctual_core::trail::RunError;
use punctual_scheduler::settle::{RunReport, Settlement};
use punctual_submission::Faults;

/// The code of an error without one.
const FAILED: &str = "failed";
/// The longest delay a worker may give a task back with.
const RELEASE_DELAY_MAX_MILLIS: u64 = 30 * 24 * 3_600_000;

/// The item as a settlement, for a caller that has no faults in the end.
pub(super) fn settlement(faults: &mut Faults, item: SettleItem) -> Settlement {
    foreign_fields(faults, &item);
    for (pointer, json) in [("/result", &item.result), ("/progress", &item.progress), ("/checkpoint", &item.checkpoint)]
    {
        if json.as_ref().is_some_and(|json| json.get().len() > limits::RESULT) {
            faults.add_too_large(pointer, limits::RESULT);
        }
    }
    let report = match item.outcome {
        SettleOutcome::Completed => {
            RunReport::Ended(RunOutcome::Completed { result: item.result, http_status: None, dropped: None })
        }
        SettleOutcome::Released => {
            let delay_millis = faults.seconds("/delay_seconds", item.delay_seconds, RELEASE_DELAY_MAX_MILLIS);
            let delay_millis = delay_millis.unwrap_or_default();
            RunReport::Ended(RunOutcome::Released { delay_millis })
        }
        SettleOutcome::Heartbeat => RunReport::Heartbeat { progress: item.progress, checkpoint: item.checkpoint },
        SettleOutcome::Failed => {
            let longest = limits::RETRY_DELAY_MILLIS;
            let retry_after_millis = faults.seconds("/retry_after_seconds", item.retry_after_seconds, longest);
            let error = run_error(item.error, faults);
            RunReport::Ended(RunOutcome::Failed(RunFailure {
                cause: FailureCause::Reported,
                error,
                http_status: None,
                retryable: item.retryable.unwrap_or(true),
                retry_after_millis,
            }))
        }
    };
    Settlement { id: item.task_id, token: item.token, report }
}

/// The fields that do not belong to the item's outcome: a mistake of the worker, which must be
/// reported.
fn foreign_fields(faults: &mut Faults, item: &SettleItem) {
    let (word, own): (&str, &[&str]) = match item.outcome {
        SettleOutcome::Completed => ("completed", &["/result"]),
        SettleOutcome::Failed => ("failed", &["/error", "/retryable", "/retry_after_seconds"]),
        SettleOutcome::Released => ("released", &["/delay_seconds"]),
        SettleOutcome::Heartbeat => ("heartbeat", &["/progress", "/checkpoint"]),
    };
    let given = [
        ("/result", item.result.is_some()),
        ("/error", item.error.is_some()),
        ("/retryable", item.retryable.is_some()),
        ("/retry_after_seconds", item.retry_after_seconds.is_some()),
        ("/delay_seconds", item.delay_seconds.is_some()),
        ("/progress", item.progress.is_some()),
        ("/checkpoint", item.checkpoint.is_some()),
    ];
    let foreign = given.into_iter().filter(|(field, given)| *given && !own.contains(field));
    foreign.for_each(|(field, _)| faults.add(field, format!("does not go with outcome {word}")));
}

/// The error as it is stored. Texts that are too long are cut: refusing the failure would be worse.
fn run_error(error: Option<WorkerError>, faults: &mut Faults) -> RunError<'static> {
    let WorkerError { code, message, details } =
        error.unwrap_or(WorkerError { code: None, message: None, details: None });
    let mut text = |pointer: &str, text: Option<String>, most: usize| {
        let text = text.unwrap_or_default();
        if text.contains('\0') {
            faults.add(pointer, "must not contain NUL");
        }
        cut(text, most)
    };
    let code = text("/error/code", code, limits::ERROR_CODE);
    let message = text("/error/message", message, limits::ERROR_TEXT);
    let code = if code.is_empty() { Cow::Borrowed(FAILED) } else { Cow::Owned(code) };
    RunError { code, message: Cow::Owned(message), details: details.map(|details| Cow::Owned(bounded(&details))) }
}

fn cut(mut text: String, most: usize) -> String {
    // Fewer bytes than characters allowed: the usual case, without counting.
    if text.len() > most
        && let Some((end, _)) = text.char_indices().nth(most)
    {
        text.truncate(end);
    }
    text
}

/// Details that are too long are stored as the beginning of their text, in a JSON string. The
/// beginning has half the bound, since a character may take two to write.
fn bounded(details: &Json) -> String {
    if details.get().len() <= limits::ERROR_TEXT {
        return details.get().to_owned();
    }
    let beginning = cut(details.get().to_owned(), limits::ERROR_TEXT / 2 - 1);
    serde_json::to_string(&beginning).expect("invariant: a text can be written as JSON")
}

#[cfg(test)]
mod tests {
    use punctual_core::ids::TaskId;
    use punctual_submission::{ErrorCode, Sent, SubmissionError};
    use serde_json::{Value, json};

    use super::*;

    fn settled(mut item: Value) -> Result<RunReport, SubmissionError> {
        item["task_id"] = json!(TaskId::new());
        item["token"] = json!(3);
        let item = serde_json::from_str(&item.to_string()).unwrap();
        Sent::good(item).check(|item, faults| Some(settlement(faults, item))).map(|settlement| settlement.report)
    }

    fn pointers(error: &SubmissionError) -> Vec<&str> {
        error.faults.iter().map(|fault| fault.pointer.as_str()).collect()
    }

    fn failed(item: Value) -> RunFailure {
        let RunReport::Ended(RunOutcome::Failed(failure)) = settled(item).unwrap() else { panic!("not a failure") };
        failure
    }

    #[test]
    fn a_bare_failure_is_a_retryable_one() {
        let RunFailure { error, retryable, retry_after_millis, .. } = failed(json!({"outcome": "failed"}));
        assert_eq!((error.code.as_ref(), error.message.as_ref(), error.details), ("failed", "", None));
        assert_eq!((retryable, retry_after_millis), (true, None));
    }

    #[test]
    fn long_texts_are_cut_and_not_refused() {
        let error =
            json!({"code": "é".repeat(100), "message": "é".repeat(5_000), "details": {"trace": "\"".repeat(9_000)}});
        let RunFailure { error, .. } = failed(json!({"outcome": "failed", "error": error}));
        assert_eq!(
            (error.code.chars().count(), error.message.chars().count()),
            (limits::ERROR_CODE, limits::ERROR_TEXT)
        );
        let details = error.details.unwrap();
        assert!(details.len() <= limits::ERROR_TEXT);
        assert!(serde_json::from_str::<String>(&details).unwrap().starts_with(r#"{"trace":"#));
    }

    #[test]
    fn all_faults_of_a_failure_are_reported() {
        let error = json!({"code": "a\0", "message": "b\0"});
        let item = json!({"outcome": "failed", "error": error, "retry_after_seconds": 2_592_001, "result": 1});
        let error = settled(item).unwrap_err();
        assert_eq!(error.code, ErrorCode::Invalid);
        assert_eq!(pointers(&error), ["/result", "/retry_after_seconds", "/error/code", "/error/message"]);
    }

    #[test]
    fn a_field_of_another_outcome_is_refused() {
        for (item, pointer) in [
            (json!({"outcome": "completed", "progress": 1}), "/progress"),
            (json!({"outcome": "released", "retryable": true}), "/retryable"),
            (json!({"outcome": "heartbeat", "result": 1}), "/result"),
        ] {
            assert_eq!(pointers(&settled(item).unwrap_err()), [pointer]);
        }
    }

    #[test]
    fn results_are_bounded() {
        let most = "x".repeat(limits::RESULT - 2);
        assert!(settled(json!({"outcome": "completed", "result": most})).is_ok());
        for (outcome, field) in [("completed", "result"), ("heartbeat", "progress"), ("heartbeat", "checkpoint")] {
            let error = settled(json!({"outcome": outcome, field: format!("{most}x")})).unwrap_err();
            assert_eq!(error.code, ErrorCode::TooLarge);
            assert_eq!(pointers(&error), [format!("/{field}")]);
        }
    }
}
