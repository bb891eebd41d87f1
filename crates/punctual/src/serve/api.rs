//! The HTTP server: the API on a node with the role `api`, and the operations on every node.

use std::sync::Arc;
use std::time::Duration;

use punctual_api::auth::{AuthConfig, Authenticator};
use punctual_api::cluster;
use punctual_api::presence::PresenceFlusher;
use punctual_api::readiness::{ProbeFault, Probes, ReadinessProbe};
use punctual_api::server::tls::{TlsIdentity, TlsReloader};
use punctual_api::server::{ServerLimits, ServerSetup};
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
use super::running::Listeners;
use super::tokens;

/// How long open requests may take to finish after the drain, if the drain is not shorter.
const HTTP_DRAIN_MAX: Duration = Duration::from_secs(5);

/// Connections of the listener for operators. They fit into the open files that are kept free.
const OPERATOR_CONNECTIONS_MAX: usize = 256;

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
    listeners: Listeners,
) {
    let api = api(parts, Arc::clone(operations), polls);
    let Listeners { main, admin, tls } = listeners;
    let routes = match admin {
        Some(admin) => {
            serve_operators(groups, punctual_api::operator_router(&api), parts, admin, tls.clone());
            punctual_api::client_router(&api)
        }
        None => punctual_api::router(&api),
    };
    serve(groups, "api", routes, main, setup(parts, tls.clone()));
    watch_tls(groups, parts, tls);
    note_key_uses(groups, operations);
    let (finishes, store) = (Arc::clone(&parts.finish_watch), Arc::clone(&parts.store));
    groups.http.spawn("finish watch", |stop| finishes.run(store, stop));
    let watched = api.clone();
    groups.http.spawn("cluster watch", |stop| cluster::watch(watched, stop));
    groups.http.spawn("presence", |stop| PresenceFlusher::new(api).run(stop));
}

/// Serves the operations alone.
pub fn start_operations(groups: &mut Groups, parts: &NodeParts, operations: &Arc<Operations>, listeners: Listeners) {
    let Listeners { main, admin, tls } = listeners;
    let all = punctual_api::operations_router(Arc::clone(operations));
    let routes = match admin {
        Some(admin) => {
            serve_operators(groups, all, parts, admin, tls.clone());
            punctual_api::health_router(Arc::clone(operations))
        }
        None => all,
    };
    serve(groups, "operations", routes, main, setup(parts, tls.clone()));
    watch_tls(groups, parts, tls);
    note_key_uses(groups, operations);
}

/// Serves operators on a listener of their own, with connections of its own.
fn serve_operators(
    groups: &mut Groups,
    routes: axum::Router,
    parts: &NodeParts,
    listener: TcpListener,
    tls: Option<Arc<TlsIdentity>>,
) {
    let ServerSetup { limits, tls, metrics } = setup(parts, tls);
    let connections = limits.connections.min(OPERATOR_CONNECTIONS_MAX);
    let limits = ServerLimits { connections, connections_per_address: connections, ..limits };
    serve(groups, "operators", routes, listener, ServerSetup { limits, tls, metrics });
}

/// Takes over new certificates, and warns of one that clients refuse.
fn watch_tls(groups: &mut Groups, parts: &NodeParts, tls: Option<Arc<TlsIdentity>>) {
    if let Some(identity) = tls {
        let now = u64::try_from(parts.clock.now().as_millis() / 1_000).unwrap_or_default();
        if identity.expires_at() <= now {
            tracing::warn!("the certificate in tls.cert_file has expired, so clients refuse it; renew it");
        }
        let reloader = TlsReloader::new(identity, parts.metrics.connections.clone());
        groups.http.spawn("TLS reloader", |stop| reloader.run(stop));
    }
}

/// Liveness, readiness and metrics of this node.
pub fn operations(parts: &NodeParts) -> anyhow::Result<Operations> {
    // Without a broker there is none to ask.
    let probes = Probes { broker: None, migrations: parts.postgres.clone().map(schema_probe) };
    let deadline = parts.config.limits.request_timeout;
    let operations = Operations::new(Arc::clone(&parts.store), parts.metrics.clone(), probes, deadline)
        .with_allowed_hosts(AllowedHosts::new(parts.config.allowed_hosts.clone()));
    let auth = &parts.config.auth;
    if !auth.enabled {
        return Ok(operations);
    }
    let config = AuthConfig {
        signed_requests: auth.signed_requests,
        public_metrics: auth.public_metrics,
        certificates: auth.certificates.clone(),
    };
    let mut authenticator = Authenticator::new(parts.database.clone(), Arc::clone(&parts.clock), config);
    if let Some(settings) = &parts.config.tokens {
        authenticator = authenticator.with_tokens(tokens::bearers(settings)?);
    }
    Ok(operations.with_auth(Arc::new(authenticator)))
}

/// Writes when keys were last used, if there are keys.
fn note_key_uses(groups: &mut Groups, operations: &Operations) {
    if let Some(auth) = operations.auth.clone() {
        groups.http.spawn("key uses", |stop| auth.run(stop));
    }
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

fn serve(groups: &mut Groups, name: &'static str, app: axum::Router, listener: TcpListener, setup: ServerSetup) {
    groups.http.spawn(name, |stop| async move {
        if let Err(error) = punctual_api::server::serve(listener, app, setup, stop).await {
            tracing::error!(error = %error, "the HTTP server failed; the node shuts down");
        }
    });
}

fn setup(parts: &NodeParts, tls: Option<Arc<TlsIdentity>>) -> ServerSetup {
    let limits = ServerLimits {
        connections: parts.config.limits.connections,
        connections_per_address: parts.config.limits.connections_per_address,
        header_read: parts.config.limits.header_read_timeout,
        unread: parts.config.limits.unread_timeout,
        drain: HTTP_DRAIN_MAX.min(parts.config.shutdown.drain),
        ..ServerLimits::default()
    }
    .within_open_files();
    ServerSetup { limits, tls, metrics: parts.metrics.connections.clone() }
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
