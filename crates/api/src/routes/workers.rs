//! The pull workers of a tenant, as they were last seen.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use punctual_client::{Page, Worker, WorkerPage};
use punctual_core::time::Timestamp;
use punctual_core::workers::WorkerSighting;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::json;
use crate::cursor::Listing;
use crate::extract::Tenant;
use crate::extract::query::Query;
use crate::problem::{Code, Problem};
use crate::state::Api;

/// The routes of this file.
pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(list_workers))
}

/// List workers.
///
/// Everybody who has asked for leases, by name. A worker that has not asked for a while is `lost`.
#[utoipa::path(
    get,
    path = "/v1/workers",
    tag = "workers",
    params(
        ("limit" = Option<u16>, Query, description = "Workers on a page, 50 if absent", minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"),
    ),
    responses((status = 200, description = "A page of workers", body = WorkerPage))
)]
async fn list_workers(State(api): State<Api>, Tenant(tenant): Tenant, mut query: Query) -> Result<Response, Problem> {
    let (limit, cursor) = (query.limit(), query.take("cursor"));
    query.finish()?;
    let listing = Listing { kind: "workers", scope: &tenant };
    let after = cursor.map(|cursor| after(listing, &cursor)).transpose()?;

    // One more than the page holds tells whether there is a next one.
    let mut workers = BTreeMap::new();
    let unwritten = api.sightings.of(&tenant, after.as_deref(), limit + 1);
    for sighting in api.registry.workers(&tenant, after, limit + 1).await?.into_iter().chain(unwritten) {
        merge(&mut workers, sighting);
    }
    let more = workers.len() > limit;
    let lost_before = lost_before(&api);
    let items: Vec<Worker> = workers.into_values().take(limit).map(|sighting| shown(sighting, lost_before)).collect();
    let next_cursor = items.last().filter(|_| more).map(|last| listing.seal(last.worker_id.as_bytes()));
    Ok(json(StatusCode::OK, &Page { items, next_cursor }))
}

fn after(listing: Listing<'_>, cursor: &str) -> Result<String, Problem> {
    let refused = |_| Problem::new(Code::InvalidCursor, "the cursor must be a next_cursor of this very listing");
    String::from_utf8(listing.open(cursor)?).map_err(refused)
}

/// What was seen since the last flush is newer than what is in the registry, which knows the first sighting.
fn merge(workers: &mut BTreeMap<String, WorkerSighting>, newer: WorkerSighting) {
    let first_seen_at =
        workers.get(&newer.name).map_or(newer.first_seen_at, |older| older.first_seen_at.min(newer.first_seen_at));
    workers.insert(newer.name.clone(), WorkerSighting { first_seen_at, ..newer });
}

fn lost_before(api: &Api) -> Timestamp {
    let lost_after = i64::try_from(api.config.worker_lost_after.as_millis()).unwrap_or(i64::MAX);
    api.clock.now().plus_millis(lost_after.saturating_neg())
}

fn shown(sighting: WorkerSighting, lost_before: Timestamp) -> Worker {
    let status = if sighting.last_seen_at < lost_before { "lost" } else { "active" };
    Worker {
        worker_id: sighting.name,
        status: status.to_owned(),
        queues: sighting.queues,
        types: sighting.kinds,
        first_seen_at: sighting.first_seen_at,
        last_seen_at: sighting.last_seen_at,
    }
}

#[cfg(test)]
mod tests;
