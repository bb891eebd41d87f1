//! Answers as JSON, written straight to bytes. Called by the routes.

use axum::http::header::{CONTENT_TYPE, ETAG};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use punctual_core::task::Task;
use serde::Serialize;

use crate::view;
use crate::yielding::YieldingBuffer;

/// `body` as JSON.
pub fn json(status: StatusCode, body: &impl Serialize) -> Response {
    let mut buffer = YieldingBuffer::default();
    serde_json::to_writer(&mut buffer, body).expect("invariant: every answer can be written as JSON");
    (status, [(CONTENT_TYPE, HeaderValue::from_static("application/json"))], buffer.into_bytes()).into_response()
}

/// A task, with its version as `ETag`.
pub fn task(status: StatusCode, task: Task) -> Response {
    let tag = HeaderValue::try_from(format!("\"{}\"", task.position.version));
    let mut response = json(status, &view::task(task));
    response.headers_mut().insert(ETAG, tag.expect("invariant: a number in quotes is a header value"));
    response
}
