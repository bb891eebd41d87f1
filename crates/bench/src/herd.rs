//! `herd`: many tasks due at one instant, pull workers waiting.

use std::time::Instant;

use crate::Options;
use crate::client::{Client, now};
use crate::report::Report;
use crate::submit::preload;
use crate::workers::Workers;

/// Time between the end of the preload and the instant, in milliseconds, at the least.
pub const HERD_LEAD: i64 = 3_000;

/// Submits the herd ahead of its instant and measures from the instant on.
pub async fn run(client: &Client, options: &Options, tasks: usize) -> anyhow::Result<Report> {
    // The lead leaves room for a preload of 20,000 tasks a second.
    let lead = i64::try_from(tasks).unwrap_or(i64::MAX) / 20 + HERD_LEAD;
    let due = now().plus_millis(lead);
    preload(client, options, tasks, "herd", move |_| Some(due), None).await?;
    anyhow::ensure!(now() < due, "the preload took longer than its lead of {lead} ms; ask for fewer tasks");
    let count = options.few_connections();
    let workers = Workers::start(client, "herd", count, options.batch, tasks);
    let began = Instant::now() + due.duration_from(now());
    let seen = workers.join().await?;
    let seconds = seen.ended.duration_since(began).as_secs_f64();
    let mut report = Report::new("herd");
    report.count("tasks", tasks);
    report.count("batch", options.batch);
    report.count("workers", count);
    report.number("seconds", seconds);
    report.number("herd_per_s", tasks as f64 / seconds);
    report.lateness(&seen.lateness, seen.early);
    Ok(report)
}
