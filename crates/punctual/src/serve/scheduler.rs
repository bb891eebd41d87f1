//! The role `scheduler`: owns partitions, finds due tasks and claims them.
//!
//! Nodes with the role `api` run the dispatcher too, for pull workers. Every node watches breakers
//! and queues.

use std::sync::Arc;
use std::time::Duration;

use punctual_scheduler::breakers::{self, BreakerWatch};
use punctual_scheduler::dispatcher::{self, Dispatcher};
use punctual_scheduler::ownership::{self, OwnershipLoop};
use punctual_scheduler::polls::PollQueue;
use punctual_scheduler::queue_watch::QueueWatch;
use punctual_scheduler::webhook_path::WebhookPath;

use super::groups::Groups;
use super::parts::NodeParts;

/// Tasks for waiting pull workers are claimed this long before they are due. Nearly every claim is
/// written by then, even during a flood of other writes.
const CLAIM_AHEAD: Duration = Duration::from_millis(20);

/// How long a breaker must be seen as failing before it opens, if several nodes count: each shares
/// its counts every second.
const BREAKER_CONFIRMATION: Duration = Duration::from_millis(2_500);

/// Takes partitions, and starts the loop that keeps them.
pub async fn start_partition_owner(groups: &mut Groups, parts: &NodeParts) -> anyhow::Result<()> {
    check_partitions(parts).await?;
    let owner = partition_owner(parts);
    if let Err(error) = owner.run_once().await {
        tracing::warn!(error = %error, "cannot take partitions; retrying within a second");
    }
    groups.partitions.spawn("partition owner", |stop| owner.run(stop));
    Ok(())
}

/// Reads the open circuit breakers, and starts the loop that opens and refreshes them.
pub async fn start_breaker_watch(groups: &mut Groups, parts: &NodeParts) {
    let mut watch = breaker_watch(parts);
    if let Err(error) = watch.run_once().await {
        tracing::warn!(error = %error, "cannot read the circuit breakers; retrying within a second");
    }
    groups.cluster.spawn("breaker watch", |stop| watch.run(stop));
}

/// Starts the dispatcher. Returns the queue in which pull workers poll it.
pub fn start_dispatcher(groups: &mut Groups, parts: &NodeParts, webhooks: WebhookPath) -> PollQueue {
    let (dispatcher, polls) = dispatcher(parts, webhooks);
    groups.claims.spawn("dispatcher", |stop| dispatcher.run(stop));
    polls
}

/// Reads the settings of the queues, and starts the loop that refreshes them.
pub async fn start_queue_watch(groups: &mut Groups, parts: &NodeParts) {
    let watch = QueueWatch::new(parts.database.clone(), parts.queue_cache.clone(), Arc::clone(&parts.hints));
    if let Err(error) = watch.run_once().await {
        tracing::warn!(error = %error, "cannot read the settings of the queues; retrying within a second");
    }
    groups.claims.spawn("queue watch", |stop| watch.run(stop));
}

/// With different numbers of partitions some queues would have no dispatcher.
async fn check_partitions(parts: &NodeParts) -> anyhow::Result<()> {
    let count = parts.config.scheduler.partitions;
    let Ok(rows) = parts.coordinator.ownership().await else { return Ok(()) };
    if let Some(theirs) = ownership::another_count(&rows, count, parts.clock.now()) {
        anyhow::bail!(
            "scheduler.partitions is {count} here, but {theirs} on the nodes that run on this store: it must be the same \
             on all of them. To change it, end them all first"
        );
    }
    Ok(())
}

fn partition_owner(parts: &NodeParts) -> OwnershipLoop {
    let config = ownership::Config {
        count: parts.config.scheduler.partitions,
        lease: parts.config.leader.lease,
        renewal: parts.config.leader.renewal,
    };
    let (coordinator, owned) = (Arc::clone(&parts.coordinator), Arc::clone(&parts.owned));
    OwnershipLoop::new(coordinator, owned, Arc::clone(&parts.clock), parts.node, config)
}

fn breaker_watch(parts: &NodeParts) -> BreakerWatch {
    let settings = &parts.config.breakers;
    let config = breakers::Config {
        rules: settings.rules(),
        probe_millis: settings.probe_millis(),
        confirm: if parts.postgres.is_some() { BREAKER_CONFIRMATION } else { Duration::ZERO },
    };
    let (store, circuits, hints) = (Arc::clone(&parts.database), Arc::clone(&parts.circuits), Arc::clone(&parts.hints));
    BreakerWatch::new(store, circuits, hints, Arc::clone(&parts.clock), parts.node, config)
}

fn dispatcher(parts: &NodeParts, webhooks: WebhookPath) -> (Dispatcher, PollQueue) {
    let deps = dispatcher::Deps {
        store: Arc::clone(&parts.store),
        webhooks,
        clock: Arc::clone(&parts.clock),
        hints: Arc::clone(&parts.hints),
        targets: Arc::clone(&parts.targets),
        owned: Arc::clone(&parts.owned),
        circuits: Arc::clone(&parts.circuits),
        waits: Arc::clone(&parts.waits),
        node: parts.node,
    };
    let settings = &parts.config.scheduler;
    let config = dispatcher::Config {
        prefetch_window: settings.prefetch_window,
        sweep_interval: settings.sweep_interval,
        claim_ahead: CLAIM_AHEAD,
        claim_batch: settings.claim_batch,
        visibility: settings.visibility,
        waiting_workers: parts.config.limits.waiting_workers,
        backlog_per_second: settings.backlog_per_second,
        fairness: parts.config.fairness.clone(),
    };
    Dispatcher::new(deps, config)
}
