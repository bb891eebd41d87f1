//! The fixture of this crate's tests: a store in a temporary directory, and an interface over it.

mod store;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode, header};
use axum::response::Response;
use http_body_util::BodyExt;
use punctual_broker::embedded::EmbeddedBroker;
use punctual_core::clock::{Clock, ManualClock};
use punctual_core::ids::NodeId;
use punctual_core::store::Store;
use punctual_core::time::Timestamp;
use punctual_scheduler::dispatch_status::DispatchStatus;
use punctual_scheduler::dispatcher::{Config, Deps, Dispatcher};
use punctual_scheduler::fairness::Aging;
use punctual_scheduler::hints::Hints;
use punctual_scheduler::notifying_store::NotifyingStore;
use punctual_scheduler::ownership::OwnedPartitions;
use punctual_scheduler::polls::PollQueue;
use punctual_scheduler::settle::LeaseSettler;
use punctual_scheduler::targets::Targets;
use punctual_store::sqlite::{Options, SqliteStore};
use serde_json::Value;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::metrics::Metrics;
use crate::operations::Operations;
use crate::readiness::Probes;
use crate::state::{Api, ApiConfig, ApiParts};

pub(crate) use store::FailingStore;

/// 2026-05-22T18:00:00Z, where the clock stands at first.
pub(crate) const START: Timestamp = Timestamp::from_millis(1_779_472_800_000);

/// How long a request may take.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

const NODE: NodeId = NodeId::new(1);

/// An interface over a store of its own.
pub(crate) struct World {
    pub api: Api,
    pub router: axum::Router,
    pub store: Arc<FailingStore>,
    /// The store behind it, which does not fail.
    pub sqlite: Arc<SqliteStore>,
    pub clock: Arc<ManualClock>,
    /// Closes the poll queue.
    pub shutdown: CancellationToken,
    _directory: TempDir,
}

impl World {
    pub fn new() -> Self {
        Self::with(ApiConfig::default(), Probes::default())
    }

    pub fn with(config: ApiConfig, probes: Probes) -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let directory = TempDir::new().unwrap();
        let sqlite = SqliteStore::open(directory.path(), clock.clone(), NODE, Options::default());
        let sqlite = Arc::new(sqlite.unwrap());
        let hints = Arc::new(Hints::default());
        let waking = NotifyingStore::new(sqlite.clone(), sqlite.clone(), hints.clone(), Arc::default());
        let store = Arc::new(FailingStore::new(Arc::new(waking)));
        let shutdown = CancellationToken::new();
        let polls = polls(store.clone(), clock.clone(), hints, shutdown.clone());
        let operations = Operations::new(store.clone(), Metrics::new(START), probes, DEADLINE);
        let parts = ApiParts {
            store: store.clone(),
            coordinator: sqlite.clone(),
            database: sqlite.clone(),
            dispatch_status: DispatchStatus::new(
                Arc::new(OwnedPartitions::nothing(1)),
                Arc::new(Targets::new(1, 1_000)),
                0,
                Aging::new(Duration::ZERO),
            ),
            schedules: sqlite.clone(),
            polls,
            settler: LeaseSettler::new(store.clone(), clock.clone(), NODE),
            clock: clock.clone(),
            node: NODE,
            config,
            operations: Arc::new(operations),
        };
        let api = Api::new(parts);
        Self { router: crate::router(&api), api, store, sqlite, clock, shutdown, _directory: directory }
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

/// A dispatcher at work, and its poll queue.
fn polls(store: Arc<dyn Store>, clock: Arc<dyn Clock>, hints: Arc<Hints>, shutdown: CancellationToken) -> PollQueue {
    let seconds = std::time::Duration::from_secs;
    let deps = Deps {
        store,
        broker: Arc::new(EmbeddedBroker::new(100)),
        clock,
        hints,
        targets: Arc::new(Targets::new(1, 1_000)),
        owned: Arc::new(OwnedPartitions::nothing(1)),
        circuits: Arc::default(),
        waits: Arc::default(),
        node: NODE,
    };
    let config = Config {
        prefetch_window: seconds(60),
        // Long, so that what is found is found by a hint or by the first sweep.
        sweep_interval: std::time::Duration::from_hours(1),
        claim_ahead: Duration::ZERO,
        claim_batch: 1_000,
        visibility: seconds(60),
        waiting_workers: 100,
        backlog_per_second: 0,
        fairness: punctual_scheduler::fairness::Config::default(),
    };
    let (dispatcher, polls) = Dispatcher::new(deps, config);
    tokio::spawn(dispatcher.run(shutdown));
    polls
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
