//! The errors of calls.

use std::error::Error;
use std::time::Duration;

use crate::Problem;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address of the server is malformed.
    #[error("{url:?} is not the address of a server: {reason}")]
    Address {
        /// What was given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The tenant's name does not fit a header.
    #[error("{0:?} is not the name of a tenant")]
    Tenant(String),
    /// The API key does not fit a header.
    #[error("the text is not an API key")]
    Key,
    /// The request cannot be written.
    #[error("the request cannot be written: {0}")]
    Unwritable(String),
    /// The server cannot be reached, or the connection broke. The call may have taken effect.
    #[error("the server cannot be reached: {0}")]
    Unreachable(String),
    /// No answer came in time. The call may have taken effect.
    #[error("the server did not answer within {0:?}")]
    TimedOut(Duration),
    /// The server refused the call with a problem.
    #[error("{} ({})", .0.detail, .0.code)]
    Refused(Box<Problem>),
    /// An answer without a problem document, probably from a proxy.
    #[error("status {status} without a problem document: {body}")]
    Unexpected {
        /// Its status.
        status: u16,
        /// How its body begins.
        body: String,
    },
    /// The answer cannot be parsed.
    #[error("the answer cannot be read: {0}")]
    Unreadable(String),
}

impl ClientError {
    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::TimedOut(_) => true,
            Self::Refused(_) | Self::Unexpected { .. } => {
                self.status().is_some_and(|status| [408, 425, 429, 502, 503, 504].contains(&status))
            }
            _ => false,
        }
    }

    /// The stable code of the problem, if the server named one: `stale_token`, `not_found`, …
    pub fn code(&self) -> Option<&str> {
        if let Self::Refused(problem) = self { Some(&problem.code) } else { None }
    }

    /// The HTTP status, if there was an answer.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused(problem) => Some(problem.status),
            Self::Unexpected { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// The error with its causes: by itself it only says where it happened.
    pub(super) fn unreachable(error: &(dyn Error + 'static)) -> Self {
        let mut text = error.to_string();
        let mut reason = error.source();
        while let Some(deeper) = reason {
            text = format!("{text}: {deeper}");
            reason = deeper.source();
        }
        Self::Unreachable(text)
    }
}
