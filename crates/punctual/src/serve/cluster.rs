//! What a node does because other nodes use the same store. It listens to their notifications, and
//! as the leader it makes tables ahead of time. `running` starts both.

use std::sync::Arc;
use std::time::Duration;

use punctual_core::clock::Clock;
use punctual_scheduler::hints::Hints;
use punctual_scheduler::ownership::OwnedPartitions;
use punctual_store::postgres::{PostgresStore, Wake};
use tokio_util::sync::CancellationToken;

/// The time between two passes over the tables. The months of the history are made weeks ahead.
const UPKEEP_INTERVAL: Duration = Duration::from_mins(10);

/// Passes on other nodes' notifications of waiting tasks and free partitions, until told to stop.
pub async fn listen(store: PostgresStore, hints: Arc<Hints>, owned: Arc<OwnedPartitions>, stop: CancellationToken) {
    let mut wakes = store.wakes();
    loop {
        let wake = tokio::select! {
            wake = wakes.next() => wake,
            () = stop.cancelled() => None,
        };
        match wake {
            Some(Wake::Lane(lane, due_at)) => hints.add([(&lane, due_at)]),
            Some(Wake::Partitions) => owned.request_pass(),
            Some(Wake::Everything) => {
                hints.request_sweep();
                owned.request_pass();
            }
            None => return stop.cancelled().await,
        }
    }
}

/// Makes the store's tables ahead of time, until told to stop.
pub async fn tend(store: PostgresStore, clock: Arc<dyn Clock>, stop: CancellationToken) {
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
