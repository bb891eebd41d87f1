//! The few calls the scenarios make, typed only as far as they look.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use punctual_core::clock::{Clock, SystemClock};
use punctual_core::time::Timestamp;
use reqwest::header::RETRY_AFTER;
use reqwest::{Request, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How long a client waits that is not told how long, …
const USUAL_WAIT: Duration = Duration::from_secs(1);
/// … at least, and at most, whatever it is told.
const LEAST_WAIT: Duration = Duration::from_millis(100);
const MOST_WAIT: Duration = Duration::from_secs(10);
/// A call that is refused for longer than this is given up.
const PATIENCE: Duration = Duration::from_mins(2);

/// A client of one of the servers that waits when it is told to. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Client {
    urls: Arc<[String]>,
    /// The place of its server among them.
    server: usize,
    tenant: Option<&'static str>,
    http: reqwest::Client,
    refused: Arc<AtomicUsize>,
}

/// What came of one request.
enum Outcome {
    Done(Vec<u8>),
    /// By a server that has too much to do or not what it needs.
    Refused {
        wait: Duration,
        why: String,
    },
}

/// A task that was leased.
#[derive(Deserialize)]
pub struct Lease {
    /// Its fencing token.
    pub token: u64,
    /// The task itself.
    pub task: LeasedTask,
}

/// What the scenarios look at of a leased task.
#[derive(Deserialize)]
pub struct LeasedTask {
    /// Its id.
    pub task_id: String,
    /// When it was wanted.
    pub execute_at: Timestamp,
}

#[derive(Deserialize)]
struct Leases {
    leases: Vec<Lease>,
}

#[derive(Serialize)]
struct Completed<'a> {
    task_id: &'a str,
    token: u64,
    outcome: &'static str,
}

#[derive(Serialize)]
struct Settle<'a> {
    items: Vec<Completed<'a>>,
}

#[derive(Deserialize)]
struct Settled {
    items: Vec<SettledItem>,
}

#[derive(Deserialize)]
struct SettledItem {
    status: u16,
}

impl Client {
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

    /// The same client for whoever is the `number`th to connect: the servers are taken in turn.
    pub fn of_number(&self, number: usize) -> Self {
        Self { server: number % self.urls.len(), ..self.clone() }
    }

    /// The same client, for another tenant.
    pub fn of_tenant(&self, tenant: &'static str) -> Self {
        Self { tenant: Some(tenant), ..self.clone() }
    }

    /// How many calls were refused and made again, by this client and its clones.
    pub fn refused(&self) -> usize {
        self.refused.load(Relaxed)
    }

    /// Waits until all servers are ready.
    pub async fn ready(&self, patience: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + patience;
        for url in self.urls.iter() {
            self.ready_by(url, deadline).await?;
        }
        Ok(())
    }

    async fn ready_by(&self, url: &str, deadline: Instant) -> anyhow::Result<()> {
        loop {
            // Also the last time long enough to learn more than that there was no time.
            let left = deadline.saturating_duration_since(Instant::now()).max(LEAST_WAIT);
            match self.http.get(format!("{url}/readyz")).timeout(left).send().await {
                Ok(answer) if answer.status().is_success() => return Ok(()),
                _ if Instant::now() < deadline => tokio::time::sleep(Duration::from_millis(20)).await,
                Ok(answer) => bail!("{url}/readyz answers {}, so there is nothing to measure", answer.status()),
                Err(error) => {
                    let cause = anyhow!(error);
                    bail!("nobody answers at {url}: {}", cause.root_cause());
                }
            }
        }
    }

    /// Submits one task.
    pub async fn submit(&self, task: String) -> anyhow::Result<()> {
        self.post("/v1/tasks", "application/json", task).await.map(drop)
    }

    /// Submits one task without waiting: a refusal is an error, too.
    pub async fn submit_at_once(&self, task: String) -> anyhow::Result<()> {
        match self.send(self.request("/v1/tasks", "application/json", task)?).await? {
            Outcome::Done(_) => Ok(()),
            Outcome::Refused { why, .. } => bail!(why),
        }
    }

    /// Submits a batch, one JSON object a line.
    pub async fn submit_batch(&self, lines: String) -> anyhow::Result<()> {
        let answer = self.post("/v1/tasks/batch?return=ids", "application/x-ndjson", lines).await?;
        let settled: Settled = serde_json::from_slice(&answer).context("the batch's answer is not as agreed")?;
        match settled.items.iter().find(|item| item.status != 201) {
            Some(refused) => bail!("a task of the batch was refused with {}", refused.status),
            None => Ok(()),
        }
    }

    /// Leases up to `most` tasks of the queue, waiting for the first.
    pub async fn lease(&self, queue: &str, worker: &str, most: usize, wait_seconds: u32) -> anyhow::Result<Vec<Lease>> {
        let ask = leasing(queue, worker, most, wait_seconds);
        leased(&self.post("/v1/leases", "application/json", ask).await?)
    }

    /// Sets what holds for a queue.
    pub async fn set_queue(&self, queue: &str, settings: &Value) -> anyhow::Result<()> {
        let url = format!("{}/v1/queues/{queue}", self.urls[self.server]);
        self.http.put(url).json(settings).send().await?.error_for_status().context("the queue was not set")?;
        Ok(())
    }

    /// Completes leased tasks.
    pub async fn complete(&self, leases: &[Lease]) -> anyhow::Result<()> {
        completed(&self.post("/v1/leases/settle", "application/json", completing(leases)?).await?)
    }

    /// Calls until the call is not refused.
    async fn post(&self, path: &str, content_type: &str, body: String) -> anyhow::Result<Vec<u8>> {
        let request = self.request(path, content_type, body)?;
        let began = Instant::now();
        loop {
            let same = request.try_clone().expect("invariant: a body in memory can be sent again");
            match self.send(same).await? {
                Outcome::Done(answer) => return Ok(answer),
                Outcome::Refused { why, .. } if began.elapsed() >= PATIENCE => {
                    bail!("refused for {} seconds: {why}", PATIENCE.as_secs());
                }
                Outcome::Refused { wait, .. } => {
                    self.refused.fetch_add(1, Relaxed);
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }

    fn request(&self, path: &str, content_type: &str, body: String) -> anyhow::Result<Request> {
        let url = &self.urls[self.server];
        let mut request = self.http.post(format!("{url}{path}")).header("content-type", content_type).body(body);
        if let Some(tenant) = self.tenant {
            request = request.header("punctual-tenant", tenant);
        }
        Ok(request.build()?)
    }

    async fn send(&self, request: Request) -> anyhow::Result<Outcome> {
        let path = request.url().path().to_owned();
        let answer = self.http.execute(request).await.with_context(|| format!("POST {path}"))?;
        let status = answer.status();
        let told = answer.headers().get(RETRY_AFTER).and_then(|told| told.to_str().ok()).map(str::to_owned);
        let body = answer.bytes().await?;
        if status.is_success() {
            return Ok(Outcome::Done(body.into()));
        }
        let why = format!("POST {path} answered {status}: {}", String::from_utf8_lossy(&body));
        match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                Ok(Outcome::Refused { wait: wait(told.as_deref()), why })
            }
            _ => bail!(why),
        }
    }
}

/// The body of a call that leases up to `most` tasks of the queue, waiting for the first.
pub fn leasing(queue: &str, worker: &str, most: usize, wait_seconds: u32) -> String {
    let ask = serde_json::json!({
        "worker_id": worker, "queues": [queue], "max_tasks": most, "wait_seconds": wait_seconds
    });
    ask.to_string()
}

/// What its answer leases.
pub fn leased(answer: &[u8]) -> anyhow::Result<Vec<Lease>> {
    let leases: Leases = serde_json::from_slice(answer).context("the lease's answer is not as agreed")?;
    Ok(leases.leases)
}

/// The body of a call that completes leased tasks.
pub fn completing(leases: &[Lease]) -> serde_json::Result<String> {
    let items = leases
        .iter()
        .map(|lease| Completed { task_id: &lease.task.task_id, token: lease.token, outcome: "completed" })
        .collect();
    serde_json::to_string(&Settle { items })
}

/// Whether its answer says that all are.
pub fn completed(answer: &[u8]) -> anyhow::Result<()> {
    let settled: Settled = serde_json::from_slice(answer).context("the settlement's answer is not as agreed")?;
    match settled.items.iter().find(|item| item.status != 200) {
        Some(refused) => bail!("a completion was refused with {}", refused.status),
        None => Ok(()),
    }
}

/// How long to wait for a `Retry-After`.
fn wait(told: Option<&str>) -> Duration {
    let seconds = told.and_then(|told| told.trim().parse().ok());
    seconds.map_or(USUAL_WAIT, Duration::from_secs).clamp(LEAST_WAIT, MOST_WAIT)
}

/// About a hundred bytes of payload, the same as the benchmarks of other systems use.
pub fn task(number: usize, queue: &str, execute_at: Option<Timestamp>, callback_url: Option<&str>) -> Value {
    let payload = serde_json::json!({
        "i": number,
        "to": format!("user{number}@example.com"),
        "subject": "Your order has shipped",
        "reference": format!("{:024x}", number.wrapping_mul(2_654_435_761)),
    });
    let mut task = serde_json::json!({ "type": "bench.noop", "queue": queue, "payload": payload });
    if let Some(at) = execute_at {
        task["execute_at"] = at.to_string().into();
    }
    if let Some(url) = callback_url {
        task["callback_url"] = url.into();
    }
    task
}

/// The wall clock, by which lateness is measured.
pub fn now() -> Timestamp {
    SystemClock.now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_what_was_told_within_bounds() {
        assert_eq!(wait(Some("3")), Duration::from_secs(3));
        assert_eq!(wait(Some("0")), LEAST_WAIT);
        assert_eq!(wait(Some("86400")), MOST_WAIT);
        for untold in [None, Some("Fri, 31 Dec 1999 23:59:59 GMT"), Some("-1"), Some("")] {
            assert_eq!(wait(untold), USUAL_WAIT, "{untold:?}");
        }
    }
}
