//! `herd`: many tasks due at one instant, while pull workers or a sink wait. With a jitter the
//! queue spreads them over the seconds after it, and the report shows how evenly, by tenths of that
//! time.
//!
//! The time is from the instant until a pull worker has completed the last task, or until the last
//! task has arrived at the sink. `drain --webhook` takes the same time less exactly, so the rates
//! can be compared: it begins when its timer for the instant fires, and ends when it has counted
//! the last arrival, each about a millisecond later.

use std::time::Instant;

use hdrhistogram::Histogram;
use punctual_client::{QueueSettings, Seconds};

use crate::BenchOptions;
use crate::client::{BenchClient, now};
use crate::lead::PreloadLead;
use crate::report::BenchReport;
use crate::sink::{WebhookSink, lateness};
use crate::submit::preload;
use crate::workers::PullWorkers;

/// How many parts of the jitter's time are compared.
const PARTS: u64 = 10;

/// What was seen of a herd.
struct HerdSeen {
    /// From its instant to its end.
    seconds: f64,
    /// How late each task came, in microseconds.
    lateness: Histogram<u64>,
    /// Tasks that came before the instant.
    early: usize,
}

/// Submits the herd ahead of its instant and measures from the instant on.
pub async fn run(
    client: &BenchClient,
    options: &BenchOptions,
    tasks: usize,
    jitter_seconds: u64,
    webhook: bool,
) -> anyhow::Result<BenchReport> {
    if jitter_seconds > 0 {
        client.set_queue("herd", &spread(jitter_seconds)).await?;
    }
    let mut report = BenchReport::new(if webhook { "herd_webhook" } else { "herd" });
    report.count("tasks", tasks);
    let seen = if webhook {
        push(client, options, tasks).await?
    } else {
        report.count("batch", options.batch);
        report.count("workers", options.few_connections());
        pull(client, options, tasks).await?
    };
    report.number("seconds", seen.seconds);
    report.number("herd_per_s", tasks as f64 / seen.seconds);
    report.lateness(&seen.lateness, seen.early);
    if jitter_seconds > 0 {
        let (emptiest, fullest) = tenths(&seen.lateness, jitter_seconds);
        report.number("jitter_s", jitter_seconds as f64);
        report.number("emptiest_tenth_percent", emptiest);
        report.number("fullest_tenth_percent", fullest);
    }
    Ok(report)
}

/// Has pull workers complete a herd.
async fn pull(client: &BenchClient, options: &BenchOptions, tasks: usize) -> anyhow::Result<HerdSeen> {
    let lead = submit(client, options, tasks, None).await?;
    let workers = PullWorkers::start(client, "herd", options.few_connections(), options.batch, tasks);
    let began = Instant::now() + lead.due.duration_from(now());
    let seen = workers.join().await?;
    let seconds = seen.ended.duration_since(began).as_secs_f64();
    Ok(HerdSeen { seconds, lateness: seen.lateness, early: seen.early })
}

/// Has a herd pushed to a sink in this process.
async fn push(client: &BenchClient, options: &BenchOptions, tasks: usize) -> anyhow::Result<HerdSeen> {
    let mut sink = WebhookSink::start().await?;
    submit(client, options, tasks, Some(sink.url())).await?;
    let arrivals = sink.wait(tasks).await?.first;
    // All are due at the instant, so the lateness of the last is the time that the herd took.
    let last = arrivals.iter().map(|arrival| arrival.late_micros()).max().unwrap_or(0);
    let (lateness, early) = lateness(&arrivals);
    Ok(HerdSeen { seconds: last as f64 / 1e6, lateness, early })
}

/// Submits a herd ahead of its instant.
async fn submit(
    client: &BenchClient,
    options: &BenchOptions,
    tasks: usize,
    callback_url: Option<String>,
) -> anyhow::Result<PreloadLead> {
    let lead = PreloadLead::of_herd(tasks);
    preload(client, options, tasks, "herd", move |_| Some(lead.due), callback_url).await?;
    lead.check()?;
    Ok(lead)
}

/// Settings of a queue that spreads its tasks over these seconds.
fn spread(jitter_seconds: u64) -> QueueSettings {
    let jitter = Seconds::from_millis(jitter_seconds * 1_000);
    QueueSettings { dispatch_jitter_seconds: Some(jitter), ..QueueSettings::default() }
}

/// The percentage of all tasks that came in the emptiest, and in the fullest, tenth of the time.
fn tenths(lateness: &Histogram<u64>, seconds: u64) -> (f64, f64) {
    let part = seconds * 1_000_000 / PARTS;
    let came = |number| lateness.count_between(number * part, (number + 1) * part - 1) as f64;
    let percent = |number| came(number) * 100.0 / lateness.len() as f64;
    (0..PARTS).map(percent).fold((100.0, 0.0), |(least, most), share| (share.min(least), share.max(most)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::lateness_histogram;

    #[test]
    fn tenths_show_the_emptiest_and_the_fullest() {
        let mut lateness = lateness_histogram();
        for millis in (0..5_000).filter(|millis| !(500..1_000).contains(millis)) {
            lateness.record(millis * 1_000 + 1).expect("it is within bounds");
        }
        let (emptiest, fullest) = tenths(&lateness, 5);
        assert!(emptiest < 0.5, "{emptiest}");
        assert!((11.0..11.5).contains(&fullest), "{fullest}");
    }
}
