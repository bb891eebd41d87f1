//! A client of a server: it submits tasks, and leases and settles them as a pull worker does.
//!
//! Every call can be repeated without harm. The client repeats it a few times if no answer came or
//! the server asked it to wait. A submission keeps its idempotency key over all attempts (the
//! client makes one if there is none), and a settlement is known by its token. The client speaks
//! plain HTTP: for TLS to a remote server put a proxy on this side.

mod error;
mod raw;
mod retries;

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::Uri;
use hyper::header::{HeaderName, HeaderValue, RETRY_AFTER};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use punctual_core::ids::TaskId;
use punctual_core::json::Json;
use punctual_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::lease::WorkerError;
use crate::{
    BatchAnswer, BatchItem, Complete, Fail, Heartbeat, Lease, LeaseAnswer, LeaseRequest, NewBatch, NewTask, Release,
    Seconds, Task,
};

pub use error::ClientError;
pub use hyper::StatusCode;
pub use raw::{RawAnswer, RawRequest};
pub use retries::Retries;

/// The longest answer that is read: more than a server sends.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// A client of one server. Cheap to clone; clones share their connections.
#[derive(Clone, Debug)]
pub struct Client {
    base: String,
    tenant: Option<HeaderValue>,
    /// `Bearer` and an API key; marked as sensitive, so that it is not printed.
    authorization: Option<HeaderValue>,
    retries: Retries,
    pool: Pool<HttpConnector, Full<Bytes>>,
}

/// A task that was submitted.
#[derive(Clone, Debug)]
pub struct Submitted {
    /// The task.
    pub task: Task,
    /// Whether the key was known: from an earlier submission, or from an attempt of this one whose
    /// answer was lost.
    pub replayed: bool,
}

/// The answer to a heartbeat.
#[derive(Clone, Debug)]
pub struct Beat {
    /// The task.
    pub task: Task,
    /// When the task is taken back, unless another heartbeat comes before.
    pub lease_expires_at: Option<Timestamp>,
    /// When the run ends by the task's timeout, which no heartbeat extends.
    pub timeout_at: Option<Timestamp>,
}

/// Why a run failed, for [`Client::fail`].
#[derive(Clone, Debug, Default)]
pub struct Failure {
    /// What went wrong.
    pub error: Option<WorkerError>,
    /// Whether further attempts are pointless: the task becomes a dead letter.
    pub is_final: bool,
    /// The delay of the next attempt, up to 30 days, instead of that of the retry policy.
    pub retry_after: Option<Seconds>,
}

impl Client {
    /// A client of the server at `url`, such as `http://127.0.0.1:7400`.
    pub fn new(url: &str) -> Result<Self, ClientError> {
        let address = |reason: &str| ClientError::Address { url: url.to_owned(), reason: reason.to_owned() };
        let uri: Uri = url.parse().map_err(|_| address("it is not a URL"))?;
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
        Ok(Self {
            base: url.trim_end_matches('/').to_owned(),
            tenant: None,
            authorization: None,
            retries: Retries::default(),
            pool,
        })
    }

    /// The same client, for a tenant other than the default.
    pub fn tenant(self, name: &str) -> Result<Self, ClientError> {
        let fault = |_| ClientError::Tenant(name.to_owned());
        Ok(Self { tenant: Some(HeaderValue::from_str(name).map_err(fault)?), ..self })
    }

    /// The same client, which shows this API key. It is sent in the clear: on anything but loopback
    /// put a proxy that speaks TLS on this side.
    pub fn key(self, key: &str) -> Result<Self, ClientError> {
        let mut value = HeaderValue::from_str(&format!("Bearer {}", key.trim())).map_err(|_| ClientError::Key)?;
        value.set_sensitive(true);
        Ok(Self { authorization: Some(value), ..self })
    }

    /// The same client with other retries.
    #[must_use]
    pub fn retries(self, retries: Retries) -> Self {
        Self { retries, ..self }
    }

    /// Submits a task. If it has no idempotency key it gets one, so that no attempt creates a
    /// second task.
    pub async fn submit(&self, mut new: NewTask) -> Result<Submitted, ClientError> {
        new.idempotency_key.get_or_insert_with(fresh_key);
        let answer = self.call(&RawRequest::post_json("/v1/tasks", &new)?).await?;
        Ok(Submitted { replayed: answer.status == StatusCode::OK, task: answer.read()? })
    }

    /// Submits many tasks at once. Each is accepted or refused by itself; the answers are in order.
    pub async fn submit_batch(&self, mut tasks: Vec<NewTask>) -> Result<Vec<BatchItem>, ClientError> {
        for task in &mut tasks {
            task.idempotency_key.get_or_insert_with(fresh_key);
        }
        let request = RawRequest::post_json("/v1/tasks/batch", &NewBatch { tasks })?;
        Ok(self.call(&request).await?.read::<BatchAnswer>()?.items)
    }

    /// Reads a task.
    pub async fn get(&self, id: TaskId) -> Result<Task, ClientError> {
        self.call(&RawRequest::get(format!("/v1/tasks/{id}"))).await?.read()
    }

    /// Leases tasks, and waits for the first as long as the request says.
    pub async fn lease(&self, wanted: &LeaseRequest) -> Result<Vec<Lease>, ClientError> {
        let wait = wanted.wait_seconds.and_then(|wait| Duration::try_from_secs_f64(wait.0).ok()).unwrap_or_default();
        let request = RawRequest::post_json("/v1/leases", wanted)?;
        let timeout = request.timeout.saturating_add(wait);
        Ok(self.call(&request.timeout(timeout)).await?.read::<LeaseAnswer>()?.leases)
    }

    /// Reports that a run goes on, which extends its lease.
    pub async fn heartbeat(
        &self,
        lease: &Lease,
        progress: Option<Json>,
        checkpoint: Option<Json>,
    ) -> Result<Beat, ClientError> {
        #[derive(Deserialize)]
        struct LeaseEnd {
            lease_expires_at: Option<Timestamp>,
            timeout_at: Option<Timestamp>,
        }
        let answer = self.settle(lease, "heartbeat", &Heartbeat { token: lease.token, progress, checkpoint }).await?;
        let LeaseEnd { lease_expires_at, timeout_at } = answer.read()?;
        Ok(Beat { task: answer.read()?, lease_expires_at, timeout_at })
    }

    /// Reports that a run has succeeded.
    pub async fn complete(&self, lease: &Lease, result: Option<Json>) -> Result<Task, ClientError> {
        self.settle(lease, "complete", &Complete { token: lease.token, result }).await?.read()
    }

    /// Reports that a run has failed.
    pub async fn fail(&self, lease: &Lease, failure: Failure) -> Result<Task, ClientError> {
        let Failure { error, is_final, retry_after } = failure;
        let fail = Fail { token: lease.token, error, retryable: Some(!is_final), retry_after_seconds: retry_after };
        self.settle(lease, "fail", &fail).await?.read()
    }

    /// Gives a task back; the attempt is not counted.
    pub async fn release(&self, lease: &Lease) -> Result<Task, ClientError> {
        self.settle(lease, "release", &Release { token: lease.token, delay_seconds: None }).await?.read()
    }

    async fn settle(&self, lease: &Lease, verb: &str, body: &impl Serialize) -> Result<RawAnswer, ClientError> {
        self.call(&RawRequest::post_json(format!("/v1/tasks/{}/{verb}", lease.task.task_id), body)?).await
    }

    /// Makes a call, and repeats it where that may help.
    async fn call(&self, request: &RawRequest) -> Result<RawAnswer, ClientError> {
        let mut attempt = 1;
        loop {
            let (error, retry_after) = match self.send(request).await {
                Ok(answer) => match answer.error() {
                    None => return Ok(answer),
                    Some(error) => (error, answer.retry_after),
                },
                Err(error) => (error, None),
            };
            let wait =
                if error.is_retryable() { self.retries.wait(attempt, retry_after, rand::random()) } else { None };
            let Some(wait) = wait else { return Err(error) };
            tokio::time::sleep(wait).await;
            attempt += 1;
        }
    }

    fn to_hyper(&self, request: &RawRequest) -> Result<hyper::Request<Full<Bytes>>, ClientError> {
        let mut request = request.to_hyper(&self.base)?;
        let named = [("punctual-tenant", &self.tenant), ("authorization", &self.authorization)];
        for (name, value) in named {
            request.headers_mut().extend(value.clone().map(|value| (HeaderName::from_static(name), value)));
        }
        Ok(request)
    }

    /// Sends a request once and returns the answer, whatever its status. An error means that there
    /// is none.
    pub async fn send(&self, request: &RawRequest) -> Result<RawAnswer, ClientError> {
        let exchange = async {
            let sent = self.pool.request(self.to_hyper(request)?).await;
            let (head, body) = sent.map_err(|fault| ClientError::unreachable(&fault))?.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|fault| ClientError::unreachable(fault.as_ref()))?.to_bytes();
            let retry_after = head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
            Ok(RawAnswer { status: head.status, retry_after: retry_after.map(Duration::from_secs), body })
        };
        tokio::time::timeout(request.timeout, exchange).await.unwrap_or(Err(ClientError::TimedOut(request.timeout)))
    }
}

/// A random key.
fn fresh_key() -> String {
    format!("{:032x}", rand::random::<u128>())
}
