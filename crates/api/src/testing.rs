//! The fixture of this crate's tests: a store in a temporary directory, and an interface over it.

mod body;
mod store;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use axum::response::Response;
use http_body_util::BodyExt;
use punctual_core::breakers::{BreakerKey, OpenBreaker, Runs};
use punctual_core::clock::{Clock, ManualClock};
use punctual_core::ids::NodeId;
use punctual_core::registry::{NodePresence, NodeSession};
use punctual_core::store::Store;
use punctual_core::time::Timestamp;
use punctual_scheduler::dispatch_status::DispatchStatus;
use punctual_scheduler::dispatcher::{Config, Deps, Dispatcher};
use punctual_scheduler::fairness::Aging;
use punctual_scheduler::finish_watch::FinishWatch;
use punctual_scheduler::hints::Hints;
use punctual_scheduler::notifying_store::NotifyingStore;
use punctual_scheduler::ownership::OwnedPartitions;
use punctual_scheduler::polls::PollQueue;
use punctual_scheduler::settle::LeaseSettler;
use punctual_scheduler::targets::Targets;
use punctual_scheduler::webhook_path::WebhookPath;
use punctual_store::sqlite::{Options, SqliteStore};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::metrics::Metrics;
use crate::operations::Operations;
use crate::readiness::Probes;
use crate::state::{Api, ApiConfig, ApiParts};

pub(crate) use body::{TestBody, body};
pub(crate) use store::FailingStore;

/// 2026-05-22T18:00:00Z, the first time of the clock.
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
        Self::with_clock(config, probes, |clock| clock)
    }

    /// Requests read a clock that moves on by a millisecond each time.
    pub fn ticking() -> Self {
        Self::with_clock(ApiConfig::default(), Probes::default(), |clock| Arc::new(TickingClock(clock)))
    }

    fn with_clock(
        config: ApiConfig,
        probes: Probes,
        of_requests: impl FnOnce(Arc<ManualClock>) -> Arc<dyn Clock>,
    ) -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let directory = TempDir::new().unwrap();
        let sqlite = SqliteStore::open(directory.path(), clock.clone(), NODE, Options::default());
        let sqlite = Arc::new(sqlite.unwrap());
        let hints = Arc::new(Hints::default());
        let finish_watch = Arc::<FinishWatch>::default();
        let waking = NotifyingStore::new(sqlite.clone(), sqlite.clone(), hints.clone(), Arc::default())
            .announcing(finish_watch.clone());
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
            finish_watch,
            polls,
            settler: LeaseSettler::new(store.clone(), clock.clone(), NODE),
            clock: of_requests(clock.clone()),
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

    /// Sends a request with one header and without a body.
    pub async fn send_with(&self, method: &str, path: &str, (name, value): (&str, &str)) -> Answer {
        let request = Request::builder().method(method).uri(path).header(name, value);
        self.call(request.body(Body::empty()).unwrap()).await
    }

    /// Sends any request.
    pub async fn call(&self, request: Request<Body>) -> Answer {
        Answer::of(self.unread(request).await).await
    }

    /// Sends any request, and does not read its answer.
    pub async fn unread(&self, mut request: Request<Body>) -> Response {
        request.headers_mut().entry(header::HOST).or_insert(HeaderValue::from_static("localhost"));
        self.router.clone().oneshot(request).await.unwrap()
    }

    /// Reads a path.
    pub async fn get(&self, path: &str) -> Value {
        self.send("GET", path, None).await.expect(200)
    }

    /// Submits a task and returns its id.
    pub async fn submit(&self, task: Value) -> String {
        let task = self.send("POST", "/v1/tasks", Some(task)).await.expect(201);
        task["task_id"].as_str().unwrap().to_owned()
    }

    /// Hands the next due task of a queue to a worker.
    pub async fn lease(&self, worker: &str, queue: &str) -> Lease {
        self.lease_as(json!({"worker_id": worker, "queues": [queue]})).await
    }

    /// Leases the next due task with this request.
    pub async fn lease_as(&self, wanted: Value) -> Lease {
        let wanted = merged(json!({"wait_seconds": 5}), wanted);
        let answer = self.send("POST", "/v1/leases", Some(wanted)).await.expect(200);
        let [lease] = answer["leases"].as_array().unwrap().as_slice() else { panic!("not one lease: {answer}") };
        let id = lease["task"]["task_id"].as_str().unwrap().to_owned();
        Lease { id, token: lease["token"].as_u64().unwrap(), expires_at: lease["lease_expires_at"].clone() }
    }

    /// Reports on a run.
    pub async fn report(&self, lease: &Lease, verb: &str, fields: Value) -> Answer {
        let body = merged(json!({"token": lease.token}), fields);
        self.send("POST", &format!("/v1/tasks/{}/{verb}", lease.id), Some(body)).await
    }
}

/// A clock that moves on whenever it is read.
struct TickingClock(Arc<ManualClock>);

impl Clock for TickingClock {
    fn now(&self) -> Timestamp {
        self.0.advance_millis(1);
        self.0.now()
    }
}

/// A task that is with a worker.
pub(crate) struct Lease {
    pub id: String,
    pub token: u64,
    pub expires_at: Value,
}

/// The members of both objects.
pub(crate) fn merged(mut one: Value, other: Value) -> Value {
    let Value::Object(other) = other else { panic!("not an object: {other}") };
    one.as_object_mut().unwrap().extend(other);
    one
}

/// A node without an address and roles.
pub(crate) fn node(id: NodeId) -> NodePresence {
    NodePresence {
        id,
        name: "machine".into(),
        address: String::new(),
        roles: Vec::new(),
        version: "1.2.3".into(),
        skew_millis: -20,
        lease: None,
        first_seen_at: START,
        last_seen_at: START,
        session: NodeSession::Unknown,
        gone_at: None,
    }
}

/// A breaker that opened at the start, because 19 of 20 runs failed.
pub(crate) fn open_breaker(tenant: &str, target: &str, probe_in_millis: i64) -> OpenBreaker {
    OpenBreaker {
        key: BreakerKey::new(tenant, target),
        opened_at: START,
        next_probe_at: START.plus_millis(probe_in_millis),
        runs: Runs { ok: 1, failed: 19 },
        reason: "19 of 20 runs failed".to_owned(),
        half_open: false,
        probe: None,
        overtaken: Vec::new(),
        last_probe: None,
    }
}

/// A dispatcher at work, and its poll queue.
fn polls(store: Arc<dyn Store>, clock: Arc<dyn Clock>, hints: Arc<Hints>, shutdown: CancellationToken) -> PollQueue {
    let seconds = std::time::Duration::from_secs;
    let deps = Deps {
        store,
        webhooks: WebhookPath::None,
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
        // Long, so that only a hint or the first sweep finds a task.
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

    /// The JSON of an answer that must have this status.
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        self.json()
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {:?}", self.text))
    }

    /// The pointers of the faults it must list.
    pub fn pointers(&self) -> Vec<String> {
        assert_eq!(self.problem(), "invalid_request", "{}", self.text);
        let problem = self.json();
        problem["errors"].as_array().unwrap().iter().map(|fault| fault["pointer"].as_str().unwrap().into()).collect()
    }

    /// The `code` of the problem it must be.
    pub fn problem(&self) -> String {
        assert_eq!(self.headers[header::CONTENT_TYPE], "application/problem+json", "{}", self.text);
        let problem = self.json();
        assert_eq!(problem["status"], self.status.as_u16());
        problem["code"].as_str().unwrap().to_owned()
    }
}
