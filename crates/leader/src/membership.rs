//! This node's sign of life, so that others can tell when it is dead.

use std::sync::Arc;
use std::time::Duration;

use punctual_core::ids::NodeId;
use punctual_core::workers::Registry;
use tokio_util::sync::CancellationToken;

/// Tells the registry that this node lives.
pub struct Membership {
    registry: Arc<dyn Registry>,
    node: NodeId,
    interval: Duration,
}

impl Membership {
    /// A sign of life every `interval`.
    pub fn new(registry: Arc<dyn Registry>, node: NodeId, interval: Duration) -> Self {
        Self { registry, node, interval }
    }

    /// Gives signs of life until told to stop. The first is given before anything else is done.
    pub async fn run(self, shutdown: CancellationToken) {
        while !shutdown.is_cancelled() {
            if let Err(error) = self.registry.saw_node(self.node).await {
                tracing::warn!(error = %error, "could not give a sign of life");
            }
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = tokio::time::sleep(self.interval) => {}
            }
        }
    }
}
