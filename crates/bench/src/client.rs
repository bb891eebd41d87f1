//! The calls that the scenarios make, in the wire types of `punctual-client`.
//!
//! The transport is not that of `punctual_client::http`, because its comforts would be measured. It
//! gives every task an idempotency key, which the server has to store. It reads whole tasks where a
//! scenario needs an id and an instant. It repeats calls that were not answered, while a
//! measurement has to fail then. And it speaks plain HTTP to one server, while `--url` may be
//! https.
//!
//! Invariant: a call is repeated only after the server refused it with 429 or 503.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use punctual_client::{
    BatchAnswer, LeaseRequest, NewTask, QueueSettings, Seconds, SettleAnswer, SettleItem, SettleOutcome, SettleRequest,
};
use punctual_core::clock::{Clock, SystemClock};
use punctual_core::ids::TaskId;
use punctual_core::json::Json;
use punctual_core::time::Timestamp;
use reqwest::header::RETRY_AFTER;
use reqwest::{Request, StatusCode};
use serde::Deserialize;

/// The wait after a refusal without a usable `Retry-After`, and the bounds of one with it.
const USUAL_WAIT: Duration = Duration::from_secs(1);
const SHORTEST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// A call that is refused for longer than this fails.
const REFUSED_MAX: Duration = Duration::from_mins(2);

/// A client of one of the servers, which waits when it is refused. Cheap to clone; clones share
/// their connections.
#[derive(Clone)]
pub struct BenchClient {
    urls: Arc<[String]>,
    /// The index of its server.
    server: usize,
    tenant: Option<&'static str>,
    http: reqwest::Client,
    refused: Arc<AtomicUsize>,
}

/// What a server said to one request.
enum CallResult {
    Done(Vec<u8>),
    /// The server is overloaded or lacks something.
    Refused {
        wait: Duration,
        why: String,
    },
}

/// A leased task, as far as the scenarios look at it. Reading all of it would slow the drain down.
#[derive(Deserialize)]
pub struct LeasedTask {
    /// Its fencing token.
    pub token: u64,
    /// The task.
    pub task: TaskHead,
}

/// The fields of a task that the scenarios look at.
#[derive(Deserialize)]
pub struct TaskHead {
    /// Its id.
    pub task_id: TaskId,
    /// When it was due.
    pub execute_at: Timestamp,
}

#[derive(Deserialize)]
struct LeasedTasks {
    leases: Vec<LeasedTask>,
}

impl BenchClient {
    /// A client of the first of the servers at `urls`, of which there is at least one.
    pub fn new(urls: Vec<String>) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder()
            .http1_only()
            .no_proxy()
            .pool_max_idle_per_host(1_024)
            .timeout(Duration::from_mins(2))
            .build()?;
        Ok(Self { urls: urls.into(), server: 0, tenant: None, http, refused: Arc::default() })
    }

    /// The same client with connections of its own, for another runtime.
    pub fn apart(&self) -> anyhow::Result<Self> {
        Ok(Self { http: Self::new(self.urls.to_vec())?.http, ..self.clone() })
    }

    /// The same client for the `number`th connection: connections are spread over the servers.
    pub fn of_number(&self, number: usize) -> Self {
        Self { server: number % self.urls.len(), ..self.clone() }
    }

    /// The same client, for another tenant.
    pub fn of_tenant(&self, tenant: &'static str) -> Self {
        Self { tenant: Some(tenant), ..self.clone() }
    }

    /// How many calls of this client and its clones were refused and repeated.
    pub fn refused(&self) -> usize {
        self.refused.load(Relaxed)
    }

    /// Waits until all servers are ready.
    pub async fn ready(&self, within: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + within;
        for url in self.urls.iter() {
            self.ready_by(url, deadline).await?;
        }
        Ok(())
    }

    async fn ready_by(&self, url: &str, deadline: Instant) -> anyhow::Result<()> {
        loop {
            // The last try, too, is long enough to find out more than that the time is over.
            let left = deadline.saturating_duration_since(Instant::now()).max(SHORTEST_WAIT);
            match self.http.get(format!("{url}/readyz")).timeout(left).send().await {
                Ok(answer) if answer.status().is_success() => return Ok(()),
                _ if Instant::now() < deadline => tokio::time::sleep(Duration::from_millis(20)).await,
                Ok(answer) => bail!("{url}/readyz answers {}, so there is nothing to measure", answer.status()),
                Err(error) => {
                    let cause = anyhow!(error);
                    bail!("no server answers at {url}: {}", cause.root_cause());
                }
            }
        }
    }

    /// Submits one task.
    pub async fn submit(&self, task: &NewTask) -> anyhow::Result<()> {
        self.post("/v1/tasks", "application/json", serde_json::to_vec(task)?).await.map(drop)
    }

    /// Submits one task; a refusal is an error.
    pub async fn submit_once(&self, task: &NewTask) -> anyhow::Result<()> {
        match self.send(self.request("/v1/tasks", "application/json", serde_json::to_vec(task)?)?).await? {
            CallResult::Done(_) => Ok(()),
            CallResult::Refused { why, .. } => bail!(why),
        }
    }

    /// Submits a batch.
    pub async fn submit_batch(&self, tasks: impl Iterator<Item = NewTask>) -> anyhow::Result<()> {
        let answer = self.post("/v1/tasks/batch?return=ids", "application/x-ndjson", lines(tasks)?).await?;
        let answer: BatchAnswer = serde_json::from_slice(&answer).context("cannot read the answer to a batch")?;
        match answer.items.iter().find(|item| item.status != 201) {
            Some(refused) => bail!("a task of the batch was refused with {}", refused.status),
            None => Ok(()),
        }
    }

    /// Leases tasks, waiting for the first.
    pub async fn lease(&self, request: &LeaseRequest) -> anyhow::Result<Vec<LeasedTask>> {
        leased(&self.post("/v1/leases", "application/json", serde_json::to_vec(request)?).await?)
    }

    /// Changes the settings of a queue.
    pub async fn set_queue(&self, queue: &str, settings: &QueueSettings) -> anyhow::Result<()> {
        let url = format!("{}/v1/queues/{queue}", self.urls[self.server]);
        self.http.put(url).json(settings).send().await?.error_for_status().context("cannot set the queue")?;
        Ok(())
    }

    /// Completes leased tasks.
    pub async fn complete(&self, leases: &[LeasedTask]) -> anyhow::Result<()> {
        completed(&self.post("/v1/leases/settle", "application/json", completing(leases)?).await?)
    }

    /// Repeats the call until it is not refused.
    async fn post(&self, path: &str, content_type: &str, body: Vec<u8>) -> anyhow::Result<Vec<u8>> {
        let request = self.request(path, content_type, body)?;
        let began = Instant::now();
        loop {
            let same = request.try_clone().expect("invariant: a body in memory can be sent again");
            match self.send(same).await? {
                CallResult::Done(answer) => return Ok(answer),
                CallResult::Refused { why, .. } if began.elapsed() >= REFUSED_MAX => {
                    bail!("refused for {} seconds: {why}", REFUSED_MAX.as_secs());
                }
                CallResult::Refused { wait, .. } => {
                    self.refused.fetch_add(1, Relaxed);
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }

    fn request(&self, path: &str, content_type: &str, body: Vec<u8>) -> anyhow::Result<Request> {
        let url = &self.urls[self.server];
        let mut request = self.http.post(format!("{url}{path}")).header("content-type", content_type).body(body);
        if let Some(tenant) = self.tenant {
            request = request.header("punctual-tenant", tenant);
        }
        Ok(request.build()?)
    }

    async fn send(&self, request: Request) -> anyhow::Result<CallResult> {
        let path = request.url().path().to_owned();
        let answer = self.http.execute(request).await.with_context(|| format!("POST {path}"))?;
        let status = answer.status();
        let retry_after = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let body = answer.bytes().await?;
        if status.is_success() {
            return Ok(CallResult::Done(body.into()));
        }
        let why = format!("POST {path} answered {status}: {}", String::from_utf8_lossy(&body));
        match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                Ok(CallResult::Refused { wait: wait(retry_after.as_deref()), why })
            }
            _ => bail!(why),
        }
    }
}

/// The request of a worker that leases up to `most` tasks of the queue and waits for the first.
pub fn leasing(queue: &str, worker: String, most: usize, wait_seconds: u32) -> LeaseRequest {
    LeaseRequest {
        worker_id: worker,
        queues: Some(vec![queue.to_owned()]),
        max_tasks: i64::try_from(most).ok(),
        wait_seconds: Some(Seconds(wait_seconds.into())),
        ..LeaseRequest::default()
    }
}

/// The tasks of an answer to a lease call.
pub fn leased(answer: &[u8]) -> anyhow::Result<Vec<LeasedTask>> {
    let answer: LeasedTasks = serde_json::from_slice(answer).context("cannot read the answer to a lease call")?;
    Ok(answer.leases)
}

/// The body of a call that completes leased tasks.
pub fn completing(leases: &[LeasedTask]) -> serde_json::Result<Vec<u8>> {
    let completion = |lease: &LeasedTask| SettleItem::new(lease.task.task_id, lease.token, SettleOutcome::Completed);
    serde_json::to_vec(&SettleRequest { items: leases.iter().map(completion).collect() })
}

/// Fails unless the answer to a settle call says that all tasks are completed.
pub fn completed(answer: &[u8]) -> anyhow::Result<()> {
    let answer: SettleAnswer = serde_json::from_slice(answer).context("cannot read the answer to a settle call")?;
    match answer.items.iter().find(|item| item.status != 200) {
        Some(refused) => bail!("a completion was refused with {}", refused.status),
        None => Ok(()),
    }
}

/// The body of a batch: a task a line.
pub fn lines(tasks: impl Iterator<Item = NewTask>) -> serde_json::Result<Vec<u8>> {
    let mut body = Vec::new();
    for task in tasks {
        serde_json::to_writer(&mut body, &task)?;
        body.push(b'\n');
    }
    Ok(body)
}

/// How long to wait for a `Retry-After`.
fn wait(retry_after: Option<&str>) -> Duration {
    let seconds = retry_after.and_then(|value| value.trim().parse().ok());
    seconds.map_or(USUAL_WAIT, Duration::from_secs).clamp(SHORTEST_WAIT, LONGEST_WAIT)
}

/// A task with about a hundred bytes of payload, as the benchmarks of other systems use.
pub fn task(number: usize, queue: &str, execute_at: Option<Timestamp>, callback_url: Option<&str>) -> NewTask {
    let reference = number.wrapping_mul(2_654_435_761);
    let payload = format!(
        r#"{{"i":{number},"to":"user{number}@example.com","subject":"Your order has shipped","reference":"{reference:024x}"}}"#
    );
    NewTask {
        queue: Some(queue.to_owned()),
        payload: Some(Json::trusted(payload).expect("invariant: the payload is JSON")),
        execute_at: execute_at.map(|at| at.to_string()),
        callback_url: callback_url.map(str::to_owned),
        ..NewTask::of_type("bench.noop")
    }
}

/// The wall clock, by which lateness is measured.
pub fn now() -> Timestamp {
    SystemClock.now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_the_retry_after_within_bounds() {
        assert_eq!(wait(Some("3")), Duration::from_secs(3));
        assert_eq!(wait(Some("0")), SHORTEST_WAIT);
        assert_eq!(wait(Some("86400")), LONGEST_WAIT);
        for unusable in [None, Some("Fri, 31 Dec 1999 23:59:59 GMT"), Some("-1"), Some("")] {
            assert_eq!(wait(unusable), USUAL_WAIT, "{unusable:?}");
        }
    }

    #[test]
    fn a_task_has_a_hundred_bytes_of_payload() {
        let body = lines([task(7, "q", None, None)].into_iter()).unwrap();
        let read: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&read["queue"], &read["payload"]["i"]), (&"q".into(), &7.into()));
        assert!((100..130).contains(&read["payload"].to_string().len()), "{read}");
    }
}
