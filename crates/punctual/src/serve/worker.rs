//! The role `worker`: runs webhooks.

use std::sync::Arc;

use punctual_worker::{Config, Consumer, Deps};

use super::groups::Groups;
use super::parts::NodeParts;

/// Starts the consumer of the broker.
pub fn start(groups: &mut Groups, parts: &NodeParts) {
    let consumer = consumer(parts);
    groups.webhooks.spawn("worker", |stop| async move {
        let report = consumer.run(stop).await;
        tracing::info!(drained = report.drained, given_back = report.given_back, "webhooks drained");
    });
}

fn consumer(parts: &NodeParts) -> Consumer {
    let deps = Deps {
        store: Arc::clone(&parts.store),
        broker: Arc::clone(&parts.broker),
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
        broker_ends_with_us: true,
        ..Config::named(format!("worker_{:016x}", parts.node.number()))
    };
    Consumer::new(deps, config)
}
