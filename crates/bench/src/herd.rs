//! `herd`: many tasks due at one instant, while pull workers wait. With a jitter the queue spreads
//! them over the seconds after it, and the report shows how evenly, by tenths of that time.

use std::time::Instant;

use hdrhistogram::Histogram;
use punctual_client::{QueueSettings, Seconds};

use crate::BenchOptions;
use crate::client::{BenchClient, now};
use crate::lead::PreloadLead;
use crate::report::BenchReport;
use crate::submit::preload;
use crate::workers::PullWorkers;

/// How many parts of the jitter's time are compared.
const PARTS: u64 = 10;

/// Submits the herd ahead of its instant and measures from the instant on.
pub async fn run(
    client: &BenchClient,
    options: &BenchOptions,
    tasks: usize,
    jitter_seconds: u64,
) -> anyhow::Result<BenchReport> {
    if jitter_seconds > 0 {
        client.set_queue("herd", &spread(jitter_seconds)).await?;
    }
    let lead = PreloadLead::of_herd(tasks);
    preload(client, options, tasks, "herd", move |_| Some(lead.due), None).await?;
    lead.check()?;
    let count = options.few_connections();
    let workers = PullWorkers::start(client, "herd", count, options.batch, tasks);
    let began = Instant::now() + lead.due.duration_from(now());
    let seen = workers.join().await?;
    let seconds = seen.ended.duration_since(began).as_secs_f64();
    let mut report = BenchReport::new("herd");
    report.count("tasks", tasks);
    report.count("batch", options.batch);
    report.count("workers", count);
    report.number("seconds", seconds);
    report.number("herd_per_s", tasks as f64 / seconds);
    report.lateness(&seen.lateness, seen.early);
    if jitter_seconds > 0 {
        let (emptiest, fullest) = tenths(&seen.lateness, jitter_seconds);
        report.number("jitter_s", jitter_seconds as f64);
        report.number("emptiest_tenth_percent", emptiest);
        report.number("fullest_tenth_percent", fullest);
    }
    Ok(report)
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
