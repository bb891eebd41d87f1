//! `backlog`: what submissions and claims cost beside many waiting tasks, compared with none.

use std::time::Instant;

use crate::Options;
use crate::client::{Client, now};
use crate::report::Report;
use crate::server::Server;
use crate::submit::preload;
use crate::workers::Workers;

/// Measurements of each case; the median counts.
const ROUNDS: usize = 3;

/// Measures empty, fills up, measures again.
pub async fn run(
    client: &Client,
    options: &Options,
    server: &Server,
    waiting: usize,
    probe: usize,
) -> anyhow::Result<Report> {
    measure(client, options, probe).await?; // warms caches and connections
    let (empty_submit, empty_drain) = median(client, options, probe).await?;
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
    let rss = server.rss_megabytes();
    let (full_submit, full_drain) = median(client, options, probe).await?;
    let mut report = Report::new("backlog");
    report.count("waiting", waiting);
    report.number("empty_submit_per_s", empty_submit);
    report.number("submit_per_s", full_submit);
    report.number("submit_slowdown", empty_submit / full_submit);
    report.number("empty_drain_per_s", empty_drain);
    report.number("drain_per_s", full_drain);
    report.number("drain_slowdown", empty_drain / full_drain);
    if let Some(megabytes) = rss {
        report.number("rss_waiting_mb", megabytes);
    }
    Ok(report)
}

async fn median(client: &Client, options: &Options, probe: usize) -> anyhow::Result<(f64, f64)> {
    let (mut submits, mut drains) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (submit, drain) = measure(client, options, probe).await?;
        submits.push(submit);
        drains.push(drain);
    }
    submits.sort_by(f64::total_cmp);
    drains.sort_by(f64::total_cmp);
    Ok((submits[ROUNDS / 2], drains[ROUNDS / 2]))
}

async fn measure(client: &Client, options: &Options, tasks: usize) -> anyhow::Result<(f64, f64)> {
    let began = Instant::now();
    preload(client, options, tasks, "probe", |_| None, None).await?;
    let submit = tasks as f64 / began.elapsed().as_secs_f64();
    let began = Instant::now();
    let seen = Workers::start(client, "probe", 4, options.batch, tasks).join().await?;
    Ok((submit, tasks as f64 / seen.ended.duration_since(began).as_secs_f64()))
}
