//! What this crate's tests share: a store and a registry in memory, and an interface over them.

mod store;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode, header};
use axum::response::Response;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use punctual_core::broker::{Broker, BrokerError, Message, Subscription};
use punctual_core::clock::{Clock, ManualClock};
use punctual_core::ids::NodeId;
use punctual_core::store::{Store, StoreError};
use punctual_core::time::Timestamp;
use punctual_core::workers::{Registry, WorkerSighting};
use punctual_scheduler::desk::Desk;
use punctual_scheduler::dispatcher::{Config, Deps, Dispatcher};
use punctual_scheduler::hints::Hints;
use punctual_scheduler::settle::Settler;
use punctual_scheduler::targets::Targets;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::metrics::Metrics;
use crate::readiness::Probes;
use crate::state::{Api, ApiConfig, Parts};

pub(crate) use store::MemoryStore;

/// 2026-05-22T18:00:00Z, where the clock stands at first.
pub(crate) const START: Timestamp = Timestamp::from_millis(1_779_472_800_000);

/// An interface over memory.
pub(crate) struct World {
    pub api: Api,
    pub router: axum::Router,
    pub store: Arc<MemoryStore>,
    pub clock: Arc<ManualClock>,
    /// Closes the desk.
    pub shutdown: CancellationToken,
}

impl World {
    pub fn new() -> Self {
        Self::with(ApiConfig::default(), Probes::default())
    }

    pub fn with(config: ApiConfig, probes: Probes) -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let shutdown = CancellationToken::new();
        let desk = desk(store.clone(), clock.clone(), shutdown.clone());
        let parts = Parts {
            store: store.clone(),
            registry: Arc::new(MemoryRegistry::default()),
            desk,
            settler: Settler::new(store.clone(), clock.clone(), NodeId::new(1)),
            clock: clock.clone(),
            node: NodeId::new(1),
            config,
            metrics: Metrics::new(START),
            probes,
        };
        let api = Api::new(parts);
        Self { router: crate::router(api.clone()), api, store, clock, shutdown }
    }

    /// Sends a request with a JSON body, or none.
    pub async fn send(&self, method: &str, path: &str, body: Option<Value>) -> Answer {
        let request = Request::builder().method(method).uri(path);
        let request = match body {
            Some(body) => request.header(header::CONTENT_TYPE, "application/json").body(Body::from(body.to_string())),
            None => request.body(Body::empty()),
        };
        self.call(request.unwrap()).await
    }

    /// Sends any request.
    pub async fn call(&self, request: Request<Body>) -> Answer {
        Answer::of(self.router.clone().oneshot(request).await.unwrap()).await
    }
}

/// A dispatcher at work, and its desk.
fn desk(store: Arc<dyn Store>, clock: Arc<dyn Clock>, shutdown: CancellationToken) -> Desk {
    let seconds = std::time::Duration::from_secs;
    let deps = Deps {
        store,
        broker: Arc::new(NoBroker),
        clock,
        hints: Arc::new(Hints::default()),
        targets: Arc::new(Targets::new(1, 1_000)),
        node: NodeId::new(1),
    };
    let config = Config {
        prefetch_window: seconds(60),
        sweep_interval: std::time::Duration::from_millis(1),
        claim_batch: 1_000,
        visibility: seconds(60),
        waiting_workers: 100,
        push: false,
    };
    let (dispatcher, desk) = Dispatcher::new(deps, config);
    tokio::spawn(dispatcher.run(shutdown));
    desk
}

/// An answer, read to its end.
pub(crate) struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

impl Answer {
    pub async fn of(response: Response) -> Self {
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        Self { status, headers, text: String::from_utf8(body.to_vec()).unwrap() }
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {:?}", self.text))
    }

    /// The `code` of the problem it must be.
    pub fn problem(&self) -> String {
        assert_eq!(self.headers[header::CONTENT_TYPE], "application/problem+json", "{}", self.text);
        let problem = self.json();
        assert_eq!(problem["status"], self.status.as_u16());
        problem["code"].as_str().unwrap().to_owned()
    }
}

/// Workers in memory.
#[derive(Default)]
pub(crate) struct MemoryRegistry(Mutex<BTreeMap<(String, String), WorkerSighting>>);

#[async_trait]
impl Registry for MemoryRegistry {
    async fn saw_workers(&self, sightings: Vec<WorkerSighting>) -> Result<(), StoreError> {
        let mut workers = self.0.lock();
        for sighting in sightings {
            let key = (sighting.tenant.clone(), sighting.name.clone());
            let first_seen_at = workers.get(&key).map_or(sighting.first_seen_at, |known| known.first_seen_at);
            workers.insert(key, WorkerSighting { first_seen_at, ..sighting });
        }
        Ok(())
    }

    async fn workers(
        &self,
        tenant: &str,
        after: Option<String>,
        limit: usize,
    ) -> Result<Vec<WorkerSighting>, StoreError> {
        let workers = self.0.lock();
        let of = workers.values().filter(|worker| worker.tenant == tenant);
        Ok(of.filter(|worker| after.as_ref().is_none_or(|after| worker.name > *after)).take(limit).cloned().collect())
    }

    async fn forget_workers(&self, _: Timestamp) -> Result<u64, StoreError> {
        Ok(0)
    }

    async fn saw_node(&self, _: NodeId) -> Result<(), StoreError> {
        Ok(())
    }

    async fn dead_nodes(&self, _: Timestamp) -> Result<Vec<NodeId>, StoreError> {
        Ok(Vec::new())
    }

    async fn bury(&self, _: NodeId) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A broker that takes nothing: these tests push nothing.
struct NoBroker;

#[async_trait]
impl Broker for NoBroker {
    async fn publish(&self, _: Vec<Message>) -> Result<(), BrokerError> {
        Err(BrokerError::Full)
    }

    async fn subscribe(&self, _: &str, _: usize) -> Result<Box<dyn Subscription>, BrokerError> {
        Err(BrokerError::Full)
    }

    async fn depth(&self, _: &str) -> Result<usize, BrokerError> {
        Ok(0)
    }

    async fn room(&self, _: &str) -> Result<usize, BrokerError> {
        Ok(0)
    }

    async fn wait_for_room(&self, _: &str) {
        std::future::pending::<()>().await;
    }

    async fn close(&self) {}
}
