//! `overload`: many times more submissions than the server can take, from clients that ignore
//! `Retry-After`.
//!
//! Peak and flood alternate, the peak first and last, so that neither the growth of the database
//! nor a noisy machine affects only one of them. The peak uses just enough connections to reach it.
//! The report compares the accepted submissions of the flood with those of the peak. It also has
//! the time until a submission is as quick as before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::bail;
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use parking_lot::Mutex;
use punctual_client::NewTask;
use tokio::task::JoinSet;

use crate::BenchOptions;
use crate::client::{BenchClient, lines, now, task};
use crate::idle_priority::IdlePriorityRuntime;
use crate::raw::RawConnection;
use crate::report::{BenchReport, lateness_histogram};
use crate::server::BenchServer;
use crate::site::Site;
use crate::submit::progress;

/// The length of a flood, and of the peaks before and after it. Every flood begins with thousands
/// of connections at once, which counts against it; a real flood of minutes would do that only
/// once. A shared machine varies by a tenth from minute to minute, so the peak is measured for
/// nearly as long.
const FLOOD_SECONDS: u64 = 120;
const PEAK_SECONDS: u64 = 40;
/// How often memory and readiness are checked.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);
/// Quick submissions in a row that prove the recovery.
const IN_A_ROW: usize = 10;
/// A server that has not recovered by then never will.
const RECOVERY_MAX: Duration = Duration::from_mins(1);
/// The tasks are due in a day, so that only their submission is measured.
const A_DAY_MILLIS: i64 = 86_400_000;

/// What is asked of the flood.
#[derive(Clone, Copy)]
pub struct Flood {
    /// Its length.
    pub seconds: u64,
    /// Its connections for each one of the peak.
    pub times: usize,
}

/// Measures the peak, floods, and waits for the recovery.
pub async fn run(
    client: &BenchClient,
    options: &BenchOptions,
    site: &Site,
    flood: Flood,
) -> anyhow::Result<BenchReport> {
    let requests: Vec<Arc<[u8]>> = site
        .servers()
        .iter()
        .map(|server| Ok(submission(server, options.batch)?.into()))
        .collect::<anyhow::Result<_>>()?;
    let connections = options.many_connections();
    let usual = quick_submission(client).await?;
    let (mut peak, mut flooded) = (LoadFigures::new(), LoadFigures::new());
    let floods = flood.seconds.div_ceil(FLOOD_SECONDS).max(1);
    for flood_number in 0..floods {
        let seconds = (flood.seconds * (flood_number + 1) / floods - flood.seconds * flood_number / floods).max(1);
        let peak_seconds = PEAK_SECONDS.min(seconds);
        if flood_number == 0 {
            peak.add(&load(site, &requests, connections, peak_seconds, "peak").await?)?;
        }
        flooded.add(&load(site, &requests, connections * flood.times, seconds, "flood").await?)?;
        peak.add(&load(site, &requests, connections, peak_seconds, "peak").await?)?;
    }
    let recovery = recover(client, usual).await?;
    let tasks = |load: &LoadFigures| load.accepted as f64 * options.batch as f64 / load.seconds;
    let mut report = BenchReport::new("overload");
    report.count("batch", options.batch);
    report.count("connections", connections * flood.times);
    report.count("tasks", usize::try_from(flooded.accepted)? * options.batch);
    report.number("seconds", flooded.seconds);
    report.number("peak_submit_per_s", tasks(&peak));
    report.number("submit_per_s", tasks(&flooded));
    report.number("goodput_percent", tasks(&flooded) / tasks(&peak) * 100.0);
    report.number("offered_ratio", flooded.offered() / (peak.accepted as f64 / peak.seconds));
    report
        .number("refused_percent", flooded.refused as f64 / (flooded.accepted + flooded.refused).max(1) as f64 * 100.0);
    report.number("broken", flooded.broken as f64);
    report.number("refusal_p99_ms", millis(&flooded.refusals, 0.99));
    report.number("answer_p99_ms", millis(&flooded.answers, 0.99));
    report.number("ready_p99_ms", millis(&flooded.ready, 0.99));
    report.number_if_known("rss_peak_mb", flooded.rss);
    report.number("recovery_s", recovery.as_secs_f64());
    Ok(report)
}

/// The figures of a load.
struct LoadFigures {
    seconds: f64,
    accepted: u64,
    refused: u64,
    broken: u64,
    answers: Histogram<u64>,
    refusals: Histogram<u64>,
    ready: Histogram<u64>,
    /// None if the server is not ours.
    rss: Option<f64>,
}

impl LoadFigures {
    fn new() -> Self {
        Self {
            seconds: 0.0,
            accepted: 0,
            refused: 0,
            broken: 0,
            answers: lateness_histogram(),
            refusals: lateness_histogram(),
            ready: lateness_histogram(),
            rss: None,
        }
    }

    fn accepted_after(&mut self, micros: u64) {
        self.accepted += 1;
        self.answers.saturating_record(micros);
    }

    fn refused_after(&mut self, micros: u64) {
        self.refused += 1;
        self.refusals.saturating_record(micros);
    }

    fn add(&mut self, other: &Self) -> anyhow::Result<()> {
        self.seconds += other.seconds;
        self.accepted += other.accepted;
        self.refused += other.refused;
        self.broken += other.broken;
        self.answers.add(&other.answers)?;
        self.refusals.add(&other.refusals)?;
        self.ready.add(&other.ready)?;
        self.rss = most(self.rss, other.rss);
        Ok(())
    }

    /// Requests a second.
    fn offered(&self) -> f64 {
        (self.accepted + self.refused + self.broken) as f64 / self.seconds
    }
}

/// The larger of the known values.
fn most(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.into_iter().chain(other).reduce(f64::max)
}

fn millis(latencies: &Histogram<u64>, quantile: f64) -> f64 {
    latencies.value_at_quantile(quantile) as f64 / 1_000.0
}

/// A submission of `batch` tasks as bytes, made once: the flood must not wait for it.
fn submission(server: &BenchServer, batch: usize) -> anyhow::Result<Vec<u8>> {
    let due = now().plus_millis(A_DAY_MILLIS);
    let body = lines((0..batch).map(|number| task(number, "overload", Some(due), None)))?;
    let (path, kind) = match batch {
        1 => ("/v1/tasks", "application/json"),
        _ => ("/v1/tasks/batch?return=ids", "application/x-ndjson"),
    };
    let head = format!(
        "POST {}{path} HTTP/1.1\r\nhost: {}\r\n{}content-type: {kind}\r\ncontent-length: {}\r\n\r\n",
        server.prefix(),
        server.address(),
        server.authorization(),
        body.len()
    );
    Ok([head.into_bytes(), body].concat())
}

async fn load(
    site: &Site,
    requests: &[Arc<[u8]>],
    connections: usize,
    seconds: u64,
    what: &'static str,
) -> anyhow::Result<LoadFigures> {
    let (ended, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(LoadFigures::new())));
    let (mut senders, runtime) = (JoinSet::new(), IdlePriorityRuntime::start()?);
    for number in 0..connections {
        let (request, address) = (Arc::clone(&requests[number % requests.len()]), site.server(number).address());
        senders.spawn_on(send(request, address, Arc::clone(&ended), Arc::clone(&answered)), runtime.handle());
    }
    let bar = progress(usize::try_from(seconds).unwrap_or(usize::MAX), what);
    let began = Instant::now();
    let (ready, rss) = watch(site, began, Duration::from_secs(seconds), &bar).await?;
    ended.store(true, Relaxed);
    // Answers that come later do not count.
    let answered = std::mem::replace(&mut *answered.lock(), LoadFigures::new());
    let load = LoadFigures { seconds: began.elapsed().as_secs_f64(), ready, rss, ..answered };
    bar.finish_and_clear();
    while let Some(sender) = senders.join_next().await {
        sender??;
    }
    Ok(load)
}

/// How quickly the first server answers `/readyz`, and the most memory that all servers took.
async fn watch(
    site: &Site,
    began: Instant,
    time: Duration,
    bar: &ProgressBar,
) -> anyhow::Result<(Histogram<u64>, Option<f64>)> {
    let (server, address) = (site.server(0), site.server(0).address());
    let probe = format!("GET {}/readyz HTTP/1.1\r\nhost: {address}\r\n\r\n", server.prefix());
    let (mut ready, mut rss) = (lateness_histogram(), None);
    let mut connection = RawConnection::default();
    while began.elapsed() < time {
        let asked = Instant::now();
        let answer = connection.call(&address, probe.as_bytes()).await?;
        if answer.status != 200 {
            bail!("/readyz answered {} under load", answer.status);
        }
        ready.saturating_record(micros(asked));
        rss = most(rss, site.rss_megabytes());
        bar.set_position(began.elapsed().as_secs());
        tokio::time::sleep(WATCH_INTERVAL).await;
    }
    Ok((ready, rss))
}

/// Submits over and over. An answer that is neither an acceptance nor a well-formed refusal is an
/// error. All senders share one `load`: thousands of histograms would be gigabytes, and zeroing
/// them would be a load of its own.
async fn send(
    request: Arc<[u8]>,
    address: String,
    ended: Arc<AtomicBool>,
    load: Arc<Mutex<LoadFigures>>,
) -> anyhow::Result<()> {
    let mut connection = RawConnection::default();
    while !ended.load(Relaxed) {
        let asked = Instant::now();
        let answer = connection.call(&address, &request).await;
        let took = micros(asked);
        match answer {
            Ok(answer) if matches!(answer.status, 200 | 201) => load.lock().accepted_after(took),
            Ok(answer) if matches!(answer.status, 429 | 503) => {
                if !answer.retry_after {
                    bail!("a refusal with {} has no Retry-After", answer.status);
                }
                load.lock().refused_after(took);
            }
            Ok(answer) => bail!("a submission was answered with {}", answer.status),
            // A server that refuses an unread body may close the connection while we still send.
            Err(_) => load.lock().broken += 1,
        }
    }
    Ok(())
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}

fn probe(number: usize) -> NewTask {
    task(number, "overload", Some(now().plus_millis(A_DAY_MILLIS)), None)
}

/// The median time of a submission.
async fn quick_submission(client: &BenchClient) -> anyhow::Result<Duration> {
    let mut took = Vec::new();
    for number in 0..2 * IN_A_ROW {
        let began = Instant::now();
        client.submit(&probe(number)).await?;
        took.push(began.elapsed());
    }
    took.sort_unstable();
    Ok(took[IN_A_ROW])
}

/// The time until submissions are quick again: several in a row within five times the usual time.
async fn recover(client: &BenchClient, usual: Duration) -> anyhow::Result<Duration> {
    let (began, mut quick, mut since) = (Instant::now(), 0, None);
    let limit = (usual * 5).max(Duration::from_millis(20));
    while quick < IN_A_ROW {
        if began.elapsed() > RECOVERY_MAX {
            bail!("the server has not recovered within {} seconds", RECOVERY_MAX.as_secs());
        }
        let asked = Instant::now();
        let done = client.submit_once(&probe(quick)).await;
        if done.is_ok() && asked.elapsed() <= limit {
            quick += 1;
            since.get_or_insert(asked);
        } else {
            (quick, since) = (0, None);
        }
    }
    Ok(since.unwrap_or(began).duration_since(began))
}
