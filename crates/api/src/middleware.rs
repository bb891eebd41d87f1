//! The middleware around every route, applied by [`crate::router`].
//!
//! Before the handler a request gets an id, a permit and a deadline. After it the answer gets
//! problem details if the framework refused the request, the coding that its caller asks for,
//! the headers that all answers have, a metric and a log line. A handler that panics answers 500
//! and harms no other request.
//!
//! The panic guard and the request id are our own. `tower-http`'s `CatchPanic` would box every
//! body once more, and its `SetRequestId` keeps any id a caller sends, however long.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{ACCEPT, ALLOW, CONNECTION, CONTENT_TYPE, EXPECT, HeaderMap};
use axum::http::{HeaderValue, Method, StatusCode, Version};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use tokio::time::Instant;
use tracing::Instrument;

use crate::admission::{Admission, Permit};
use crate::deadline::BodyArrival;
use crate::encoding::{self, AnswerEncoder};
use crate::not_modified::KnownTags;
use crate::operations::Operations;
use crate::parameterless::Parameterless;
use crate::problem::{Code, Problem};
use crate::request_id::{REQUEST_ID, RequestId};
use crate::security_headers;
use crate::server::{OverTls, UnreadOnConnection};

/// The body of a refused request is read up to this size and for this long: a new connection costs
/// more.
const DISCARDED_BYTES: u64 = 1024 * 1024;
const DISCARDED_WITHIN: Duration = Duration::from_secs(1);

/// `routes` with the middleware around them.
pub fn apply(
    routes: Router,
    operations: Arc<Operations>,
    admission: Option<Arc<Admission>>,
    parameterless: Parameterless,
) -> Router {
    routes
        .method_not_allowed_fallback(async || {
            Problem::new(Code::MethodNotAllowed, "this path does not take this method")
        })
        .fallback(async || Problem::new(Code::NotFound, "there is no such path"))
        .layer(from_fn_with_state((operations, admission, Arc::new(parameterless)), handle))
}

type MiddlewareState = (Arc<Operations>, Option<Arc<Admission>>, Arc<Parameterless>);

async fn handle(State(state): State<MiddlewareState>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let id = RequestId::of(request.headers());
    let method = method_label(request.method());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let version = request.version();
    let is_over_tls = request.extensions().get::<OverTls>().is_some();
    let is_of_api = is_of_api(request.uri().path());
    let span = tracing::error_span!("request", %id);
    let (parts, body) = request.into_parts();
    let (arrival, body) = BodyArrival::watch(body, began);
    let request = Request::from_parts(parts, body);
    let answered = run(&state, request, next, &id, &arrival).instrument(span.clone()).await;
    let mut response = documented(answered.unwrap_or_else(IntoResponse::into_response));
    response.headers_mut().insert(REQUEST_ID, id.header());
    security_headers::add(response.headers_mut(), is_over_tls, is_of_api);
    let (elapsed, status) = (began.elapsed(), response.status());
    // A body that was not read to its end ends the connection. Announce that before the caller
    // sends its next request.
    if !arrival.is_whole() && version < Version::HTTP_2 {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    let route = route.as_ref().map_or("unmatched", MatchedPath::as_str);
    state.0.metrics.answered(method, route, status, elapsed);
    span.in_scope(|| {
        let (status, seconds) = (status.as_u16(), elapsed.as_secs_f64());
        tracing::debug!(http.method = method, http.route = route, http.status = status, seconds, "answered");
    });
    response
}

async fn run(
    (operations, admission, parameterless): &MiddlewareState,
    mut request: Request,
    next: Next,
    id: &RequestId,
    arrival: &BodyArrival,
) -> Result<Response, Problem> {
    let claim = match &operations.auth {
        None => {
            operations.allowed_hosts.check(&request)?;
            request.extensions_mut().insert(Arc::clone(&operations.anyone));
            None
        }
        Some(auth) => match auth.enter(&mut request).await {
            Ok(claim) => claim,
            Err(refusal) => {
                let _unread = discard(request).await;
                return Err(refusal);
            }
        },
    };
    refuse_what_no_route_takes(&request)?;
    // Probes of the node must work when it is overloaded; who probes reads the answers.
    let is_probe = matches!(request.uri().path(), "/healthz" | "/readyz" | "/metrics");
    let permit = match (is_probe && !UnreadOnConnection::beside(&request), admission) {
        (true, _) | (_, None) => None,
        (_, Some(admission)) => match admission.admit(&request).await {
            Ok(permit) => Some(permit),
            Err(refusal) => {
                let _unread = discard(request).await;
                return Err(refusal.problem().await);
            }
        },
    };
    parameterless.check(&mut request)?;
    let known_tags = KnownTags::of(request.method(), request.headers());
    let encoder = AnswerEncoder::of(request.headers(), &operations.encoding_pool);
    request.extensions_mut().insert(id.clone());
    if let Some(encoder) = &encoder {
        request.extensions_mut().insert(encoder.clone());
    }
    if let Some(permit) = &permit {
        request.extensions_mut().insert(permit.clone());
    }
    let wait = || permit.as_ref().map(Permit::wait).unwrap_or_default();
    let body_bytes = admission.as_ref().map_or(0, |admission| admission.longest_body(request.uri().path()));
    let work = async {
        // Boxed, as signed requests are rare, and this future is moved for every request.
        let verified = match claim.zip(operations.auth.as_ref()) {
            None => return next.run(request).await,
            Some((claim, auth)) => Box::pin(auth.verify(claim, request, body_bytes)).await,
        };
        match verified {
            Ok(request) => next.run(request).await,
            Err(refusal) => refusal.into_response(),
        }
    };
    let answer = arrival.within(operations.request_deadline, wait, catch_panic(work)).await;
    match answer {
        _ if arrival.is_late() => Err(Problem::new(Code::RequestTimeout, "the body arrived too slowly")),
        Some(Ok(response)) => {
            // Before the answer is counted: what is counted is what is held.
            let response = encoding::finish(encoder.as_ref(), known_tags.unless_known(response)).await?;
            Ok(match &permit {
                Some(permit) => permit.count(response),
                None => response,
            })
        }
        Some(Err(panic)) => {
            tracing::error!(panic, "a handler panicked; answering 500");
            Err(Problem::new(Code::Internal, "the request could not be handled"))
        }
        None => {
            tracing::error!("a request passed its deadline; answering 503");
            let detail = "no answer was ready in time; the request may have taken effect";
            Err(Problem::new(Code::StoreUnavailable, detail).retry_after(1))
        }
    }
}

/// Reads the body of a refused request, so that the connection can take the next one. A body that
/// is long, slow, or waits for `100 Continue` is not read to its end: dropping the rest ends the
/// connection.
async fn discard(request: Request) -> Body {
    let expects_continue = request.headers().contains_key(EXPECT);
    let mut body = request.into_body();
    if !expects_continue && body.size_hint().upper().is_some_and(|bytes| bytes <= DISCARDED_BYTES) {
        let read = async { while let Some(Ok(_)) = body.frame().await {} };
        drop(tokio::time::timeout(DISCARDED_WITHIN, read).await);
    }
    body
}

/// Longer than any path with its query needs to be.
const URI_BYTES_MAX: usize = 8 * 1024;

fn is_of_api(path: &str) -> bool {
    path == "/v1" || path.starts_with("/v1/")
}

fn refuse_what_no_route_takes(request: &Request) -> Result<(), Problem> {
    let uri = request.uri();
    if uri.path().len() + uri.query().map_or(0, str::len) > URI_BYTES_MAX {
        return Err(Problem::new(Code::UriTooLong, "the path and query are longer than 8192 bytes"));
    }
    if uri.path().starts_with("/v1/") && !accepts_json(request.headers()) {
        return Err(Problem::new(Code::NotAcceptable, "answers are application/json or application/problem+json"));
    }
    Ok(())
}

/// Whether the caller accepts JSON. There is nothing else to offer, so only a weight of zero
/// matters.
fn accepts_json(headers: &HeaderMap) -> bool {
    let mut ranges =
        headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(','));
    let acceptable = |range: &str| {
        let (range, parameters) = range.split_once(';').unwrap_or((range, ""));
        let refused = parameters.split(';').filter_map(|parameter| parameter.trim().strip_prefix("q=")).any(is_zero);
        let wanted = range.trim().to_ascii_lowercase();
        !refused
            && matches!(wanted.as_str(), "" | "*/*" | "application/*" | "application/json" | "application/problem+json")
    };
    !headers.contains_key(ACCEPT) || ranges.any(acceptable)
}

fn is_zero(weight: &str) -> bool {
    weight.parse::<f32>().is_ok_and(|weight| weight == 0.0)
}

/// Runs `work`, and returns its panic message as an error if it panics.
async fn catch_panic<T>(work: impl Future<Output = T>) -> Result<T, String> {
    let mut work = pin!(work);
    // After a panic the work is dropped and never polled again. What it shares with other requests
    // is behind locks that do not poison and behind the store's transactions.
    poll_fn(move |cx| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(done)) => Poll::Ready(Ok(done)),
        Err(panic) => Poll::Ready(Err(message(panic.as_ref()))),
    })
    .await
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}

/// The response, with a problem document in place of an error that the framework made: one in plain
/// text or without a body.
fn documented(response: Response) -> Response {
    let status = response.status();
    let ours = |value: &HeaderValue| !value.as_bytes().starts_with(b"text/plain");
    if !(status.is_client_error() || status.is_server_error()) || response.headers().get(CONTENT_TYPE).is_some_and(ours)
    {
        return response;
    }
    let problem = match status {
        StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST => Problem::new(Code::NotFound, "there is no such path"),
        StatusCode::METHOD_NOT_ALLOWED => Problem::new(Code::MethodNotAllowed, "this path does not take this method"),
        StatusCode::PAYLOAD_TOO_LARGE => Problem::new(Code::TooLarge, "the body is too large"),
        StatusCode::UNSUPPORTED_MEDIA_TYPE => {
            Problem::new(Code::UnsupportedMediaType, "the body must be application/json")
        }
        StatusCode::UNPROCESSABLE_ENTITY => Problem::new(Code::InvalidRequest, "the request is not valid"),
        _ => Problem::new(Code::Internal, "the request could not be handled"),
    };
    let allow = response.headers().get(ALLOW).cloned();
    let mut documented = problem.into_response();
    if let Some(allow) = allow {
        documented.headers_mut().insert(ALLOW, allow);
    }
    documented
}

/// The method as a metric label. Callers may invent methods, so unknown ones share a label.
fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

#[cfg(test)]
mod tests;
