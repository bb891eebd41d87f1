//! The HTTP interface: routes, problem details, the OpenAPI document, and the server they run on.
//!
//! [`router`] builds all routes over an [`Api`]; [`operations_router`] builds those of a node
//! without the role `api` over its [`Operations`]; [`server::serve`] serves them on a socket. A
//! route file holds the handlers of one noun and the router of exactly those, so that the routes
//! and `/openapi.json` cannot differ.
//!
//! Invariant: every answer carries a `request-id`, and every error is a problem document. That
//! includes the framework's own refusals.

mod access;
pub mod admission;
pub mod answer;
pub mod auth;
pub mod cluster;
mod cpu_pool;
pub mod cursor;
pub mod deadline;
mod encoding;
mod explain;
pub mod extract;
mod forecast;
pub mod metrics;
pub mod middleware;
mod not_modified;
pub mod openapi;
pub mod operations;
mod overview;
mod parameterless;
pub mod presence;
pub mod problem;
pub mod readiness;
pub mod request_id;
pub mod routes;
pub mod schedules;
mod security_headers;
pub mod server;
mod shared_reads;
pub mod site;
pub mod state;
#[cfg(test)]
mod testing;
pub mod unread;
mod upcoming;
pub mod view;
mod yielding;

use std::sync::Arc;

pub use operations::Operations;
use parameterless::Parameterless;
pub use state::{Api, ApiConfig, ApiParts};
use utoipa_axum::router::OpenApiRouter;

/// All routes, over `api`.
pub fn router(api: &Api) -> axum::Router {
    finished(api, routes::router())
}

/// All routes but those that are for operators only, over `api`.
pub fn client_router(api: &Api) -> axum::Router {
    finished(api, routes::of_clients())
}

/// The routes for operators, over `api`; also liveness and readiness.
pub fn operator_router(api: &Api) -> axum::Router {
    finished(api, routes::of_operators())
}

fn finished(api: &Api, routes: OpenApiRouter<Api>) -> axum::Router {
    let (routes, document) = openapi::assemble(routes, api.operations.auth.is_some()).split_for_parts();
    let parameterless = Parameterless::of(&document);
    let routes = routes.merge(openapi::router(&document)).merge(overview::router(&document, true));
    let routes = routes.with_state(api.clone());
    middleware::apply(routes, Arc::clone(&api.operations), Some(Arc::clone(&api.admission)), parameterless)
}

/// The routes that every node serves: liveness, readiness and metrics, and a list of these. They
/// need no admission control: probes pass it on every node, and other requests are refused at once.
pub fn operations_router(operations: Arc<Operations>) -> axum::Router {
    without_api(operations, routes::health::router().merge(routes::metrics::router()))
}

/// Those of them that are for everyone: liveness and readiness.
pub fn health_router(operations: Arc<Operations>) -> axum::Router {
    without_api(operations, routes::health::router())
}

fn without_api(operations: Arc<Operations>, routes: OpenApiRouter<Arc<Operations>>) -> axum::Router {
    let (routes, document) = routes.split_for_parts();
    let routes = routes.merge(overview::router(&document, false));
    middleware::apply(routes.with_state(Arc::clone(&operations)), operations, None, Parameterless::default())
}
