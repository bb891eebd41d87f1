//! The loops of every node for the cluster: notifications, the resolver, membership and the watch
//! for nodes that are gone. The leader also prepares the tables that nodes share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use punctual_core::clock::Clock;
use punctual_core::registry::{NodePresence, NodeSession};
use punctual_leader::departures::DepartureWatch;
use punctual_leader::membership::Membership;
use punctual_scheduler::hints::Hints;
use punctual_scheduler::ownership::OwnedPartitions;
use punctual_scheduler::resolver_loop::ResolverLoop;
use punctual_store::postgres::{PostgresStore, Wake};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::groups::Groups;
use super::parts::NodeParts;
use crate::config::Role;

/// The time between two passes over the tables. The months of the history are made weeks ahead.
const UPKEEP_INTERVAL: Duration = Duration::from_mins(10);
/// The name of a node whose machine has none.
const UNNAMED: &str = "unnamed";

/// Starts the loop that receives other nodes' notifications, if the store is shared.
pub fn start_listener(groups: &mut Groups, parts: &NodeParts) {
    if let Some(store) = parts.postgres.clone() {
        let (hints, owned) = (Arc::clone(&parts.hints), Arc::clone(&parts.owned));
        let leadership_freed = Arc::clone(&parts.leadership_freed);
        groups.claims.spawn("listener", |stop| listen(store, hints, owned, leadership_freed, stop));
    }
}

/// Starts the resolver, which frees tasks that wait for others to be settled.
pub fn start_resolver(groups: &mut Groups, parts: &NodeParts) {
    let resolver = ResolverLoop::new(parts.database.clone(), Arc::clone(&parts.hints));
    groups.cluster.spawn("resolver", |stop| resolver.run(stop));
}

/// Starts the loop that records this node's presence.
pub fn start_membership(groups: &mut Groups, parts: &NodeParts, address: SocketAddr) {
    let (skew, own) = (Arc::clone(&parts.skew), Arc::clone(&parts.own_presence));
    let me = own_presence(parts, address);
    let membership = Membership::new(parts.database.clone(), me, skew, parts.config.leader.renewal, own)
        .with_declared_gone(Arc::clone(&parts.declared_gone));
    groups.cluster.spawn("membership", |stop| membership.run(stop));
}

/// Starts the watch for nodes whose process has ended, if nodes share the store.
pub fn start_departure_watch(groups: &mut Groups, parts: &NodeParts) {
    if parts.postgres.is_some() {
        let (registry, coordinator) = (parts.database.clone(), Arc::clone(&parts.coordinator));
        let watch = DepartureWatch::new(registry, coordinator, parts.node, Arc::clone(&parts.declared_gone));
        groups.cluster.spawn("departure watch", |stop| watch.run(stop));
    }
}

/// Passes other nodes' notifications on to the dispatcher, the partition owner and the elector.
async fn listen(
    store: PostgresStore,
    hints: Arc<Hints>,
    owned: Arc<OwnedPartitions>,
    leadership_freed: Arc<Notify>,
    stop: CancellationToken,
) {
    let mut wakes = store.wakes();
    loop {
        let wake = tokio::select! {
            wake = wakes.next() => wake,
            () = stop.cancelled() => None,
        };
        match wake {
            Some(Wake::Lane(lane, due_at)) => hints.add([(&lane, due_at)]),
            Some(Wake::Partitions) => {
                owned.request_pass();
                leadership_freed.notify_one();
            }
            Some(Wake::Everything) => {
                hints.request_sweep();
                owned.request_pass();
                leadership_freed.notify_one();
            }
            None => return stop.cancelled().await,
        }
    }
}

/// Makes the store's tables ahead of time, until `stop`. The leader calls it.
pub async fn prepare_tables(store: PostgresStore, clock: Arc<dyn Clock>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        match store.upkeep(clock.now()).await {
            Ok(made) if made > 0 => tracing::info!(made, "made months of the history ahead"),
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(error = %error, "cannot make the coming months of the history; retrying in ten minutes");
            }
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(UPKEEP_INTERVAL) => {}
        }
    }
}

/// What this node reports of itself. Only a node with the API has an address for other programs.
fn own_presence(parts: &NodeParts, address: SocketAddr) -> NodePresence {
    let (config, now) = (&parts.config, parts.clock.now());
    NodePresence {
        id: parts.node,
        name: config.name.clone().unwrap_or_else(machine_name),
        address: if config.roles.contains(&Role::Api) { address.to_string() } else { String::new() },
        roles: config.roles.iter().map(ToString::to_string).collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        skew_millis: 0,
        lease: Some(config.leader.lease),
        first_seen_at: now,
        last_seen_at: now,
        session: NodeSession::Unknown,
        gone_at: None,
    }
}

fn machine_name() -> String {
    // Only Linux has the file; elsewhere the shell may have set the variable.
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::env::var("HOSTNAME"));
    let name = name.unwrap_or_default().trim().to_owned();
    if name.is_empty() { UNNAMED.to_owned() } else { name }
}
