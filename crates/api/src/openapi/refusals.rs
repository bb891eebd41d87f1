//! The refusals of the OpenAPI document: one shared response for each kind.
//!
//! A handler lists the refusals of its own by type, such as `NotFound, Invalid`. [`of_every_call`]
//! adds those that the server gives before and around a handler, so that no status is undocumented.

use std::collections::BTreeMap;

use punctual_client::Problem;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder, Responses};
use utoipa::{IntoResponses, ToSchema};

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $status:literal, $description:literal;)*) => {
        $(
            $(#[$doc])*
            pub struct $name;

            impl IntoResponses for $name {
                fn responses() -> BTreeMap<String, RefOr<Response>> {
                    let shared = Ref::from_response_name(stringify!($name));
                    BTreeMap::from([($status.to_owned(), RefOr::Ref(shared))])
                }
            }
        )*

        /// Every shared refusal, by its name.
        pub fn shared() -> BTreeMap<String, RefOr<Response>> {
            BTreeMap::from([$((stringify!($name).to_owned(), RefOr::T(refusal($description))),)*])
        }
    };
}

refusals! {
    /// 400: the request cannot be read.
    Unreadable = "400", "The request cannot be read: `invalid_json`, `invalid_body`, `invalid_header`, `invalid_tenant`, `invalid_idempotency_key`, `invalid_cursor`, `malformed_request`";
    /// 401: the caller is not known.
    Unauthenticated = "401", "Authentication is on, and the request has no valid credential: `unauthenticated`";
    /// 403: the caller may not, or a web page of another site made the request.
    Forbidden = "403", "The credential does not allow it: `forbidden`. A web page of another site made the request, and authentication is off: `cross_site`";
    /// 404: there is nothing there.
    NotFound = "404", "There is nothing here for this tenant: `not_found`";
    /// 406: the caller does not accept JSON.
    NotAcceptable = "406", "`Accept` leaves out JSON: `not_acceptable`";
    /// 408: the body came too slowly.
    RequestTimeout = "408", "The body arrived too slowly: `request_timeout`";
    /// 409: other writers were faster each time.
    Conflict = "409", "Other writers changed it each time; try again: `conflict`";
    /// 409: the token is old.
    StaleToken = "409", "Another worker holds the task now, or it has finished: `stale_token`. The run did not end within its task's timeout: `timed_out`. The call had no effect";
    /// 410: the task was cancelled.
    Cancelled = "410", "The task was cancelled; stop working on it: `cancelled`";
    /// 412: it is at another version.
    VersionMismatch = "412", "It is at another version; nothing was done: `version_mismatch`";
    /// 413: the content is too large.
    TooLarge = "413", "The body, or a part of it, is too large: `too_large`";
    /// 414: the path is too long.
    UriTooLong = "414", "The path and the query are too long: `uri_too_long`";
    /// 415: the content is of another type.
    UnsupportedMediaType = "415", "The content type is not supported: `unsupported_media_type`";
    /// 421: the request is for another server.
    Misdirected = "421", "`Host` names another server, and authentication is off: `misdirected`";
    /// 422: the request is not valid.
    Invalid = "422", "The request is not valid; `errors` lists all faults: `invalid_request`";
    /// 429: there is no room for more tasks.
    NoRoom = "429", "No room for it now; ask again after `Retry-After` seconds: `queue_full`, `quota_exceeded`, `rate_limited`";
    /// 429: too many requests.
    Throttled = "429", "Too many credentials from this address were not valid; ask again after `Retry-After` seconds: `rate_limited`";
    /// 431: the head of the request is too large.
    HeadersTooLarge = "431", "The head of the request is too large: `headers_too_large`";
    /// 500: something is broken.
    Internal = "500", "Something went wrong inside the server, or stored data cannot be read: `internal_error`";
    /// 503: not now.
    Unavailable = "503", "Not now; ask again after `Retry-After` seconds: `overloaded`, `store_unavailable`, `store_full`, `shutting_down`";
    /// Any other refusal.
    Refused = "default", "Any other problem";
}

/// The name of the shared response 304.
pub const NOT_MODIFIED: &str = "NotModified";

/// 304: the caller has it already.
pub struct NotModified;

impl IntoResponses for NotModified {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        BTreeMap::from([("304".to_owned(), RefOr::Ref(Ref::from_response_name(NOT_MODIFIED)))])
    }
}

/// The shared response 304.
pub fn not_modified() -> Response {
    ResponseBuilder::new().description("Unchanged: `If-None-Match` names its `ETag`").build()
}

/// Adds the refusals that every call may get: those of the connection and of the middleware, and
/// those of the body if it has one.
pub fn of_every_call(responses: &mut Responses, is_versioned: bool, has_body: bool) {
    let mut all = Refused::responses();
    let of_connection = [Unreadable::responses(), UriTooLong::responses(), HeadersTooLarge::responses()];
    let of_middleware = [Forbidden::responses(), Misdirected::responses(), Internal::responses()];
    all.extend(of_connection.into_iter().chain(of_middleware).flatten());
    if is_versioned {
        all.extend(
            [
                Unauthenticated::responses(),
                NotAcceptable::responses(),
                Throttled::responses(),
                Unavailable::responses(),
            ]
            .into_iter()
            .flatten(),
        );
    }
    if has_body {
        let of_body = [RequestTimeout::responses(), TooLarge::responses(), UnsupportedMediaType::responses()];
        all.extend(of_body.into_iter().flatten());
    }
    for (status, response) in all {
        responses.responses.entry(status).or_insert(response);
    }
}

/// A refusal with this description.
fn refusal(description: &str) -> Response {
    let problem = ContentBuilder::new().schema(Some(Ref::from_schema_name(Problem::name()))).build();
    ResponseBuilder::new().description(description).content("application/problem+json", problem).build()
}
