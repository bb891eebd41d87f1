//! A client of a server: submits tasks, and works for it as a pull worker does.
//!
//! Every call may be made again without harm, and is, a few times, where nobody answered or the
//! server asked for patience: a submission keeps its idempotency key over all its attempts (one
//! is made where there is none), and what a worker says is known by its token. It speaks plain
//! HTTP: whoever wants TLS to a server far away puts a proxy on this side, too.

mod error;
mod retries;

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use punctual_core::ids::TaskId;
use punctual_core::json::Json;
use punctual_core::time::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::lease::WorkerError;
use crate::{
    BatchAnswer, BatchItem, Complete, Fail, Heartbeat, Lease, LeaseAnswer, LeaseRequest, NewBatch, NewTask, Problem,
    Release, Seconds, Task,
};

pub use error::ClientError;
pub use retries::Retries;

/// How long a server may take to answer, a long poll's wait apart.
const PATIENCE: Duration = Duration::from_secs(30);

/// The longest answer that is read: more than a server gives.
const MOST_BYTES: usize = 256 << 20;

/// What is shown of an answer that is no problem document.
const SHOWN: usize = 200;

/// A client of one server (see the module). Cheap to clone; clones share their connections.
#[derive(Clone, Debug)]
pub struct Client {
    base: String,
    tenant: Option<HeaderValue>,
    retries: Retries,
    pool: Pool<HttpConnector, Full<Bytes>>,
}

/// A task that was submitted.
#[derive(Clone, Debug)]
pub struct Submitted {
    /// The task.
    pub task: Task,
    /// Whether the key was known: from an earlier submission, or from an attempt of this one whose answer was lost.
    pub replayed: bool,
}

/// A sign of life that was accepted.
#[derive(Clone, Debug)]
pub struct Beat {
    /// The task.
    pub task: Task,
    /// Without another by then, the task is taken back.
    pub lease_expires_at: Option<Timestamp>,
}

/// Why a run failed, for [`Client::fail`].
#[derive(Clone, Debug, Default)]
pub struct Failure {
    /// What went wrong.
    pub error: Option<WorkerError>,
    /// Whether no further attempt can succeed: the task becomes a dead letter.
    pub is_final: bool,
    /// When to try again, instead of what the retry policy says.
    pub retry_after: Option<Seconds>,
}

impl Client {
    /// A client of the server at `url`, such as `http://127.0.0.1:7400`.
    pub fn new(url: &str) -> Result<Self, ClientError> {
        let address = |reason: &str| ClientError::Address { url: url.to_owned(), reason: reason.to_owned() };
        let uri: Uri = url.parse().map_err(|_| address("it is no URL"))?;
        if uri.scheme_str() != Some("http") || uri.authority().is_none() {
            return Err(address("it must begin with http:// and name a host"));
        }
        if uri.path().len() > 1 || uri.query().is_some() {
            return Err(address("it must end after the host and port"));
        }
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(Duration::from_secs(5)));
        let pool = Pool::builder(TokioExecutor::new()).build(connector);
        Ok(Self { base: url.trim_end_matches('/').to_owned(), tenant: None, retries: Retries::default(), pool })
    }

    /// The same client, for a tenant other than the default.
    pub fn tenant(self, name: &str) -> Result<Self, ClientError> {
        let fault = |_| ClientError::Tenant(name.to_owned());
        Ok(Self { tenant: Some(HeaderValue::from_str(name).map_err(fault)?), ..self })
    }

    /// The same client with another patience.
    #[must_use]
    pub fn retries(self, retries: Retries) -> Self {
        Self { retries, ..self }
    }

    /// Submits a task. Without an idempotency key of its own it gets one, so that no attempt makes a second task.
    pub async fn submit(&self, mut new: NewTask) -> Result<Submitted, ClientError> {
        new.idempotency_key.get_or_insert_with(fresh_key);
        let answer = self.post("/v1/tasks", &new, PATIENCE).await?;
        Ok(Submitted { replayed: answer.status == StatusCode::OK, task: answer.read()? })
    }

    /// Submits many tasks at once; each is judged by itself, and answered in order.
    pub async fn submit_batch(&self, mut tasks: Vec<NewTask>) -> Result<Vec<BatchItem>, ClientError> {
        for task in &mut tasks {
            task.idempotency_key.get_or_insert_with(fresh_key);
        }
        let answer: BatchAnswer = self.post("/v1/tasks/batch", &NewBatch { tasks }, PATIENCE).await?.read()?;
        Ok(answer.items)
    }

    /// The task as it is now.
    pub async fn get(&self, id: TaskId) -> Result<Task, ClientError> {
        self.call(&Method::GET, &format!("/v1/tasks/{id}"), Bytes::new(), PATIENCE).await?.read()
    }

    /// Asks for tasks to work on, and waits for the first as long as the request says.
    pub async fn lease(&self, wanted: &LeaseRequest) -> Result<Vec<Lease>, ClientError> {
        let wait = wanted.wait_seconds.and_then(|wait| Duration::try_from_secs_f64(wait.0).ok()).unwrap_or_default();
        let answer: LeaseAnswer = self.post("/v1/leases", wanted, PATIENCE.saturating_add(wait)).await?.read()?;
        Ok(answer.leases)
    }

    /// Says that a run goes on, which extends its lease.
    pub async fn heartbeat(
        &self,
        lease: &Lease,
        progress: Option<Json>,
        checkpoint: Option<Json>,
    ) -> Result<Beat, ClientError> {
        #[derive(Deserialize)]
        struct Until {
            lease_expires_at: Option<Timestamp>,
        }
        let answer = self.say(lease, "heartbeat", &Heartbeat { token: lease.token, progress, checkpoint }).await?;
        let Until { lease_expires_at } = answer.read()?;
        Ok(Beat { task: answer.read()?, lease_expires_at })
    }

    /// Says that a run has succeeded.
    pub async fn complete(&self, lease: &Lease, result: Option<Json>) -> Result<Task, ClientError> {
        self.say(lease, "complete", &Complete { token: lease.token, result }).await?.read()
    }

    /// Says that a run has failed.
    pub async fn fail(&self, lease: &Lease, failure: Failure) -> Result<Task, ClientError> {
        let Failure { error, is_final, retry_after } = failure;
        let fail = Fail { token: lease.token, error, retryable: Some(!is_final), retry_after_seconds: retry_after };
        self.say(lease, "fail", &fail).await?.read()
    }

    /// Gives a task back; the attempt is not counted.
    pub async fn release(&self, lease: &Lease) -> Result<Task, ClientError> {
        self.say(lease, "release", &Release { token: lease.token }).await?.read()
    }

    async fn say(&self, lease: &Lease, verb: &str, body: &impl Serialize) -> Result<Answer, ClientError> {
        self.post(&format!("/v1/tasks/{}/{verb}", lease.task.task_id), body, PATIENCE).await
    }

    async fn post(&self, path: &str, body: &impl Serialize, patience: Duration) -> Result<Answer, ClientError> {
        let body = serde_json::to_vec(body).map_err(|fault| ClientError::Unwritable(fault.to_string()))?;
        self.call(&Method::POST, path, body.into(), patience).await
    }

    /// Makes a call, again where that may help.
    async fn call(&self, method: &Method, path: &str, body: Bytes, patience: Duration) -> Result<Answer, ClientError> {
        let mut attempt = 1;
        loop {
            let (error, told) = match self.attempt(method, path, body.clone(), patience).await {
                Ok(answer) => match answer.judge() {
                    Ok(answer) => return Ok(answer),
                    Err(refused) => refused,
                },
                Err(error) => (error, None),
            };
            let wait = if error.is_retryable() { self.retries.wait(attempt, told, rand::random()) } else { None };
            let Some(wait) = wait else { return Err(error) };
            tokio::time::sleep(wait).await;
            attempt += 1;
        }
    }

    async fn attempt(
        &self,
        method: &Method,
        path: &str,
        body: Bytes,
        patience: Duration,
    ) -> Result<Answer, ClientError> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        request = request.header(ACCEPT, HeaderValue::from_static("application/json, application/problem+json"));
        if *method == Method::POST {
            request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(tenant) = &self.tenant {
            request = request.header("punctual-tenant", tenant);
        }
        let request = request.body(Full::new(body)).map_err(|fault| ClientError::Unwritable(fault.to_string()))?;
        let exchange = async {
            let answer = self.pool.request(request).await.map_err(|fault| ClientError::unreachable(&fault))?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, MOST_BYTES).collect().await;
            let body = body.map_err(|fault| ClientError::unreachable(fault.as_ref()))?.to_bytes();
            let told = head.headers.get(RETRY_AFTER).and_then(|told| told.to_str().ok()?.trim().parse().ok());
            Ok(Answer { status: head.status, retry_after: told.map(Duration::from_secs), body })
        };
        tokio::time::timeout(patience, exchange).await.unwrap_or(Err(ClientError::TimedOut(patience)))
    }
}

/// What a server answered.
struct Answer {
    status: StatusCode,
    retry_after: Option<Duration>,
    body: Bytes,
}

impl Answer {
    /// The answer, if it is a good one; or what it refuses, and how long it asks to wait.
    fn judge(self) -> Result<Self, (ClientError, Option<Duration>)> {
        if self.status.is_success() {
            return Ok(self);
        }
        let shown = || String::from_utf8_lossy(&self.body[..self.body.len().min(SHOWN)]).into_owned();
        let error = serde_json::from_slice::<Problem>(&self.body).map_or_else(
            |_| ClientError::Unexpected { status: self.status.as_u16(), body: shown() },
            |problem| ClientError::Refused(Box::new(problem)),
        );
        Err((error, self.retry_after))
    }

    fn read<T: DeserializeOwned>(&self) -> Result<T, ClientError> {
        serde_json::from_slice(&self.body).map_err(|fault| ClientError::Unreadable(fault.to_string()))
    }
}

/// A key that nobody else has.
fn fresh_key() -> String {
    format!("{:032x}", rand::random::<u128>())
}
