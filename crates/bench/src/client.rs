//! The few calls the scenarios make, typed only as far as they look.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use punctual_core::clock::{Clock, SystemClock};
use punctual_core::time::Timestamp;
use serde::{Deserialize, Serialize};

/// A client of one server. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Client {
    url: Arc<str>,
    tenant: Option<&'static str>,
    http: reqwest::Client,
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
    /// A client of the server at `url`.
    pub fn new(url: &str) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder()
            .http1_only()
            .no_proxy()
            .pool_max_idle_per_host(1_024)
            .timeout(Duration::from_mins(2))
            .build()?;
        Ok(Self { url: url.into(), tenant: None, http })
    }

    /// The same client, for another tenant.
    pub fn of_tenant(&self, tenant: &'static str) -> Self {
        Self { tenant: Some(tenant), ..self.clone() }
    }

    /// Waits until the server is ready.
    pub async fn ready(&self, patience: Duration) -> anyhow::Result<()> {
        let deadline = tokio::time::Instant::now() + patience;
        loop {
            match self.http.get(format!("{}/readyz", self.url)).send().await {
                Ok(answer) if answer.status().is_success() => return Ok(()),
                other if tokio::time::Instant::now() >= deadline => bail!("last answer: {other:?}"),
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Submits one task.
    pub async fn submit(&self, task: String) -> anyhow::Result<()> {
        self.post("/v1/tasks", "application/json", task).await.map(drop)
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
        let ask = serde_json::json!({
            "worker_id": worker, "queues": [queue], "max_tasks": most, "wait_seconds": wait_seconds
        });
        let answer = self.post("/v1/leases", "application/json", ask.to_string()).await?;
        let leases: Leases = serde_json::from_slice(&answer).context("the lease's answer is not as agreed")?;
        Ok(leases.leases)
    }

    /// Completes leased tasks.
    pub async fn complete(&self, leases: &[Lease]) -> anyhow::Result<()> {
        let items = leases
            .iter()
            .map(|lease| Completed { task_id: &lease.task.task_id, token: lease.token, outcome: "completed" })
            .collect();
        let answer =
            self.post("/v1/leases/settle", "application/json", serde_json::to_string(&Settle { items })?).await?;
        let settled: Settled = serde_json::from_slice(&answer).context("the settlement's answer is not as agreed")?;
        match settled.items.iter().find(|item| item.status != 200) {
            Some(refused) => bail!("a completion was refused with {}", refused.status),
            None => Ok(()),
        }
    }

    async fn post(&self, path: &str, content_type: &str, body: String) -> anyhow::Result<Vec<u8>> {
        let mut request = self.http.post(format!("{}{path}", self.url)).header("content-type", content_type).body(body);
        if let Some(tenant) = self.tenant {
            request = request.header("punctual-tenant", tenant);
        }
        let answer = request.send().await.with_context(|| format!("POST {path}"))?;
        let status = answer.status();
        let body = answer.bytes().await?;
        if !status.is_success() {
            bail!("POST {path} answered {status}: {}", String::from_utf8_lossy(&body));
        }
        Ok(body.into())
    }
}

/// About a hundred bytes of payload, the same as the benchmarks of other systems use.
pub fn task(number: usize, queue: &str, execute_at: Option<Timestamp>, callback_url: Option<&str>) -> String {
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
    task.to_string()
}

/// The wall clock, by which lateness is measured.
pub fn now() -> Timestamp {
    SystemClock.now()
}
