//! Why a submission is refused, as data.
//!
//! The API makes a problem document of a [`SubmissionError`]; the cron loop and the inbox store its
//! text. Invariant: its texts are written for the submitter and reveal no server
//! internals.

use std::fmt;

use punctual_client::problem::FieldError;

use crate::reading::quote;

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
    /// The faults, with their places in the submission.
    pub faults: Vec<FieldError>,
    /// How many more there are, beyond the bound of the list.
    pub more: usize,
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

    /// The same error, whose faults say what was sent there: `text` is the submission.
    #[must_use]
    pub fn quoting(mut self, text: &str) -> Self {
        quote(text, &mut self.faults);
        self
    }

    /// The same error with at most `most` faults, for an item of many.
    #[must_use]
    pub fn shortened(mut self, most: usize) -> Self {
        self.more += self.faults.len().saturating_sub(most);
        self.faults.truncate(most);
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
        if self.more > 0 {
            write!(f, "; and {} more", self.more)?;
        }
        Ok(())
    }
}

impl std::error::Error for SubmissionError {}

/// The maximum length of a name in a pointer, in bytes: a longer one is no name of ours.
const TOKEN_MAX: usize = 255;

/// `text` as a reference token of a JSON pointer (RFC 6901), cut if it is very long.
pub fn pointer_token(text: &str) -> String {
    let cut = &text[..text.floor_char_boundary(TOKEN_MAX)];
    let end = if cut.len() < text.len() { "…" } else { "" };
    format!("{}{end}", cut.replace('~', "~0").replace('/', "~1"))
}
