//! The pull workers of the quiet tenant in `fairness`.
//!
//! Each has a thread and a connection of its own, so that the clients of the load are not in its
//! way. Every arrival is as the kernel stamped it.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, ensure};
use punctual_core::time::Timestamp;

use crate::client::{LeasedTask, completed, completing, leased, leasing};
use crate::micro_instant::MicroInstant;
use crate::server::BenchServer;
use crate::sink::TaskArrival;
use crate::stamped::{StampedAnswer, StampedConnection};

/// Enough workers for one to wait always.
const WORKERS: usize = 4;
/// The wait of a worker that was refused.
const REFUSED_WAIT: Duration = Duration::from_millis(100);
/// Longer than the measurement leaves a worker without work.
const IDLE_MAX: Duration = Duration::from_mins(2);

/// When the quiet tenant's tasks came.
#[derive(Default)]
pub struct QuietArrivals {
    /// When each reached the machine.
    pub arrived: Vec<TaskArrival>,
    /// When each was read there; empty for webhooks, which have no such stamp.
    pub read: Vec<TaskArrival>,
}

impl QuietArrivals {
    /// The tasks that were due until `end`.
    pub fn until(mut self, end: Timestamp) -> Self {
        self.arrived.retain(|arrival| arrival.due <= end);
        self.read.retain(|arrival| arrival.due <= end);
        self
    }
}

/// Takes `tasks` tasks of `tenant` from the queue of the same name, one at a time, and completes
/// each.
pub fn work(servers: &[BenchServer], tenant: &'static str, tasks: usize) -> anyhow::Result<QuietArrivals> {
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let mut workers = Vec::new();
        for (number, server) in (0..WORKERS).zip(servers.iter().cycle()) {
            let (calls, done) = (WorkerCalls::new(server, tenant, number)?, &done);
            let one = move || take(calls, tasks, done);
            workers.push(std::thread::Builder::new().name(tenant.to_owned()).spawn_scoped(scope, one)?);
        }
        let mut all = QuietArrivals::default();
        for worker in workers {
            let one = worker.join().map_err(|_| anyhow!("a worker of the quiet tenant panicked"))??;
            all.arrived.extend(one.arrived);
            all.read.extend(one.read);
        }
        Ok(all)
    })
}

fn take(mut calls: WorkerCalls, tasks: usize, done: &AtomicUsize) -> anyhow::Result<QuietArrivals> {
    let (mut arrivals, mut idle_since) = (QuietArrivals::default(), Instant::now());
    while done.load(Relaxed) < tasks {
        let (leases, arrived) = calls.lease()?;
        let read = MicroInstant::now();
        ensure!(idle_since.elapsed() < IDLE_MAX, "no task came for {} seconds", IDLE_MAX.as_secs());
        for lease in &leases {
            let due = lease.task.execute_at;
            arrivals.arrived.push(TaskArrival { due, at: arrived });
            arrivals.read.push(TaskArrival { due, at: read });
            calls.complete(lease)?;
            done.fetch_add(1, Relaxed);
            idle_since = Instant::now();
        }
    }
    Ok(arrivals)
}

/// The calls of one worker.
struct WorkerCalls {
    connection: StampedConnection,
    /// What every path begins with.
    prefix: String,
    headers: String,
    lease_request: Vec<u8>,
}

impl WorkerCalls {
    fn new(server: &BenchServer, tenant: &str, number: usize) -> anyhow::Result<Self> {
        let address = server.address();
        Ok(Self {
            connection: StampedConnection::open(&address)?,
            prefix: server.prefix().to_owned(),
            headers: format!(
                "host: {address}\r\n{}punctual-tenant: {tenant}\r\ncontent-type: application/json",
                server.authorization()
            ),
            lease_request: serde_json::to_vec(&leasing(tenant, format!("worker_{tenant}_{number}"), 1, 1))?,
        })
    }

    /// The leased tasks, and when the answer arrived.
    fn lease(&mut self) -> anyhow::Result<(Vec<LeasedTask>, MicroInstant)> {
        let answer = self.post("/v1/leases", &self.lease_request.clone())?;
        Ok((leased(&answer.body)?, answer.arrived))
    }

    fn complete(&mut self, lease: &LeasedTask) -> anyhow::Result<()> {
        completed(&self.post("/v1/leases/settle", &completing(std::slice::from_ref(lease))?)?.body)
    }

    /// Repeats the call until it is not refused.
    fn post(&mut self, path: &str, body: &[u8]) -> anyhow::Result<StampedAnswer> {
        let Self { prefix, headers, .. } = self;
        let head = format!("POST {prefix}{path} HTTP/1.1\r\n{headers}\r\ncontent-length: {}\r\n\r\n", body.len());
        let request = [head.as_bytes(), body].concat();
        loop {
            let answer = self.connection.call(&request)?;
            match answer.status {
                200 => return Ok(answer),
                429 | 503 => std::thread::sleep(REFUSED_WAIT),
                status => bail!("POST {path} answered {status}: {}", String::from_utf8_lossy(&answer.body)),
            }
        }
    }
}
