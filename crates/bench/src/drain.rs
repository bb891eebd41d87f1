//! `drain`: how many tasks a second pull workers or webhooks take from a standing backlog.

use std::time::Instant;

use crate::BenchOptions;
use crate::client::{BenchClient, now};
use crate::lead::PreloadLead;
use crate::report::BenchReport;
use crate::sink::WebhookSink;
use crate::submit::preload;
use crate::workers::PullWorkers;

/// Submits a backlog that is due, then starts pull workers.
pub async fn run(client: &BenchClient, options: &BenchOptions, tasks: usize) -> anyhow::Result<BenchReport> {
    preload(client, options, tasks, "drain", |_| None, None).await?;
    let workers = options.few_connections();
    let began = Instant::now();
    let seen = PullWorkers::start(client, "drain", workers, options.batch, tasks).join().await?;
    let seconds = seen.ended.duration_since(began).as_secs_f64();
    let mut report = BenchReport::new("drain");
    report.count("tasks", tasks);
    report.count("batch", options.batch);
    report.count("workers", workers);
    report.number("seconds", seconds);
    report.number("drain_per_s", tasks as f64 / seconds);
    Ok(report)
}

/// Submits tasks due at one instant with a callback to a sink in this process; the drain begins at
/// that instant.
pub async fn run_webhooks(client: &BenchClient, options: &BenchOptions, tasks: usize) -> anyhow::Result<BenchReport> {
    let mut sink = WebhookSink::start().await?;
    let lead = PreloadLead::of_herd(tasks);
    preload(client, options, tasks, "drain", move |_| Some(lead.due), Some(sink.url())).await?;
    lead.check()?;
    tokio::time::sleep(lead.due.duration_from(now())).await;
    let began = Instant::now();
    sink.wait(tasks).await?;
    let seconds = began.elapsed().as_secs_f64();
    let mut report = BenchReport::new("drain_webhook");
    report.count("tasks", tasks);
    report.number("seconds", seconds);
    report.number("drain_per_s", tasks as f64 / seconds);
    Ok(report)
}
