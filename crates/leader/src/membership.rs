//! This node's sign of life, so that others can tell when it is dead, and what it says of itself.

use std::sync::Arc;
use std::time::Duration;

use punctual_core::workers::{NodeSighting, Registry};
use tokio_util::sync::CancellationToken;

/// How far this node's wall clock is ahead of the store's at the moment, in milliseconds.
pub type Skew = Arc<dyn Fn() -> i64 + Send + Sync>;

/// When a sign that could not be given is given again, at the latest: before a leader that is back with the store takes
/// this node for dead.
const AGAIN: Duration = Duration::from_secs(1);

/// Tells the registry that this node lives.
pub struct Membership {
    registry: Arc<dyn Registry>,
    me: NodeSighting,
    skew: Skew,
    interval: Duration,
}

impl Membership {
    /// A sign of life every `interval`, with what `me` says of this node; the instants in it are the registry's to fill
    /// in, and its skew is asked for anew each time.
    pub fn new(registry: Arc<dyn Registry>, me: NodeSighting, skew: Skew, interval: Duration) -> Self {
        Self { registry, me, skew, interval }
    }

    /// Gives signs of life until told to stop. The first is given before anything else is done.
    pub async fn run(self, shutdown: CancellationToken) {
        while !shutdown.is_cancelled() {
            let sighting = NodeSighting { skew_millis: (self.skew)(), ..self.me.clone() };
            let mut pause = self.interval;
            if let Err(error) = self.registry.saw_node(sighting).await {
                tracing::warn!(error = %error, "could not give a sign of life");
                pause = pause.min(AGAIN);
            }
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }
}
