//! Liveness and readiness of the node, for load balancers and orchestrators.

use std::sync::Arc;

use axum::extract::{FromRef, State};
use axum::http::StatusCode;
use axum::response::Response;
use punctual_client::{Health, Readiness, ReadinessStatus};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::json;
use crate::operations::Operations;

/// The routes of this file.
pub fn router<S>() -> OpenApiRouter<S>
where
    S: Clone + Send + Sync + 'static,
    Arc<Operations>: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(healthz)).routes(routes!(readyz))
}

/// Is the node alive?
///
/// Answers as long as the process runs, whatever the store and the broker do: restarting the node
/// would not help them.
#[utoipa::path(get, path = "/healthz", tag = "server", operation_id = "get_health", responses((status = 200, description = "It is", body = Health)))]
async fn healthz() -> Response {
    json(StatusCode::OK, &Health { status: "ok".to_owned() })
}

/// Can the node serve?
///
/// The checks are at most a second old.
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "server",
    operation_id = "get_readiness",
    responses(
        (status = 200, description = "It can", body = Readiness),
        (status = 503, description = "It cannot, or is shutting down", body = Readiness),
    )
)]
async fn readyz(State(operations): State<Arc<Operations>>) -> Response {
    let checks = operations.readiness.checks().await;
    let status = match (operations.is_draining(), checks.all_ok()) {
        (true, _) => ReadinessStatus::Draining,
        (false, true) => ReadinessStatus::Ready,
        (false, false) => ReadinessStatus::Unready,
    };
    let code = if status == ReadinessStatus::Ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    json(code, &Readiness { status, checks })
}

#[cfg(test)]
mod tests;
