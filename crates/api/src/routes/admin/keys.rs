//! The API keys of a tenant: make, list, rotate and revoke them. A key is shown once.

use axum::extract::{FromRequestParts, Path};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use punctual_auth::scope::PATTERNS_MAX;
use punctual_auth::{IssuedKey, NewKey, scope};
use punctual_client::{self as wire, ApiKey, ApiKeyPage, CreatedApiKey, NewApiKey, RotateApiKey};
use punctual_core::ids::KeyId;
use punctual_core::name_pattern::NamePattern;
use punctual_core::task::limits;
use punctual_core::tenants::{ApiKeyRecord, KEYS_MAX, KeyScope, KeyStored};
use punctual_core::time::Timestamp;
use punctual_submission::Faults;
use punctual_submission::fields::{NAME_RULE, is_name};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::tenants::{TenantRequest, no_such_tenant};
use crate::answer;
use crate::cursor::Listing;
use crate::extract::query::{PageParams, Query};
use crate::extract::{JsonBody, MaybeJsonBody};
use crate::openapi::{ApiKeyPath, Invalid, NoRoom, NotFound, NotModified, TenantPath};
use crate::problem::{Code, Problem};
use crate::state::Api;
use crate::view::patterns;

/// How long a rotated key is valid if nobody says.
const ROTATION_MILLIS: i64 = 24 * 3_600_000;

/// The routes of this file.
pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(create_key, list_keys)).routes(routes!(revoke_key)).routes(routes!(rotate_key))
}

/// A request about one key.
struct KeyRequest {
    tenant: TenantRequest,
    id: KeyId,
}

/// The key in a path.
#[derive(serde::Deserialize)]
struct NamedKey {
    key_id: String,
}

impl FromRequestParts<Api> for KeyRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let tenant = TenantRequest::from_request_parts(parts, api).await?;
        let path: Result<Path<NamedKey>, _> = Path::from_request_parts(parts, &()).await;
        // A text that is no id names no key.
        let id = path.ok().and_then(|Path(named)| named.key_id.parse().ok()).ok_or_else(no_such_key)?;
        Ok(Self { tenant, id })
    }
}

/// Makes an API key.
///
/// The answer has the key itself, which is kept nowhere: store it now. With `types` or `queues` the
/// key reaches only tasks whose type and queue match.
#[utoipa::path(
    post, path = "/v1/admin/tenants/{tenant}/keys", tag = "admin", operation_id = "create_key",
    params(TenantPath),
    request_body(content = NewApiKey, example = json!({"name": "web shop", "role": "submitter", "queues": ["mail.*"]})),
    responses(
        (status = 201, description = "Made. `key` is shown here and never again", body = CreatedApiKey),
        NotFound, Invalid, NoRoom,
    ),
)]
async fn create_key(request: TenantRequest, body: JsonBody<NewApiKey>) -> Result<Response, Problem> {
    let (api, now) = (&request.api, request.api.clock.now());
    let new = body.check(|wanted, faults| Some(new_key(faults, wanted, &request.name, now)))?;
    let issued = IssuedKey::new(new, rand::random(), now);
    match api.database.create_key(issued.record.clone()).await? {
        KeyStored::Done => {}
        KeyStored::NoTenant => return Err(no_such_tenant()),
        KeyStored::TooMany => {
            let detail =
                format!("the tenant has {KEYS_MAX} keys, as many as it may have; revoke those that have ended");
            return Err(Problem::new(Code::QuotaExceeded, detail).retry_after(60));
        }
    }
    tracing::info!(tenant = request.name, key.id = %issued.record.id, role = issued.record.role.as_str(), "an API key was made");
    Ok(created(issued))
}

/// What a request asks for.
fn new_key(faults: &mut Faults, wanted: NewApiKey, tenant: &str, now: Timestamp) -> NewKey {
    let NewApiKey { name, role, types, queues, payloads, expires_at } = wanted;
    let is_name = (1..=limits::NAME).contains(&name.chars().count()) && !name.chars().any(char::is_control);
    if !is_name && !faults.is_left_out("/name") {
        faults.add("/name", format!("must have 1 to {} characters and no control characters", limits::NAME));
    }
    let scope = KeyScope {
        types: read_patterns(faults, "/types", &types),
        queues: read_patterns(faults, "/queues", &queues),
        payloads: payloads.unwrap_or(true),
    };
    let role = role.into();
    if !faults.is_left_out("/role") {
        for (field, advice) in scope::faults(role, &scope) {
            faults.add(field, advice);
        }
    }
    NewKey { tenant: tenant.to_owned(), name, role, scope, expires_at: end(faults, expires_at.as_deref(), now) }
}

fn read_patterns(faults: &mut Faults, field: &str, texts: &[String]) -> Vec<NamePattern> {
    if texts.len() > PATTERNS_MAX {
        faults.add(field, format!("must have at most {PATTERNS_MAX} entries"));
        return Vec::new();
    }
    let mut patterns = Vec::with_capacity(texts.len());
    for (at, text) in texts.iter().enumerate() {
        let pattern = NamePattern::from(text.as_str());
        if !is_name(pattern.text()) {
            faults.add(format!("{field}/{at}"), format!("{NAME_RULE}; a * may follow"));
        } else if !patterns.contains(&pattern) {
            patterns.push(pattern);
        }
    }
    patterns
}

/// The end of a key, which must be to come.
fn end(faults: &mut Faults, given: Option<&str>, now: Timestamp) -> Option<Timestamp> {
    let end = given.and_then(|text| faults.instant("/expires_at", text));
    if end.is_some_and(|end| end <= now) {
        faults.add("/expires_at", "must be later than now");
    }
    end
}

/// Lists the API keys of a tenant, the oldest first.
#[utoipa::path(
    get, path = "/v1/admin/tenants/{tenant}/keys", tag = "admin", operation_id = "list_keys",
    params(TenantPath, PageParams),
    responses((status = 200, description = "A page of keys, without their secrets", body = ApiKeyPage), NotModified, NotFound, Invalid),
)]
async fn list_keys(request: TenantRequest, query: Query) -> Result<Response, Problem> {
    let (limit, cursor) = query.page()?;
    request.find().await?;
    let listing = Listing { kind: "keys", scope: &request.name };
    let after = cursor.map(|cursor| listing.open_bytes(&cursor)).transpose()?;
    let after = after.map(|bytes| KeyId::from_uuid(Uuid::from_bytes(bytes)));
    let keys = request.api.database.keys(&request.name, after, limit + 1).await?;
    let keys = keys.into_iter().map(view).collect();
    Ok(answer::list(&listing.page(keys, limit, |last: &ApiKey| last.key_id.uuid().as_bytes().to_vec())))
}

/// Revokes an API key.
///
/// Within five seconds every node refuses it.
#[utoipa::path(
    delete, path = "/v1/admin/tenants/{tenant}/keys/{key_id}", tag = "admin", operation_id = "revoke_key",
    params(ApiKeyPath),
    responses((status = 204, description = "It is revoked"), NotFound),
)]
async fn revoke_key(request: KeyRequest) -> Result<Response, Problem> {
    let KeyRequest { tenant: TenantRequest { api, name }, id } = request;
    if !api.database.revoke_key(&name, id).await? {
        return Err(no_such_key());
    }
    tracing::info!(tenant = name, key.id = %id, "an API key was revoked");
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Rotates an API key.
///
/// Makes a new key with the same name, role and patterns, which does not end. Both are valid until
/// the old one ends: give the new one to the users of the old one until then.
#[utoipa::path(
    post, path = "/v1/admin/tenants/{tenant}/keys/{key_id}/rotate", tag = "admin", operation_id = "rotate_key",
    params(ApiKeyPath),
    request_body = Option<RotateApiKey>,
    responses(
        (status = 201, description = "The new key. `key` is shown here and never again", body = CreatedApiKey),
        NotFound, Invalid,
    ),
)]
async fn rotate_key(
    request: KeyRequest,
    MaybeJsonBody(body): MaybeJsonBody<RotateApiKey>,
) -> Result<Response, Problem> {
    let KeyRequest { tenant: TenantRequest { api, name }, id } = request;
    let now = api.clock.now();
    let until = body.check(|RotateApiKey { expires_at }, faults| {
        Some(end(faults, expires_at.as_deref(), now).unwrap_or(now.plus_millis(ROTATION_MILLIS)))
    })?;
    let old = api.database.key(id).await?.filter(|key| key.tenant == name).ok_or_else(no_such_key)?;
    let ApiKeyRecord { tenant, name: called, role, scope, .. } = old;
    let new = NewKey { tenant, name: called, role, scope, expires_at: None };
    let issued = IssuedKey::new(new, rand::random(), now);
    if !api.database.rotate_key(id, issued.record.clone(), until, now).await? {
        return Err(no_such_key());
    }
    tracing::info!(tenant = name, key.id = %id, successor.id = %issued.record.id, "an API key was rotated");
    Ok(created(issued))
}

fn no_such_key() -> Problem {
    Problem::new(Code::NotFound, "the tenant has no key with this id that is valid")
}

fn created(issued: IssuedKey) -> Response {
    let key = issued.text.expose().to_owned();
    answer::json(StatusCode::CREATED, &CreatedApiKey { key, kept: view(issued.record) })
}

fn view(key: ApiKeyRecord) -> wire::ApiKey {
    ApiKey {
        key_id: key.id,
        tenant: key.tenant,
        name: key.name,
        role: key.role.into(),
        types: patterns(&key.scope.types),
        queues: patterns(&key.scope.queues),
        payloads: key.scope.payloads,
        created_at: key.created_at,
        expires_at: key.expires_at,
        last_used_at: key.last_used_at,
    }
}
