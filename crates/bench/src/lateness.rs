//! `lateness`: tasks due at a steady rate, and how late each of them arrives.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use anyhow::Context;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use hdrhistogram::Histogram;
use punctual_core::time::Timestamp;
use tokio::sync::{Notify, mpsc};

use crate::Options;
use crate::client::{Client, now};
use crate::report::{Report, lateness_histogram};
use crate::submit::{preload, progress};
use crate::workers::Workers;

/// Submits everything ahead, then measures arrivals at waiting pull workers or at a sink.
pub async fn run(
    client: &Client,
    options: &Options,
    rate: usize,
    seconds: usize,
    webhook: bool,
) -> anyhow::Result<Report> {
    let tasks = rate * seconds;
    // Ahead of the first due instant: time for a preload of 10,000 tasks a second.
    let lead = i64::try_from(tasks).unwrap_or(i64::MAX) / 10 + 2_000;
    let first = now().plus_millis(lead);
    let due = move |number: usize| {
        let millis = number as u128 * 1_000 / rate as u128;
        Some(first.plus_millis(i64::try_from(millis).unwrap_or(i64::MAX)))
    };
    let (lateness, early) = if webhook {
        let mut sink = Sink::start(tasks).await?;
        preload(client, options, tasks, "lateness", due, Some(sink.url())).await?;
        anyhow::ensure!(now() < first, "the preload took longer than its lead of {lead} ms");
        sink.wait().await?
    } else {
        let workers = options.many_connections();
        preload(client, options, tasks, "lateness", due, None).await?;
        anyhow::ensure!(now() < first, "the preload took longer than its lead of {lead} ms");
        let seen = Workers::start(client, "lateness", workers, options.batch, tasks).join().await?;
        (seen.lateness, seen.early)
    };
    let mut report = Report::new(if webhook { "lateness_webhook" } else { "lateness" });
    report.count("tasks", tasks);
    report.count("rate_per_s", rate);
    report.count("seconds", seconds);
    report.lateness(&lateness, early);
    Ok(report)
}

/// A webhook target in this process that completes everything and notes how late it came.
pub struct Sink {
    address: std::net::SocketAddr,
    arrivals: mpsc::UnboundedReceiver<i64>,
    expected: usize,
    seen: Arc<Seen>,
}

struct Seen {
    late_millis: mpsc::UnboundedSender<i64>,
    count: AtomicUsize,
    stopped: AtomicBool,
    all: Notify,
}

impl Sink {
    /// A sink that expects `expected` hits.
    pub async fn start(expected: usize) -> anyhow::Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (late_millis, arrivals) = mpsc::unbounded_channel();
        let seen = Arc::new(Seen {
            late_millis,
            count: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            all: Notify::new(),
        });
        let app = axum::Router::new()
            .route(
                "/hook",
                axum::routing::post(async move |State(seen): State<Arc<Seen>>, headers: HeaderMap| {
                    hit(&seen, &headers, expected)
                }),
            )
            .with_state(Arc::clone(&seen));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(Self { address, arrivals, expected, seen })
    }

    /// Where to push to.
    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// Waits for all hits; answers the lateness and how many came early.
    pub async fn wait(&mut self) -> anyhow::Result<(Histogram<u64>, usize)> {
        let bar = progress(self.expected, "receiving");
        let all = async {
            while self.seen.count.load(Relaxed) < self.expected {
                tokio::select! {
                    () = self.seen.all.notified() => {}
                    () = tokio::time::sleep(Duration::from_millis(100)) => {}
                }
                bar.set_position(self.seen.count.load(Relaxed) as u64);
            }
        };
        tokio::time::timeout(Duration::from_mins(10), all).await.context("not all webhooks came within 10 minutes")?;
        self.seen.stopped.store(true, Relaxed);
        bar.finish_and_clear();
        let (mut lateness, mut early) = (lateness_histogram(), 0);
        while let Ok(late) = self.arrivals.try_recv() {
            early += usize::from(late < 0);
            lateness.saturating_record(u64::try_from(late).unwrap_or(0) * 1_000);
        }
        Ok((lateness, early))
    }
}

fn hit(seen: &Seen, headers: &HeaderMap, expected: usize) -> StatusCode {
    let due = headers.get("punctual-execute-at").and_then(|at| Timestamp::parse(at.to_str().ok()?).ok());
    let Some(due) = due else { return StatusCode::BAD_REQUEST };
    if !seen.stopped.load(Relaxed) && seen.late_millis.send(now().millis_since(due)).is_err() {
        return StatusCode::GONE;
    }
    if seen.count.fetch_add(1, Relaxed) + 1 >= expected {
        seen.all.notify_one();
    }
    StatusCode::NO_CONTENT
}
