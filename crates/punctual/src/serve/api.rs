//! The HTTP server: the API on a node with the role `api`, and the operations on every node.

use std::sync::Arc;
use std::time::Duration;

use punctual_api::cluster;
use punctual_api::presence::PresenceFlusher;
use punctual_api::readiness::{ProbeFault, Probes, ReadinessProbe};
use punctual_api::server::ServerLimits;
use punctual_api::site::AllowedHosts;
use punctual_api::state::LeaseMillis;
use punctual_api::{Api, ApiConfig, ApiParts, Operations};
use punctual_core::time::millis;
use punctual_scheduler::dispatch_status::DispatchStatus;
use punctual_scheduler::fairness::Aging;
use punctual_scheduler::polls::PollQueue;
use punctual_scheduler::settle::LeaseSettler;
use punctual_store::postgres::PostgresStore;
use tokio::net::TcpListener;

use super::groups::Groups;
use super::parts::NodeParts;

/// How long open requests may take to finish after the drain, if the drain is not shorter.
const HTTP_DRAIN_MAX: Duration = Duration::from_secs(5);

/// How often the presence of pull workers is written: other nodes know of a poll within a second,
/// and this one knows of it at once.
const SHARED_PRESENCE_INTERVAL: Duration = Duration::from_millis(800);
const OWN_PRESENCE_INTERVAL: Duration = Duration::from_secs(5);

/// Builds the API and serves it, with the loops that write the presence of pull workers, read that
/// of the nodes, and find awaited tasks that have finished.
pub fn start(
    groups: &mut Groups,
    parts: &NodeParts,
    operations: &Arc<Operations>,
    polls: PollQueue,
    listener: TcpListener,
) {
    let api = api(parts, Arc::clone(operations), polls);
    serve(groups, "api", punctual_api::router(&api), parts, listener);
    let (finishes, store) = (Arc::clone(&parts.finish_watch), Arc::clone(&parts.store));
    groups.http.spawn("finish watch", |stop| finishes.run(store, stop));
    let watched = api.clone();
    groups.http.spawn("cluster watch", |stop| cluster::watch(watched, stop));
    groups.http.spawn("presence", |stop| PresenceFlusher::new(api).run(stop));
}

/// Serves the operations alone.
pub fn start_operations(groups: &mut Groups, parts: &NodeParts, operations: &Arc<Operations>, listener: TcpListener) {
    serve(groups, "operations", punctual_api::operations_router(Arc::clone(operations)), parts, listener);
}

/// Liveness, readiness and metrics of this node.
pub fn operations(parts: &NodeParts) -> Operations {
    // Without a broker there is none to ask.
    let probes = Probes { broker: None, migrations: parts.postgres.clone().map(schema_probe) };
    let deadline = parts.config.limits.request_timeout;
    Operations::new(Arc::clone(&parts.store), parts.metrics.clone(), probes, deadline)
        .with_allowed_hosts(AllowedHosts::new(parts.config.allowed_hosts.clone()))
}

/// Only a shared store needs it. The embedded one belongs to this process, and its schema is
/// current since it was opened; another process may revert a shared one.
fn schema_probe(store: PostgresStore) -> ReadinessProbe {
    Arc::new(move || {
        let store = store.clone();
        Box::pin(async move {
            match store.missing_migrations().await {
                Ok(None) => Ok(()),
                Ok(Some(older)) => Err(ProbeFault::Failed(older.to_string())),
                Err(error) => Err(ProbeFault::NoAnswer(error.to_string())),
            }
        })
    })
}

fn serve(groups: &mut Groups, name: &'static str, app: axum::Router, parts: &NodeParts, listener: TcpListener) {
    let limits = server_limits(parts);
    groups.http.spawn(name, |stop| async move {
        if let Err(error) = punctual_api::server::serve(listener, app, limits, stop).await {
            tracing::error!(error = %error, "the HTTP server failed; the node shuts down");
        }
    });
}

fn server_limits(parts: &NodeParts) -> ServerLimits {
    ServerLimits {
        connections: parts.config.limits.connections,
        header_read: parts.config.limits.header_read_timeout,
        unread: parts.config.limits.unread_timeout,
        drain: HTTP_DRAIN_MAX.min(parts.config.shutdown.drain),
        ..ServerLimits::default()
    }
    .within_open_files()
}

fn api(parts: &NodeParts, operations: Arc<Operations>, polls: PollQueue) -> Api {
    let settler = LeaseSettler::new(Arc::clone(&parts.store), Arc::clone(&parts.clock), parts.node);
    Api::new(ApiParts {
        store: Arc::clone(&parts.store),
        schedules: Arc::clone(&parts.schedules),
        coordinator: Arc::clone(&parts.coordinator),
        database: Arc::clone(&parts.database),
        dispatch_status: dispatch_status(parts),
        finish_watch: Arc::clone(&parts.finish_watch),
        polls,
        settler: settler.with_circuits(Arc::clone(&parts.circuits)),
        clock: Arc::clone(&parts.clock),
        node: parts.node,
        config: api_config(parts),
        operations,
    })
}

fn api_config(parts: &NodeParts) -> ApiConfig {
    let (limits, leases) = (&parts.config.limits, &parts.config.leases);
    ApiConfig {
        submission: parts.submission_rules(),
        body_bytes: limits.body_bytes,
        batch_body_bytes: limits.batch_bytes,
        batch_tasks: limits.batch_tasks,
        requests_in_flight: limits.requests_in_flight,
        bodies_bytes: limits.bodies_bytes,
        answers_bytes: limits.answers_bytes,
        waiting_workers: limits.waiting_workers,
        waiting_clients: limits.waiting_clients,
        worker_lost_after: parts.config.workers.lost_after,
        leases: LeaseMillis { default: millis(leases.default), max: millis(leases.max) },
        presence_interval: if parts.postgres.is_some() { SHARED_PRESENCE_INTERVAL } else { OWN_PRESENCE_INTERVAL },
        node_lease: parts.config.leader.lease,
    }
}

fn dispatch_status(parts: &NodeParts) -> DispatchStatus {
    let (owned, targets, config) = (Arc::clone(&parts.owned), Arc::clone(&parts.targets), &parts.config);
    DispatchStatus::new(owned, targets, config.scheduler.backlog_per_second, Aging::new(config.fairness.aging))
        .with_breakers(config.breakers.enabled)
}
