//! Pull workers that lease in batches, note how late each task came, and complete it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use tokio::task::JoinSet;

use crate::client::Client;
use crate::moment::Moment;
use crate::report::lateness_histogram;
use crate::submit::progress;

/// What the workers saw.
pub struct Seen {
    /// How late each task came, in microseconds.
    pub lateness: Histogram<u64>,
    /// Tasks that came before they were due.
    pub early: usize,
    /// When the last task was completed.
    pub ended: Instant,
}

/// Workers that stop once `tasks` tasks were completed.
pub struct Workers {
    set: JoinSet<anyhow::Result<Seen>>,
    bar: ProgressBar,
}

impl Workers {
    /// Sets `count` workers to a queue; they ask all servers, each one of them.
    pub fn start(client: &Client, queue: &'static str, count: usize, batch: usize, tasks: usize) -> Self {
        let done = Arc::new(AtomicUsize::new(0));
        let bar = progress(tasks, "working");
        let mut set = JoinSet::new();
        for number in 0..count {
            let (client, done, bar) = (client.of_number(number), Arc::clone(&done), bar.clone());
            set.spawn(work(client, queue, format!("worker_bench_{number}"), batch, tasks, done, bar));
        }
        Self { set, bar }
    }

    /// Waits until all is done.
    pub async fn join(mut self) -> anyhow::Result<Seen> {
        let mut seen = Seen { lateness: lateness_histogram(), early: 0, ended: Instant::now() };
        let mut last = None;
        while let Some(worker) = self.set.join_next().await {
            let one = worker??;
            seen.lateness.add(&one.lateness)?;
            seen.early += one.early;
            last = last.max(Some(one.ended));
        }
        seen.ended = last.unwrap_or(seen.ended);
        self.bar.finish_and_clear();
        Ok(seen)
    }
}

async fn work(
    client: Client,
    queue: &'static str,
    name: String,
    batch: usize,
    tasks: usize,
    done: Arc<AtomicUsize>,
    bar: ProgressBar,
) -> anyhow::Result<Seen> {
    let mut seen = Seen { lateness: lateness_histogram(), early: 0, ended: Instant::now() };
    let mut idle_since = Instant::now();
    while done.load(Relaxed) < tasks {
        let leases = client.lease(queue, &name, batch, 1).await?;
        let arrived = Moment::now();
        if leases.is_empty() {
            anyhow::ensure!(idle_since.elapsed() < PATIENCE, "no task came for {} seconds", PATIENCE.as_secs());
            continue;
        }
        for lease in &leases {
            let late = arrived.micros_after(lease.task.execute_at);
            seen.early += usize::from(late < 0);
            seen.lateness.saturating_record(u64::try_from(late).unwrap_or(0));
        }
        client.complete(&leases).await?;
        seen.ended = Instant::now();
        idle_since = seen.ended;
        done.fetch_add(leases.len(), Relaxed);
        bar.inc(leases.len() as u64);
    }
    Ok(seen)
}

/// Longer than any scenario leaves a worker without work.
const PATIENCE: Duration = Duration::from_mins(2);
