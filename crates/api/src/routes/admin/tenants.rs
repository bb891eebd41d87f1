//! Tenants: create, read, list, change and remove them.

use axum::extract::{FromRequestParts, Path, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use punctual_client::{self as wire, NewTenant, Seconds, TenantLimitsPatch, TenantPage, TenantPatch};
use punctual_core::tenants::{TenantLimits, TenantRecord, TenantRemoved, WEIGHT_MAX};
use punctual_submission::Faults;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::{self, versioned};
use crate::cursor::Listing;
use crate::extract::query::{PageParams, Query};
use crate::extract::{Caller, If, JsonBody, Tenant};
use crate::openapi::{Conflict, IfMatch, Invalid, NotFound, NotModified, TenantPath, VersionMismatch};
use crate::problem::{Code, Problem};
use crate::state::Api;

/// How often a lost race is run again.
const ROUNDS: usize = 16;
/// The largest of the limits that count things.
const COUNT_MAX: i64 = 1_000_000_000;
/// The largest of the limits of a rate.
const RATE_MAX: i64 = 1_000_000;
/// The smallest rate: a submission in some hours.
const RATE_MIN: f64 = 0.000_1;
/// A year: the longest of the shortest times between instants of a schedule.
const SCHEDULE_MAX_MILLIS: u64 = 31_622_400_000;

/// The routes of this file.
pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(create_tenant, list_tenants)).routes(routes!(
        get_tenant,
        edit_tenant,
        delete_tenant
    ))
}

/// A request about one tenant.
pub struct TenantRequest {
    /// The interface.
    pub api: Api,
    /// The name in the path.
    pub name: String,
}

impl FromRequestParts<Api> for TenantRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let path: Result<Path<NamedTenant>, _> = Path::from_request_parts(parts, &()).await;
        // A text that is no name names no tenant.
        let named = path.ok().map(|Path(named)| named.tenant).filter(|name| Tenant::is_name(name));
        Ok(Self { api: api.clone(), name: named.ok_or_else(no_such_tenant)? })
    }
}

/// The tenant in a path; other parts of the path are not looked at.
#[derive(serde::Deserialize)]
struct NamedTenant {
    tenant: String,
}

impl TenantRequest {
    /// Reads the tenant.
    pub async fn find(&self) -> Result<TenantRecord, Problem> {
        self.api.database.tenant(&self.name).await?.ok_or_else(no_such_tenant)
    }
}

/// Creates a tenant.
///
/// Keys are made for it then. Any name that an administrator gives in `Punctual-Tenant` can have
/// tasks, but only a tenant that was created can have keys, a weight and limits.
#[utoipa::path(
    post, path = "/v1/admin/tenants", tag = "admin", operation_id = "create_tenant",
    request_body(content = NewTenant, example = json!({"name": "acme", "weight": 2, "limits": {"waiting_tasks": 100_000}})),
    responses(
        (status = 201, description = "Created", body = wire::Tenant, headers(("ETag" = String), ("Location" = String))),
        (status = 409, description = "`tenant_exists`: there is one of this name", body = wire::Problem, content_type = "application/problem+json"),
        Invalid,
    ),
)]
async fn create_tenant(State(api): State<Api>, body: JsonBody<NewTenant>) -> Result<Response, Problem> {
    let tenant = body.check(|NewTenant { name, weight, limits }, faults| {
        if !Tenant::is_name(&name) && !faults.is_left_out("/name") {
            faults.add("/name", format!("must be {}", Tenant::RULE));
        }
        let mut tenant = TenantRecord::new(name, api.clock.now());
        change(faults, &mut tenant, weight, limits);
        Some(tenant)
    })?;
    if !api.database.create_tenant(tenant.clone()).await? {
        let detail = format!("there is a tenant named {}; nothing was changed", tenant.name);
        return Err(Problem::new(Code::TenantExists, detail));
    }
    tracing::info!(tenant = tenant.name, "a tenant was created");
    let path = format!("/v1/admin/tenants/{}", tenant.name);
    Ok(answer::created(versioned(StatusCode::CREATED, tenant.version, &view(tenant)), &path))
}

/// Lists tenants, by name.
#[utoipa::path(
    get, path = "/v1/admin/tenants", tag = "admin", operation_id = "list_tenants",
    params(PageParams),
    responses((status = 200, description = "A page of tenants", body = TenantPage), NotModified, Invalid),
)]
async fn list_tenants(State(api): State<Api>, query: Query) -> Result<Response, Problem> {
    let (limit, cursor) = query.page()?;
    let listing = Listing { kind: "tenants", scope: "" };
    let after = cursor.map(|cursor| listing.open_name(&cursor)).transpose()?;
    let tenants = api.database.tenants(after, limit + 1).await?.into_iter().map(view).collect();
    Ok(answer::list(&listing.page(tenants, limit, |last: &wire::Tenant| last.name.clone().into_bytes())))
}

/// Reads a tenant.
#[utoipa::path(
    get, path = "/v1/admin/tenants/{tenant}", tag = "admin", operation_id = "get_tenant",
    params(TenantPath),
    responses((status = 200, description = "The tenant", body = wire::Tenant, headers(("ETag" = String))), NotFound),
)]
async fn get_tenant(request: TenantRequest) -> Result<Response, Problem> {
    let tenant = request.find().await?;
    Ok(versioned(StatusCode::OK, tenant.version, &view(tenant)))
}

/// Changes a tenant.
#[utoipa::path(
    patch, path = "/v1/admin/tenants/{tenant}", tag = "admin", operation_id = "edit_tenant",
    params(TenantPath, IfMatch),
    request_body = TenantPatch,
    responses(
        (status = 200, description = "The tenant as it is now", body = wire::Tenant, headers(("ETag" = String))),
        NotFound, Conflict, VersionMismatch, Invalid,
    ),
)]
async fn edit_tenant(request: TenantRequest, condition: If, body: JsonBody<TenantPatch>) -> Result<Response, Problem> {
    for _ in 0..ROUNDS {
        let was = request.find().await?;
        condition.check("tenant", Some(was.version))?;
        let mut tenant = was.clone();
        body.check_ref(|patch, faults| {
            change(faults, &mut tenant, patch.weight, patch.limits.clone());
            Some(())
        })?;
        if tenant != was {
            tenant.version += 1;
            tenant.updated_at = request.api.clock.now();
        }
        if tenant == was || request.api.database.write_tenant(tenant.clone()).await? {
            return Ok(versioned(StatusCode::OK, tenant.version, &view(tenant)));
        }
    }
    Err(Problem::new(Code::Conflict, "the tenant changed each time we tried; nothing was done").retry_after(1))
}

/// Removes a tenant and its keys.
///
/// Its finished tasks stay until their retention ends. A tenant with live tasks or schedules is not
/// removed, nor is the one that has the key of the request.
#[utoipa::path(
    delete, path = "/v1/admin/tenants/{tenant}", tag = "admin", operation_id = "delete_tenant",
    params(TenantPath),
    responses(
        (status = 204, description = "It is removed, and its keys are refused within five seconds"),
        (status = 409, description = "`tenant_not_empty`: it has live tasks or schedules, or the key of the request", body = wire::Problem, content_type = "application/problem+json"),
        NotFound,
    ),
)]
async fn delete_tenant(request: TenantRequest, caller: Caller) -> Result<Response, Problem> {
    let name = &request.name;
    if caller.principal.key_id.is_some() && caller.principal.tenant == *name {
        let detail =
            format!("the tenant {name} has the key of this request; nothing was done. Use an admin key of another");
        return Err(Problem::new(Code::TenantNotEmpty, detail));
    }
    match request.api.database.remove_tenant(name).await? {
        TenantRemoved::Done => {
            tracing::info!(tenant = name, "a tenant was removed, with its keys");
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        TenantRemoved::Missing => Err(no_such_tenant()),
        TenantRemoved::InUse => {
            let detail = format!(
                "the tenant {name} has live tasks or schedules; nothing was done. Remove its schedules, and cancel its \
                 tasks or let them end first"
            );
            Err(Problem::new(Code::TenantNotEmpty, detail))
        }
    }
}

/// The refusal of a tenant that has no record.
pub fn no_such_tenant() -> Problem {
    Problem::new(Code::NotFound, "there is no tenant with this name: create it first")
}

/// Changes the weight and the limits that are given.
fn change(faults: &mut Faults, tenant: &mut TenantRecord, weight: Option<i64>, limits: Option<TenantLimitsPatch>) {
    tenant.weight = faults.whole("/weight", weight, 1..=i64::from(WEIGHT_MAX), "").unwrap_or(tenant.weight);
    let Some(limits) = limits else { return };
    let TenantLimits {
        submissions_per_second,
        burst,
        waiting_tasks,
        payload_bytes,
        schedules,
        min_schedule_millis,
        concurrent_runs,
    } = &mut tenant.limits;
    if let Some(given) = limits.submissions_per_second {
        if given.is_some_and(|rate| !(RATE_MIN..=f64::from(1_000_000)).contains(&rate)) {
            faults.add("/limits/submissions_per_second", format!("must be a number from {RATE_MIN} to {RATE_MAX}"));
        }
        *submissions_per_second = given;
    }
    if let Some(given) = limits.burst {
        *burst = faults.whole("/limits/burst", given, 1..=RATE_MAX, "");
    }
    for (field, given, limit) in [
        ("waiting_tasks", limits.waiting_tasks, waiting_tasks),
        ("payload_bytes", limits.payload_bytes, payload_bytes),
        ("schedules", limits.schedules, schedules),
        ("concurrent_runs", limits.concurrent_runs, concurrent_runs),
    ] {
        if let Some(given) = given {
            *limit = faults.whole(&format!("/limits/{field}"), given, 0..=COUNT_MAX, "");
        }
    }
    if let Some(given) = limits.min_schedule_seconds {
        *min_schedule_millis = faults.seconds("/limits/min_schedule_seconds", given, SCHEDULE_MAX_MILLIS);
    }
}

fn view(tenant: TenantRecord) -> wire::Tenant {
    let limits = tenant.limits;
    wire::Tenant {
        name: tenant.name,
        weight: tenant.weight,
        limits: wire::TenantLimits {
            submissions_per_second: limits.submissions_per_second,
            burst: limits.burst,
            waiting_tasks: limits.waiting_tasks,
            payload_bytes: limits.payload_bytes,
            schedules: limits.schedules,
            min_schedule_seconds: limits.min_schedule_millis.map(Seconds::from_millis),
            concurrent_runs: limits.concurrent_runs,
        },
        version: tenant.version,
        created_at: tenant.created_at,
        updated_at: tenant.updated_at,
    }
}
