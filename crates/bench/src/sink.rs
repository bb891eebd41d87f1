//! A webhook target in this process that completes every task and records when it came.
//!
//! It reads HTTP/1.1 itself ([`connection`]): a whole web framework would take a good part of the
//! processor time that is to be measured.

mod connection;

use std::collections::HashSet;
use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;
use punctual_core::ids::TaskId;
use punctual_core::time::Timestamp;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::micro_instant::MicroInstant;
use crate::report::lateness_histogram;
use crate::submit::progress;

/// Longer than any scenario leaves the sink without a webhook; a large preload has a long lead.
const SILENCE_MAX: Duration = Duration::from_mins(10);

/// A webhook target that counts arrivals.
pub struct WebhookSink {
    address: std::net::SocketAddr,
    hits: mpsc::UnboundedReceiver<(TaskId, TaskArrival)>,
}

/// The arrival of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskArrival {
    /// When the task was due.
    pub due: Timestamp,
    /// When it came.
    pub at: MicroInstant,
}

/// All webhooks that came.
pub struct TaskArrivals {
    /// The first of each task.
    pub first: Vec<TaskArrival>,
    /// How many came again: their runs were lost and repeated.
    pub repeated: usize,
}

impl WebhookSink {
    /// Starts to listen.
    pub async fn start() -> anyhow::Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (sender, hits) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(connection::serve(stream, sender.clone()));
            }
        });
        Ok(Self { address, hits })
    }

    /// The callback URL.
    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// Waits until this many tasks have come, each at least once.
    pub async fn wait(&mut self, tasks: usize) -> anyhow::Result<TaskArrivals> {
        let bar = progress(tasks, "receiving");
        let (mut seen, mut arrivals) = (HashSet::new(), TaskArrivals { first: Vec::new(), repeated: 0 });
        while arrivals.first.len() < tasks {
            let silent = || format!("no webhook came for {} minutes", SILENCE_MAX.as_secs() / 60);
            let hit = timeout(SILENCE_MAX, self.hits.recv()).await.with_context(silent)?;
            let (task, arrival) = hit.context("the sink has ended")?;
            if seen.insert(task) {
                arrivals.first.push(arrival);
                bar.inc(1);
            } else {
                arrivals.repeated += 1;
            }
        }
        bar.finish_and_clear();
        Ok(arrivals)
    }
}

impl TaskArrival {
    /// Its lateness in microseconds; negative if it came early.
    pub fn late_micros(self) -> i64 {
        self.at.micros_after(self.due)
    }
}

/// The lateness of the arrivals in microseconds, and how many came early.
pub fn lateness<'a>(arrivals: impl IntoIterator<Item = &'a TaskArrival>) -> (Histogram<u64>, usize) {
    let (mut lateness, mut early) = (lateness_histogram(), 0);
    for late in arrivals.into_iter().map(|arrival| arrival.late_micros()) {
        early += usize::from(late < 0);
        lateness.saturating_record(u64::try_from(late).unwrap_or(0));
    }
    (lateness, early)
}
