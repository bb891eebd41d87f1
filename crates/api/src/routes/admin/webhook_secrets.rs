//! The secrets that the webhooks of a tenant are signed with, for operators.

use axum::extract::{FromRequestParts, Path};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use punctual_client::{MadeWebhookSecret, NewWebhookSecret, WebhookSecret, WebhookSecretPage};
use punctual_core::ids::WebhookSecretId;
use punctual_core::webhook_secrets::{LiveSecret, SecretCreation, SigningSecret};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::paging::Paging;
use crate::answer;
use crate::extract::query::{PageParams, Query};
use crate::extract::{MaybeJsonBody, Tenant};
use crate::openapi::{Invalid, NotFound, NotModified, TenantPath, Unavailable, WebhookSecretPath};
use crate::problem::{Code, Problem};
use crate::state::Api;

/// The bytes of a secret that the server makes.
const MADE_BYTES: usize = 32;

/// The routes of this file.
pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(list_webhook_secrets, create_webhook_secret))
        .routes(routes!(delete_webhook_secret))
}

/// A request about the secrets of the tenant in the path.
struct SecretsRequest {
    api: Api,
    tenant: String,
}

impl FromRequestParts<Api> for SecretsRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let tenant = Path::from_request_parts(parts, &()).await.ok().map(|Path(tenant)| tenant);
        Ok(Self { api: api.clone(), tenant: named(tenant)? })
    }
}

/// A request about one secret of the tenant in the path.
struct SecretRequest {
    api: Api,
    tenant: String,
    id: WebhookSecretId,
}

impl FromRequestParts<Api> for SecretRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let path: Option<(String, String)> = Path::from_request_parts(parts, &()).await.ok().map(|Path(path)| path);
        let (tenant, id) = path.unzip();
        let tenant = named(tenant)?;
        // A text that is no id names no secret.
        let id = id.and_then(|id| id.parse().ok()).ok_or_else(|| no_such_secret(&tenant))?;
        Ok(Self { api: api.clone(), tenant, id })
    }
}

/// The tenant, if the text in the path is the name of one.
fn named(tenant: Option<String>) -> Result<String, Problem> {
    let refused = || Problem::new(Code::InvalidTenant, format!("the tenant in the path must be {}", Tenant::RULE));
    tenant.filter(|tenant| Tenant::is_name(tenant)).ok_or_else(refused)
}

fn no_such_secret(tenant: &str) -> Problem {
    let list = format!("GET /v1/admin/tenants/{tenant}/webhook-secrets lists those that live");
    Problem::new(Code::NotFound, format!("there is no webhook secret with this id; {list}"))
}

/// Lists a tenant's webhook secrets.
///
/// At most two live at once, the oldest first. The secrets themselves are not shown. All are on one
/// page, unless there is a `limit`.
#[utoipa::path(
    get, path = "/v1/admin/tenants/{tenant}/webhook-secrets", tag = "admin",
    params(TenantPath, PageParams),
    responses((status = 200, description = "The secrets", body = WebhookSecretPage), NotModified, Unavailable),
)]
async fn list_webhook_secrets(request: SecretsRequest, query: Query) -> Result<Response, Problem> {
    let paging = Paging::read("webhook secrets", query)?;
    let secrets = request.api.database.list_secrets(&request.tenant).await?.into_iter().map(view).collect();
    Ok(answer::list(&paging.page(secrets, |secret| secret.id.uuid().as_u128())))
}

/// Creates a webhook secret.
///
/// Within five seconds every node signs the webhooks of the tenant with it, beside another secret
/// that lives. The answer is the only one that shows the secret. Two may live at once: to rotate,
/// create the second, switch the receivers to it, and delete the first. A secret of the caller's
/// own that lives already is not stored twice.
#[utoipa::path(
    post, path = "/v1/admin/tenants/{tenant}/webhook-secrets", tag = "admin",
    params(TenantPath),
    request_body = Option<NewWebhookSecret>,
    responses(
        (status = 201, description = "It lives, and is shown this once", body = MadeWebhookSecret),
        (status = 200, description = "The caller's own secret lived already", body = MadeWebhookSecret),
        (status = 409, description = "`too_many_secrets`: two live; delete one first", body = punctual_client::Problem, content_type = "application/problem+json"),
        Invalid, Unavailable,
    ),
)]
async fn create_webhook_secret(
    request: SecretsRequest,
    MaybeJsonBody(body): MaybeJsonBody<NewWebhookSecret>,
) -> Result<Response, Problem> {
    let secret =
        body.check(|NewWebhookSecret { secret }, faults| match secret.as_deref().map(SigningSecret::parse) {
            None => Some(SigningSecret::from_bytes(rand::random::<[u8; MADE_BYTES]>().to_vec())),
            Some(Ok(own)) => Some(own),
            Some(Err(fault)) => {
                faults.add("/secret", fault.to_string());
                None
            }
        })?;
    let SecretsRequest { api, tenant } = request;
    let live = LiveSecret {
        id: WebhookSecretId::new(),
        tenant: tenant.clone(),
        created_at: api.clock.now(),
        last_digits: secret.last_digits(),
    };
    let (status, live) = match api.database.create_secret(live.clone(), secret.clone()).await? {
        SecretCreation::Created => (StatusCode::CREATED, live),
        SecretCreation::Known(known) => (StatusCode::OK, known),
        SecretCreation::Full => {
            let advice =
                "two webhook secrets of this tenant live already; delete the one that no receiver needs any more";
            return Err(Problem::new(Code::TooManySecrets, advice));
        }
    };
    if status == StatusCode::CREATED {
        tracing::info!(tenant, secret.id = %live.id, "a webhook secret was created; signing with it");
    }
    let LiveSecret { id, created_at, last_digits, .. } = live;
    Ok(answer::json(status, &MadeWebhookSecret { id, secret: secret.reveal(), created_at, last_digits }))
}

/// Deletes a webhook secret.
///
/// Within five seconds no node signs with it. A tenant without a secret gets unsigned webhooks.
#[utoipa::path(
    delete, path = "/v1/admin/tenants/{tenant}/webhook-secrets/{id}", tag = "admin",
    params(WebhookSecretPath),
    responses((status = 204, description = "It is gone"), NotFound, Unavailable),
)]
async fn delete_webhook_secret(request: SecretRequest) -> Result<Response, Problem> {
    let SecretRequest { api, tenant, id } = request;
    if !api.database.delete_secret(&tenant, id).await? {
        return Err(no_such_secret(&tenant));
    }
    tracing::info!(tenant, secret.id = %id, "a webhook secret was deleted; signing with it no longer");
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn view(secret: LiveSecret) -> WebhookSecret {
    let LiveSecret { id, created_at, last_digits, tenant: _ } = secret;
    WebhookSecret { id, created_at, last_digits }
}
