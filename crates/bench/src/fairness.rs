//! `fairness`: how late a quiet tenant's tasks arrive alone, and beside another tenant's backlog.
//!
//! The other tenant's tasks are all due and are taken as fast as they can be, by its pull workers or
//! by a sink, so every shared thing (the store's writer, the dispatcher, the machine) is busy with
//! them. What is measured is how long the server lets the quiet tenant wait, so the other tenant's
//! clients give way to everything else on the machine, and a task has come when the system has it,
//! not when its worker gets a processor to read it: elsewhere they would be on other machines.

use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use crate::Options;
use crate::client::{Client, now, task};
use crate::courtesy::Courteous;
use crate::herd::HERD_LEAD;
use crate::quiet::{Seen, work};
use crate::report::Report;
use crate::sink::{Arrival, Sink, lateness};
use crate::site::Site;
use crate::submit::{preload, submit_all};
use crate::workers::Workers;

/// The quiet tenant, and its queue.
const QUIET: &str = "quiet";
/// Tasks it submits in a call.
const QUIET_BATCH: usize = 1_000;
/// Between the submission of the quiet tenant's tasks and the first due instant, in milliseconds.
const LEAD: i64 = 1_000;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Fairness {
    /// The other tenant's backlog.
    pub backlog: usize,
    /// Tasks a second of the quiet tenant.
    pub rate: usize,
    /// For how long, in each case.
    pub seconds: usize,
    /// How often, each time alone and then beside a new backlog.
    pub rounds: usize,
    /// By sinks instead of pull workers.
    pub webhook: bool,
}

/// Measures the quiet tenant alone, then beside the backlog while that is being drained.
pub async fn run(client: &Client, options: &Options, site: &Site, fairness: Fairness) -> anyhow::Result<Report> {
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    let (mut watched, mut drained) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..fairness.rounds {
        alone.push(watch(client, site, fairness).await?);
        let busy = client.of_tenant("busy");
        let drain = if fairness.webhook {
            drain_by_sink(&busy, options, fairness.backlog).await?
        } else {
            drain_by_workers(&busy, options, fairness.backlog).await?
        };
        let began = Instant::now();
        let seen = watch(client, site, fairness).await?;
        watched += began.elapsed();
        let ended = drain.await??;
        drained += ended.duration_since(began);
        // What is due when the backlog is gone is not beside it.
        beside.push(seen.until(now().minus(ended.elapsed())));
    }
    let (alone_p99, beside_p99) = (median_p99(&alone, arrived), median_p99(&beside, arrived));
    let mut report = Report::new(if fairness.webhook { "fairness_webhook" } else { "fairness" });
    report.count("backlog", fairness.backlog);
    report.count("rate_per_s", fairness.rate);
    report.count("rounds", fairness.rounds);
    report.count("tasks", fairness.rate * fairness.seconds * fairness.rounds);
    report.number("seconds", watched.as_secs_f64());
    report.count("disturbed_tasks", beside.iter().flat_map(arrived).count());
    report.number("drain_per_s", (fairness.backlog * fairness.rounds) as f64 / drained.as_secs_f64());
    report.number_if_known("alone_p99_ms", alone_p99);
    report.number_if_known("beside_p99_ms", beside_p99);
    report.number_if_known("p99_ratio", alone_p99.zip(beside_p99).map(|(alone, beside)| beside / alone.max(1.0)));
    report.number_if_known("alone_read_p99_ms", median_p99(&alone, read));
    report.number_if_known("beside_read_p99_ms", median_p99(&beside, read));
    let (undisturbed, early_alone) = lateness(alone.iter().flat_map(arrived));
    let (disturbed, early_beside) = lateness(beside.iter().flat_map(arrived));
    report.number("alone_p50_ms", millis(undisturbed.value_at_quantile(0.5)));
    report.number("alone_max_ms", millis(undisturbed.max()));
    report.lateness(&disturbed, early_alone + early_beside);
    Ok(report)
}

fn arrived(seen: &Seen) -> &Vec<Arrival> {
    &seen.arrived
}

fn read(seen: &Seen) -> &Vec<Arrival> {
    &seen.read
}

/// The median of what 99 of 100 came within, over the rounds: a shared machine pauses now and then for tenths of a
/// second, and a round that met that says nothing about who shares with whom. None of nothing: a backlog may be gone before
/// anything was due beside it.
fn median_p99(rounds: &[Seen], of: fn(&Seen) -> &Vec<Arrival>) -> Option<f64> {
    let with_some = rounds.iter().map(of).filter(|arrivals| !arrivals.is_empty());
    let mut each: Vec<u64> = with_some.map(|arrivals| lateness(arrivals).0.value_at_quantile(0.99)).collect();
    each.sort_unstable();
    each.get(each.len() / 2).copied().map(millis)
}

fn millis(micros: u64) -> f64 {
    micros as f64 / 1_000.0
}

/// Submits the backlog, due at once, and sets pull workers at it; answers when the last was completed.
async fn drain_by_workers(
    busy: &Client,
    options: &Options,
    backlog: usize,
) -> anyhow::Result<JoinHandle<anyhow::Result<Instant>>> {
    preload(busy, options, backlog, "busy", |_| None, None).await?;
    let (busy, workers, batch) = (busy.apart()?, options.few_connections(), options.batch);
    let drain = async move { Workers::start(&busy, "busy", workers, batch, backlog).join().await };
    let runtime = Courteous::start()?;
    let drained = runtime.handle().spawn(drain);
    Ok(tokio::spawn(async move {
        let ended = drained.await??.ended;
        drop(runtime);
        Ok(ended)
    }))
}

/// Submits the backlog with a callback, and returns when it is due; answers when the last has come.
async fn drain_by_sink(
    busy: &Client,
    options: &Options,
    backlog: usize,
) -> anyhow::Result<JoinHandle<anyhow::Result<Instant>>> {
    let mut sink = Sink::start().await?;
    let lead = i64::try_from(backlog).unwrap_or(i64::MAX) / 20 + HERD_LEAD;
    let due = now().plus_millis(lead);
    preload(busy, options, backlog, "busy", move |_| Some(due), Some(sink.url())).await?;
    anyhow::ensure!(now() < due, "the preload took longer than its lead of {lead} ms; ask for a smaller backlog");
    let drain = tokio::spawn(async move {
        sink.wait(backlog).await?;
        Ok(Instant::now())
    });
    tokio::time::sleep(due.duration_from(now())).await;
    Ok(drain)
}

/// The lateness of single tasks of the quiet tenant at a steady rate.
async fn watch(
    client: &Client,
    site: &Site,
    Fairness { rate, seconds, webhook, .. }: Fairness,
) -> anyhow::Result<Seen> {
    let (quiet, tasks) = (client.of_tenant(QUIET), rate * seconds);
    let mut sink = if webhook { Some(Sink::start().await?) } else { None };
    let first = now().plus_millis(LEAD);
    let due = move |number: usize| {
        let millis = number as u128 * 1_000 / rate as u128;
        Some(first.plus_millis(i64::try_from(millis).unwrap_or(i64::MAX)))
    };
    let url = sink.as_ref().map(Sink::url);
    let make = move |number| task(number, QUIET, due(number), url.as_deref()).to_string();
    submit_all(&quiet, 1, QUIET_BATCH, tasks, "preloading", make).await?;
    if let Some(sink) = &mut sink {
        return Ok(Seen { arrived: sink.wait(tasks).await?.first, read: Vec::new() });
    }
    let servers = site.servers().to_vec();
    tokio::task::spawn_blocking(move || work(&servers, QUIET, tasks)).await?
}
