//! RFC 9457 problem details: every error of the API.

use punctual_core::json::Json;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::new_task::given;

/// An error, as `application/problem+json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// A URI that names the kind of problem.
    #[serde(rename = "type")]
    #[schema(example = "urn:punctual:problem:invalid_request")]
    pub kind: String,
    /// The kind of problem in words, the same each time.
    pub title: String,
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599)]
    pub status: u16,
    /// What happened this time, for people.
    pub detail: String,
    /// The kind of problem as one stable word, for programs.
    #[schema(example = "invalid_request")]
    pub code: String,
    /// What is wrong with the request, if the request is at fault.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
}

/// One thing that is wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Fault)]
pub struct FieldError {
    /// Where: a JSON Pointer into the body, or `?name` for a query parameter.
    #[schema(example = "/retry_policy/max_retries")]
    pub pointer: String,
    /// What is wrong there. With the name of the field before it, it is a sentence.
    pub message: String,
    /// What was sent there, the beginning of it if it is long. Left out if nothing was sent, and
    /// for what may be secret or large: payloads, headers, and fields named like a secret.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = serde_json::Value)]
    pub value: Option<Json>,
}

impl FieldError {
    /// An error at `pointer`.
    pub fn new(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), message: message.into(), value: None }
    }

    /// The same error with what was sent there.
    #[must_use]
    pub fn with_value(self, value: Option<Json>) -> Self {
        Self { value, ..self }
    }

    /// The place in words, to begin a sentence about the fault with.
    pub fn place(&self) -> &str {
        match self.pointer.trim_start_matches(['/', '?']) {
            "" => "the body",
            place => place,
        }
    }
}
