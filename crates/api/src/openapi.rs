//! The OpenAPI document at `/openapi.json`.
//!
//! The operations come from the handlers themselves (`#[utoipa::path]`), collected by the call that
//! routes them. This adds what they share: the head of the document, the refusals, and the headers
//! of requests and answers. A handler lists its refusals by type, such as `NotFound, Invalid`.
//! [`webhooks`] has what a webhook receives and may answer.

mod webhooks;

use std::collections::BTreeMap;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use bytes::Bytes;
use punctual_client::Problem;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::info::{InfoBuilder, LicenseBuilder};
use utoipa::openapi::path::{Operation, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{
    Components, ContentBuilder, OpenApi, Ref, RefOr, Required, Response, ResponseBuilder, Schema, ServerBuilder,
};
use utoipa::{IntoResponses, PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;

use crate::state::Api;

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

        fn shared_refusals() -> BTreeMap<String, RefOr<Response>> {
            BTreeMap::from([$((stringify!($name).to_owned(), RefOr::T(refusal($description))),)*])
        }
    };
}

refusals! {
    /// 400: the request cannot be read.
    Unreadable = "400", "The request cannot be read: `invalid_json`, `invalid_body`, `invalid_header`, `invalid_tenant`, `invalid_cursor`";
    /// 404: there is nothing there.
    NotFound = "404", "There is nothing here for this tenant: `not_found`";
    /// 409: the token is old.
    StaleToken = "409", "Another worker holds the task now, or it has finished: `stale_token`. The run did not end within its task's timeout: `timed_out`. The call had no effect";
    /// 410: the task was cancelled.
    Cancelled = "410", "The task was cancelled; stop working on it: `cancelled`";
    /// 413: the content is too large.
    TooLarge = "413", "The body, or a part of it, is too large: `too_large`";
    /// 415: the content is of another type.
    UnsupportedMediaType = "415", "The content type is not supported: `unsupported_media_type`";
    /// 422: the request is not valid.
    Invalid = "422", "The request is not valid; `errors` lists all faults: `invalid_request`";
    /// 503: not now.
    Unavailable = "503", "Not now; ask again after `Retry-After` seconds: `overloaded`, `store_unavailable`, `store_full`, `shutting_down`";
    /// Any other refusal.
    Refused = "default", "Any other problem";
}

/// 409: other writers were faster each time.
pub struct Conflict;

impl IntoResponses for Conflict {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let refusal = refusal("`conflict`: other writers changed it each time; try again");
        BTreeMap::from([("409".to_owned(), RefOr::T(refusal))])
    }
}

/// 304: the caller has it already.
pub struct NotModified;

impl IntoResponses for NotModified {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let known = ResponseBuilder::new().description("Unchanged: `If-None-Match` names its `ETag`");
        BTreeMap::from([("304".to_owned(), RefOr::T(known.build()))])
    }
}

/// 412: it is at another version.
pub struct VersionMismatch;

impl IntoResponses for VersionMismatch {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        BTreeMap::from([("412".to_owned(), RefOr::T(refusal("`version_mismatch`")))])
    }
}

/// A refusal with this description.
fn refusal(description: &str) -> Response {
    let problem = ContentBuilder::new().schema(Some(Ref::from_schema_name(Problem::name()))).build();
    ResponseBuilder::new().description(description).content("application/problem+json", problem).build()
}

/// `routes`, with what their operations share.
pub fn assemble(mut routes: OpenApiRouter<Api>) -> OpenApiRouter<Api> {
    let document = routes.get_openapi_mut();
    describe(document);
    share(document.components.get_or_insert_default());
    for (path, item) in &mut document.paths.paths {
        for operation in operations(item) {
            complete(path, operation);
        }
    }
    routes
}

/// Serves `document`.
pub fn router(document: &OpenApi) -> Router<Api> {
    let whole = webhooks::WholeDocument::of(document);
    let text = Bytes::from(serde_json::to_vec(&whole).expect("invariant: the document can be written as JSON"));
    Router::new().route("/openapi.json", get(async move || ([(CONTENT_TYPE, "application/json")], text)))
}

fn describe(document: &mut OpenApi) {
    document.info = InfoBuilder::new()
        .title("Punctual")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "A task scheduler: submit work for now or later, have it pushed to a webhook or pull it with workers.\n\n\
             Errors are RFC 9457 problem details with a stable `code`. Unknown fields are refused. Times are RFC 3339 \
             in UTC with milliseconds; durations are seconds in fields that end in `_seconds`.",
        ))
        .license(Some(LicenseBuilder::new().name("Apache-2.0").identifier(Some("Apache-2.0")).build()))
        .build();
    document.servers = Some(vec![ServerBuilder::new().url("/").description(Some("This server")).build()]);
    let tags = [
        ("tasks", "Submit, read, change and cancel tasks"),
        ("dead letters", "Tasks whose retries are used up, or whose error was not retryable"),
        ("schedules", "Recurring schedules and their occurrences"),
        ("workers", "Pull workers: leases and settlements"),
        ("queues", "Limits, defaults and pauses of queues"),
        ("operations", "For operators of the server"),
    ];
    let tags = tags.map(|(name, description)| TagBuilder::new().name(name).description(Some(description)).build());
    document.tags = Some(tags.into());
}

fn share(components: &mut Components) {
    let mut schemas = vec![(Problem::name().into_owned(), Problem::schema())];
    Problem::schemas(&mut schemas);
    components.schemas.extend(schemas);
    components.responses.extend(shared_refusals());
    for response in components.responses.values_mut() {
        carry_request_id(response);
    }
    let text = || ObjectBuilder::new().schema_type(Type::String).min_length(Some(1));
    let header = |name: &str, description: &str, schema: Schema| {
        ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Header)
            .required(Required::False)
            .description(Some(description))
            .schema(Some(schema))
            .build()
    };
    let tenant = text().max_length(Some(64)).pattern(Some("^[A-Za-z0-9._-]+$")).build();
    let tenant =
        header("Punctual-Tenant", "The tenant; `default` if absent. Only an operator may name another", tenant.into());
    let id = text().max_length(Some(128)).build();
    let id = header("Request-Id", "An id for this request, which the answer repeats; generated if absent", id.into());
    components.parameters.insert("Tenant".to_owned(), RefOr::T(tenant));
    components.parameters.insert("RequestId".to_owned(), RefOr::T(id));
    let request_id =
        HeaderBuilder::new().description(Some("The id of the request")).schema(Some(text().build())).build();
    components.headers.insert("RequestId".to_owned(), RefOr::T(request_id));
}

/// The operations of a path.
pub fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem { get, put, post, delete, options, head, patch, .. } = item;
    [get, put, post, delete, options, head, patch].into_iter().filter_map(Option::as_mut)
}

fn complete(path: &str, operation: &mut Operation) {
    if path.starts_with("/v1/") {
        // Routes for operators concern all tenants.
        let names: &[&str] = if path.starts_with("/v1/admin/") { &["RequestId"] } else { &["Tenant", "RequestId"] };
        let reference = |name: &&str| RefOr::Ref(Ref::new(format!("#/components/parameters/{name}")));
        operation.parameters.get_or_insert_default().extend(names.iter().map(reference));
    }
    let responses = &mut operation.responses.responses;
    let mut shared = Refused::responses();
    if path.starts_with("/v1/") {
        shared.extend(Unreadable::responses());
    }
    if operation.request_body.is_some() {
        shared.extend(TooLarge::responses());
        shared.extend(UnsupportedMediaType::responses());
    }
    for (status, response) in shared {
        responses.entry(status).or_insert(response);
    }
    responses.values_mut().for_each(carry_request_id);
}

fn carry_request_id(response: &mut RefOr<Response>) {
    if let RefOr::T(response) = response {
        let header = RefOr::Ref(Ref::new("#/components/headers/RequestId"));
        response.headers.insert("request-id".to_owned(), header);
    }
}

#[cfg(test)]
mod tests;
