//! `GET /v1/schedules`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use punctual_client::{Page, SchedulePage};

use crate::answer::json;
use crate::cursor::Listing;
use crate::extract::Tenant;
use crate::extract::query::Query;
use crate::problem::{Code, Problem};
use crate::schedules::view;
use crate::state::Api;

/// Lists schedules, by name.
#[utoipa::path(
    get, path = "/v1/schedules", tag = "schedules", operation_id = "list_schedules",
    params(
        ("limit" = Option<u16>, Query, description = "Schedules on a page, 50 if absent", minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"),
    ),
    responses((status = 200, description = "A page of schedules", body = SchedulePage)),
)]
pub async fn list_schedules(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    mut query: Query,
) -> Result<Response, Problem> {
    let (limit, cursor) = (query.limit(), query.take("cursor"));
    query.finish()?;
    let listing = Listing { kind: "schedules", scope: &tenant };
    let after = cursor.map(|cursor| after(listing, &cursor)).transpose()?;
    // One more than the page holds tells whether there is a next one.
    let mut schedules = api.schedules.list(&tenant, after, limit + 1).await?;
    let more = schedules.len() > limit;
    schedules.truncate(limit);
    let next_cursor = schedules.last().filter(|_| more).map(|last| listing.seal(last.name.as_bytes()));
    let items = schedules.iter().map(view::schedule).collect::<Result<Vec<_>, _>>()?;
    Ok(json(StatusCode::OK, &Page { items, next_cursor }))
}

fn after(listing: Listing<'_>, cursor: &str) -> Result<String, Problem> {
    let refused = |_| Problem::new(Code::InvalidCursor, "the cursor must be a next_cursor of this very listing");
    String::from_utf8(listing.open(cursor)?).map_err(refused)
}
