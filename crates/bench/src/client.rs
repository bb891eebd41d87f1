//! The calls that the scenarios make: a layer over [`punctual_client::http`].
//!
//! It uses the client's raw requests, so that nothing but the server's work is measured. The
//! client's own methods give every task an idempotency key, which the server has to store. They
//! read whole tasks where a scenario needs an id and an instant. And they repeat calls that were
//! not answered, while a measurement has to fail then.
//!
//! Invariant: a call is repeated only after the server refused it with 429 or 503.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use punctual_client::http::{Client, RawAnswer, RawRequest, StatusCode};
use punctual_client::{
    BatchAnswer, LeaseRequest, NewTask, QueueSettings, Seconds, SettleAnswer, SettleItem, SettleOutcome, SettleRequest,
};
use punctual_core::clock::{Clock, SystemClock};
use punctual_core::ids::TaskId;
use punctual_core::json::Json;
use punctual_core::time::Timestamp;
use serde::Deserialize;

use crate::server::BenchServer;

/// The wait after a refusal without a usable `Retry-After`, and the bounds of one with it.
const USUAL_WAIT: Duration = Duration::from_secs(1);
const SHORTEST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// A call that is refused for longer than this fails.
const REFUSED_MAX: Duration = Duration::from_mins(2);
/// A call that is not answered within this time fails.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(2);

/// A client of one of the servers, which waits when it is refused. Cheap to clone; clones share
/// their connections.
#[derive(Clone)]
pub struct BenchClient {
    servers: Arc<[BenchServer]>,
    /// A client of each server.
    clients: Arc<[Client]>,
    /// The index of its server.
    server: usize,
    tenant: Option<&'static str>,
    refused: Arc<AtomicUsize>,
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
    /// A client of the first of the servers, of which there is at least one.
    pub fn new(servers: &[BenchServer]) -> anyhow::Result<Self> {
        let clients = clients(servers, None)?;
        Ok(Self { servers: servers.into(), clients, server: 0, tenant: None, refused: Arc::default() })
    }

    /// The same client with connections of its own, for another runtime.
    pub fn apart(&self) -> anyhow::Result<Self> {
        Ok(Self { clients: clients(&self.servers, self.tenant)?, ..self.clone() })
    }

    /// The same client for the `number`th connection: connections are spread over the servers.
    pub fn of_number(&self, number: usize) -> Self {
        Self { server: number % self.servers.len(), ..self.clone() }
    }

    /// The same client for another tenant, with connections of its own.
    pub fn of_tenant(&self, tenant: &'static str) -> anyhow::Result<Self> {
        Self { tenant: Some(tenant), ..self.clone() }.apart()
    }

    /// How many calls of this client and its clones were refused and repeated.
    pub fn refused(&self) -> usize {
        self.refused.load(Relaxed)
    }

    /// Waits until all servers are ready.
    pub async fn ready(&self, within: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + within;
        for (server, client) in self.servers.iter().zip(self.clients.iter()) {
            ready_by(server, client, deadline).await?;
        }
        Ok(())
    }

    /// Submits one task.
    pub async fn submit(&self, task: &NewTask) -> anyhow::Result<()> {
        self.call(RawRequest::post_json(self.path("/v1/tasks"), task)?).await.map(drop)
    }

    /// Submits one task; a refusal is an error.
    pub async fn submit_once(&self, task: &NewTask) -> anyhow::Result<()> {
        let request = RawRequest::post_json(self.path("/v1/tasks"), task)?;
        let answer = self.clients[self.server].send(&request).await?;
        if answer.status.is_success() { Ok(()) } else { bail!("a submission was answered with {}", answer.status) }
    }

    /// Submits a batch.
    pub async fn submit_batch(&self, tasks: impl Iterator<Item = NewTask>) -> anyhow::Result<()> {
        let path = self.path("/v1/tasks/batch?return=ids");
        let answer = self.call(RawRequest::post(path, "application/x-ndjson", lines(tasks)?)).await?;
        let answer: BatchAnswer = answer.read().context("cannot read the answer to a batch")?;
        match answer.items.iter().find(|item| item.status != 201) {
            Some(refused) => bail!("a task of the batch was refused with {}", refused.status),
            None => Ok(()),
        }
    }

    /// Leases tasks, waiting for the first.
    pub async fn lease(&self, request: &LeaseRequest) -> anyhow::Result<Vec<LeasedTask>> {
        leased(&self.call(RawRequest::post_json(self.path("/v1/leases"), request)?).await?.body)
    }

    /// Changes the settings of a queue.
    pub async fn set_queue(&self, queue: &str, settings: &QueueSettings) -> anyhow::Result<()> {
        let path = self.path(&format!("/v1/queues/{queue}"));
        self.call(RawRequest::put_json(path, settings)?).await.context("cannot set the queue").map(drop)
    }

    /// Completes leased tasks.
    pub async fn complete(&self, leases: &[LeasedTask]) -> anyhow::Result<()> {
        let path = self.path("/v1/leases/settle");
        completed(&self.call(RawRequest::post(path, "application/json", completing(leases)?)).await?.body)
    }

    fn path(&self, path: &str) -> String {
        format!("{}{path}", self.servers[self.server].prefix())
    }

    /// Repeats the call until it is not refused.
    async fn call(&self, request: RawRequest) -> anyhow::Result<RawAnswer> {
        let (request, began) = (request.timeout(ANSWER_TIMEOUT), Instant::now());
        loop {
            let answer = self.clients[self.server].send(&request).await.with_context(|| request.to_string())?;
            if answer.status.is_success() {
                return Ok(answer);
            }
            let refused = matches!(answer.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
            if !refused || began.elapsed() >= REFUSED_MAX {
                bail!("{request} answered {}: {}", answer.status, String::from_utf8_lossy(&answer.body));
            }
            self.refused.fetch_add(1, Relaxed);
            tokio::time::sleep(wait(answer.retry_after)).await;
        }
    }
}

/// A client of each server.
fn clients(servers: &[BenchServer], tenant: Option<&str>) -> anyhow::Result<Arc<[Client]>> {
    let client = |server: &BenchServer| {
        let client = Client::new(&format!("http://{}", server.address()))?;
        let client = if let Some(key) = server.key() { client.key(key)? } else { client };
        if let Some(tenant) = tenant { client.tenant(tenant) } else { Ok(client) }
    };
    Ok(servers.iter().map(client).collect::<Result<_, _>>()?)
}

async fn ready_by(server: &BenchServer, client: &Client, deadline: Instant) -> anyhow::Result<()> {
    let (url, path) = (server.url(), format!("{}/readyz", server.prefix()));
    loop {
        // The last try, too, is long enough to find out more than that the time is over.
        let left = deadline.saturating_duration_since(Instant::now()).max(SHORTEST_WAIT);
        match client.send(&RawRequest::get(path.as_str()).timeout(left)).await {
            Ok(answer) if answer.status.is_success() => return Ok(()),
            _ if Instant::now() < deadline => tokio::time::sleep(Duration::from_millis(20)).await,
            Ok(answer) => bail!("{url}/readyz answers {}, so there is nothing to measure", answer.status),
            Err(error) => bail!("no server answers at {url}: {error}"),
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
fn wait(retry_after: Option<Duration>) -> Duration {
    retry_after.unwrap_or(USUAL_WAIT).clamp(SHORTEST_WAIT, LONGEST_WAIT)
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
        assert_eq!(wait(None), USUAL_WAIT);
        let seconds = [0, 3, 86_400].map(Duration::from_secs);
        assert_eq!(seconds.map(|asked| wait(Some(asked))), [SHORTEST_WAIT, seconds[1], LONGEST_WAIT]);
    }

    #[test]
    fn a_task_has_a_hundred_bytes_of_payload() {
        let body = lines([task(7, "q", None, None)].into_iter()).unwrap();
        let read: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&read["queue"], &read["payload"]["i"]), (&"q".into(), &7.into()));
        assert!((100..130).contains(&read["payload"].to_string().len()), "{read}");
    }
}
