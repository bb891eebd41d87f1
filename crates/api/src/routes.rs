//! The routes, one file per noun. [`router`] merges them, with their parts of the OpenAPI document.

pub mod admin;
pub mod bulk;
pub mod forecast;
pub mod health;
pub mod leases;
pub mod metrics;
pub mod operations;
pub mod queues;
pub mod schedules;
pub mod tasks;
pub mod upcoming;
pub mod whoami;
pub mod workers;

use utoipa_axum::router::OpenApiRouter;

use crate::state::Api;

/// Every documented route.
pub fn router() -> OpenApiRouter<Api> {
    of_tasks().merge(of_operators())
}

/// Every documented route that is not for operators only.
pub fn of_clients() -> OpenApiRouter<Api> {
    of_tasks().merge(health::router())
}

/// The routes for operators; also liveness and readiness.
pub fn of_operators() -> OpenApiRouter<Api> {
    admin::router().merge(health::router()).merge(metrics::router())
}

fn of_tasks() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .merge(tasks::router())
        .merge(bulk::router())
        .merge(operations::router())
        .merge(leases::router())
        .merge(schedules::router())
        .merge(workers::router())
        .merge(queues::router())
        .merge(forecast::router())
        .merge(upcoming::router())
        .merge(whoami::router())
}

#[cfg(test)]
mod tests;
