//! The pull workers of a tenant, and when they were last seen.

use std::collections::{BTreeMap, HashMap};

use axum::extract::State;
use axum::response::Response;
use punctual_client::{Page, Worker, WorkerPage, WorkerStatus};
use punctual_core::obstacles::Holder;
use punctual_core::registry::WorkerPresence;
use punctual_core::time::Timestamp;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer;
use crate::cursor::Listing;
use crate::extract::Caller;
use crate::extract::query::{PageParams, Query};
use crate::openapi::NotModified;
use crate::presence::{LEASES_MAX, merge};
use crate::problem::Problem;
use crate::state::Api;

/// The routes of this file.
pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(list_workers))
}

/// Lists workers.
///
/// Every worker that has polled for tasks, by name. A worker that was not seen for a while and
/// holds no task is `lost`; it is seen when it polls, sends a heartbeat or settles.
#[utoipa::path(
    get, path = "/v1/workers", tag = "workers",
    params(PageParams),
    responses((status = 200, description = "A page of workers", body = WorkerPage), NotModified),
)]
async fn list_workers(State(api): State<Api>, caller: Caller, query: Query) -> Result<Response, Problem> {
    let (limit, cursor) = query.page()?;
    let tenant = caller.tenant.clone();
    let listing = Listing { kind: "workers", scope: &tenant };
    let after = cursor.map(|cursor| listing.open_name(&cursor)).transpose()?;
    let mut workers = BTreeMap::new();
    let unwritten = api.presence.of(&tenant, after.as_deref(), limit + 1);
    for presence in api.database.workers(&tenant, after, limit + 1).await?.into_iter().chain(unwritten) {
        merge(&mut workers, presence);
    }
    let lost_before = api.clock.now().minus(api.config.worker_lost_after);
    let holders = api.database.holders(&tenant, LEASES_MAX).await?.workers.into_iter();
    let holders: HashMap<String, Holder> = holders.map(|holder| (holder.worker.clone(), holder)).collect();
    let view = |presence: WorkerPresence| {
        let holder = holders.get(&presence.name);
        view(presence, holder, lost_before)
    };
    let items: Vec<Worker> = workers.into_values().map(view).collect();
    let page = listing.page(items, limit, |last| last.worker_id.clone().into_bytes());
    let items = page.items.into_iter().filter_map(|worker| reached(worker, &caller)).collect();
    Ok(answer::list(&Page { items, next_cursor: page.next_cursor }))
}

/// The worker with the queues and types that the caller reaches; none if it reaches none of them.
fn reached(mut worker: Worker, caller: &Caller) -> Option<Worker> {
    worker.queues.retain(|queue| caller.reaches_queue(queue));
    worker.types.retain(|kind| caller.reaches_type(kind));
    let is_reached = caller.reaches_all() || !worker.queues.is_empty() || !worker.types.is_empty();
    is_reached.then_some(worker)
}

/// A worker that holds a task is active, however long ago it polled.
fn view(presence: WorkerPresence, holder: Option<&Holder>, lost_before: Timestamp) -> Worker {
    let last_seen_at = holder.map_or(presence.last_seen_at, |holder| holder.seen_at.max(presence.last_seen_at));
    let is_lost = holder.is_none() && last_seen_at < lost_before;
    Worker {
        worker_id: presence.name,
        status: if is_lost { WorkerStatus::Lost } else { WorkerStatus::Active },
        queues: presence.queues,
        types: presence.kinds,
        running: holder.map_or(0, |holder| holder.tasks),
        first_seen_at: presence.first_seen_at,
        last_seen_at,
    }
}

#[cfg(test)]
mod tests;
