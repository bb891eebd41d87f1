//! `lateness`: tasks due at a steady rate, and how late each of them arrives.

use crate::BenchOptions;
use crate::client::{BenchClient, now};
use crate::report::BenchReport;
use crate::sink::{WebhookSink, lateness};
use crate::submit::preload;
use crate::workers::PullWorkers;

/// Submits all tasks ahead, then measures arrivals at waiting pull workers or at a sink.
pub async fn run(
    client: &BenchClient,
    options: &BenchOptions,
    rate: usize,
    seconds: usize,
    webhook: bool,
) -> anyhow::Result<BenchReport> {
    let tasks = rate * seconds;
    // The lead is enough for a preload of 10,000 tasks a second.
    let lead = i64::try_from(tasks).unwrap_or(i64::MAX) / 10 + 2_000;
    let first = now().plus_millis(lead);
    let due = move |number: usize| {
        let millis = number as u128 * 1_000 / rate as u128;
        Some(first.plus_millis(i64::try_from(millis).unwrap_or(i64::MAX)))
    };
    let (lateness, early) = if webhook {
        let mut sink = WebhookSink::start().await?;
        preload(client, options, tasks, "lateness", due, Some(sink.url())).await?;
        anyhow::ensure!(now() < first, "the preload took longer than its lead of {lead} ms");
        lateness(&sink.wait(tasks).await?.first)
    } else {
        let workers = options.many_connections();
        preload(client, options, tasks, "lateness", due, None).await?;
        anyhow::ensure!(now() < first, "the preload took longer than its lead of {lead} ms");
        let seen = PullWorkers::start(client, "lateness", workers, options.batch, tasks).join().await?;
        (seen.lateness, seen.early)
    };
    let mut report = BenchReport::new(if webhook { "lateness_webhook" } else { "lateness" });
    report.count("tasks", tasks);
    report.count("rate_per_s", rate);
    report.count("seconds", seconds);
    report.lateness(&lateness, early);
    Ok(report)
}
