//! `GET /v1/schedules/{id}/occurrences`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use punctual_client::{OccurrencePage, Page};
use punctual_core::time::Timestamp;

use super::change::{SchedulePath, find};
use crate::answer::json;
use crate::cursor::Listing;
use crate::extract::Tenant;
use crate::extract::query::Query;
use crate::openapi::NotFound;
use crate::problem::{Code, Problem};
use crate::schedules::view;
use crate::state::Api;

/// Lists what became of a schedule's instants, the newest first.
///
/// Every instant has one record: fired, with its task; buffered, while it waits; skipped, missed or
/// coalesced, and why. Records are kept as long as tasks that came to rest.
#[utoipa::path(
    get, path = "/v1/schedules/{id}/occurrences", tag = "schedules", operation_id = "list_occurrences",
    params(
        ("id" = String, Path, description = "The schedule's id"),
        ("limit" = Option<u16>, Query, description = "Occurrences on a page, 50 if absent", minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"),
    ),
    responses(
        (status = 200, description = "A page of occurrences", body = OccurrencePage),
        NotFound,
    ),
)]
pub async fn list_occurrences(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    SchedulePath(id): SchedulePath,
    mut query: Query,
) -> Result<Response, Problem> {
    let (limit, cursor) = (query.limit(), query.take("cursor"));
    query.finish()?;
    let schedule = find(&api, &tenant, id).await?;
    let scope = schedule.id.to_string();
    let listing = Listing { kind: "occurrences", scope: &scope };
    let before = cursor.map(|cursor| before(listing, &cursor)).transpose()?;
    // One more than the page holds tells whether there is a next one.
    let mut found = api.schedules.occurrences(id, before, limit + 1).await?;
    let more = found.len() > limit;
    found.truncate(limit);
    let next_cursor = found.last().filter(|_| more).map(|last| listing.seal(&last.instant.as_millis().to_be_bytes()));
    let items = found.into_iter().map(view::occurrence).collect();
    Ok(json(StatusCode::OK, &Page { items, next_cursor }))
}

fn before(listing: Listing<'_>, cursor: &str) -> Result<Timestamp, Problem> {
    let refused = |_| Problem::new(Code::InvalidCursor, "the cursor must be a next_cursor of this very listing");
    let millis: [u8; 8] = listing.open(cursor)?.try_into().map_err(refused)?;
    Ok(Timestamp::from_millis(i64::from_be_bytes(millis)))
}
