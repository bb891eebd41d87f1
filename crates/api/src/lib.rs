//! The HTTP interface: routes, problem details, the OpenAPI document, and the server they run on.
//!
//! [`router`] builds all routes over an [`Api`]; [`operations_router`] builds those that every node
//! serves, even one without the role `api`; [`server::serve`] puts them on a socket. A route file
//! holds the handlers of one noun and the router of exactly those, so that the routes and
//! `/openapi.json` cannot differ.
//!
//! Invariant: every answer carries a `request-id`, and every error is a problem document. That
//! includes the framework's own refusals.

pub mod admission;
pub mod answer;
mod cpu_pool;
pub mod cursor;
pub mod deadline;
mod explain;
pub mod extract;
mod forecast;
pub mod metrics;
pub mod middleware;
pub mod openapi;
pub mod presence;
pub mod problem;
pub mod readiness;
pub mod request_id;
pub mod routes;
pub mod schedules;
pub mod server;
pub mod state;
#[cfg(test)]
mod testing;
pub mod view;
mod yielding;

pub use state::{Api, ApiConfig, Parts};

/// All routes, over `api`.
pub fn router(api: Api) -> axum::Router {
    let (routes, document) = openapi::assemble(routes::router()).split_for_parts();
    let routes = routes.merge(openapi::router(&document)).with_state(api.clone());
    middleware::apply(routes, api)
}

/// The routes that every node serves: liveness, readiness and metrics.
pub fn operations_router(api: Api) -> axum::Router {
    let routes = routes::health::router().merge(routes::metrics::router());
    middleware::apply(axum::Router::from(routes).with_state(api.clone()), api)
}
