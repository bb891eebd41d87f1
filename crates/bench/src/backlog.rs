//! `backlog`: what submissions and claims cost beside many waiting tasks, and beside none.

use std::time::{Duration, Instant};

use crate::BenchOptions;
use crate::client::{BenchClient, now};
use crate::report::BenchReport;
use crate::site::Site;
use crate::submit::preload;
use crate::workers::PullWorkers;

/// Measurements of each case; the median counts.
const ROUNDS: usize = 3;

/// Measures, submits the waiting tasks, and measures again.
pub async fn run(
    client: &BenchClient,
    options: &BenchOptions,
    site: &Site,
    waiting: usize,
    probe: usize,
) -> anyhow::Result<BenchReport> {
    measure(client, options, probe).await?; // warms caches and connections
    site.clean_up().await?;
    let empty = CaseMedians::run(client, options, probe).await?;
    let far = now().plus_millis(7 * 86_400_000);
    let spread = 86_400_000_usize;
    preload(
        client,
        options,
        waiting,
        "backlog",
        move |number| Some(far.plus_millis(i64::try_from(number.wrapping_mul(7_919) % spread).unwrap_or(0))),
        None,
    )
    .await?;
    let rss = site.rss_megabytes();
    site.clean_up().await?;
    let full = CaseMedians::run(client, options, probe).await?;
    let mut report = BenchReport::new("backlog");
    report.count("waiting", waiting);
    report.count("tasks", 2 * ROUNDS * probe);
    report.count("workers", options.few_connections());
    report.number("seconds", empty.seconds + full.seconds);
    report.number("empty_submit_per_s", empty.submit_per_s);
    report.number("submit_per_s", full.submit_per_s);
    report.number("submit_slowdown", empty.submit_per_s / full.submit_per_s);
    report.number("empty_drain_per_s", empty.drain_per_s);
    report.number("drain_per_s", full.drain_per_s);
    report.number("drain_slowdown", empty.drain_per_s / full.drain_per_s);
    report.number_if_known("rss_waiting_mb", rss);
    Ok(report)
}

/// The medians of one case, and how long all of it took.
struct CaseMedians {
    submit_per_s: f64,
    drain_per_s: f64,
    seconds: f64,
}

impl CaseMedians {
    async fn run(client: &BenchClient, options: &BenchOptions, probe: usize) -> anyhow::Result<Self> {
        let (mut submits, mut drains) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let (submit, drain) = measure(client, options, probe).await?;
            submits.push(submit);
            drains.push(drain);
        }
        submits.sort_unstable();
        drains.sort_unstable();
        let seconds = submits.iter().chain(&drains).sum::<Duration>().as_secs_f64();
        let per_s = |sorted: &[Duration]| probe as f64 / sorted[ROUNDS / 2].as_secs_f64();
        Ok(Self { submit_per_s: per_s(&submits), drain_per_s: per_s(&drains), seconds })
    }
}

/// How long the submission of the tasks takes, and how long the drain.
async fn measure(client: &BenchClient, options: &BenchOptions, tasks: usize) -> anyhow::Result<(Duration, Duration)> {
    let began = Instant::now();
    preload(client, options, tasks, "probe", |_| None, None).await?;
    let submitted = began.elapsed();
    let began = Instant::now();
    let seen = PullWorkers::start(client, "probe", options.few_connections(), options.batch, tasks).join().await?;
    Ok((submitted, seen.ended.duration_since(began)))
}
