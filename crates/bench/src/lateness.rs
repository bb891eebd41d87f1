//! `lateness`: tasks due at a steady rate, and how late each of them arrives.

use crate::BenchOptions;
use crate::client::BenchClient;
use crate::lead::{PreloadLead, due_at_rate};
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
    let lead = PreloadLead::of_rate(tasks);
    let due = move |number| Some(due_at_rate(lead.due, rate, number));
    let (lateness, early) = if webhook {
        let mut sink = WebhookSink::start().await?;
        preload(client, options, tasks, "lateness", due, Some(sink.url())).await?;
        lead.check()?;
        lateness(&sink.wait(tasks).await?.first)
    } else {
        let workers = options.many_connections();
        preload(client, options, tasks, "lateness", due, None).await?;
        lead.check()?;
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
