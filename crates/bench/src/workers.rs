//! Pull workers that lease in batches, record how late each task came, and complete it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use tokio::task::JoinSet;

use crate::client::{BenchClient, leasing};
use crate::micro_instant::MicroInstant;
use crate::report::lateness_histogram;
use crate::submit::progress;

/// Longer than any scenario leaves a worker without work.
const IDLE_MAX: Duration = Duration::from_mins(2);

/// What the workers recorded.
pub struct WorkerTotals {
    /// How late each task came, in microseconds.
    pub lateness: Histogram<u64>,
    /// Tasks that came before they were due.
    pub early: usize,
    /// When the last task was completed.
    pub ended: Instant,
}

/// Workers that stop once all tasks are completed.
pub struct PullWorkers {
    workers: JoinSet<anyhow::Result<WorkerTotals>>,
    bar: ProgressBar,
}

impl PullWorkers {
    /// Starts `count` workers of a queue, spread over the servers.
    pub fn start(client: &BenchClient, queue: &'static str, count: usize, batch: usize, tasks: usize) -> Self {
        let done = Arc::new(AtomicUsize::new(0));
        let bar = progress(tasks, "working");
        let mut workers = JoinSet::new();
        for number in 0..count {
            let (client, done, bar) = (client.of_number(number), Arc::clone(&done), bar.clone());
            workers.spawn(work(client, queue, format!("worker_bench_{number}"), batch, tasks, done, bar));
        }
        Self { workers, bar }
    }

    /// Waits until all tasks are completed.
    pub async fn join(mut self) -> anyhow::Result<WorkerTotals> {
        let mut totals = WorkerTotals { lateness: lateness_histogram(), early: 0, ended: Instant::now() };
        let mut last = None;
        while let Some(worker) = self.workers.join_next().await {
            let one = worker??;
            totals.lateness.add(&one.lateness)?;
            totals.early += one.early;
            last = last.max(Some(one.ended));
        }
        totals.ended = last.unwrap_or(totals.ended);
        self.bar.finish_and_clear();
        Ok(totals)
    }
}

async fn work(
    client: BenchClient,
    queue: &'static str,
    name: String,
    batch: usize,
    tasks: usize,
    done: Arc<AtomicUsize>,
    bar: ProgressBar,
) -> anyhow::Result<WorkerTotals> {
    let mut totals = WorkerTotals { lateness: lateness_histogram(), early: 0, ended: Instant::now() };
    let request = leasing(queue, name, batch, 1);
    let mut idle_since = Instant::now();
    while done.load(Relaxed) < tasks {
        let leases = client.lease(&request).await?;
        let arrived = MicroInstant::now();
        if leases.is_empty() {
            anyhow::ensure!(idle_since.elapsed() < IDLE_MAX, "no task came for {} seconds", IDLE_MAX.as_secs());
            continue;
        }
        for lease in &leases {
            let late = arrived.micros_after(lease.task.execute_at);
            totals.early += usize::from(late < 0);
            totals.lateness.saturating_record(u64::try_from(late).unwrap_or(0));
        }
        client.complete(&leases).await?;
        totals.ended = Instant::now();
        idle_since = totals.ended;
        done.fetch_add(leases.len(), Relaxed);
        bar.inc(leases.len() as u64);
    }
    Ok(totals)
}
