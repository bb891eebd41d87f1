//! `punctual bench`, each scenario small: it runs, and its last line is JSON with the figures that are agreed on.
//! Nothing here is about speed.

use std::process::Command;
use std::time::Duration;

use punctual_testkit::process::Process;
use serde_json::Value;

use crate::it::world::PUNCTUAL;

/// What every figure is told with.
const ALWAYS: [&str; 8] = ["scenario", "store", "broker", "version", "commit", "machine", "cores", "rss_mb"];

const LATENESS: [&str; 5] = ["late_p50_ms", "late_p99_ms", "late_p999_ms", "late_max_ms", "early"];

/// Runs a scenario and returns its line, with `figures` in it.
async fn bench(arguments: &[&str], figures: &[&str]) -> Value {
    let mut command = Command::new(PUNCTUAL);
    command.arg("bench").args(arguments).args(["--json", "--connections", "4", "--batch", "50"]);
    let exit = Process::spawn(command).exit(Duration::from_secs(100)).await;
    assert_eq!(exit.code, Some(0), "{exit}");
    let line = exit.stdout.lines().last().expect("it prints something");
    let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in the last line of {exit}"));
    for figure in ALWAYS.iter().chain(figures) {
        assert!(!line[figure].is_null(), "{figure} is missing in {line}");
    }
    assert_eq!(line["store"], "sqlite");
    line
}

fn number(line: &Value, figure: &str) -> f64 {
    line[figure].as_f64().unwrap_or_else(|| panic!("{figure} is no number in {line}"))
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
}

#[tokio::test]
async fn drain_counts_what_webhooks_settle() {
    let drain = bench(&["drain", "--webhook", "--tasks", "200"], &["tasks", "seconds", "drain_per_s"]).await;
    assert!(number(&drain, "drain_per_s") > 0.0);
}

#[tokio::test]
async fn lateness_of_both_ways_is_told_and_nothing_is_early() {
    for way in [
        &["lateness", "--rate", "50", "--seconds", "2"][..],
        &["lateness", "--webhook", "--rate", "50", "--seconds", "2"],
    ] {
        let lateness = bench(way, &LATENESS).await;
        assert_eq!((&lateness["tasks"], &lateness["early"]), (&100.into(), &0.into()));
    }
}

#[tokio::test]
async fn herd_tells_rate_and_lateness() {
    let figures: Vec<&str> = LATENESS.into_iter().chain(["tasks", "seconds", "herd_per_s"]).collect();
    let herd = bench(&["herd", "--tasks", "500"], &figures).await;
    assert_eq!(herd["early"], 0);
    assert!(number(&herd, "late_max_ms") >= number(&herd, "late_p50_ms"));
}

#[tokio::test]
async fn backlog_tells_what_waiting_tasks_cost() {
    let figures = ["waiting", "submit_slowdown", "drain_slowdown", "rss_waiting_mb"];
    let backlog = bench(&["backlog", "--waiting", "1000", "--probe", "200"], &figures).await;
    assert_eq!(backlog["waiting"], 1_000);
}

#[tokio::test]
async fn fairness_compares_a_tenant_alone_and_beside_another() {
    let arguments = ["fairness", "--backlog", "1000", "--rate", "20", "--seconds", "2"];
    let figures: Vec<&str> = LATENESS.into_iter().chain(["alone_p99_ms", "p99_ratio", "disturbed_percent"]).collect();
    assert_eq!(bench(&arguments, &figures).await["early"], 0);
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
    assert!(number(&overload, "submit_per_s") > 0.0);
}

#[tokio::test]
async fn idle_tells_processor_time_and_wake_ups() {
    bench(&["idle", "--seconds", "1"], &["cpu_percent", "wakeups_per_s"]).await;
}
