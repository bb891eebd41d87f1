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
        .merge(admin::router())
        .merge(health::router())
        .merge(metrics::router())
}

#[cfg(test)]
mod tests;
