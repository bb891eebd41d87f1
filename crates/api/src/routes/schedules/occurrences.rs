//! `GET /v1/schedules/{id}/occurrences`.

use axum::response::Response;
use punctual_client::{Occurrence, OccurrencePage};
use punctual_core::time::Timestamp;

use super::request::ScheduleRequest;
use crate::answer;
use crate::cursor::Listing;
use crate::extract::query::{PageParams, Query};
use crate::openapi::{NotFound, NotModified, SchedulePath};
use crate::problem::Problem;
use crate::schedules::view;

/// Lists the occurrences of a schedule, the newest first.
///
/// Every instant has one record: fired, with its task; buffered, while it waits; skipped, missed or
/// coalesced, with the reason. Records are kept as long as finished tasks.
#[utoipa::path(
    get, path = "/v1/schedules/{id}/occurrences", tag = "schedules", operation_id = "list_occurrences",
    params(
        SchedulePath,
        PageParams,
    ),
    responses(
        (status = 200, description = "A page of occurrences", body = OccurrencePage),
        NotModified, NotFound,
    ),
)]
pub async fn list_occurrences(request: ScheduleRequest, query: Query) -> Result<Response, Problem> {
    let (limit, cursor) = query.page()?;
    let scope = request.find().await?.id.to_string();
    let listing = Listing { kind: "occurrences", scope: &scope };
    let before = cursor.map(|cursor| listing.open_bytes(&cursor)).transpose()?;
    let before = before.map(|millis| Timestamp::from_millis(i64::from_be_bytes(millis)));
    let found = request.api.schedules.occurrences(request.id, before, limit + 1).await?;
    let items: Vec<Occurrence> = found.into_iter().map(view::occurrence).collect();
    let page = listing.page(items, limit, |last| last.instant.as_millis().to_be_bytes().to_vec());
    Ok(answer::list(&page))
}
