//! What a node does because others work on the same store: it listens to them, and as their leader tends the tables.

use std::sync::Arc;
use std::time::Duration;

use punctual_core::clock::Clock;
use punctual_scheduler::hints::Hints;
use punctual_scheduler::ownership::Owned;
use punctual_store::postgres::{PostgresStore, Wake};
use tokio_util::sync::CancellationToken;

/// How often the tables are tended: the months of the history are made weeks ahead.
const TENDING: Duration = Duration::from_mins(10);

/// Passes on what other nodes tell of tasks that wait and of partitions that are free, until told to stop.
pub async fn listen(store: PostgresStore, hints: Arc<Hints>, owned: Arc<Owned>, stop: CancellationToken) {
    let mut wakes = store.wakes();
    loop {
        let wake = tokio::select! {
            wake = wakes.next() => wake,
            () = stop.cancelled() => None,
        };
        match wake {
            Some(Wake::Lane(lane, due_at)) => hints.add([(&lane, due_at)]),
            Some(Wake::Partitions) => owned.nudge(),
            Some(Wake::Everything) => {
                hints.look_everywhere();
                owned.nudge();
            }
            None => return stop.cancelled().await,
        }
    }
}

/// Tends the tables of the store, until told to stop.
pub async fn tend(store: PostgresStore, clock: Arc<dyn Clock>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        match store.upkeep(clock.now()).await {
            Ok(made) if made > 0 => tracing::info!(made, "made months of the history ahead"),
            Ok(_) => {}
            Err(error) => tracing::warn!(error = %error, "the tables could not be tended"),
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(TENDING) => {}
        }
    }
}
