//! The nodes that share the store, and what they own.
//!
//! Operators ask for them most when the store is away. So the last answer is kept, with its age,
//! and a loop keeps it fresh whether anybody asks or not.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use punctual_core::coordinator::LEADER;
use punctual_core::ids::NodeId;
use punctual_core::partitions::Ownership;
use punctual_core::registry::NodePresence;
use punctual_core::store::StoreError;
use punctual_core::time::Timestamp;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::state::Api;

/// How often the loop reads.
const WATCH_INTERVAL: Duration = Duration::from_secs(5);
/// How often it reads until it has found its own node, which is recorded when it starts.
const FIRST_WATCH_INTERVAL: Duration = Duration::from_millis(250);
/// How long a read may take before the last one is shown instead.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// The nodes and what they own, as one read.
#[derive(Clone, Debug)]
pub struct ClusterSnapshot {
    /// The node that leads.
    pub leader: Option<NodeId>,
    /// Every partition that was ever owned.
    pub ownership: Vec<Ownership>,
    /// The nodes.
    pub nodes: Vec<NodePresence>,
    /// When it was read, by the store's clock.
    pub at: Timestamp,
    read_at: Instant,
}

/// The last snapshot (see the module).
#[derive(Debug, Default)]
pub struct ClusterCache(Mutex<Option<Arc<ClusterSnapshot>>>);

/// The nodes and what they own: as of now with no age, or the last ones with their age if the store
/// does not answer.
pub async fn read(api: &Api) -> Result<(Arc<ClusterSnapshot>, Option<Duration>), StoreError> {
    let fault = match tokio::time::timeout(READ_TIMEOUT, ask(api)).await {
        Ok(Ok(snapshot)) => {
            let snapshot = Arc::new(snapshot);
            *api.cluster.0.lock() = Some(Arc::clone(&snapshot));
            return Ok((snapshot, None));
        }
        Ok(Err(fault)) => fault,
        Err(_) => StoreError::Unavailable("no answer in time".to_owned()),
    };
    let last = api.cluster.0.lock().clone().ok_or(fault)?;
    let age = last.read_at.elapsed();
    Ok((last, Some(age)))
}

async fn ask(api: &Api) -> Result<ClusterSnapshot, StoreError> {
    let (leader, ownership, nodes) =
        tokio::try_join!(api.coordinator.holder(LEADER), api.coordinator.ownership(), api.database.nodes())?;
    let leader = leader.map(|held| held.lease.holder);
    Ok(ClusterSnapshot { leader, ownership, nodes, at: api.clock.now(), read_at: Instant::now() })
}

/// Keeps the last snapshot fresh until `stop`.
pub async fn watch(api: Api, stop: CancellationToken) {
    while !stop.is_cancelled() {
        // If it fails, the last snapshot stays, and is shown with its age.
        let found = read(&api).await;
        let is_known = found.is_ok_and(|(snapshot, _)| snapshot.nodes.iter().any(|node| node.id == api.node));
        let pause = if is_known { WATCH_INTERVAL } else { FIRST_WATCH_INTERVAL };
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use punctual_core::registry::Registry;

    use super::*;
    use crate::testing::{World, node};

    /// It is recorded a moment after the first read.
    #[tokio::test]
    async fn this_node_is_in_memory_soon_after_its_start() {
        let (world, stop) = (World::new(), CancellationToken::new());
        let watching = tokio::spawn(watch(world.api.clone(), stop.clone()));
        let until_known = async |nodes: usize| {
            let is_known = || world.api.cluster.0.lock().as_ref().is_some_and(|last| last.nodes.len() == nodes);
            while !is_known() {
                tokio::task::yield_now().await;
            }
        };
        until_known(0).await;
        world.sqlite.record_node(node(world.api.node)).await.unwrap();
        let before_the_next_read = WATCH_INTERVAL * 4 / 5;
        tokio::time::timeout(before_the_next_read, until_known(1)).await.expect("it is found");
        stop.cancel();
        watching.await.unwrap();
    }
}
