//! `GET /v1/upcoming`: what will run, by name.

use axum::extract::State;
use axum::response::Response;
use punctual_client as wire;
use punctual_core::forecast::{UpcomingKey, UpcomingPosition};
use punctual_core::ids::ScheduleId;
use punctual_core::time::Timestamp;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::answer;
use crate::cursor::{Listing, refused};
use crate::extract::Caller;
use crate::extract::query::{PageParams, Query};
use crate::openapi::{Invalid, NotModified};
use crate::problem::Problem;
use crate::state::Api;
use crate::upcoming::{UpcomingRequest, UpcomingSlice};

/// How far it looks ahead: 31 days.
const SPAN_MAX_MILLIS: i64 = 31 * 86_400_000;

/// The routes of this file.
pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(list_upcoming))
}

/// Lists what will run, the soonest first.
///
/// Waiting tasks by when they are due, retries too, and the instants of schedules whose tasks do
/// not exist yet. Blocked tasks, paused schedules and what is due already are not listed. The list
/// cannot know that a schedule will skip an instant because its last task is still live, nor when a
/// due task gets its turn.
#[utoipa::path(
    get, path = "/v1/upcoming", tag = "forecast", operation_id = "list_upcoming",
    params(
        ("from" = Option<String>, Query, format = DateTime, description = "From this instant on; now if absent or in the past"),
        ("to" = Option<String>, Query, format = DateTime, description = "Before this instant, at most 31 days after `from`; 31 days if absent"),
        PageParams,
    ),
    responses(
        (status = 200, description = "A page of what will run. It may be short or empty and still have a `next_cursor`: only a page without one is the last", body = wire::Upcoming),
        NotModified, Invalid,
    ),
)]
async fn list_upcoming(State(api): State<Api>, caller: Caller, mut query: Query) -> Result<Response, Problem> {
    let now = api.clock.now();
    let from = query.instant("from").unwrap_or(now).max(now);
    let to = query.instant("to");
    if to.is_some_and(|to| to <= from) {
        query.refuse("to", "must be after from, and in the future");
    }
    if to.is_some_and(|to| to.millis_since(from) > SPAN_MAX_MILLIS) {
        query.refuse("to", "must be at most 31 days after from");
    }
    let (limit, cursor) = query.page()?;
    let listing = Listing { kind: "upcoming", scope: &caller.tenant };
    // What is due already is not upcoming, nor is what came due since the page before.
    let begin = UpcomingPosition::before(from.max(now.plus_millis(1)));
    let after = cursor.map(|cursor| open(listing, &cursor)).transpose()?.map_or(begin, |after| after.max(begin));
    let to = to.unwrap_or(from.plus_millis(SPAN_MAX_MILLIS));
    let page = api.upcoming.page(&caller.tenant, UpcomingRequest { now, after, to, limit }).await?;
    let UpcomingSlice { mut items, next, schedules_missing } = page;
    items.retain(|item| caller.reaches_names(&item.kind, &item.queue));
    let next_cursor = next.map(|position| seal(listing, position));
    Ok(answer::list(&wire::Upcoming { items, next_cursor, schedules_missing }))
}

/// The cursor after a position: its instant, which kind it is of, and its number or id.
fn seal(listing: Listing<'_>, position: UpcomingPosition) -> String {
    let mut bytes = position.at.as_millis().to_be_bytes().to_vec();
    match position.of {
        UpcomingKey::Instant(id) => bytes.extend_from_slice(id.uuid().as_bytes()),
        UpcomingKey::Task(number) => bytes.extend_from_slice(&number.to_be_bytes()),
    }
    listing.seal(&bytes)
}

/// The position after which the page begins.
fn open(listing: Listing<'_>, cursor: &str) -> Result<UpcomingPosition, Problem> {
    let bytes = listing.open(cursor)?;
    let (millis, key) = bytes.split_first_chunk::<8>().ok_or_else(|| refused(cursor))?;
    let of = match <[u8; 8]>::try_from(key) {
        Ok(number) => UpcomingKey::Task(i64::from_be_bytes(number)),
        Err(_) => UpcomingKey::Instant(ScheduleId::from_uuid(Uuid::from_slice(key).map_err(|_| refused(cursor))?)),
    };
    Ok(UpcomingPosition { at: Timestamp::from_millis(i64::from_be_bytes(*millis)), of })
}

#[cfg(test)]
mod tests;
