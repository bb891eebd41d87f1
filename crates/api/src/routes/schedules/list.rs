//! `GET /v1/schedules`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use punctual_client::SchedulePage;

use crate::answer::json;
use crate::cursor::Listing;
use crate::extract::Tenant;
use crate::extract::query::{PageParams, Query};
use crate::problem::Problem;
use crate::schedules::view;
use crate::state::Api;

/// Lists schedules, by name.
#[utoipa::path(
    get, path = "/v1/schedules", tag = "schedules", operation_id = "list_schedules",
    params(PageParams),
    responses((status = 200, description = "A page of schedules", body = SchedulePage)),
)]
pub async fn list_schedules(State(api): State<Api>, Tenant(tenant): Tenant, query: Query) -> Result<Response, Problem> {
    let (limit, cursor) = query.page()?;
    let listing = Listing { kind: "schedules", scope: &tenant };
    let after = cursor.map(|cursor| listing.open_name(&cursor)).transpose()?;
    let schedules = api.schedules.list(&tenant, after, limit + 1).await?;
    let items = schedules.iter().map(view::schedule).collect::<Result<Vec<_>, _>>()?;
    Ok(json(StatusCode::OK, &listing.page(items, limit, |last| last.name.clone().into_bytes())))
}
