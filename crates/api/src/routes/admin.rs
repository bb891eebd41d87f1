//! The nodes of the cluster, the partitions they own, open breakers, tenants, their keys and their
//! webhook secrets, for operators.
//!
//! Nodes and partitions are short lists, shown as a whole unless the caller asks for pages.

mod breakers;
mod keys;
mod paging;
mod tenants;
mod webhook_secrets;

use std::collections::HashMap;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use punctual_client::{Node, NodePage, Page, Partition, PartitionPage};
use punctual_core::ids::NodeId;
use punctual_core::registry::NodePresence;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::{self, aged};
use crate::cluster::{self, ClusterSnapshot};
use crate::extract::query::{PageParams, Query};
use crate::openapi::{NotModified, Unavailable};
use crate::problem::Problem;
use crate::state::Api;

use paging::Paging;

/// The routes of this file.
pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(list_nodes))
        .routes(routes!(list_partitions))
        .merge(breakers::router())
        .merge(tenants::router())
        .merge(keys::router())
        .merge(webhook_secrets::router())
}

/// Lists nodes.
///
/// Every process that shares the store, in the order in which they were first seen. A node that
/// stopped reporting is `silent`, with the instant at which the others take over. A dead node is
/// listed until the leader has taken back its runs. While the store is away, the nodes are those
/// that were last read, and the header `Age` says how many seconds ago. All are on one page, unless
/// there is a `limit`.
#[utoipa::path(
    get, path = "/v1/admin/nodes", tag = "admin",
    params(PageParams),
    responses((status = 200, description = "The nodes", body = NodePage, headers(("Age" = u64))), NotModified, Unavailable),
)]
async fn list_nodes(State(api): State<Api>, query: Query) -> Result<Response, Problem> {
    let paging = Paging::read("nodes", query)?;
    let (cluster, age) = cluster::read(&api).await?;
    let mut owned: HashMap<NodeId, usize> = HashMap::new();
    for owner in cluster.ownership.iter().filter_map(|row| row.owner_at(cluster.at)) {
        *owned.entry(owner).or_default() += 1;
    }
    let Page { items, next_cursor } = paging.page(cluster.nodes.clone(), |node| {
        let seen = u128::try_from(node.first_seen_at.as_millis()).unwrap_or(0);
        seen << 64 | u128::from(node.id.number())
    });
    let view = |node: NodePresence| {
        let partitions = owned.get(&node.id).copied().unwrap_or(0);
        view(node, &cluster, partitions, api.config.node_lease)
    };
    let page = Page { items: items.into_iter().map(view).collect(), next_cursor };
    Ok(aged(answer::list(&page), age))
}

fn view(node: NodePresence, cluster: &ClusterSnapshot, partitions: usize, lease: Duration) -> Node {
    let silent = node.is_silent(cluster.at, lease);
    Node {
        id: node.id.to_string(),
        silent,
        taken_over_at: silent.then(|| node.lost_at(lease)),
        lease_seconds: node.lease.map(|lease| lease.as_secs_f64()),
        name: node.name,
        address: Some(node.address).filter(|address| !address.is_empty()),
        roles: node.roles,
        version: node.version,
        leader: cluster.leader == Some(node.id),
        partitions,
        skew_ms: node.skew_millis,
        first_seen_at: node.first_seen_at,
        last_seen_at: node.last_seen_at,
    }
}

/// Lists partitions.
///
/// The queues are divided into partitions; the owner of one dispatches the webhooks of its queues.
/// Every partition that was ever owned, by number. While the store is away, they are those that
/// were last read, and the header `Age` says how many seconds ago. All are on one page, unless
/// there is a `limit`.
#[utoipa::path(
    get, path = "/v1/admin/partitions", tag = "admin",
    params(PageParams),
    responses((status = 200, description = "The partitions", body = PartitionPage, headers(("Age" = u64))), NotModified, Unavailable),
)]
async fn list_partitions(State(api): State<Api>, query: Query) -> Result<Response, Problem> {
    let paging = Paging::read("partitions", query)?;
    let (cluster, age) = cluster::read(&api).await?;
    let names: HashMap<NodeId, &str> = cluster.nodes.iter().map(|node| (node.id, node.name.as_str())).collect();
    let Page { items, next_cursor } =
        paging.page(cluster.ownership.clone(), |row| u128::from(row.partition.number()) << 64);
    let partitions = items.into_iter().map(|row| {
        let owner = row.owner_at(cluster.at);
        Partition {
            partition: row.partition.number(),
            owner: owner.map(|owner| owner.to_string()),
            owner_name: owner.and_then(|owner| names.get(&owner).map(ToString::to_string)),
            term: row.term,
            expires_at: row.expires_at,
        }
    });
    Ok(aged(answer::list(&Page { items: partitions.collect::<Vec<_>>(), next_cursor }), age))
}

#[cfg(test)]
mod tests;
