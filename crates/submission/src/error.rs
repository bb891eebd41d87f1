//! Why a submission is refused, as data.
//!
//! The API makes a problem document of a [`SubmissionError`]; the cron loop and the inbox store its
//! text. Invariant: its texts are written for the submitter and reveal no server
//! internals.

use std::fmt;

use punctual_client::problem::FieldError;

/// What kind of refusal it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// A field has a value that it may not have.
    Invalid,
    /// The payload is over its limit.
    TooLarge,
    /// Tasks of a batch depend on each other in a cycle.
    DependencyCycle,
    /// A task depends on one that is not stored.
    UnknownDependency,
}

/// A refused submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmissionError {
    /// The kind of refusal.
    pub code: ErrorCode,
    /// A sentence about this refusal; empty where the faults say everything.
    pub detail: String,
    /// Every fault, with the place in the submission.
    pub faults: Vec<FieldError>,
}

impl SubmissionError {
    /// The same error of an item at `prefix` of a larger submission: its pointers begin there.
    #[must_use]
    pub fn under(mut self, prefix: &str) -> Self {
        for fault in &mut self.faults {
            fault.pointer.insert_str(0, prefix);
        }
        self
    }
}

/// All faults in one line, for a submitter that no longer waits for an answer.
impl fmt::Display for SubmissionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.faults.is_empty() {
            return f.write_str(&self.detail);
        }
        for (at, fault) in self.faults.iter().enumerate() {
            let separator = if at == 0 { "" } else { "; " };
            write!(f, "{separator}{}: {}", fault.place(), fault.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for SubmissionError {}

/// `text` as a reference token of a JSON pointer (RFC 6901).
pub fn pointer_token(text: &str) -> String {
    text.replace('~', "~0").replace('/', "~1")
}
