//! The pull workers of the quiet tenant in `fairness`: a thread and a connection each, so that nothing of the load's
//! clients is in their way, and every arrival as the system stamped it.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, ensure};
use punctual_core::time::Timestamp;

use crate::client::{Lease, completed, completing, leased, leasing};
use crate::moment::Moment;
use crate::server::Server;
use crate::sink::Arrival;
use crate::stamped::{Answer, Connection};

/// Workers, one of which is always waiting.
const WORKERS: usize = 4;
/// A worker that is refused asks again after this.
const PAUSE: Duration = Duration::from_millis(100);
/// Longer than the measurement leaves a worker without work.
const PATIENCE: Duration = Duration::from_mins(2);

/// What became of the quiet tenant's tasks.
#[derive(Default)]
pub struct Seen {
    /// When each came to the machine.
    pub arrived: Vec<Arrival>,
    /// When it was read there; of webhooks nothing is known but that.
    pub read: Vec<Arrival>,
}

impl Seen {
    /// Those that were due until then.
    pub fn until(mut self, end: Timestamp) -> Self {
        self.arrived.retain(|arrival| arrival.due <= end);
        self.read.retain(|arrival| arrival.due <= end);
        self
    }
}

/// Takes `tasks` tasks of `tenant` from the queue of the same name, one at a time, and completes each.
pub fn work(servers: &[Server], tenant: &'static str, tasks: usize) -> anyhow::Result<Seen> {
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let mut workers = Vec::new();
        for (number, server) in (0..WORKERS).zip(servers.iter().cycle()) {
            let (calls, done) = (Calls::new(server, tenant, number)?, &done);
            let one = move || take(calls, tasks, done);
            workers.push(std::thread::Builder::new().name(tenant.to_owned()).spawn_scoped(scope, one)?);
        }
        let mut seen = Seen::default();
        for worker in workers {
            let one = worker.join().map_err(|_| anyhow!("a worker of the quiet tenant panicked"))??;
            seen.arrived.extend(one.arrived);
            seen.read.extend(one.read);
        }
        Ok(seen)
    })
}

fn take(mut calls: Calls, tasks: usize, done: &AtomicUsize) -> anyhow::Result<Seen> {
    let (mut seen, mut idle_since) = (Seen::default(), Instant::now());
    while done.load(Relaxed) < tasks {
        let (leases, arrived) = calls.lease()?;
        let read = Moment::now();
        ensure!(idle_since.elapsed() < PATIENCE, "no task came for {} seconds", PATIENCE.as_secs());
        for lease in &leases {
            let due = lease.task.execute_at;
            seen.arrived.push(Arrival { due, at: arrived });
            seen.read.push(Arrival { due, at: read });
            calls.complete(lease)?;
            done.fetch_add(1, Relaxed);
            idle_since = Instant::now();
        }
    }
    Ok(seen)
}

/// The calls of one worker.
struct Calls {
    connection: Connection,
    /// What the path of each begins with.
    prefix: String,
    headers: String,
    ask: String,
}

impl Calls {
    fn new(server: &Server, tenant: &str, number: usize) -> anyhow::Result<Self> {
        let address = server.address();
        Ok(Self {
            connection: Connection::open(&address)?,
            prefix: server.prefix().to_owned(),
            headers: format!("host: {address}\r\npunctual-tenant: {tenant}\r\ncontent-type: application/json"),
            ask: leasing(tenant, &format!("worker_{tenant}_{number}"), 1, 1),
        })
    }

    /// What was leased, and when the answer came.
    fn lease(&mut self) -> anyhow::Result<(Vec<Lease>, Moment)> {
        let answer = self.post("/v1/leases", &self.ask.clone())?;
        Ok((leased(&answer.body)?, answer.arrived))
    }

    fn complete(&mut self, lease: &Lease) -> anyhow::Result<()> {
        completed(&self.post("/v1/leases/settle", &completing(std::slice::from_ref(lease))?)?.body)
    }

    /// Calls until the call is not refused.
    fn post(&mut self, path: &str, body: &str) -> anyhow::Result<Answer> {
        let Self { prefix, headers, .. } = self;
        let request =
            format!("POST {prefix}{path} HTTP/1.1\r\n{headers}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        loop {
            let answer = self.connection.call(request.as_bytes())?;
            match answer.status {
                200 => return Ok(answer),
                429 | 503 => std::thread::sleep(PAUSE),
                status => bail!("POST {path} answered {status}: {}", String::from_utf8_lossy(&answer.body)),
            }
        }
    }
}
