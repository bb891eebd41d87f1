//! The metrics, as Prometheus scrapes them.

use std::sync::Arc;

use axum::extract::{FromRef, State};
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::operations::Operations;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The routes of this file.
pub fn router<S>() -> OpenApiRouter<S>
where
    S: Clone + Send + Sync + 'static,
    Arc<Operations>: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(metrics))
}

/// Metrics for Prometheus.
///
/// In the OpenMetrics format if the caller accepts it, otherwise in the older text format.
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "server",
    operation_id = "get_metrics",
    responses((status = 200, description = "All metrics", content((String = "text/plain"), (String = "application/openmetrics-text"))))
)]
async fn metrics(State(operations): State<Arc<Operations>>, headers: HeaderMap) -> Response {
    operations.counts.refresh().await;
    let accepts =
        |kind: &str| headers.get_all(ACCEPT).iter().any(|value| value.to_str().is_ok_and(|text| text.contains(kind)));
    if accepts("application/openmetrics-text") {
        ([(CONTENT_TYPE, OPENMETRICS)], operations.metrics.openmetrics()).into_response()
    } else {
        ([(CONTENT_TYPE, PROMETHEUS)], operations.metrics.prometheus()).into_response()
    }
}
