//! The pull workers of a tenant, and when they were last seen.

use std::collections::{BTreeMap, HashMap};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use punctual_client::{Page, Worker, WorkerPage};
use punctual_core::obstacles::Holder;
use punctual_core::time::Timestamp;
use punctual_core::workers::WorkerSighting;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::json;
use crate::cursor::Listing;
use crate::extract::Tenant;
use crate::extract::query::Query;
use crate::presence::LEASES_MAX;
use crate::problem::{Code, Problem};
use crate::state::Api;

/// The routes of this file.
pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(list_workers))
}

/// List workers.
///
/// Every worker that has polled for tasks, by name. A worker that was not seen for a while and
/// holds no task is `lost`; it is seen when it polls, sends a heartbeat or settles.
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

    // One more than the page holds shows whether there is a next page.
    let mut workers = BTreeMap::new();
    let unwritten = api.presence.of(&tenant, after.as_deref(), limit + 1);
    for sighting in api.database.workers(&tenant, after, limit + 1).await?.into_iter().chain(unwritten) {
        merge(&mut workers, sighting);
    }
    let more = workers.len() > limit;
    let lost_before = lost_before(&api);
    let held: HashMap<String, Holder> = api
        .database
        .holders(&tenant, LEASES_MAX)
        .await?
        .workers
        .into_iter()
        .map(|holder| (holder.worker.clone(), holder))
        .collect();
    let shown = |sighting: WorkerSighting| {
        let holder = held.get(&sighting.name);
        shown(sighting, holder, lost_before)
    };
    let items: Vec<Worker> = workers.into_values().take(limit).map(shown).collect();
    let next_cursor = items.last().filter(|_| more).map(|last| listing.seal(last.worker_id.as_bytes()));
    Ok(json(StatusCode::OK, &Page { items, next_cursor }))
}

fn after(listing: Listing<'_>, cursor: &str) -> Result<String, Problem> {
    let refused = |_| Problem::new(Code::InvalidCursor, "the cursor must be a next_cursor of this very listing");
    String::from_utf8(listing.open(cursor)?).map_err(refused)
}

/// A sighting since the last flush is newer than the registry's, which knows the first one.
fn merge(workers: &mut BTreeMap<String, WorkerSighting>, newer: WorkerSighting) {
    let merged = match workers.get(&newer.name) {
        Some(older) => newer.following(older),
        None => newer,
    };
    workers.insert(merged.name.clone(), merged);
}

fn lost_before(api: &Api) -> Timestamp {
    api.clock.now().minus(api.config.worker_lost_after)
}

/// A worker that holds a task is active, however long ago it polled.
fn shown(sighting: WorkerSighting, holder: Option<&Holder>, lost_before: Timestamp) -> Worker {
    let last_seen_at = holder.map_or(sighting.last_seen_at, |holder| holder.seen_at.max(sighting.last_seen_at));
    let is_lost = holder.is_none() && last_seen_at < lost_before;
    Worker {
        worker_id: sighting.name,
        status: if is_lost { "lost" } else { "active" }.to_owned(),
        queues: sighting.queues,
        types: sighting.kinds,
        running: holder.map_or(0, |holder| holder.tasks),
        first_seen_at: sighting.first_seen_at,
        last_seen_at,
    }
}

#[cfg(test)]
mod tests;
