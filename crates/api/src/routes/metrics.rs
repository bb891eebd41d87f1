//! The metrics, as Prometheus scrapes them.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::state::Api;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The routes of this file.
pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(metrics))
}

/// Metrics for Prometheus.
///
/// In the OpenMetrics format if the caller accepts it, otherwise in the older text format.
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "operations",
    operation_id = "metrics",
    responses((status = 200, description = "All metrics", content((String = "text/plain"), (String = "application/openmetrics-text"))))
)]
async fn metrics(State(api): State<Api>, headers: HeaderMap) -> Response {
    api.counts.refresh().await;
    let accepts =
        |kind: &str| headers.get_all(ACCEPT).iter().any(|value| value.to_str().is_ok_and(|text| text.contains(kind)));
    if accepts("application/openmetrics-text") {
        ([(CONTENT_TYPE, OPENMETRICS)], api.metrics.openmetrics()).into_response()
    } else {
        ([(CONTENT_TYPE, PROMETHEUS)], api.metrics.prometheus()).into_response()
    }
}
