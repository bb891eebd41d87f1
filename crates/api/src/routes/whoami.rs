//! `GET /v1/whoami`: what the server makes of a credential.

use axum::http::StatusCode;
use axum::response::Response;
use punctual_client::WhoAmI;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::json;
use crate::extract::Caller;
use crate::problem::Problem;
use crate::state::Api;
use crate::view::patterns;

/// The routes of this file.
pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(whoami))
}

/// Shows who the caller is.
///
/// Every valid credential may ask. The tenant is the one that this request is for.
#[utoipa::path(
    get, path = "/v1/whoami", tag = "access", operation_id = "who_am_i",
    responses((status = 200, description = "The caller, as the server knows it", body = WhoAmI)),
)]
async fn whoami(caller: Caller) -> Result<Response, Problem> {
    let Caller { tenant, principal } = caller;
    let shown = WhoAmI {
        principal: principal.name.clone(),
        tenant,
        role: principal.role.into(),
        key_id: principal.key_id,
        types: patterns(&principal.scope.types),
        queues: patterns(&principal.scope.queues),
        payloads: principal.scope.payloads,
        expires_at: principal.expires_at,
    };
    Ok(json(StatusCode::OK, &shown))
}
