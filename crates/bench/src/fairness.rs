//! `fairness`: how late a quiet tenant's tasks arrive alone, and beside another tenant's backlog.
//!
//! The other tenant's tasks are all due. Its pull workers or a sink take them as fast as they can,
//! so everything that is shared (the store's writer, the dispatcher, the machine) is busy with
//! them. We measure how long the server lets the quiet tenant wait. So the other tenant's clients
//! run at idle priority, and a task arrives when the kernel has it, not when its worker gets a
//! processor: in production the clients would be on other machines.

use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use crate::BenchOptions;
use crate::client::{BenchClient, now, task};
use crate::idle_priority::IdlePriorityRuntime;
use crate::lead::{PreloadLead, due_at_rate};
use crate::quiet::{QuietArrivals, work};
use crate::report::BenchReport;
use crate::sink::{TaskArrival, WebhookSink, lateness};
use crate::site::Site;
use crate::submit::{preload, submit_all};
use crate::workers::PullWorkers;

/// The quiet tenant, and its queue.
const QUIET: &str = "quiet";
/// Tasks it submits in a call.
const QUIET_BATCH: usize = 1_000;
/// From the submission of the quiet tenant's tasks to the first due instant.
const LEAD_MILLIS: i64 = 1_000;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Fairness {
    /// The other tenant's backlog.
    pub backlog: usize,
    /// Tasks a second of the quiet tenant.
    pub rate: usize,
    /// The length of each case.
    pub seconds: usize,
    /// How often both cases are measured, each time beside a new backlog.
    pub rounds: usize,
    /// Whether the tasks go to sinks instead of pull workers.
    pub webhook: bool,
}

/// Measures the quiet tenant alone, then beside the backlog while that is being drained.
pub async fn run(
    client: &BenchClient,
    options: &BenchOptions,
    site: &Site,
    fairness: Fairness,
) -> anyhow::Result<BenchReport> {
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    let (mut watched, mut drained) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..fairness.rounds {
        alone.push(watch(client, site, fairness).await?);
        let busy = client.of_tenant("busy")?;
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
        // A task that was due after the drain does not count.
        beside.push(seen.until(now().minus(ended.elapsed())));
    }
    let (alone_p99, beside_p99) = (median_p99(&alone, arrived), median_p99(&beside, arrived));
    let mut report = BenchReport::new(if fairness.webhook { "fairness_webhook" } else { "fairness" });
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

fn arrived(seen: &QuietArrivals) -> &Vec<TaskArrival> {
    &seen.arrived
}

fn read(seen: &QuietArrivals) -> &Vec<TaskArrival> {
    &seen.read
}

/// The median of the rounds' 99th percentiles. A shared machine pauses now and then for tenths of a
/// second, and a round with such a pause says nothing about fairness. None if no task came: the
/// backlog may be drained before one is due.
fn median_p99(rounds: &[QuietArrivals], of: fn(&QuietArrivals) -> &Vec<TaskArrival>) -> Option<f64> {
    let with_some = rounds.iter().map(of).filter(|arrivals| !arrivals.is_empty());
    let mut each: Vec<u64> = with_some.map(|arrivals| lateness(arrivals).0.value_at_quantile(0.99)).collect();
    each.sort_unstable();
    each.get(each.len() / 2).copied().map(millis)
}

fn millis(micros: u64) -> f64 {
    micros as f64 / 1_000.0
}

/// Submits the backlog, due at once, and starts pull workers. The handle returns when the last task
/// was completed.
async fn drain_by_workers(
    busy: &BenchClient,
    options: &BenchOptions,
    backlog: usize,
) -> anyhow::Result<JoinHandle<anyhow::Result<Instant>>> {
    preload(busy, options, backlog, "busy", |_| None, None).await?;
    let (busy, workers, batch) = (busy.apart()?, options.few_connections(), options.batch);
    let drain = async move { PullWorkers::start(&busy, "busy", workers, batch, backlog).join().await };
    let runtime = IdlePriorityRuntime::start()?;
    let drained = runtime.handle().spawn(drain);
    Ok(tokio::spawn(async move {
        let ended = drained.await??.ended;
        drop(runtime);
        Ok(ended)
    }))
}

/// Submits the backlog with a callback, and returns when it is due. The handle returns when the
/// last task came.
async fn drain_by_sink(
    busy: &BenchClient,
    options: &BenchOptions,
    backlog: usize,
) -> anyhow::Result<JoinHandle<anyhow::Result<Instant>>> {
    let mut sink = WebhookSink::start().await?;
    let lead = PreloadLead::of_herd(backlog);
    preload(busy, options, backlog, "busy", move |_| Some(lead.due), Some(sink.url())).await?;
    lead.check()?;
    let drain = tokio::spawn(async move {
        sink.wait(backlog).await?;
        Ok(Instant::now())
    });
    tokio::time::sleep(lead.due.duration_from(now())).await;
    Ok(drain)
}

/// Measures single tasks of the quiet tenant at a steady rate.
async fn watch(
    client: &BenchClient,
    site: &Site,
    Fairness { rate, seconds, webhook, .. }: Fairness,
) -> anyhow::Result<QuietArrivals> {
    let (quiet, tasks) = (client.of_tenant(QUIET)?, rate * seconds);
    let mut sink = if webhook { Some(WebhookSink::start().await?) } else { None };
    let first = now().plus_millis(LEAD_MILLIS);
    let url = sink.as_ref().map(WebhookSink::url);
    let make = move |number| task(number, QUIET, Some(due_at_rate(first, rate, number)), url.as_deref());
    submit_all(&quiet, 1, QUIET_BATCH, tasks, "preloading", make).await?;
    if let Some(sink) = &mut sink {
        return Ok(QuietArrivals { arrived: sink.wait(tasks).await?.first, read: Vec::new() });
    }
    let servers = site.servers().to_vec();
    tokio::task::spawn_blocking(move || work(&servers, QUIET, tasks)).await?
}
