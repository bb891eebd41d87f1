//! Judges the answer of a webhook: which outcome it gives the run. Pure.
//!
//! The executor calls [`judge`] after every call, or [`cut_off`] if it ended the call itself.
//!
//! | answer | outcome |
//! |---|---|
//! | 2xx | completed; a JSON body within the bound is the result, of any other body the run records why it is none |
//! | 202 with `Punctual-Completion: async` | accepted: it runs until it is settled through the API, or times out |
//! | 408, 425, 429, 503 | retried, after the delay in `Retry-After`, but not before the policy's first delay |
//! | other 4xx | a dead letter at once |
//! | 3xx | a dead letter at once: redirects are not followed, so the next call would get the same |
//! | anything else, and no answer at all | retried |
//! | a target that may not be called | a dead letter at once |
//!
//! The policy's `retry_on` replaces what the table says about retries. The state machine applies
//! it.

use std::borrow::Cow;

use punctual_core::failure::FailureCause;
use punctual_core::json::Json;
use punctual_core::retry::{Jitter, RetryPolicy};
use punctual_core::run_end::{RunFailure, RunOutcome};
use punctual_core::task::limits;
use punctual_core::time::Timestamp;
use punctual_core::trail::{ResultDropped, RunError};

use crate::retry_after::RetryAfter;

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookResult {
    /// An answer, with its body as far as it is needed.
    Answered(WebhookAnswer),
    /// No answer, or an answer that broke off.
    Broken {
        /// Its status, if it arrived.
        status: Option<u16>,
        /// What went wrong.
        fault: CallFault,
    },
}

/// The answer of a webhook.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookAnswer {
    /// Its status.
    pub status: u16,
    /// Whether it has the header `Punctual-Completion: async`.
    pub asynchronous: bool,
    /// Its `Retry-After`.
    pub retry_after: Option<String>,
    /// Its body; none when it was larger than a result may be.
    pub body: Option<Vec<u8>>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallFault {
    /// It did not arrive within the task's timeout.
    Timeout,
    /// There was no connection, or it broke.
    Connection(String),
    /// The target's name could not be resolved.
    Dns(String),
    /// The TLS handshake failed, or the certificate is not trusted.
    Tls(String),
    /// The answer is not HTTP.
    Invalid(String),
    /// The target lies in a network that may not be called.
    Blocked,
    /// The task names no target that can be called.
    NoTarget,
}

/// The outcome that `result` gives the run at `now`.
pub fn judge(result: WebhookResult, now: Timestamp) -> RunOutcome {
    match result {
        WebhookResult::Answered(answer) => match answer.status {
            202 if answer.asynchronous => RunOutcome::Accepted,
            200..300 => completed(answer.status, answer.body.as_deref()),
            _ => RunOutcome::Failed(refused(&answer, now)),
        },
        WebhookResult::Broken { status, fault } => RunOutcome::Failed(broken(status, &fault)),
    }
}

/// The outcome of a call that the node cut off because it shuts down. The target may have got the
/// request. A task with retries is given back, and the run uses up none of them. A task without
/// retries is never called twice: it is lost with its node, as after a crash.
pub(crate) fn cut_off(policy: &RetryPolicy) -> RunOutcome {
    if policy.max_retries > 0 {
        return RunOutcome::GivenBack;
    }
    let message = "the node shut down before the webhook answered, and the task has no retries";
    RunOutcome::Failed(RunFailure {
        cause: FailureCause::Lost,
        error: RunError { code: "worker_lost".into(), message: message.into(), details: None },
        http_status: None,
        retryable: true,
        retry_after_millis: None,
    })
}

/// Fits the delay that a target asked for to the task's policy. It holds for the statuses that
/// usually ask, and for all others if the policy itself names what is retried. With jitter it grows
/// by up to a tenth, so that tasks that were refused together do not return together. It is never
/// shorter than the policy's first delay: a `Retry-After` of zero must not use up all attempts at
/// once. `random` is any number.
pub(crate) fn fit_retry_after(mut outcome: RunOutcome, policy: &RetryPolicy, random: u64) -> RunOutcome {
    if let RunOutcome::Failed(RunFailure { retry_after_millis: delay @ Some(_), http_status, .. }) = &mut outcome {
        let may_ask = policy.retry_on.is_some() || http_status.is_some_and(usually_asks);
        *delay = delay.filter(|_| may_ask).map(|asked| {
            let spread = match policy.jitter {
                Jitter::None => 0,
                Jitter::Full => random % (asked / 10 + 1),
            };
            let asked = asked.saturating_add(spread).min(limits::RETRY_DELAY_MILLIS);
            asked.max(policy.delay_millis(1, random))
        });
    }
    outcome
}

/// Whether an answer of this status usually says when to try again.
const fn usually_asks(status: u16) -> bool {
    matches!(status, 408 | 425 | 429 | 503)
}

/// Bytes of a refusal's body that are kept.
const EXCERPT_BYTES: usize = 1_024;
/// Characters kept of a fault's own text.
const REASON_CHARS: usize = 512;

/// The outcome of a run that succeeded. An empty body is no result, and none was dropped.
fn completed(status: u16, body: Option<&[u8]>) -> RunOutcome {
    let (result, dropped) = match returned(body) {
        Ok(result) => (result, None),
        Err(dropped) => (None, Some(dropped)),
    };
    RunOutcome::Completed { result, http_status: Some(status), dropped }
}

/// The result of a run: its body, if that is JSON within the bound.
fn returned(body: Option<&[u8]>) -> Result<Option<Json>, ResultDropped> {
    let body = body.filter(|body| body.len() <= limits::RESULT).ok_or(ResultDropped::TooLarge)?;
    if body.is_empty() {
        return Ok(None);
    }
    let text = std::str::from_utf8(body).map_err(|_| ResultDropped::NotUtf8)?;
    Json::parse(text)
        .map(Some)
        .map_err(|error| if is_too_deep(&error) { ResultDropped::TooDeep } else { ResultDropped::NotJson })
}

/// The parser has no other sign of it than its message.
fn is_too_deep(error: &serde_json::Error) -> bool {
    error.to_string().starts_with("recursion limit exceeded")
}

fn refused(answer: &WebhookAnswer, now: Timestamp) -> RunFailure {
    let status = answer.status;
    let (code, message) = match status {
        300..400 => ("redirected".into(), format!("the webhook answered {status}; redirects are not followed")),
        _ => (format!("http_{status}").into(), format!("the webhook answered {status}")),
    };
    let retry_after = answer.retry_after.as_deref().map(|value| RetryAfter::parse(value, now));
    let message = match retry_after.and_then(RetryAfter::remark) {
        Some(remark) => format!("{message}; {remark}"),
        None => message,
    };
    RunFailure {
        cause: FailureCause::Status(status),
        error: RunError { code, message: message.into(), details: details(answer.body.as_deref()) },
        http_status: Some(status),
        retryable: usually_asks(status) || !(300..500).contains(&status),
        retry_after_millis: retry_after.and_then(RetryAfter::delay_millis),
    }
}

/// The beginning of a refusal's body as a JSON document, if there is one.
fn details(body: Option<&[u8]>) -> Option<Cow<'static, str>> {
    let body = body.filter(|body| !body.is_empty())?;
    let excerpt = plain(&String::from_utf8_lossy(&body[..body.len().min(EXCERPT_BYTES)]), EXCERPT_BYTES);
    Some(serde_json::json!({ "response_body": excerpt }).to_string().into())
}

fn broken(http_status: Option<u16>, fault: &CallFault) -> RunFailure {
    let cause = match fault {
        CallFault::Timeout => FailureCause::Timeout,
        CallFault::Blocked | CallFault::NoTarget => FailureCause::NotCalled,
        CallFault::Connection(_) | CallFault::Dns(_) | CallFault::Tls(_) | CallFault::Invalid(_) => {
            FailureCause::Connection
        }
    };
    let retryable = cause != FailureCause::NotCalled;
    let because = |what: &str, reason: &str| Cow::Owned(format!("{what}: {}", plain(reason, REASON_CHARS)));
    let (code, message) = match fault {
        CallFault::Timeout => ("timeout", "the webhook did not answer within the task's timeout".into()),
        CallFault::Connection(reason) => ("connection_failed", because("no answer over this connection", reason)),
        CallFault::Dns(reason) => ("dns_failed", because("the webhook's host name could not be resolved", reason)),
        CallFault::Tls(reason) => ("tls_failed", because("no secure connection to the webhook", reason)),
        CallFault::Invalid(reason) => ("invalid_response", because("the webhook's answer is not valid HTTP", reason)),
        // Always the same text: a submitter must not learn from it what answers inside our
        // networks.
        CallFault::Blocked => ("blocked_target", "the webhook's target is in a network that may not be called".into()),
        CallFault::NoTarget => ("invalid_callback", "the task has no callback URL that can be called".into()),
    };
    let error = RunError { code: code.into(), message, details: None };
    RunFailure { cause, error, http_status, retryable, retry_after_millis: None }
}

/// The first `max` characters of a text, without control characters.
fn plain(text: &str, max: usize) -> String {
    text.chars().take(max).map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests;
