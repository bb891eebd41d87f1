//! What can come of a call besides its answer.

use std::error::Error;
use std::time::Duration;

use crate::Problem;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server's address is none.
    #[error("{url:?} is not the address of a server: {reason}")]
    Address {
        /// What was given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A tenant's name that no header can carry.
    #[error("{0:?} is not the name of a tenant")]
    Tenant(String),
    /// The request cannot be written.
    #[error("the request cannot be written: {0}")]
    Unwritable(String),
    /// Nobody answers, or the connection broke: whether the call was heard is not known.
    #[error("the server cannot be reached: {0}")]
    Unreachable(String),
    /// No answer came in time: whether the call was heard is not known.
    #[error("the server did not answer within {0:?}")]
    TimedOut(Duration),
    /// The server says what is wrong.
    #[error("{} ({})", .0.detail, .0.code)]
    Refused(Box<Problem>),
    /// Something between here and the server answered in its place.
    #[error("status {status} without a problem document: {body}")]
    Unexpected {
        /// Its status.
        status: u16,
        /// How its body begins.
        body: String,
    },
    /// The answer is not as agreed.
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

    /// With the reason behind it: the error by itself only says where it happened.
    pub(super) fn unreachable(error: &(dyn Error + 'static)) -> Self {
        let mut told = error.to_string();
        let mut reason = error.source();
        while let Some(deeper) = reason {
            told = format!("{told}: {deeper}");
            reason = deeper.source();
        }
        Self::Unreachable(told)
    }
}
