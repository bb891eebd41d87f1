//! The bench on PostgreSQL: several servers on a database that it creates and drops.

use std::process::Command;

use punctual_testkit::eventually::eventually;
use punctual_testkit::postgres::Postgres;
use punctual_testkit::process::Process;
use serde_json::Value;

use super::{LATENESS, in_a_group, measured, number, run, sentence};
use crate::it::world::{PUNCTUAL, SOON};

/// Runs a scenario on a PostgreSQL and returns its line, with `figures` in it.
async fn bench(postgres: &Postgres, arguments: &[&str], figures: &[&str]) -> Value {
    let store = postgres.url("postgres");
    let arguments = [arguments, &["--connections", "4", "--batch", "50", "--store", &store]].concat();
    let line = measured(&arguments).await;
    for figure in figures.iter().chain(&["broker"]) {
        assert!(!line[figure].is_null(), "{figure} is missing in {line}");
    }
    let version = postgres.execute("SHOW server_version").await.remove(0).remove(0);
    assert_eq!((&line["store"], line["store_version"].as_str()), (&"postgres".into(), version.as_deref()));
    assert_eq!(databases(postgres).await, "0", "its database is left");
    line
}

/// How many databases of benches exist.
async fn databases(postgres: &Postgres) -> String {
    let sql = "SELECT count(*) FROM pg_database WHERE datname LIKE 'punctual\\_bench\\_%'";
    postgres.execute(sql).await.remove(0).remove(0).expect("a count is a number")
}

#[tokio::test]
async fn several_servers_share_a_database_that_is_gone_afterwards() {
    let postgres = Postgres::start().await;
    let drain = bench(&postgres, &["drain", "--tasks", "400", "--nodes", "2"], &["drain_per_s", "rss_mb"]).await;
    assert_eq!((&drain["tasks"], &drain["nodes"], &drain["held_open"]), (&400.into(), &2.into(), &Value::Null));
    let submit = bench(&postgres, &["submit", "--tasks", "400"], &["submit_per_s"]).await;
    assert_eq!(submit["nodes"], 1);
    let herd = bench(&postgres, &["herd", "--tasks", "400", "--nodes", "2", "--hold-open"], &["herd_per_s"]).await;
    assert_eq!((&herd["early"], &herd["held_open"]), (&0.into(), &1.into()));
}

#[tokio::test]
async fn lateness_is_measured_on_three_servers() {
    let postgres = Postgres::start().await;
    for way in [&["lateness"][..], &["lateness", "--webhook"]] {
        let arguments = [way, &["--rate", "50", "--seconds", "2", "--nodes", "3"]].concat();
        let lateness = bench(&postgres, &arguments, &LATENESS).await;
        assert_eq!((&lateness["tasks"], &lateness["early"], &lateness["nodes"]), (&100.into(), &0.into(), &3.into()));
    }
}

#[tokio::test]
async fn a_backlog_is_compared_with_none() {
    let postgres = Postgres::start().await;
    let figures = ["waiting", "submit_slowdown", "drain_slowdown"];
    let waiting = bench(&postgres, &["waiting", "--tasks", "1000", "--probe", "200"], &figures).await;
    assert_eq!((&waiting["waiting"], &waiting["tasks"]), (&1_000.into(), &1_200.into()));
}

#[tokio::test]
async fn drains_beside_a_transaction_are_compared_with_others() {
    let postgres = Postgres::start().await;
    let figures = ["before_per_s", "held_per_s", "held_last_per_s", "after_per_s", "held_ratio"];
    let held = bench(&postgres, &["held", "--tasks", "200", "--seconds", "2"], &figures).await;
    assert!(number(&held, "seconds") >= 2.0 && number(&held, "tasks") >= 600.0, "{held}");
}

async fn hands_over(how: &str) -> Value {
    let postgres = Postgres::start().await;
    let arguments = ["handover", "--how", how, "--rate", "50", "--seconds", "15"];
    let figures: Vec<&str> = LATENESS.into_iter().chain(["usual_p99_ms", "affected", "repeated"]).collect();
    let handover = bench(&postgres, &arguments, &figures).await;
    assert_eq!((&handover["tasks"], &handover["early"], &handover["nodes"]), (&750.into(), &0.into(), &3.into()));
    assert!(number(&handover, "affected") > 50.0, "{handover}");
    handover
}

#[tokio::test]
async fn a_graceful_handover_is_measured() {
    assert_eq!(hands_over("graceful").await["scenario"], "handover_graceful");
}

#[tokio::test]
async fn a_handover_after_a_kill_is_measured() {
    assert_eq!(hands_over("kill").await["scenario"], "handover_kill");
}

#[tokio::test]
async fn a_signal_leaves_no_database() {
    let postgres = Postgres::start().await;
    let mut command = Command::new(PUNCTUAL);
    let store = postgres.url("postgres");
    command.args(["bench", "lateness", "--rate", "10", "--seconds", "60", "--nodes", "2", "--store", &store]);
    let mut bench = Process::spawn(in_a_group(command));
    eventually("its servers serve", SOON, async || {
        let log = bench.stderr();
        if log.matches("serving").count() >= 2 { Ok(()) } else { Err(log) }
    })
    .await;
    assert_eq!(databases(&postgres).await, "1");
    assert!(bench.stderr().contains("for the measurement; it is dropped at the end"), "{}", bench.stderr());
    bench.signal("INT");
    let exit = bench.exit(SOON).await;
    assert_eq!(
        exit.stderr.lines().last(),
        Some("punctual: ended by SIGINT before the measurement was complete"),
        "{exit}"
    );
    assert_eq!(databases(&postgres).await, "0", "its database is left");
}

#[tokio::test]
async fn an_unusable_store_is_reported_in_words() {
    let postgres = Postgres::start().await;
    postgres.execute("CREATE ROLE nobody LOGIN").await;
    let unprivileged = postgres.url("postgres").replace("postgres@", "nobody@");
    let exit = run(&["drain", "--store", &unprivileged]).await;
    let message = sentence(&exit);
    assert!(message.contains("cannot create a database") && message.contains("permission denied"), "{message}");
    let closed = {
        let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        closed.local_addr().expect("an address")
    };
    let exit = run(&["drain", "--store", &format!("postgres://a@{closed}/b")]).await;
    let message = sentence(&exit);
    assert!(
        message.contains("cannot connect to the PostgreSQL at 127.0.0.1") && message.contains("refused"),
        "{message}"
    );
}
