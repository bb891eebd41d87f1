//! `idle`: the processor time and the wake-ups of servers with nothing to do.

use std::time::Duration;

use anyhow::Context;

use crate::report::BenchReport;
use crate::site::Site;

/// Watches the servers for these seconds, after they have settled.
pub async fn run(site: &Site, seconds: u64) -> anyhow::Result<BenchReport> {
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (before, woken_before) = site.processor().context("idle measures a server that it starts itself")?;
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let (after, woken_after) = site.processor().context("the server has ended")?;
    let mut report = BenchReport::new("idle");
    report.count("tasks", 0);
    report.number("seconds", seconds as f64);
    report.number("cpu_percent", (after - before) / seconds as f64 * 100.0);
    report.number("wakeups_per_s", woken_after.saturating_sub(woken_before) as f64 / seconds as f64);
    Ok(report)
}
