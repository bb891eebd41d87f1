//! Real PostgreSQL servers: started, stopped in every way, frozen, copied, promoted, and never left
//! running.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use punctual_testkit::eventually::eventually;
use punctual_testkit::postgres::{Postgres, connect, execute};

const SOON: Duration = Duration::from_secs(20);

/// Long enough for any answer of a server that answers.
const A_WHILE: Duration = Duration::from_millis(500);

async fn count(url: &str) -> String {
    execute(url, "SELECT count(*) FROM t").await.remove(0).remove(0).expect("a count is a number")
}

#[tokio::test]
async fn every_server_has_fresh_databases() {
    let server = Postgres::start().await;
    let [one, other] = [server.create_database().await, server.create_database().await];
    execute(&one, "CREATE TABLE t (n int); INSERT INTO t VALUES (1), (NULL)").await;
    assert_eq!(execute(&one, "SELECT n FROM t").await, [[Some("1".to_owned())], [None]]);
    assert_eq!(execute(&other, "SELECT to_regclass('t')").await, [[None]]);
}

#[tokio::test]
async fn commits_survive_every_way_to_stop() {
    let mut server = Postgres::durable().await;
    assert_eq!(server.execute("SHOW fsync").await, [[Some("on".to_owned())]]);
    let url = server.create_database().await;
    execute(&url, "CREATE TABLE t (n int)").await;
    for way in ["killed", "stopped immediately", "stopped fast", "killed while it was frozen"] {
        execute(&url, "INSERT INTO t VALUES (1)").await;
        let open = connect(&url).await;
        open.batch_execute("BEGIN; INSERT INTO t VALUES (2)").await.expect("the server answers");
        match way {
            "killed" => server.kill().await,
            "stopped immediately" => server.stop_immediately().await,
            "stopped fast" => server.stop_fast().await,
            _ => {
                server.freeze().await;
                server.kill().await;
            }
        }
        open.batch_execute("COMMIT").await.expect_err(way);
        server.start_again().await;
    }
    assert_eq!(count(&url).await, "4");
}

#[tokio::test]
async fn a_frozen_server_does_not_answer_until_thawed() {
    let server = Postgres::start().await;
    let client = connect(&server.url("postgres")).await;
    server.freeze().await;
    let mut query = Box::pin(client.simple_query("SELECT 1"));
    tokio::time::timeout(A_WHILE, &mut query).await.expect_err("a frozen server does not answer");
    let mut arriving = Box::pin(connect_without_a_limit(&server));
    tokio::time::timeout(A_WHILE, &mut arriving).await.expect_err("a frozen server lets no client in");
    server.thaw();
    query.await.expect("it is answered in the end");
    arriving.await;
}

/// Without the limit on the time that `connect` has.
async fn connect_without_a_limit(server: &Postgres) {
    let url = server.url("postgres");
    let (_client, _connection) =
        tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("the server accepts the client");
}

#[tokio::test]
async fn a_standby_sees_what_is_committed_and_can_be_promoted() {
    let mut primary = Postgres::start().await;
    primary.execute("CREATE TABLE t (n int); INSERT INTO t VALUES (1)").await;
    let mut standby = primary.standby().await;
    primary.execute("INSERT INTO t VALUES (2)").await;
    let url = standby.url("postgres");
    eventually("the row arrives", SOON, async || match count(&url).await.as_str() {
        "2" => Ok(()),
        other => Err(other.to_owned()),
    })
    .await;
    let refused = connect(&url).await.batch_execute("INSERT INTO t VALUES (3)").await;
    refused.expect_err("a standby is read only");
    primary.kill().await;
    standby.promote().await;
    standby.execute("INSERT INTO t VALUES (3)").await;
    assert_eq!(count(&url).await, "3");
}

#[tokio::test]
async fn a_synchronous_standby_has_every_commit() {
    let mut primary = Postgres::start().await;
    primary.execute("CREATE TABLE t (n int)").await;
    let mut standby = primary.standby().await;
    primary.wait_for_standby(&standby).await;
    primary.execute("INSERT INTO t SELECT generate_series(1, 1000)").await;
    standby.freeze().await;
    let client = connect(&primary.url("postgres")).await;
    let mut commit = Box::pin(client.batch_execute("INSERT INTO t VALUES (1001)"));
    tokio::time::timeout(A_WHILE, &mut commit).await.expect_err("the commit waits for the standby");
    primary.kill().await;
    commit.await.expect_err("it is never acknowledged");
    standby.thaw();
    standby.promote().await;
    // An unacknowledged commit may have arrived or not.
    let count = count(&standby.url("postgres")).await;
    assert!(["1000", "1001"].contains(&count.as_str()), "{count}");
    standby.execute("INSERT INTO t VALUES (1002)").await;
}

#[tokio::test]
async fn a_dropped_server_is_gone_in_any_state() {
    for stands in ["running", "frozen", "killed"] {
        let mut server = Postgres::start().await;
        let data = data_directory(&server).await;
        match stands {
            "frozen" => server.freeze().await,
            "killed" => server.kill().await,
            _ => {}
        }
        drop(server);
        assert!(!Path::new(&data).exists(), "{stands}: {data} is left");
        assert_eq!(processes_in(&data), 0, "{stands}");
    }
}

#[tokio::test]
async fn a_test_that_is_killed_leaves_no_server() {
    // This test starts itself a second time, to be killed; that process has the variable.
    if let Ok(found) = std::env::var("PUNCTUAL_TESTKIT_REPORT_FILE") {
        let server = Postgres::start().await;
        let data = data_directory(&server).await;
        server.freeze().await;
        std::fs::write(&found, data).expect("the file can be written");
        return std::future::pending().await;
    }
    let home = tempfile::tempdir().expect("a temporary directory can be made");
    let found = home.path().join("report");
    let mut test = Command::new(std::env::current_exe().expect("this program has a path"))
        .args(["--exact", "it::postgres::a_test_that_is_killed_leaves_no_server"])
        .env("PUNCTUAL_TESTKIT_REPORT_FILE", &found)
        .stdout(Stdio::null())
        .spawn()
        .expect("this program runs");
    let data = eventually("the test reports its server", SOON, async || match std::fs::read_to_string(&found) {
        Ok(data) if !data.is_empty() => Ok(data),
        other => Err(format!("{other:?}")),
    })
    .await;
    assert!(processes_in(&data) > 1, "the server does not run");
    test.kill().expect("a child can be killed");
    test.wait().expect("a killed child ends");
    eventually("the server is gone", SOON, async || {
        let (left, exists) = (processes_in(&data), Path::new(&data).exists());
        if left == 0 && !exists { Ok(()) } else { Err(format!("{left} processes, directory {exists}")) }
    })
    .await;
}

async fn data_directory(server: &Postgres) -> String {
    server.execute("SHOW data_directory").await.remove(0).remove(0).expect("it is set")
}

fn processes_in(directory: &str) -> usize {
    let entries = std::fs::read_dir("/proc").expect("there is a /proc").flatten();
    entries.filter(|entry| entry.path().join("cwd").read_link().is_ok_and(|cwd| cwd == Path::new(directory))).count()
}
