//! `overload`: many times more submissions than the server can take, by clients that do not wait as they are told.
//!
//! The peak, reached with as many connections as are enough for it, and the flood come in turns,
//! the peak first and last, so that neither the growth of the database nor a noisy machine falls
//! on one of them alone.
//! What is still accepted in the flood is compared with the peak. Then all ends, and the time
//! is taken until a submission is as quick as it was before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::bail;
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::Options;
use crate::client::{Client, now, task};
use crate::courtesy::Courteous;
use crate::raw::Connection;
use crate::report::{Report, lateness_histogram};
use crate::server::Server;
use crate::site::Site;
use crate::submit::progress;

/// How long a turn of the flood is, and of the peak before and after it. A flood begins with a storm: thousands connect
/// and send at once. It counts, as often as it comes, and who floods for minutes has not come anew every few seconds. What a
/// shared machine can do moves by a tenth from minute to minute, so the peak is looked at for nearly as long.
const FLOOD_TURN: u64 = 120;
const PEAK_TURN: u64 = 40;
/// How often memory and health are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// Quick submissions in a row that say that all is well again.
const IN_A_ROW: usize = 10;
/// After so long a server that has not recovered will not.
const PATIENCE: Duration = Duration::from_mins(1);
/// Tasks that are submitted wait a day, so that nothing but their submission is measured.
const A_DAY: i64 = 86_400_000;

/// What the flood is.
#[derive(Clone, Copy)]
pub struct Flood {
    /// For how long.
    pub seconds: u64,
    /// How many connections for each one that the peak needs.
    pub times: usize,
}

/// Measures the peak, floods, and waits for the recovery.
pub async fn run(client: &Client, options: &Options, site: &Site, flood: Flood) -> anyhow::Result<Report> {
    let requests: Vec<Arc<[u8]>> =
        site.servers().iter().map(|server| submission(server, options.batch).into()).collect();
    let connections = options.many_connections();
    let usual = quick_submission(client).await?;
    let (mut peak, mut flooded) = (Load::new(), Load::new());
    let turns = flood.seconds.div_ceil(FLOOD_TURN).max(1);
    for turn in 0..turns {
        let seconds = (flood.seconds * (turn + 1) / turns - flood.seconds * turn / turns).max(1);
        let peak_seconds = PEAK_TURN.min(seconds);
        if turn == 0 {
            peak.add(&load(site, &requests, connections, peak_seconds, "peak").await?)?;
        }
        flooded.add(&load(site, &requests, connections * flood.times, seconds, "flood").await?)?;
        peak.add(&load(site, &requests, connections, peak_seconds, "peak").await?)?;
    }
    let recovery = recover(client, usual).await?;
    let tasks = |load: &Load| load.accepted as f64 * options.batch as f64 / load.seconds;
    let mut report = Report::new("overload");
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

/// What a load did.
struct Load {
    seconds: f64,
    accepted: u64,
    refused: u64,
    broken: u64,
    answers: Histogram<u64>,
    refusals: Histogram<u64>,
    ready: Histogram<u64>,
    /// None of a server that is not ours.
    rss: Option<f64>,
}

impl Load {
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

/// The larger of those that are known.
fn most(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.into_iter().chain(other).reduce(f64::max)
}

fn millis(latencies: &Histogram<u64>, quantile: f64) -> f64 {
    latencies.value_at_quantile(quantile) as f64 / 1_000.0
}

/// A submission of `batch` tasks, as bytes: the flood must not wait for its own making.
fn submission(server: &Server, batch: usize) -> Vec<u8> {
    let due = now().plus_millis(A_DAY);
    let lines: Vec<String> = (0..batch).map(|number| task(number, "overload", Some(due), None).to_string()).collect();
    let (path, kind) = match batch {
        1 => ("/v1/tasks", "application/json"),
        _ => ("/v1/tasks/batch?return=ids", "application/x-ndjson"),
    };
    let body = lines.join("\n");
    let head = format!(
        "POST {}{path} HTTP/1.1\r\nhost: {}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
        server.prefix(),
        server.address(),
        body.len()
    );
    [head.into_bytes(), body.into_bytes()].concat()
}

async fn load(
    site: &Site,
    requests: &[Arc<[u8]>],
    connections: usize,
    seconds: u64,
    what: &'static str,
) -> anyhow::Result<Load> {
    let (ended, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Load::new())));
    let (mut senders, runtime) = (JoinSet::new(), Courteous::start()?);
    for number in 0..connections {
        let (request, address) = (Arc::clone(&requests[number % requests.len()]), site.server(number).address());
        senders.spawn_on(send(request, address, Arc::clone(&ended), Arc::clone(&answered)), runtime.handle());
    }
    let bar = progress(usize::try_from(seconds).unwrap_or(usize::MAX), what);
    let began = Instant::now();
    let (ready, rss) = watch(site, began, Duration::from_secs(seconds), &bar).await?;
    ended.store(true, Relaxed);
    // What is answered from now on was not answered in time.
    let answered = std::mem::replace(&mut *answered.lock(), Load::new());
    let load = Load { seconds: began.elapsed().as_secs_f64(), ready, rss, ..answered };
    bar.finish_and_clear();
    while let Some(sender) = senders.join_next().await {
        sender??;
    }
    Ok(load)
}

/// How quickly the first server says that it is ready, and the most memory that all took.
async fn watch(
    site: &Site,
    began: Instant,
    time: Duration,
    bar: &ProgressBar,
) -> anyhow::Result<(Histogram<u64>, Option<f64>)> {
    let (server, address) = (site.server(0), site.server(0).address());
    let probe = format!("GET {}/readyz HTTP/1.1\r\nhost: {address}\r\n\r\n", server.prefix());
    let (mut ready, mut rss) = (lateness_histogram(), None);
    let mut connection = Connection::default();
    while began.elapsed() < time {
        let asked = Instant::now();
        let answer = connection.call(&address, probe.as_bytes()).await?;
        if answer.status != 200 {
            bail!("/readyz answered {} under load", answer.status);
        }
        ready.saturating_record(micros(asked));
        rss = most(rss, site.rss_megabytes());
        bar.set_position(began.elapsed().as_secs());
        tokio::time::sleep(LOOK).await;
    }
    Ok((ready, rss))
}

/// Submits over and over, whatever the answer; anything but an acceptance or a well-formed refusal is an error. All tell
/// one `load` of their answers: thousands of histograms would be gigabytes, and to fill them with zeros is a load of its own.
async fn send(
    request: Arc<[u8]>,
    address: String,
    ended: Arc<AtomicBool>,
    load: Arc<Mutex<Load>>,
) -> anyhow::Result<()> {
    let mut connection = Connection::default();
    while !ended.load(Relaxed) {
        let asked = Instant::now();
        let answer = connection.call(&address, &request).await;
        let took = micros(asked);
        match answer {
            Ok(answer) if matches!(answer.status, 200 | 201) => load.lock().accepted_after(took),
            Ok(answer) if matches!(answer.status, 429 | 503) => {
                if !answer.retry_after {
                    bail!("a refusal with {} does not say when to come back", answer.status);
                }
                load.lock().refused_after(took);
            }
            Ok(answer) => bail!("a submission was answered with {}", answer.status),
            // A server that refuses a body it has not read may close on whoever still sends it.
            Err(_) => load.lock().broken += 1,
        }
    }
    Ok(())
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}

fn probe(number: usize) -> String {
    task(number, "overload", Some(now().plus_millis(A_DAY)), None).to_string()
}

/// How long a submission usually takes.
async fn quick_submission(client: &Client) -> anyhow::Result<Duration> {
    let mut took = Vec::new();
    for number in 0..2 * IN_A_ROW {
        let began = Instant::now();
        client.submit(probe(number)).await?;
        took.push(began.elapsed());
    }
    took.sort_unstable();
    Ok(took[IN_A_ROW])
}

/// How long it takes until submissions are quick again: a few in a row within five times of what is usual.
async fn recover(client: &Client, usual: Duration) -> anyhow::Result<Duration> {
    let (began, mut quick, mut since) = (Instant::now(), 0, None);
    let limit = (usual * 5).max(Duration::from_millis(20));
    while quick < IN_A_ROW {
        if began.elapsed() > PATIENCE {
            bail!("the server has not recovered within {} seconds", PATIENCE.as_secs());
        }
        let asked = Instant::now();
        let done = client.submit_at_once(probe(quick)).await;
        if done.is_ok() && asked.elapsed() <= limit {
            quick += 1;
            since.get_or_insert(asked);
        } else {
            (quick, since) = (0, None);
        }
    }
    Ok(since.unwrap_or(began).duration_since(began))
}
