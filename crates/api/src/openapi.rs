//! The OpenAPI document at `/openapi.json`.
//!
//! The operations come from the handlers themselves (`#[utoipa::path]`), collected by the call that
//! routes them. This adds what they share: the head of the document, the refusals, and the headers
//! of requests and answers. It is written for the programs that generate clients of it: nothing is
//! repeated, bodies are plain objects, and no status is undocumented.
//!
//! [`refusals`] has the answers that are problems, [`parameters`] the parameters of many
//! operations, and [`webhooks`] what a webhook receives and may answer.

pub mod parameters;
pub mod refusals;
mod webhooks;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use bytes::Bytes;
use punctual_client::{Envelope, Problem};
use utoipa::openapi::header::{Header, HeaderBuilder};
use utoipa::openapi::info::{InfoBuilder, LicenseBuilder};
use utoipa::openapi::path::{Operation, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::request_body::RequestBody;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{Components, OpenApi, Ref, RefOr, Required, Response, Schema, ServerBuilder};
use utoipa::{IntoResponses, PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;

pub use parameters::{
    ApiKeyPath, IdempotencyKey, IfMatch, IfNoneMatch, OperationPath, SchedulePath, TaskPath, TenantPath,
    WebhookSecretPath,
};
pub use refusals::{
    Cancelled, Conflict, Invalid, NoRoom, NotFound, NotModified, StaleToken, TooLarge, Unavailable, VersionMismatch,
};

use crate::state::Api;

/// `routes`, with what their operations share.
pub fn assemble(mut routes: OpenApiRouter<Api>, is_guarded: bool) -> OpenApiRouter<Api> {
    let document = routes.get_openapi_mut();
    if is_guarded {
        guard(document);
    }
    describe(document);
    share(document.components.get_or_insert_default());
    for (path, item) in &mut document.paths.paths {
        for operation in operations(item) {
            complete(path, operation);
        }
    }
    parameters::share(document);
    for schema in document.components.get_or_insert_default().schemas.values_mut() {
        describe_properties(schema);
    }
    routes
}

/// Documents the credentials that calls need while authentication is on.
fn guard(document: &mut OpenApi) {
    let components = document.components.get_or_insert_default();
    let key = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("An API key")).build();
    components.add_security_scheme("ApiKey", SecurityScheme::Http(key));
    let signature = "`keyid=…,ts=…,nonce=…,sig=…`: the request, signed with an API key. docs/security.md has more";
    let signature = ApiKey::Header(ApiKeyValue::with_description("X-Client-Signature", signature));
    components.add_security_scheme("Signature", SecurityScheme::ApiKey(signature));
    for (path, item) in &mut document.paths.paths {
        if path.starts_with("/v1/") {
            for operation in operations(item) {
                let schemes = ["ApiKey", "Signature"].map(|name| SecurityRequirement::new(name, Vec::<String>::new()));
                operation.security = Some(schemes.into());
            }
        }
    }
}

/// Serves `document`.
pub fn router(document: &OpenApi) -> Router<Api> {
    let whole = webhooks::WholeDocument::of(document);
    let text = Bytes::from(serde_json::to_vec(&whole).expect("invariant: the document can be written as JSON"));
    Router::new().route("/openapi.json", get(async move || ([(CONTENT_TYPE, "application/json")], text)))
}

/// A member that may be `null` has its description beside the alternatives, where generators look
/// for it, and not in one of them.
fn describe_properties(schema: &mut RefOr<Schema>) {
    let RefOr::T(Schema::Object(object)) = schema else { return };
    for property in object.properties.values_mut() {
        let RefOr::T(Schema::OneOf(one_of)) = property else { continue };
        if let [RefOr::Ref(reference), null] | [null, RefOr::Ref(reference)] = one_of.items.as_mut_slice()
            && parameters::is_null(null)
        {
            one_of.description = Some(std::mem::take(&mut reference.description));
        }
    }
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
        ("tasks", "Submit, read, change and cancel tasks. docs/lists.md, docs/order.md and docs/explain.md have more"),
        ("dead letters", "Tasks whose retries are used up, or whose error was not retryable. docs/retries.md has more"),
        ("bulk operations", "Changes of every task that a filter matches. docs/lists.md has more"),
        ("workers", "Pull workers: leases and settlements. docs/workers.md has more"),
        ("queues", "Limits, defaults and pauses of queues. docs/queues.md has more"),
        ("schedules", "Recurring schedules and their occurrences. docs/schedules.md has more"),
        ("forecast", "What will run. docs/schedules.md has more"),
        (
            "admin",
            "Nodes, partitions, breakers, tenants, API keys and webhook secrets, for operators. docs/operations.md, \
             docs/breakers.md, docs/security.md and docs/webhooks.md have more",
        ),
        ("access", "Who the caller is. docs/security.md has more"),
        ("server", "Whether a node is alive, whether it can serve, and its metrics"),
    ];
    let tags = tags.map(|(name, description)| TagBuilder::new().name(name).description(Some(description)).build());
    document.tags = Some(tags.into());
}

fn share(components: &mut Components) {
    let mut schemas =
        vec![(Problem::name().into_owned(), Problem::schema()), (Envelope::name().into_owned(), Envelope::schema())];
    Problem::schemas(&mut schemas);
    Envelope::schemas(&mut schemas);
    components.schemas.extend(schemas);
    components.responses.extend(refusals::shared());
    components.responses.insert(refusals::NOT_MODIFIED.to_owned(), RefOr::T(refusals::not_modified()));
    for (name, response) in &mut components.responses {
        carry_request_id(response);
        if ["NoRoom", "Throttled", "Unavailable"].contains(&name.as_str()) {
            carry(response, "Retry-After", "RetryAfter");
        }
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
    let tenant = header(
        "Punctual-Tenant",
        "The tenant; that of the credential if absent, `default` while authentication is off. Only an admin may name another",
        tenant.into(),
    );
    // Any text is accepted, so that an odd id fails no request.
    let id = ObjectBuilder::new().schema_type(Type::String).build();
    let id = header(
        "Request-Id",
        "An id for this request, which the answer repeats: 1 to 128 visible ASCII characters. The server takes one of \
         its own if it is absent or something else",
        id.into(),
    );
    let tag = ObjectBuilder::new().schema_type(Type::String).build();
    let tag = header("If-None-Match", "The `ETag` of what the caller has; 304 if it is still the same", tag.into());
    components.parameters.insert("Tenant".to_owned(), RefOr::T(tenant));
    components.parameters.insert("RequestId".to_owned(), RefOr::T(id));
    components.parameters.insert("KnownTag".to_owned(), RefOr::T(tag));
    let number = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)).build();
    let headers = [
        ("RequestId", "The id of the request", text().build()),
        ("ETag", "The version, in quotes: for `If-Match` and `If-None-Match`", text().build()),
        ("Location", "Where it is", text().build()),
        ("IdempotentReplayed", "`true`: the call was made before under this key", text().build()),
        ("RetryAfter", "After how many seconds to ask again", number.clone()),
        ("Age", "How many seconds ago it was read, while the store is away", number),
    ];
    for (name, description, schema) in headers {
        let header = HeaderBuilder::new().description(Some(description)).schema(Some(schema)).build();
        components.headers.insert(name.to_owned(), RefOr::T(header));
    }
}

/// The operations of a path.
pub fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem { get, put, post, delete, options, head, patch, .. } = item;
    [get, put, post, delete, options, head, patch].into_iter().filter_map(Option::as_mut)
}

fn complete(path: &str, operation: &mut Operation) {
    let is_versioned = path.starts_with("/v1/");
    parameters::refuse_nulls(operation);
    if let Some(body) = &mut operation.request_body {
        refuse_null(body);
    }
    let responses = &mut operation.responses;
    let own = operation.parameters.get_or_insert_default();
    if is_versioned {
        // Every call refuses parameters that it does not know.
        for (status, response) in Invalid::responses() {
            responses.responses.entry(status).or_insert(response);
        }
    }
    if responses.responses.contains_key("304") {
        own.push(parameters::reference("KnownTag"));
    }
    if is_versioned {
        // Routes for operators concern all tenants.
        let names: &[&str] = if path.starts_with("/v1/admin/") { &["RequestId"] } else { &["Tenant", "RequestId"] };
        own.extend(names.iter().map(|name| parameters::reference(name)));
    }
    refusals::of_every_call(responses, is_versioned, operation.request_body.is_some());
    for response in responses.responses.values_mut() {
        share_headers(response);
        carry_request_id(response);
    }
}

/// A body that may be absent is documented as an object that is not required. The server also takes
/// `null` for it, but generators make clumsy types of that, and no client needs it.
fn refuse_null(body: &mut RefOr<RequestBody>) {
    let RefOr::T(body) = body else { return };
    for content in body.content.values_mut() {
        let RefOr::T(content) = content else { continue };
        let Some(RefOr::T(Schema::OneOf(one_of))) = &content.schema else { continue };
        if let Some(object) = one_of.items.iter().find(|item| !parameters::is_null(item)) {
            content.schema = Some(object.clone());
            body.required = Some(Required::False);
        }
    }
}

/// Refers to the shared headers instead of repeating them. A handler names them only.
fn share_headers(response: &mut RefOr<Response>) {
    let RefOr::T(Response { headers, .. }) = response else { return };
    for (name, header) in headers {
        *header = shared_header(&name.replace('-', ""));
    }
}

fn carry_request_id(response: &mut RefOr<Response>) {
    carry(response, "Request-Id", "RequestId");
}

fn carry(response: &mut RefOr<Response>, header: &str, shared: &str) {
    if let RefOr::T(response) = response {
        response.headers.insert(header.to_owned(), shared_header(shared));
    }
}

fn shared_header(name: &str) -> RefOr<Header> {
    RefOr::Ref(Ref::new(format!("#/components/headers/{name}")))
}

#[cfg(test)]
mod tests;
