//! Requests and answers as they are, for routes that [`Client`](super::Client) has no method for.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ClientError;
use crate::Problem;

/// How long a server may take to answer, without the wait of a long poll.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// How much is shown of an answer that is not a problem document.
const SHOWN_BYTES: usize = 200;

/// A request to any route of a server.
#[derive(Clone, Debug)]
pub struct RawRequest {
    method: Method,
    path: String,
    content_type: Option<&'static str>,
    body: Bytes,
    pub(super) timeout: Duration,
}

impl RawRequest {
    /// A GET of a path with its query.
    pub fn get(path: impl Into<String>) -> Self {
        Self { method: Method::GET, path: path.into(), content_type: None, body: Bytes::new(), timeout: ANSWER_TIMEOUT }
    }

    /// A POST of a body that is written already.
    pub fn post(path: impl Into<String>, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self { method: Method::POST, content_type: Some(content_type), body: body.into(), ..Self::get(path) }
    }

    /// A POST of a value as JSON.
    pub fn post_json(path: impl Into<String>, value: &impl Serialize) -> Result<Self, ClientError> {
        let body = serde_json::to_vec(value).map_err(|fault| ClientError::Unwritable(fault.to_string()))?;
        Ok(Self::post(path, "application/json", body))
    }

    /// A PUT of a value as JSON.
    pub fn put_json(path: impl Into<String>, value: &impl Serialize) -> Result<Self, ClientError> {
        Ok(Self { method: Method::PUT, ..Self::post_json(path, value)? })
    }

    /// The same request, whose answer may take this long instead of 30 seconds.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// The request for a server at `base`.
    pub(super) fn to_hyper<B: From<Bytes>>(&self, base: &str) -> Result<Request<B>, ClientError> {
        let mut request = Request::builder().method(&self.method).uri(format!("{base}{}", self.path));
        request = request.header(ACCEPT, HeaderValue::from_static("application/json, application/problem+json"));
        if let Some(content_type) = self.content_type {
            request = request.header(CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        request.body(self.body.clone().into()).map_err(|fault| ClientError::Unwritable(fault.to_string()))
    }
}

/// The method and the path.
impl fmt::Display for RawRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

/// An answer of any status.
#[derive(Clone, Debug)]
pub struct RawAnswer {
    /// The status.
    pub status: StatusCode,
    /// How long the server asks to wait before the next attempt.
    pub retry_after: Option<Duration>,
    /// The body.
    pub body: Bytes,
}

impl RawAnswer {
    /// Reads the body as JSON.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, ClientError> {
        serde_json::from_slice(&self.body).map_err(|fault| ClientError::Unreadable(fault.to_string()))
    }

    /// The error, unless the status is a success.
    pub(super) fn error(&self) -> Option<ClientError> {
        if self.status.is_success() {
            return None;
        }
        let shown = || String::from_utf8_lossy(&self.body[..self.body.len().min(SHOWN_BYTES)]).into_owned();
        Some(serde_json::from_slice::<Problem>(&self.body).map_or_else(
            |_| ClientError::Unexpected { status: self.status.as_u16(), body: shown() },
            |problem| ClientError::Refused(Box::new(problem)),
        ))
    }
}
