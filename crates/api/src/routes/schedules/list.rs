//! `GET /v1/schedules`.

use axum::extract::State;
use axum::response::Response;
use punctual_client::{Page, SchedulePage};

use crate::answer;
use crate::cursor::Listing;
use crate::extract::Caller;
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
pub async fn list_schedules(State(api): State<Api>, caller: Caller, mut query: Query) -> Result<Response, Problem> {
    let view_wanted = caller.view(query.view());
    let (limit, cursor) = query.page()?;
    let listing = Listing { kind: "schedules", scope: &caller.tenant };
    let after = cursor.map(|cursor| listing.open_name(&cursor)).transpose()?;
    let schedules = api.schedules.list(&caller.tenant, after, limit + 1).await?;
    let page = listing.page(schedules, limit, |last| last.name.clone().into_bytes());
    let items = page.items.iter().filter(|schedule| caller.reaches_schedule(schedule)).map(view::schedule);
    let items = items.collect::<Result<Vec<_>, _>>()?;
    Ok(answer::page(view_wanted, Page { items, next_cursor: page.next_cursor }))
}
