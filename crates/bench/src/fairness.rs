//! `fairness`: how late a quiet tenant's tasks arrive alone, and beside another tenant's backlog.
//!
//! The other tenant's tasks are all due and its workers take them as fast as they can, so
//! every shared thing (the store's writer, the dispatcher, the machine) is busy with them.

use std::time::Instant;

use hdrhistogram::Histogram;

use crate::Options;
use crate::client::{Client, now};
use crate::report::Report;
use crate::submit::preload;
use crate::workers::Workers;

/// Workers of the quiet tenant, one of which is always waiting.
const QUIET_WORKERS: usize = 4;
/// Between the submission of the quiet tenant's tasks and the first due instant, in milliseconds.
const LEAD: i64 = 1_000;

/// Measures the quiet tenant alone, then beside the backlog while that is being drained.
pub async fn run(
    client: &Client,
    options: &Options,
    backlog: usize,
    rate: usize,
    seconds: usize,
) -> anyhow::Result<Report> {
    let (busy, quiet) = (client.of_tenant("busy"), client.of_tenant("quiet"));
    let alone = watch(&quiet, options, rate, seconds).await?;
    preload(&busy, options, backlog, "busy", |_| None, None).await?;
    let began = Instant::now();
    let drain = Workers::start(&busy, "busy", options.few_connections(), options.batch, backlog);
    let beside = watch(&quiet, options, rate, seconds).await?;
    let watched = began.elapsed();
    let drained = drain.join().await?.ended.duration_since(began);
    let p99 = |lateness: &Histogram<u64>| lateness.value_at_quantile(0.99) as f64 / 1_000.0;
    let mut report = Report::new("fairness");
    report.count("backlog", backlog);
    report.count("rate_per_s", rate);
    report.count("tasks", rate * seconds);
    report.number("seconds", watched.as_secs_f64());
    // What is left of the watch when the backlog is gone was not disturbed by it.
    report.number("disturbed_percent", (drained.as_secs_f64() / watched.as_secs_f64()).min(1.0) * 100.0);
    report.number("drain_per_s", backlog as f64 / drained.as_secs_f64());
    report.number("alone_p99_ms", p99(&alone.0));
    report.number("p99_ratio", p99(&beside.0) / p99(&alone.0).max(1.0));
    report.lateness(&beside.0, alone.1 + beside.1);
    Ok(report)
}

/// The lateness of single tasks at a steady rate, and how many came early.
async fn watch(
    quiet: &Client,
    options: &Options,
    rate: usize,
    seconds: usize,
) -> anyhow::Result<(Histogram<u64>, usize)> {
    let tasks = rate * seconds;
    let first = now().plus_millis(LEAD);
    let due = move |number: usize| {
        let millis = number as u128 * 1_000 / rate as u128;
        Some(first.plus_millis(i64::try_from(millis).unwrap_or(i64::MAX)))
    };
    preload(quiet, options, tasks, "quiet", due, None).await?;
    let seen = Workers::start(quiet, "quiet", QUIET_WORKERS, 1, tasks).join().await?;
    Ok((seen.lateness, seen.early))
}
