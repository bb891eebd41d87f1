//! The role `worker`: runs webhooks.

use std::sync::Arc;

use punctual_worker::{Config, Deps, WebhookWorker};

use super::groups::Groups;
use super::parts::NodeParts;

/// The worker that the dispatcher of this node hands runs over to.
pub fn worker(parts: &NodeParts) -> WebhookWorker {
    let deps = Deps {
        store: Arc::clone(&parts.store),
        secrets: parts.database.clone(),
        clock: Arc::clone(&parts.clock),
        targets: Arc::clone(&parts.targets),
        circuits: Arc::clone(&parts.circuits),
        webhooks: parts.webhooks.clone(),
        stats: Arc::clone(&parts.worker_stats),
        node: parts.node,
    };
    let config = Config {
        concurrency: parts.config.webhooks.concurrency,
        drain: parts.config.shutdown.drain,
        ..Config::named(format!("worker_{:016x}", parts.node.number()))
    };
    WebhookWorker::new(deps, config)
}

/// Starts the worker.
pub fn start(groups: &mut Groups, worker: WebhookWorker) {
    groups.webhooks.spawn("worker", |stop| async move {
        let report = worker.run(stop).await;
        tracing::info!(drained = report.drained, given_back = report.given_back, "webhooks drained");
    });
}
