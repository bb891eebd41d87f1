//! `fairness`: how late a quiet tenant's tasks arrive alone, and beside another tenant's backlog.
//!
//! The other tenant's tasks are all due and are taken as fast as they can be, by its pull workers or
//! by a sink, so every shared thing (the store's writer, the dispatcher, the machine) is busy with
//! them. The quiet tenant is a thread by itself: what is measured is how long the server lets it
//! wait, not how long the other tenant's clients do. For the same reason those give way to everything
//! else on the machine: elsewhere they would be on others.

use std::time::{Duration, Instant};

use anyhow::Context;
use hdrhistogram::Histogram;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::Options;
use crate::client::{Client, now, task};
use crate::courtesy::Courteous;
use crate::herd::HERD_LEAD;
use crate::report::{Report, lateness_histogram};
use crate::sink::{Sink, lateness};
use crate::submit::{preload, submit_all};
use crate::workers::Workers;

/// Workers of the quiet tenant, one of which is always waiting.
const QUIET_WORKERS: usize = 4;
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

/// Lateness in microseconds, and how many came early.
type Watched = (Histogram<u64>, usize);

fn add(all: &mut Watched, round: &Watched) -> anyhow::Result<()> {
    all.1 += round.1;
    Ok(all.0.add(&round.0)?)
}

/// Measures the quiet tenant alone, then beside the backlog while that is being drained.
pub async fn run(client: &Client, options: &Options, fairness: Fairness) -> anyhow::Result<Report> {
    let (mut alone, mut beside): (Watched, Watched) = ((lateness_histogram(), 0), (lateness_histogram(), 0));
    let (mut watched, mut drained) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..fairness.rounds {
        add(&mut alone, &watch(client, fairness).await?)?;
        let busy = client.of_tenant("busy");
        let drain = if fairness.webhook {
            drain_by_sink(&busy, options, fairness.backlog).await?
        } else {
            drain_by_workers(&busy, options, fairness.backlog).await?
        };
        let began = Instant::now();
        add(&mut beside, &watch(client, fairness).await?)?;
        watched += began.elapsed();
        drained += drain.await??.duration_since(began);
    }
    let millis = |lateness: &Histogram<u64>, share| lateness.value_at_quantile(share) as f64 / 1_000.0;
    let p99 = |lateness| millis(lateness, 0.99);
    let mut report = Report::new(if fairness.webhook { "fairness_webhook" } else { "fairness" });
    report.count("backlog", fairness.backlog);
    report.count("rate_per_s", fairness.rate);
    report.count("rounds", fairness.rounds);
    report.count("tasks", fairness.rate * fairness.seconds * fairness.rounds);
    report.number("seconds", watched.as_secs_f64());
    // What is left of the watch when the backlog is gone was not disturbed by it.
    report.number("disturbed_percent", (drained.as_secs_f64() / watched.as_secs_f64()).min(1.0) * 100.0);
    report.number("drain_per_s", (fairness.backlog * fairness.rounds) as f64 / drained.as_secs_f64());
    report.number("alone_p50_ms", millis(&alone.0, 0.5));
    report.number("alone_p99_ms", p99(&alone.0));
    report.number("p99_ratio", p99(&beside.0) / p99(&alone.0).max(1.0));
    report.lateness(&beside.0, alone.1 + beside.1);
    Ok(report)
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

/// Does `work` on a runtime of its own.
fn apart<T: Send + 'static>(
    name: &str,
    runtime: Runtime,
    work: impl Future<Output = T> + Send + 'static,
) -> std::io::Result<oneshot::Receiver<T>> {
    let (tell, told) = oneshot::channel();
    // Nobody waits any more when the measurement was ended by a signal.
    let run = move || drop(tell.send(runtime.block_on(work)));
    std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
    Ok(told)
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
async fn watch(client: &Client, fairness: Fairness) -> anyhow::Result<Watched> {
    let client = client.apart()?.of_tenant("quiet");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let watched = apart("quiet", runtime, async move { arrivals(&client, fairness).await })?;
    watched.await.context("the quiet tenant's thread ended before all was measured")?
}

async fn arrivals(quiet: &Client, Fairness { rate, seconds, webhook, .. }: Fairness) -> anyhow::Result<Watched> {
    let tasks = rate * seconds;
    let mut sink = if webhook { Some(Sink::start().await?) } else { None };
    let first = now().plus_millis(LEAD);
    let due = move |number: usize| {
        let millis = number as u128 * 1_000 / rate as u128;
        Some(first.plus_millis(i64::try_from(millis).unwrap_or(i64::MAX)))
    };
    let url = sink.as_ref().map(Sink::url);
    let make = move |number| task(number, "quiet", due(number), url.as_deref()).to_string();
    submit_all(quiet, 1, QUIET_BATCH, tasks, "preloading", make).await?;
    if let Some(sink) = &mut sink {
        return Ok(lateness(&sink.wait(tasks).await?.first));
    }
    let seen = Workers::start(quiet, "quiet", QUIET_WORKERS, 1, tasks).join().await?;
    Ok((seen.lateness, seen.early))
}
