//! The circuit breakers that are open, for operators.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use punctual_client::{Breaker, BreakerPage, BreakerState, ResetBreaker};
use punctual_core::breakers::{BreakerChange, BreakerEvent, BreakerKey, OpenBreaker};
use punctual_core::callback;
use punctual_core::store::StoreError;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer;
use crate::cursor::{self, Listing};
use crate::extract::query::{PageParams, Query};
use crate::extract::{Caller, JsonBody, Tenant, forbidden};
use crate::openapi::{Invalid, NotFound, NotModified, Unavailable};
use crate::problem::{Code, Problem};
use crate::state::Api;

/// Between the tenant and the target in a cursor; neither contains it.
const BETWEEN: char = '\0';

/// The routes of this file.
pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(list_breakers)).routes(routes!(reset_breaker))
}

/// Lists open circuit breakers.
///
/// Of all tenants, or of one, by tenant and target; only an admin sees those of others. Closed
/// breakers are not listed.
#[utoipa::path(
    get, path = "/v1/admin/breakers", tag = "admin",
    params(("tenant" = Option<String>, Query, min_length = 1, description = "Only breakers of this tenant"), PageParams),
    responses((status = 200, description = "A page of breakers", body = BreakerPage), NotModified, Invalid, Unavailable),
)]
async fn list_breakers(State(api): State<Api>, caller: Caller, mut query: Query) -> Result<Response, Problem> {
    let tenant = query.read("tenant", |name| {
        if name.is_empty() { Err("must name a tenant; leave it out for all".to_owned()) } else { Ok(name.to_owned()) }
    });
    let (limit, cursor) = query.page()?;
    let tenant = tenant.or_else(|| (!caller.principal.may_be_any_tenant()).then(|| caller.tenant.clone()));
    if let Some(tenant) = &tenant {
        require_own(&caller, tenant)?;
    }
    let listing = Listing { kind: "breakers", scope: tenant.as_deref().unwrap_or_default() };
    let after = cursor.map(|cursor| after(listing, &cursor)).transpose()?;
    let breakers = match &tenant {
        Some(tenant) => of_tenant(&api, tenant, after, limit + 1).await?,
        None => api.database.list_breakers(after, limit + 1).await?,
    };
    let page = listing.page(breakers.into_iter().map(view).collect(), limit, |last| {
        format!("{}{BETWEEN}{}", last.tenant, last.target.as_deref().unwrap_or_default()).into_bytes()
    });
    Ok(answer::list(&page))
}

/// Reset a circuit breaker.
///
/// It closes at once, and its counts are cleared. Within about a second every node dispatches its
/// tasks. If the target still fails, it opens again. `target` is any URL of the target: only
/// scheme, host and port count.
#[utoipa::path(
    post, path = "/v1/admin/breakers/reset", tag = "admin",
    request_body = ResetBreaker,
    responses((status = 204, description = "It is closed"), NotFound, Invalid, Unavailable),
)]
async fn reset_breaker(
    State(api): State<Api>,
    caller: Caller,
    body: JsonBody<ResetBreaker>,
) -> Result<Response, Problem> {
    let key = body.check(|ResetBreaker { tenant, target }, faults| {
        if !Tenant::is_name(&tenant) {
            faults.add("/tenant", format!("must be {}", Tenant::RULE));
        }
        let advice = "write it like a callback URL, or leave it out for the breaker over all of the tenant";
        let target = target.map(|url| callback::target_of(&url)).transpose();
        let target = target.map_err(|fault| faults.add("/target", format!("{fault}; {advice}"))).ok()?;
        Some(BreakerKey { tenant, target: target.map(|(_, target)| target).unwrap_or_default() })
    })?;
    require_own(&caller, &key.tenant)?;
    if api.database.change_breaker(&key, BreakerEvent::Reset).await? != BreakerChange::Closed {
        let advice = "there is no open breaker of this tenant and target; GET /v1/admin/breakers lists the open ones";
        return Err(Problem::new(Code::NotFound, advice));
    }
    tracing::info!(tenant = key.tenant, target = key.target, "a breaker was reset; dispatching its tasks again");
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Refuses the breakers of another tenant, except to an administrator, and those of a tenant of
/// which the caller reaches only a part: a breaker concerns all queues and types.
fn require_own(caller: &Caller, tenant: &str) -> Result<(), Problem> {
    caller.require_all()?;
    if tenant == caller.tenant || caller.principal.may_be_any_tenant() {
        return Ok(());
    }
    Err(forbidden("only an admin may see and reset the breakers of another tenant"))
}

/// The breakers of a tenant after a key: first the tenant's own, then those of its targets.
async fn of_tenant(
    api: &Api,
    tenant: &str,
    after: Option<BreakerKey>,
    limit: usize,
) -> Result<Vec<OpenBreaker>, StoreError> {
    let own = match after {
        Some(_) => None,
        None => api.database.breaker_over(tenant, "").await?,
    };
    let after = after.unwrap_or_else(|| BreakerKey::of_tenant(tenant));
    let targets = api.database.list_breakers(Some(after), limit).await?;
    let targets = targets.into_iter().take_while(|breaker| breaker.key.tenant == tenant);
    Ok(own.into_iter().chain(targets).take(limit).collect())
}

fn after(listing: Listing<'_>, cursor: &str) -> Result<BreakerKey, Problem> {
    let position = listing.open_name(cursor)?;
    let (tenant, target) = position.split_once(BETWEEN).ok_or_else(|| cursor::refused(cursor))?;
    Ok(BreakerKey::new(tenant, target))
}

fn view(breaker: OpenBreaker) -> Breaker {
    let (last_probe_at, last_probe_error) = breaker.last_probe.map(|failed| (failed.at, failed.error)).unzip();
    Breaker {
        tenant: breaker.key.tenant,
        target: Some(breaker.key.target).filter(|target| !target.is_empty()),
        state: if breaker.half_open { BreakerState::HalfOpen } else { BreakerState::Open },
        since: breaker.opened_at,
        runs: breaker.runs.all(),
        failures: breaker.runs.failed,
        next_probe_at: breaker.next_probe_at,
        probe: breaker.probe,
        reason: breaker.reason,
        last_probe_at,
        last_probe_error,
    }
}

#[cfg(test)]
mod tests;
