//! The nodes of the cluster, the partitions they own, and open breakers, for operators.
//!
//! Nodes and partitions are short lists, shown as a whole unless the caller asks for pages.

mod breakers;
mod paging;

use std::collections::HashMap;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use punctual_client::{Node, NodePage, Page, Partition, PartitionPage};
use punctual_core::coordinator::LEADER;
use punctual_core::ids::NodeId;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::json;
use crate::extract::query::{PageParams, Query};
use crate::openapi::Unavailable;
use crate::problem::Problem;
use crate::state::Api;

use paging::Paging;

/// The routes of this file.
pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(list_nodes)).routes(routes!(list_partitions)).merge(breakers::router())
}

/// List nodes.
///
/// Every process that shares the store, in the order in which they were first seen. A dead node is
/// listed until the leader has taken back its runs. All are on one page, unless there is a `limit`.
#[utoipa::path(
    get, path = "/v1/admin/nodes", tag = "operations",
    params(PageParams),
    responses((status = 200, description = "The nodes", body = NodePage), Unavailable),
)]
async fn list_nodes(State(api): State<Api>, query: Query) -> Result<Response, Problem> {
    let paging = Paging::read("nodes", query)?;
    let leader = api.coordinator.holder(LEADER).await?.map(|held| held.lease.holder);
    let now = api.clock.now();
    let mut owned: HashMap<NodeId, usize> = HashMap::new();
    for owner in api.coordinator.ownership().await?.iter().filter_map(|row| row.owner_at(now)) {
        *owned.entry(owner).or_default() += 1;
    }
    let Page { items, next_cursor } = paging.page(api.database.nodes().await?, |node| {
        let seen = u128::try_from(node.first_seen_at.as_millis()).unwrap_or(0);
        seen << 64 | u128::from(node.id.number())
    });
    let nodes = items.into_iter().map(|node| Node {
        id: node.id.to_string(),
        name: node.name,
        address: Some(node.address).filter(|address| !address.is_empty()),
        roles: node.roles,
        version: node.version,
        leader: leader == Some(node.id),
        partitions: owned.get(&node.id).copied().unwrap_or(0),
        skew_ms: node.skew_millis,
        first_seen_at: node.first_seen_at,
        last_seen_at: node.last_seen_at,
    });
    Ok(json(StatusCode::OK, &Page { items: nodes.collect(), next_cursor }))
}

/// List partitions.
///
/// The queues are divided into partitions; the owner of one dispatches the webhooks of its queues.
/// Every partition that was ever owned, by number. All are on one page, unless there is a `limit`.
#[utoipa::path(
    get, path = "/v1/admin/partitions", tag = "operations",
    params(PageParams),
    responses((status = 200, description = "The partitions", body = PartitionPage), Unavailable),
)]
async fn list_partitions(State(api): State<Api>, query: Query) -> Result<Response, Problem> {
    let paging = Paging::read("partitions", query)?;
    let now = api.clock.now();
    let names: HashMap<NodeId, String> =
        api.database.nodes().await?.into_iter().map(|node| (node.id, node.name)).collect();
    let rows = api.coordinator.ownership().await?;
    let Page { items, next_cursor } = paging.page(rows, |row| u128::from(row.partition.number()) << 64);
    let partitions = items.into_iter().map(|row| {
        let owner = row.owner_at(now);
        Partition {
            partition: row.partition.number(),
            owner: owner.map(|owner| owner.to_string()),
            owner_name: owner.and_then(|owner| names.get(&owner).cloned()),
            term: row.term,
            expires_at: row.expires_at,
        }
    });
    Ok(json(StatusCode::OK, &Page { items: partitions.collect(), next_cursor }))
}

#[cfg(test)]
mod tests;
