//! A read store: lists come from a real streaming standby, and nothing else does.

use std::time::Duration;

use punctual_testkit::eventually::eventually;
use punctual_testkit::postgres::{Postgres, connect};
use punctual_testkit::process::{Serve, TestServer};
use punctual_testkit::sink::Sink;
use serde_json::json;
use tempfile::TempDir;

use crate::it::world::{Caller, PUNCTUAL, SOON, caller_of, id_of};

/// A node on a PostgreSQL, with a standby of it as its read store.
struct Replicated {
    /// Declared first, so that it ends before what it needs.
    node: TestServer,
    standby: Postgres,
    _primary: Postgres,
    _home: TempDir,
}

impl Replicated {
    async fn start(most_lag_seconds: u32) -> Self {
        let primary = Postgres::start().await;
        let store = primary.create_database().await;
        let standby = primary.standby().await;
        let home = tempfile::tempdir().expect("a temporary directory can be made");
        let node = serve(&home, &store)
            .setting("READ_STORE", &at(&store, &standby))
            .setting("READ_STORE_LAG_SECONDS", &most_lag_seconds.to_string())
            .start()
            .await;
        let replicated = Self { node, standby, _primary: primary, _home: home };
        replicated.until_logged("lists are read from the read store", 1).await;
        replicated
    }

    fn caller(&self) -> Caller {
        caller_of(&self.node)
    }

    /// From now on the standby does not replay commits.
    async fn pause(&self) {
        self.standby.execute("SELECT pg_wal_replay_pause()").await;
        eventually("the replay is paused", SOON, async || {
            let state = self.standby.execute("SELECT pg_get_wal_replay_pause_state()").await;
            if state == [[Some("paused".to_owned())]] { Ok(()) } else { Err(format!("{state:?}")) }
        })
        .await;
    }

    async fn resume(&self) {
        self.standby.execute("SELECT pg_wal_replay_resume()").await;
    }

    async fn until_listed(&self, ids: &[&str]) {
        eventually("the list shows them", SOON, async || {
            let listed = self.caller().list_ids("").await;
            if listed == ids { Ok(()) } else { Err(format!("{listed:?}")) }
        })
        .await;
    }

    async fn until_logged(&self, sentence: &str, times: usize) {
        eventually(sentence, SOON, async || {
            let log = self.node.log();
            if log.matches(sentence).count() == times { Ok(()) } else { Err(log) }
        })
        .await;
    }

    /// The standby's lag in the metrics.
    async fn lag(&self) -> Option<f64> {
        let metrics = self.caller().api.get("/metrics").await.text().to_owned();
        let line = metrics.lines().find_map(|line| line.strip_prefix("punctual_read_store_lag_seconds{} "))?;
        Some(line.parse().expect("a number"))
    }

    async fn until_lag(&self, fits: impl Fn(Option<f64>) -> bool) {
        eventually("the metrics show the lag", SOON, async || {
            let lag = self.lag().await;
            if fits(lag) { Ok(()) } else { Err(format!("{lag:?}")) }
        })
        .await;
    }
}

fn serve(home: &TempDir, store: &str) -> Serve {
    Serve::new(PUNCTUAL, home.path().join("unused"))
        .setting("STORE", store)
        .setting("LEADER__LEASE_SECONDS", "3")
        .setting("LEADER__RENEWAL_SECONDS", "1")
}

/// The same database at another server.
fn at(store: &str, server: &Postgres) -> String {
    let (_, database) = store.rsplit_once('/').expect("it names a database");
    server.url(database)
}

#[tokio::test]
async fn lists_come_from_the_standby() {
    let (replicated, sink) = (Replicated::start(3_600).await, Sink::start());
    let caller = replicated.caller();
    let first = caller.submit_id(json!({"type": "t", "queue": "first"})).await;
    replicated.until_listed(&[&first]).await;
    replicated.pause().await;

    let pulled = caller.submit_id(json!({"type": "t", "queue": "q"})).await;
    let pushed = caller.submit_id(json!({"type": "t", "queue": "p", "callback_url": sink.url("/")})).await;
    let lease = caller.lease_one("q").await;
    assert_eq!(id_of(&lease["task"]), pulled);
    caller.report("complete", &lease, json!({"result": 1})).await.expect(200);
    assert_eq!(caller.task(&pulled).await["status"], "COMPLETED", "a single task is read from the primary");
    caller.until(&pushed, "COMPLETED").await;
    assert_eq!(sink.all_hits().len(), 1);
    assert_eq!(caller.list_ids("").await, [first.as_str()], "the standby has not seen them");
    eventually("the metrics show the counts of the standby", SOON, async || {
        let metrics = caller.api.get("/metrics").await.text().to_owned();
        let is_shown = metrics.lines().any(|line| line == "punctual_tasks{state=\"PENDING\"} 1");
        is_shown.then_some(()).ok_or(metrics)
    })
    .await;
    replicated.until_lag(|lag| lag.is_some_and(|lag| lag > 0.5)).await;

    replicated.resume().await;
    replicated.until_listed(&[&pushed, &pulled, &first]).await;
    replicated.until_lag(|lag| lag == Some(0.0)).await;
}

#[tokio::test]
async fn a_reader_needs_the_grants_of_the_page() {
    let page = include_str!("../../../../docs/operations.md");
    let grants = page.split("```sql\n").nth(1).and_then(|rest| rest.split("```").next()).expect("it has the grants");
    let primary = Postgres::start().await;
    let store = primary.create_database().await;
    let home = tempfile::tempdir().expect("a temporary directory can be made");
    // Its migrations make the tables.
    drop(serve(&home, &store).start().await);
    let owner = connect(&store).await;
    owner.batch_execute("CREATE ROLE punctual; CREATE ROLE reader LOGIN").await.expect("roles can be made");
    owner.batch_execute(grants).await.expect(grants);
    let standby = primary.standby().await;
    let read_store = at(&store, &standby).replace("postgres@", "reader@");
    let node = serve(&home, &store).setting("READ_STORE", &read_store).start().await;
    node.until_logged(&["lists are read from the read store"]).await;
    let caller = caller_of(&node);
    let task = caller.submit_id(json!({"type": "t"})).await;
    eventually("the list shows it", SOON, async || {
        let listed = caller.list_ids("").await;
        if listed == [task.as_str()] { Ok(()) } else { Err(format!("{listed:?}")) }
    })
    .await;
    assert!(!node.log().contains("permission denied"), "{}", node.log());
}

#[tokio::test]
async fn a_late_standby_is_skipped_with_one_log_line() {
    let mut replicated = Replicated::start(2).await;
    let caller = replicated.caller();
    replicated.pause().await;
    let task = caller.submit_id(json!({"type": "t", "queue": "q"})).await;
    replicated.until_listed(&[&task]).await;
    replicated.until_logged("seconds behind, more than 2; lists are read from the store itself", 1).await;
    replicated.resume().await;
    replicated.until_logged("lists are read from the read store", 2).await;

    replicated.standby.kill().await;
    let other = caller.submit_id(json!({"type": "t", "queue": "q"})).await;
    assert_eq!(caller.list_ids("").await, [other.clone(), task.clone()], "at once");
    replicated.until_logged("the read store is away", 1).await;
    replicated.until_lag(|lag| lag.is_none()).await;
    for _ in 0..3 {
        assert_eq!(caller.list_ids("").await.len(), 2);
    }
    replicated.standby.start_again().await;
    replicated.until_logged("lists are read from the read store", 3).await;
    replicated.until_listed(&[&other, &task]).await;
    assert_eq!(replicated.node.log().matches("lists are read from the store itself").count(), 2);
}

#[tokio::test]
async fn a_node_starts_while_its_standby_is_down() {
    let primary = Postgres::start().await;
    let store = primary.create_database().await;
    let mut standby = primary.standby().await;
    let url = at(&store, &standby).replace("postgres@", "postgres:hunter2@");
    standby.kill().await;
    let home = tempfile::tempdir().unwrap();
    let node = serve(&home, &store).setting("READ_STORE", &url).start().await;
    let task = caller_of(&node).submit_id(json!({"type": "t", "queue": "q"})).await;
    assert_eq!(caller_of(&node).list_ids("").await, [task]);
    standby.start_again().await;
    eventually("it is noticed", SOON, async || {
        let log = node.log();
        if log.contains("lists are read from the read store") { Ok(()) } else { Err(log) }
    })
    .await;
    assert!(!node.log().contains("hunter2"), "{}", node.log());
}

#[tokio::test]
async fn an_unusable_read_store_is_refused_in_one_sentence() {
    let home = tempfile::tempdir().unwrap();
    let within = Duration::from_secs(30);
    let on_sqlite = Serve::new(PUNCTUAL, home.path().join("data")).arg("--read-store").arg("postgres://u:hunter2@h/d");
    let exit = on_sqlite.fail(within).await;
    assert!(exit.stderr.contains("needs a PostgreSQL store; leave it out with sqlite"), "{exit}");
    assert!(!exit.stderr.contains("hunter2"), "{exit}");

    let (primary, other) = tokio::join!(Postgres::start(), Postgres::unlike_the_others());
    let store = primary.create_database().await;
    let exit = serve(&home, &store).setting("READ_STORE", &other.url("postgres")).fail(within).await;
    assert_eq!(exit.code, Some(1), "{exit}");
    let sentence = "is not a standby of the store: it is another server";
    assert!(exit.stderr.lines().last().is_some_and(|line| line.contains(sentence)), "{exit}");
    let exit = serve(&home, &store).setting("READ_STORE", &primary.url("postgres")).fail(within).await;
    assert!(
        exit.stderr.contains("it is another database of the same server; name the database of the store"),
        "{exit}"
    );
}
