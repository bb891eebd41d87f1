//! What an answer means: from what a target said to what becomes of the task. Pure.
//!
//! | answer | outcome |
//! |---|---|
//! | 2xx | completed; a JSON body within the bound is the result |
//! | 202 with `Punctual-Completion: async` | stays running until somebody settles it, or its timeout |
//! | 408, 425, 429, 503 | tried again, when `Retry-After` says |
//! | other 4xx | a dead letter at once |
//! | 3xx | tried again: it was not followed, and what moved may be a load balancer on its way back |
//! | anything else, and no answer at all | tried again |
//! | a target that may not be called | a dead letter at once |

use std::borrow::Cow;

use punctual_core::json::Json;
use punctual_core::retry::{Jitter, RetryPolicy};
use punctual_core::state::{Event, Failure};
use punctual_core::task::limits;
use punctual_core::time::Timestamp;
use punctual_core::trail::{FailedHow, RunError};

use crate::retry_after;

/// What came back from a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// An answer, its body read as far as it is of use.
    Answered(Answered),
    /// No answer, or none that could be read to its end.
    Broken {
        /// Its status, if it came that far.
        status: Option<u16>,
        /// What went wrong.
        fault: Fault,
    },
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// Its status.
    pub status: u16,
    /// Whether it said `Punctual-Completion: async`.
    pub asynchronous: bool,
    /// Its `Retry-After`.
    pub retry_after: Option<String>,
    /// Its body; none when it was larger than a result may be.
    pub body: Option<Vec<u8>>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It did not come within the task's timeout.
    Timeout,
    /// There was no connection, or it broke.
    Connection(String),
    /// The target's name could not be resolved.
    Dns(String),
    /// The TLS handshake failed, or the certificate was not believed.
    Tls(String),
    /// What came is not HTTP.
    Invalid(String),
    /// The target lies in a network that may not be called.
    Blocked,
    /// The task names no target that can be called.
    NoTarget,
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It is done.
    Completed {
        /// What it returned.
        result: Option<Json>,
        /// The status of the answer.
        http_status: u16,
    },
    /// The target took it on and will tell by itself when it is done.
    Accepted,
    /// It is not done.
    Failed(Failed),
    /// This node shuts down: somebody else is to do it, and the attempt does not count.
    GivenBack,
}

/// A run that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// How it ended.
    pub how: FailedHow,
    /// What went wrong.
    pub error: RunError<'static>,
    /// The status of the answer, if there was one.
    pub http_status: Option<u16>,
    /// Whether another attempt could succeed.
    pub retryable: bool,
    /// The delay the target asked for.
    pub retry_after_millis: Option<u64>,
}

impl Outcome {
    /// What `answer`, given at `now`, means.
    pub fn of(answer: Answer, now: Timestamp) -> Self {
        match answer {
            Answer::Answered(answered) => match answered.status {
                202 if answered.asynchronous => Self::Accepted,
                200..300 => Self::Completed { result: result(answered.body.as_deref()), http_status: answered.status },
                _ => Self::Failed(refused(&answered, now)),
            },
            Answer::Broken { status, fault } => Self::Failed(broken(status, &fault)),
        }
    }

    /// The event that tells the task's state machine; none where the run goes on. `dice` is any random number.
    pub fn event(self, policy: RetryPolicy, now: Timestamp, dice: u64) -> Option<Event<'static>> {
        match self {
            Self::Completed { result, http_status } => Some(Event::Complete { result, http_status: Some(http_status) }),
            Self::Accepted => None,
            Self::GivenBack => Some(Event::GiveBack(now)),
            Self::Failed(failed) => Some(Event::Fail(Failure {
                how: failed.how,
                error: failed.error,
                http_status: failed.http_status,
                retryable: failed.retryable,
                retry_after_millis: failed.retry_after_millis.map(|asked| spread(asked, policy.jitter, dice)),
                policy,
                // Only lost workers count against a task's life, and this one is here to tell.
                poison_after: 0,
                // Of breakers only whoever writes it knows.
                is_under_breaker: false,
                dice,
            })),
        }
    }
}

/// Bytes of a refusal's body that are kept.
const EXCERPT: usize = 1_024;
/// Characters kept of a fault's own words.
const REASON: usize = 512;

fn result(body: Option<&[u8]>) -> Option<Json> {
    let text = std::str::from_utf8(body?).ok()?;
    if text.len() > limits::RESULT { None } else { Json::parse(text).ok() }
}

fn refused(answered: &Answered, now: Timestamp) -> Failed {
    let status = answered.status;
    let (code, message) = match status {
        300..400 => ("redirected".into(), format!("the webhook answered {status}; redirects are not followed")),
        _ => (format!("http_{status}").into(), format!("the webhook answered {status}")),
    };
    let asks = matches!(status, 408 | 425 | 429 | 503);
    Failed {
        how: FailedHow::Failed,
        error: RunError { code, message: message.into(), details: details(answered.body.as_deref()) },
        http_status: Some(status),
        retryable: asks || !(400..500).contains(&status),
        retry_after_millis: answered
            .retry_after
            .as_deref()
            .filter(|_| asks)
            .and_then(|value| retry_after::parse(value, now)),
    }
}

/// The beginning of a refusal's body as a JSON document, if there is one.
fn details(body: Option<&[u8]>) -> Option<Cow<'static, str>> {
    let body = body.filter(|body| !body.is_empty())?;
    let excerpt = plain(&String::from_utf8_lossy(&body[..body.len().min(EXCERPT)]), EXCERPT);
    Some(serde_json::json!({ "response_body": excerpt }).to_string().into())
}

fn broken(http_status: Option<u16>, fault: &Fault) -> Failed {
    let retryable = !matches!(fault, Fault::Blocked | Fault::NoTarget);
    let how = if *fault == Fault::Timeout { FailedHow::TimedOut } else { FailedHow::Failed };
    let because = |what: &str, reason: &str| Cow::Owned(format!("{what}: {}", plain(reason, REASON)));
    let (code, message) = match fault {
        Fault::Timeout => ("timeout", "the webhook did not answer within the task's timeout".into()),
        Fault::Connection(reason) => ("connection_failed", because("no answer over this connection", reason)),
        Fault::Dns(reason) => ("dns_failed", because("the webhook's host name could not be resolved", reason)),
        Fault::Tls(reason) => ("tls_failed", because("no secure connection to the webhook", reason)),
        Fault::Invalid(reason) => ("invalid_response", because("the webhook's answer is not valid HTTP", reason)),
        // Always the same words: a submitter must not learn from them what answers inside our networks.
        Fault::Blocked => ("blocked_target", "the webhook's target is in a network that may not be called".into()),
        Fault::NoTarget => ("invalid_callback", "the task has no callback URL that can be called".into()),
    };
    let error = RunError { code: code.into(), message, details: None };
    Failed { how, error, http_status, retryable, retry_after_millis: None }
}

/// The delay a target asked for and up to a tenth more, so that those it sent away together do not return together;
/// never less.
fn spread(asked: u64, jitter: Jitter, dice: u64) -> u64 {
    match jitter {
        Jitter::None => asked,
        Jitter::Full => asked.saturating_add(dice % (asked / 10 + 1)),
    }
}

/// Text without control characters, at most `most` characters of it.
fn plain(text: &str, most: usize) -> String {
    text.chars().take(most).map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests;
