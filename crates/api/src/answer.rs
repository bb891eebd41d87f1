//! Answers as JSON, written straight to bytes. Called by the routes.

use std::time::Duration;

use axum::http::header::{AGE, CONTENT_TYPE, ETAG, LOCATION};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use punctual_client::Page;
use punctual_core::state::State;
use punctual_core::task::Task;
use serde::Serialize;
use serde_json::Value;

use crate::extract::query::View;
use crate::yielding::YieldingBuffer;
use crate::{not_modified, view};

/// Set on the answer to a request that was made before under the same idempotency key.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// `body` as JSON.
pub fn json(status: StatusCode, body: &impl Serialize) -> Response {
    of_bytes(status, written(body))
}

fn written(body: &impl Serialize) -> Vec<u8> {
    let mut buffer = YieldingBuffer::default();
    serde_json::to_writer(&mut buffer, body).expect("invariant: every answer can be written as JSON");
    buffer.into_bytes()
}

fn of_bytes(status: StatusCode, bytes: Vec<u8>) -> Response {
    (status, [(CONTENT_TYPE, HeaderValue::from_static("application/json"))], bytes).into_response()
}

/// A thing with its version as `ETag`, as much of it as is shown.
pub fn viewed(status: StatusCode, version: u64, body: &impl Serialize, view: View) -> Response {
    match view {
        View::Full => versioned(status, version, body),
        View::Summary => versioned(status, version, &view::summary(body)),
    }
}

/// A page of a list as JSON, with a tag of its content.
pub fn page<T: Serialize>(view: View, page: Page<T>) -> Response {
    match view {
        View::Full => list(&page),
        View::Summary => {
            let items: Vec<Value> = page.items.iter().map(view::summary).collect();
            list(&Page { items, next_cursor: page.next_cursor })
        }
    }
}

/// A page whose items have nothing that a summary leaves out.
pub fn list(page: &impl Serialize) -> Response {
    let bytes = written(page);
    let tag = not_modified::tag_of(&bytes);
    let mut response = of_bytes(StatusCode::OK, bytes);
    response.headers_mut().insert(ETAG, tag);
    not_modified::known_by_tag(response)
}

/// `body` as JSON, with its version as `ETag`.
pub fn versioned(status: StatusCode, version: u64, body: &impl Serialize) -> Response {
    with_header(json(status, body), ETAG, &format!("\"{version}\""))
}

/// A task, with its version as `ETag`.
pub fn task(status: StatusCode, task: Task, view: View) -> Response {
    // A heartbeat changes the progress and not the version.
    let (is_running, version) = (task.state() == State::Running, task.position.version);
    let response = viewed(status, version, &view::task(task), view);
    if is_running { response } else { not_modified::known_by_tag(response) }
}

/// The answer to a request that made something, which is at `path` now.
pub fn created(response: Response, path: &str) -> Response {
    with_header(response, LOCATION, path)
}

/// An answer from memory, with its age in whole seconds; none for a fresh one.
pub fn aged(response: Response, age: Option<Duration>) -> Response {
    match age {
        Some(age) => with_header(response, AGE, &age.as_secs().to_string()),
        None => response,
    }
}

/// The answer to a request that was made before.
pub fn replayed(response: Response) -> Response {
    with_header(response, REPLAYED, "true")
}

fn with_header(mut response: Response, name: HeaderName, value: &str) -> Response {
    let value = HeaderValue::from_str(value).expect("invariant: ids, versions and paths are visible ASCII");
    response.headers_mut().insert(name, value);
    response
}
