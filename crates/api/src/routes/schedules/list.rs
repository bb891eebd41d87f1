//! `GET /v1/schedules`.

use axum::extract::State;
use axum::response::Response;
use punctual_client::SchedulePage;

use crate::answer;
use crate::cursor::Listing;
use crate::extract::Tenant;
use crate::extract::query::{PageParams, Query};
use crate::openapi::NotModified;
use crate::problem::Problem;
use crate::schedules::view;
use crate::state::Api;

/// Lists schedules, by name.
#[utoipa::path(
    get, path = "/v1/schedules", tag = "schedules", operation_id = "list_schedules",
    params(PageParams),
    responses((status = 200, description = "A page of schedules", body = SchedulePage), NotModified),
)]
pub async fn list_schedules(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    mut query: Query,
) -> Result<Response, Problem> {
    let view_wanted = query.view();
    let (limit, cursor) = query.page()?;
    let listing = Listing { kind: "schedules", scope: &tenant };
    let after = cursor.map(|cursor| listing.open_name(&cursor)).transpose()?;
    let schedules = api.schedules.list(&tenant, after, limit + 1).await?;
    let items = schedules.iter().map(view::schedule).collect::<Result<Vec<_>, _>>()?;
    Ok(answer::page(view_wanted, listing.page(items, limit, |last| last.name.clone().into_bytes())))
}
