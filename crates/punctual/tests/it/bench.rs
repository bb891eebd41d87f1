//! `punctual bench`, each scenario small: it runs, and its last line is JSON with the agreed
//! figures. Nothing here is about speed. Also: how it handles a server that refuses, no server, and
//! signals.

mod postgres;

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::routing::{get, post};
use punctual_testkit::eventually::eventually;
use punctual_testkit::process::{Exit, Process};
use serde_json::Value;
use tempfile::TempDir;

use crate::it::world::{PUNCTUAL, SOON, World};

/// The fields that accompany every figure.
const ALWAYS: [&str; 7] = ["scenario", "version", "commit", "machine", "cores", "tasks", "seconds"];

/// The fields of a server that the bench has started.
const OF_STARTED_SERVERS: [&str; 4] = ["store", "broker", "nodes", "rss_mb"];

const LATENESS: [&str; 5] = ["late_p50_ms", "late_p99_ms", "late_p999_ms", "late_max_ms", "early"];

/// Runs a scenario with its own server and returns its line, with `figures` in it.
async fn bench(arguments: &[&str], figures: &[&str]) -> Value {
    let arguments = [arguments, &["--connections", "4", "--batch", "50"]].concat();
    let line = measured(&arguments).await;
    for figure in OF_STARTED_SERVERS.iter().chain(figures) {
        assert!(!line[figure].is_null(), "{figure} is missing in {line}");
    }
    assert_eq!((&line["store"], &line["nodes"]), (&"sqlite".into(), &1.into()));
    assert_eq!(line["refused"], Value::Null, "a server with so little to do refuses nothing");
    line
}

/// Runs a scenario that succeeds and returns its line.
async fn measured(arguments: &[&str]) -> Value {
    let exit = run(arguments).await;
    assert_eq!(exit.code, Some(0), "{exit}");
    let line = exit.stdout.lines().last().expect("it prints something");
    let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in the last line of {exit}"));
    for figure in ALWAYS {
        assert!(!line[figure].is_null(), "{figure} is missing in {line}");
    }
    line
}

async fn run(arguments: &[&str]) -> Exit {
    let mut command = Command::new(PUNCTUAL);
    command.args(["bench", "--json"]).args(arguments);
    Process::spawn(command).exit(Duration::from_secs(100)).await
}

fn number(line: &Value, figure: &str) -> f64 {
    line[figure].as_f64().unwrap_or_else(|| panic!("{figure} is not a number in {line}"))
}

#[tokio::test]
async fn submit_counts_single_tasks_and_batches() {
    let single = bench(&["submit", "--single", "--tasks", "200"], &["tasks", "seconds", "submit_per_s"]).await;
    assert_eq!((&single["scenario"], &single["tasks"], &single["batch"]), (&"submit".into(), &200.into(), &1.into()));
    assert!(number(&single, "submit_per_s") > 0.0);
    let batch = bench(&["submit", "--tasks", "200"], &["tasks", "seconds", "submit_per_s"]).await;
    assert_eq!(batch["batch"], 50);
}

#[tokio::test]
async fn drain_counts_what_pull_workers_settle() {
    let drain = bench(&["drain", "--tasks", "500"], &["tasks", "seconds", "drain_per_s"]).await;
    assert!(number(&drain, "drain_per_s") > 0.0);
    assert_eq!((&drain["tasks"], &drain["workers"]), (&500.into(), &4.into()));
}

#[tokio::test]
async fn drain_takes_as_many_workers_as_it_is_given() {
    let drain = measured(&["drain", "--tasks", "200", "--batch", "10", "--connections", "12"]).await;
    assert_eq!(drain["workers"], 12);
}

#[tokio::test]
async fn drain_counts_what_webhooks_settle() {
    let drain = bench(&["drain", "--webhook", "--tasks", "200"], &["tasks", "seconds", "drain_per_s"]).await;
    assert!(number(&drain, "drain_per_s") > 0.0);
}

#[tokio::test]
async fn lateness_is_measured_for_pull_and_push() {
    for (scenario, way) in [
        ("lateness", &["lateness", "--rate", "50", "--seconds", "2"][..]),
        ("lateness_webhook", &["lateness", "--webhook", "--rate", "50", "--seconds", "2"]),
    ] {
        let lateness = bench(way, &LATENESS).await;
        assert_eq!(lateness["scenario"], scenario);
        assert_eq!((&lateness["tasks"], &lateness["early"]), (&100.into(), &0.into()));
    }
}

#[tokio::test]
async fn herd_reports_rate_and_lateness() {
    let figures: Vec<&str> = LATENESS.into_iter().chain(["tasks", "seconds", "herd_per_s"]).collect();
    let herd = bench(&["herd", "--tasks", "500"], &figures).await;
    assert_eq!((&herd["tasks"], &herd["workers"], &herd["early"]), (&500.into(), &4.into(), &0.into()));
    assert!(number(&herd, "late_max_ms") >= number(&herd, "late_p50_ms"));
    let pushed = bench(&["herd", "--webhook", "--tasks", "500"], &figures).await;
    assert_eq!((&pushed["scenario"], &pushed["tasks"]), (&"herd_webhook".into(), &500.into()));
    assert_eq!((&pushed["early"], &pushed["workers"]), (&0.into(), &Value::Null));
    assert!(number(&pushed, "herd_per_s") > 0.0, "{pushed}");
}

#[tokio::test]
async fn a_jitter_spreads_a_herd_of_pull_and_push() {
    let figures: Vec<&str> = LATENESS
        .into_iter()
        .chain(["seconds", "herd_per_s", "jitter_s", "emptiest_tenth_percent", "fullest_tenth_percent"])
        .collect();
    for way in [&["herd"][..], &["herd", "--webhook"]] {
        let spread = bench(&[way, &["--tasks", "500", "--jitter", "2"]].concat(), &figures).await;
        assert_eq!((&spread["jitter_s"], &spread["early"]), (&2.0.into(), &0.into()), "{way:?}");
        // About ten percent in each tenth: a herd without jitter comes in the first.
        assert!(number(&spread, "fullest_tenth_percent") < 90.0, "{spread}");
    }
}

#[tokio::test]
async fn backlog_reports_what_waiting_tasks_cost() {
    let figures = ["waiting", "submit_slowdown", "drain_slowdown", "rss_waiting_mb"];
    let backlog = bench(&["backlog", "--waiting", "1000", "--probe", "200"], &figures).await;
    // Three empty rounds and three beside the waiting tasks.
    assert_eq!((&backlog["waiting"], &backlog["tasks"]), (&1_000.into(), &1_200.into()));
    assert!(number(&backlog, "seconds") > 0.0);
}

#[tokio::test]
async fn fairness_compares_a_tenant_alone_and_beside_another() {
    let figures: Vec<&str> = LATENESS.into_iter().chain(["alone_p99_ms", "disturbed_tasks"]).collect();
    let arguments = ["fairness", "--backlog", "1000", "--rate", "20", "--seconds", "2"];
    for arguments in [&arguments[..], &[&arguments[..], &["--webhook"]].concat()] {
        let fairness = bench(arguments, &figures).await;
        assert_eq!((&fairness["tasks"], &fairness["early"]), (&40.into(), &0.into()), "{arguments:?}");
        // A figure that was not measured is not reported as zero.
        assert_eq!(fairness["disturbed_tasks"] == 0, fairness.get("p99_ratio").is_none(), "{fairness}");
    }
}

#[tokio::test]
async fn overload_compares_a_flood_with_the_peak() {
    let figures = [
        "seconds",
        "peak_submit_per_s",
        "submit_per_s",
        "goodput_percent",
        "offered_ratio",
        "refused_percent",
        "refusal_p99_ms",
        "rss_peak_mb",
        "recovery_s",
    ];
    let overload = bench(&["overload", "--seconds", "1", "--times", "5"], &figures).await;
    assert_eq!((&overload["connections"], &overload["batch"]), (&20.into(), &50.into()));
    assert!(number(&overload, "submit_per_s") > 0.0 && number(&overload, "tasks") >= 50.0);
}

#[tokio::test]
async fn idle_reports_processor_time_and_wake_ups() {
    let idle = bench(&["idle", "--seconds", "1"], &["cpu_percent", "wakeups_per_s"]).await;
    assert_eq!((&idle["tasks"], number(&idle, "seconds")), (&0.into(), 1.0));
}

/// The fields that only a started server has.
const UNKNOWN: [&str; 5] = ["store", "broker", "nodes", "rss_mb", "rss_peak_mb"];

/// A server that answers the first submissions with `status` and accepts all others.
async fn answering(status: StatusCode, first: usize) -> String {
    let calls = Arc::new(AtomicUsize::new(0));
    let submit = async move |body: String| {
        if calls.fetch_add(1, Ordering::SeqCst) < first {
            let mut headers = HeaderMap::new();
            headers.insert("retry-after", HeaderValue::from_static("0"));
            return (status, headers, "not now".to_owned());
        }
        let items: Vec<Value> = body.lines().map(|_| serde_json::json!({"status": 201})).collect();
        (StatusCode::OK, HeaderMap::new(), serde_json::json!({ "items": items }).to_string())
    };
    let app = axum::Router::new().route("/readyz", get(|| async {})).route("/v1/tasks/batch", post(submit));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

fn submit(url: &str) -> Vec<String> {
    ["submit", "--tasks", "40", "--batch", "10", "--connections", "2", "--url", url].map(str::to_owned).to_vec()
}

fn words(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

/// It failed with one sentence on stderr, which is returned.
fn sentence(exit: &Exit) -> &str {
    assert_eq!((exit.code, exit.stdout.as_str()), (Some(1), ""), "{exit}");
    assert_eq!(exit.stderr.lines().count(), 1, "{exit}");
    exit.stderr.trim_end()
}

#[tokio::test]
async fn refused_submissions_are_retried_and_counted() {
    for status in [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS] {
        let url = answering(status, 3).await;
        let line = measured(&words(&submit(&url))).await;
        assert_eq!((&line["tasks"], &line["refused"]), (&40.into(), &3.into()));
        for unknown in UNKNOWN {
            assert_eq!(line[unknown], Value::Null, "{unknown} in {line}");
        }
    }
}

#[tokio::test]
async fn any_other_refusal_fails_the_benchmark() {
    let url = answering(StatusCode::INTERNAL_SERVER_ERROR, 1).await;
    let exit = run(&words(&submit(&url))).await;
    assert!(sentence(&exit).contains("answered 500 Internal Server Error: not now"), "{exit}");
}

#[tokio::test]
async fn memory_of_a_foreign_server_is_not_reported() {
    let world = World::start().await;
    let url = format!("{}/", world.server.url());
    let flood = ["overload", "--seconds", "1", "--times", "2", "--connections", "2", "--batch", "5", "--url", &url];
    let line = measured(&flood).await;
    assert!(number(&line, "submit_per_s") > 0.0);
    for unknown in UNKNOWN {
        assert_eq!(line[unknown], Value::Null, "{unknown} in {line}");
    }
}

#[tokio::test]
async fn an_unreachable_url_is_reported_in_words() {
    // A closed port, and one that accepts connections and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let closed = {
        let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        closed.local_addr().expect("an address")
    };
    for (address, why) in [(closed, "Connection refused"), (silent.local_addr().expect("an address"), "did not answer")]
    {
        let url = format!("http://{address}");
        let exit = run(&["submit", "--url", &url]).await;
        let message = sentence(&exit);
        assert!(message.starts_with(&format!("punctual: no server answers at {url}: ")), "{message}");
        assert!(message.contains(why) && !message.contains(['{', '"']), "{message}");
        assert!(exit.took < Duration::from_secs(15), "{exit}");
    }
}

#[tokio::test]
async fn arguments_that_make_no_sense_are_refused_at_once() {
    for (arguments, message) in [
        (&["submit", "--url", "nonsense"][..], "must be the address of a server"),
        (&["submit", "--batch", "0"], "must be a whole number from 1 to 10000"),
    ] {
        let exit = run(arguments).await;
        assert_eq!(exit.code, Some(2), "{exit}");
        assert!(exit.stderr.contains(message) && !exit.stderr.contains("panicked"), "{exit}");
    }
    let exit = run(&["drain", "--batch", "1001"]).await;
    assert!(sentence(&exit).contains("at most 1000 tasks"), "{exit}");
}

/// A bench that would run for a minute, and its server.
struct Bench {
    process: Process,
    server: u32,
    home: TempDir,
}

impl Bench {
    /// Returns once its server process exists, though it may not listen yet.
    async fn start() -> Self {
        let home = tempfile::tempdir().expect("a temporary directory can be made");
        let mut command = Command::new(PUNCTUAL);
        command.args(["bench", "lateness", "--rate", "10", "--seconds", "60", "--data"]).arg(home.path());
        let process = Process::spawn(in_a_group(command));
        let server = server_of(&process).await;
        Self { process, server, home }
    }

    /// Returns once its server serves.
    async fn serving() -> Self {
        let bench = Self::start().await;
        eventually("its server serves", SOON, async || {
            let log = bench.process.stderr();
            if log.contains("serving") { Ok(()) } else { Err(log) }
        })
        .await;
        bench
    }

    /// Checks that it ends by the signal and leaves nothing.
    async fn ends_by(mut self, signal: &str) {
        let exit = self.process.exit(SOON).await;
        assert_eq!(exit.code, Some(1), "after {signal}: {exit}");
        let message = format!("punctual: ended by {signal} before the measurement was complete");
        assert_eq!(exit.stderr.lines().last(), Some(message.as_str()), "{exit}");
        assert_eq!(exit.stdout, "");
        assert!(!PathBuf::from(format!("/proc/{}", self.server)).exists(), "its server is left after {signal}");
        let left: Vec<_> = std::fs::read_dir(self.home.path()).expect("a directory").flatten().collect();
        assert!(left.is_empty(), "after {signal} there is {left:?}");
    }
}

/// A process group of its own, so that a signal to the group does not reach the tests.
fn in_a_group(mut command: Command) -> Command {
    command.process_group(0);
    command
}

/// The child of a bench, by the system's list of processes.
async fn server_of(bench: &Process) -> u32 {
    let parent = bench.id().to_string();
    eventually("the bench starts a server", SOON, async || {
        let processes = std::fs::read_dir("/proc").expect("there is a /proc").flatten();
        let mut numbers = processes.filter_map(|process| process.file_name().to_str()?.parse::<u32>().ok());
        let is_child = |number: &u32| {
            let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
            stat.rsplit_once(')').and_then(|(_, fields)| fields.split_whitespace().nth(1)) == Some(&parent)
        };
        numbers.find(is_child).ok_or_else(|| bench.stderr())
    })
    .await
}

/// Sends a signal to anything `kill` takes: a process, or a group as a negative number.
fn kill(signal: &str, target: i64) {
    let script = format!("kill -{signal} {target}");
    assert!(Command::new("sh").args(["-c", &script]).status().expect("sh runs").success(), "{script} failed");
}

#[tokio::test]
async fn a_signal_ends_bench_server_and_directory() {
    for signal in ["INT", "TERM", "HUP"] {
        let bench = Bench::serving().await;
        bench.process.signal(signal);
        bench.ends_by(&format!("SIG{signal}")).await;
    }
}

#[tokio::test]
async fn a_signal_while_the_server_starts_ends_all() {
    let bench = Bench::start().await;
    bench.process.signal("TERM");
    bench.ends_by("SIGTERM").await;
}

#[tokio::test]
async fn a_signal_to_the_whole_group_ends_all() {
    let bench = Bench::serving().await;
    kill("INT", -i64::from(bench.process.id()));
    bench.ends_by("SIGINT").await;
}

#[tokio::test]
async fn a_server_that_does_not_end_is_killed() {
    let bench = Bench::serving().await;
    kill("STOP", bench.server.into());
    bench.process.signal("TERM");
    bench.ends_by("SIGTERM").await;
}

#[tokio::test]
async fn nohup_is_obeyed() {
    let mut command = Command::new("nohup");
    command.args([PUNCTUAL, "bench", "idle", "--seconds", "1"]);
    let mut bench = Process::spawn(in_a_group(command));
    server_of(&bench).await;
    kill("HUP", -i64::from(bench.id()));
    let exit = bench.exit(Duration::from_mins(1)).await;
    assert_eq!(exit.code, Some(0), "{exit}");
    assert!(exit.stdout.starts_with("idle\n"), "{exit}");
}
