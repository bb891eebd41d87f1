//! `held`: how much a transaction that is held open slows the drains.
//!
//! PostgreSQL cannot clean up what such a transaction sees, so the tables grow by every change
//! until it ends. The drains without it come before and after, so that neither the growth of the
//! history nor a noisy machine affects only one side.

use std::time::{Duration, Instant};

use crate::BenchOptions;
use crate::client::BenchClient;
use crate::report::BenchReport;
use crate::site::Site;
use crate::submit::preload;
use crate::workers::PullWorkers;

/// Drains for a while, then with a transaction held open, then without it again.
pub async fn run(
    client: &BenchClient,
    options: &BenchOptions,
    site: &Site,
    tasks: usize,
    seconds: usize,
) -> anyhow::Result<BenchReport> {
    let time = Duration::from_secs(seconds as u64);
    let before = DrainSeries::run(client, options, tasks, time / 2).await?;
    let held = site.hold().await?;
    let during = DrainSeries::run(client, options, tasks, time).await?;
    held.release().await?;
    let after = DrainSeries::run(client, options, tasks, time / 2).await?;
    let free = DrainSeries { drains: [before.drains.clone(), after.drains.clone()].concat(), ..before };
    let mut report = BenchReport::new("held");
    report.count("tasks", tasks * (free.drains.len() + during.drains.len()));
    report.count("batch", options.batch);
    report.count("workers", options.few_connections());
    report.number("seconds", during.took.as_secs_f64());
    report.number("before_per_s", before.per_s(tasks));
    report.number("held_per_s", during.per_s(tasks));
    report.number("held_last_per_s", during.last().per_s(tasks));
    report.number("after_per_s", after.per_s(tasks));
    report.number("held_ratio", during.per_s(tasks) / free.per_s(tasks));
    Ok(report)
}

/// Drains in a row, and how long each took.
struct DrainSeries {
    drains: Vec<Duration>,
    /// Including the submissions.
    took: Duration,
}

impl DrainSeries {
    async fn run(client: &BenchClient, options: &BenchOptions, tasks: usize, time: Duration) -> anyhow::Result<Self> {
        let (began, mut drains) = (Instant::now(), Vec::new());
        loop {
            preload(client, options, tasks, "held", |_| None, None).await?;
            let drain = Instant::now();
            let seen =
                PullWorkers::start(client, "held", options.few_connections(), options.batch, tasks).join().await?;
            drains.push(seen.ended.duration_since(drain));
            if began.elapsed() >= time {
                return Ok(Self { drains, took: began.elapsed() });
            }
        }
    }

    /// The last quarter: the cost of a transaction grows with its age.
    fn last(&self) -> Self {
        let quarter = self.drains.len().div_ceil(4);
        Self { drains: self.drains[self.drains.len() - quarter..].to_vec(), took: self.took }
    }

    fn per_s(&self, tasks: usize) -> f64 {
        (tasks * self.drains.len()) as f64 / self.drains.iter().sum::<Duration>().as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_quarter_has_its_own_rate() {
        let drains = [1, 1, 1, 1, 1, 1, 2, 2].map(Duration::from_secs).to_vec();
        let series = DrainSeries { drains, took: Duration::from_secs(12) };
        assert_eq!((series.per_s(10), series.last().per_s(10)), (8.0, 5.0));
        let short = DrainSeries { drains: vec![Duration::from_secs(2)], took: Duration::from_secs(3) };
        assert_eq!(short.last().drains.len(), 1);
    }
}
