//! What every node serves, whatever its roles: liveness, readiness and metrics.
//!
//! The binary makes one per process. [`crate::operations_router`] serves it alone; on a node with
//! the role `api` the [`Api`] holds it and serves it among its own routes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::extract::FromRef;
use punctual_auth::Principal;
use punctual_core::store::Store;

use crate::auth::Authenticator;
use crate::cpu_pool::CpuPool;
use crate::metrics::{Metrics, TaskCounts};
use crate::readiness::{Probes, ReadinessChecker};
use crate::site::AllowedHosts;
use crate::state::Api;

/// The state of the routes that every node serves.
pub struct Operations {
    /// The metrics of the process; every role counts in a clone of them.
    pub metrics: Metrics,
    /// The tasks by state, for the metrics, at most a few seconds old.
    pub counts: TaskCounts,
    /// Whether this node can serve.
    pub readiness: ReadinessChecker,
    /// How long a request may take once its body has arrived, the wait of a long poll not counted.
    pub request_deadline: Duration,
    /// The hosts that requests may be for while authentication is off.
    pub allowed_hosts: AllowedHosts,
    /// Knows the callers; none while authentication is off.
    pub auth: Option<Arc<Authenticator>>,
    /// The caller of every request while authentication is off.
    pub(crate) anyone: Arc<Principal>,
    /// Where answers are compressed.
    pub(crate) encoding_pool: CpuPool,
    draining: AtomicBool,
}

impl Operations {
    /// The operations of a node on `store`. Readiness checks the store and `probes`.
    pub fn new(store: Arc<dyn Store>, metrics: Metrics, probes: Probes, request_deadline: Duration) -> Self {
        Self {
            counts: TaskCounts::new(Arc::clone(&store), &metrics),
            metrics,
            readiness: ReadinessChecker::new(store, probes),
            request_deadline,
            allowed_hosts: AllowedHosts::default(),
            auth: None,
            anyone: Arc::new(Principal::anyone()),
            encoding_pool: CpuPool::default(),
            draining: AtomicBool::new(false),
        }
    }

    /// Allows requests for more hosts than IP addresses and `localhost`.
    #[must_use]
    pub fn with_allowed_hosts(self, allowed_hosts: AllowedHosts) -> Self {
        Self { allowed_hosts, ..self }
    }

    /// Turns authentication on.
    #[must_use]
    pub fn with_auth(self, auth: Arc<Authenticator>) -> Self {
        Self { auth: Some(auth), ..self }
    }

    /// Reports this node as not ready from now on, so that load balancers send it no more requests.
    /// Requests that come are still served.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Whether [`Operations::drain`] was called.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }
}

impl FromRef<Api> for Arc<Operations> {
    fn from_ref(api: &Api) -> Self {
        Arc::clone(&api.operations)
    }
}
