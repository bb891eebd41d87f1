//! The HTTP interface: routes, problem details, the OpenAPI document, and the server they run on.
//!
//! [`router`] assembles everything over an [`Api`], [`operations_router`] what a node without the
//! interface serves too; [`server::serve`] puts it on a socket. A route file holds the handlers
//! of one noun and the router of exactly those, so that what is served and what `/openapi.json`
//! says come from one place.
//!
//! Invariant: every answer that leaves here, refusals of the framework included, carries a
//! `request-id`, and every error is a problem document.

pub mod answer;
mod courtesy;
pub mod cursor;
pub mod deadline;
mod explain;
pub mod extract;
mod forecast;
pub mod front;
mod heavy;
pub mod metrics;
pub mod openapi;
pub mod overload;
pub mod problem;
pub mod readiness;
pub mod request_id;
pub mod routes;
pub mod schedules;
pub mod server;
pub mod sightings;
pub mod state;
#[cfg(test)]
mod testing;
pub mod view;

pub use state::{Api, ApiConfig, Parts};

/// Everything this crate serves, over `api`.
pub fn router(api: Api) -> axum::Router {
    let (routes, document) = openapi::assemble(routes::router()).split_for_parts();
    let routes = routes.merge(openapi::router(&document)).with_state(api.clone());
    front::guard(routes, api)
}

/// What every node serves, one without the interface too: whether it lives, whether it is ready, and its metrics.
pub fn operations_router(api: Api) -> axum::Router {
    let routes = routes::health::router().merge(routes::metrics::router());
    front::guard(axum::Router::from(routes).with_state(api.clone()), api)
}
