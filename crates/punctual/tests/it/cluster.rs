//! Several nodes on one PostgreSQL.

use std::time::{Duration, Instant};

use punctual_testkit::eventually::eventually;
use punctual_testkit::postgres::Postgres;
use punctual_testkit::process::{Serve, TestServer};
use punctual_testkit::sink::{Sink, SinkAnswer};
use serde_json::json;
use tempfile::TempDir;

use crate::it::world::{Caller, PUNCTUAL, SOON, caller_of, id_of, worker_id};

/// A PostgreSQL, and nodes that share one of its databases.
pub struct Cluster {
    /// Declared first, so that the nodes end before what they need.
    pub nodes: Vec<TestServer>,
    pub serve: Serve,
    /// The URL of their database.
    pub database: String,
    postgres: Postgres,
    _home: TempDir,
}

impl Cluster {
    /// This many nodes, three at most, started at once on an empty database. A node that is silent
    /// for three seconds is dead.
    pub async fn start(nodes: usize) -> Self {
        Self::with_leases(nodes, Some(3)).await
    }

    /// The same; a node is dead after this many seconds of silence, by default those of the
    /// settings.
    pub async fn with_leases(nodes: usize, seconds: Option<u32>) -> Self {
        let postgres = Postgres::start().await;
        let database = postgres.create_database().await;
        let home = tempfile::tempdir().expect("a temporary directory can be made");
        let mut serve = Serve::new(PUNCTUAL, home.path().join("unused")).setting("STORE", &database);
        if let Some(seconds) = seconds {
            serve = serve
                .setting("LEADER__LEASE_SECONDS", &seconds.to_string())
                .setting("LEADER__RENEWAL_SECONDS", &(seconds / 3).to_string());
        }
        let begin = async |wanted: bool| if wanted { Some(serve.start().await) } else { None };
        let (first, second, third) = tokio::join!(begin(nodes > 0), begin(nodes > 1), begin(nodes > 2));
        Self { nodes: [first, second, third].into_iter().flatten().collect(), serve, database, postgres, _home: home }
    }

    /// One more node.
    pub async fn join(&mut self) {
        self.nodes.push(self.serve.start().await);
    }

    pub fn caller(&self, node: usize) -> Caller {
        caller_of(&self.nodes[node])
    }

    /// A caller of each node.
    pub fn callers(&self) -> Vec<Caller> {
        self.nodes.iter().map(caller_of).collect()
    }

    /// Kills a node, and starts another in its place.
    pub async fn replace(&mut self, node: usize) {
        self.nodes[node].kill();
        self.nodes[node] = self.serve.start().await;
    }

    /// Ends the database as a crash does, and starts it again.
    pub async fn restart_postgres(&mut self) {
        self.postgres.stop_immediately().await;
        self.postgres.start_again().await;
    }

    /// The index of the node that runs webhooks under this name, if it is alive.
    pub async fn place_of(&self, worker_id: &str) -> Option<usize> {
        let nodes = self.caller(0).list("/v1/admin/nodes").await;
        let number = worker_id.trim_start_matches("worker_");
        let named = nodes.iter().find(|node| node["id"].as_str().is_some_and(|id| id.ends_with(number)))?;
        self.nodes.iter().position(|server| named["address"] == server.address())
    }
}

#[tokio::test]
async fn nodes_that_start_at_once_share_the_work() {
    let cluster = Cluster::start(3).await;
    let id = cluster.caller(0).submit_id(json!({"type": "t", "queue": "q", "payload": {"a": 1}})).await;
    assert_eq!(cluster.caller(1).task(&id).await["payload"], json!({"a": 1}));
    let lease = cluster.caller(1).lease_one("q").await;
    assert_eq!(id_of(&lease["task"]), id);
    cluster.caller(2).report("complete", &lease, json!({"result": "done"})).await.expect(200);
    let task = cluster.caller(0).task(&id).await;
    assert_eq!((&task["status"], &task["result"]), (&json!("COMPLETED"), &json!("done")));
    cluster.caller(0).report("complete", &lease, json!({"result": "other"})).await.problem_code(409, "stale_token");
}

#[tokio::test]
async fn a_task_wakes_a_worker_that_waits_on_another_node() {
    let cluster = Cluster::start(2).await;
    let mut late = Vec::new();
    for round in 0..20 {
        let (queue, waiting) = (format!("q{round}"), cluster.caller(1));
        let wanted = json!({"worker_id": worker_id(), "queues": [&queue], "max_tasks": 1, "wait_seconds": 30});
        let worker = tokio::spawn(async move { (waiting.lease(wanted).await, Instant::now()) });
        cluster.until_waiting(1, 1).await;
        let id = cluster.caller(0).submit_id(json!({"type": "t", "queue": queue})).await;
        let submitted = Instant::now();
        let (leases, woken) = worker.await.expect("the worker is answered");
        assert_eq!(leases.iter().map(|lease| id_of(&lease["task"])).collect::<Vec<_>>(), [id]);
        late.push(woken.saturating_duration_since(submitted));
    }
    late.sort_unstable();
    // Waiting for the sweep would take seconds.
    assert!(late[late.len() / 2] < Duration::from_millis(500), "{late:?}");
}

/// Explanations and the list of workers know of a poll on another node within a second.
#[tokio::test]
async fn a_poll_is_soon_known_on_other_nodes() {
    let cluster = Cluster::start(2).await;
    let (polled, asked) = (cluster.caller(1), cluster.caller(0));
    let mut late = Vec::new();
    for round in 0..5 {
        let (queue, worker) = (format!("q{round}"), worker_id());
        let wanted = json!({"worker_id": &worker, "queues": [&queue], "max_tasks": 1, "wait_seconds": 30});
        let polling = polled.clone();
        let poll = tokio::spawn(async move { polling.lease(wanted).await });
        let begun = Instant::now();
        eventually("the other node knows of the poll", SOON, async || {
            let workers = asked.list("/v1/workers").await;
            if workers.iter().any(|known| known["worker_id"] == *worker) { Ok(()) } else { Err(format!("{workers:?}")) }
        })
        .await;
        late.push(begun.elapsed());
        poll.abort();
    }
    late.sort_unstable();
    assert!(late[late.len() / 2] < Duration::from_millis(1_500), "{late:?}");
}

#[tokio::test]
async fn a_webhook_is_called_once_however_many_nodes_there_are() {
    let (cluster, sink) = (Cluster::start(3).await, Sink::start());
    let task = |number: usize| json!({"type": "t", "queue": format!("q{}", number % 7), "callback_url": sink.url("")});
    let tasks: Vec<_> = (0..60).map(task).collect();
    let ids: Vec<String> = cluster.caller(0).submit_all(tasks).await.iter().map(id_of).collect();
    for id in &ids {
        cluster.caller(1).until(id, "COMPLETED").await;
    }
    assert_eq!(sink.all_hits().len(), ids.len());
}

#[tokio::test]
async fn another_node_finishes_the_work_of_a_killed_one() {
    let (mut cluster, sink) = (Cluster::start(2).await, Sink::start());
    sink.answer("/", SinkAnswer::hang());
    let retry = json!({"max_retries": 3, "backoff": "fixed", "backoff_seconds": 0.1, "jitter": "none"});
    let task = json!({"type": "t", "callback_url": sink.url("/"), "retry_policy": retry});
    let id = cluster.caller(0).submit_id(task).await;
    let running = cluster.caller(0).until(&id, "RUNNING").await;
    sink.answer("/", SinkAnswer::status(200));
    // The node that calls the webhook is killed; the other one continues.
    let name = running["worker_id"].as_str().unwrap_or_default().to_owned();
    let holder = usize::from(!cluster.nodes[0].log().contains(name.trim_start_matches("worker_")));
    cluster.nodes[holder].kill();
    let survivor = cluster.caller(1 - holder);
    let done = survivor.until_within(&id, "COMPLETED", SOON).await;
    assert_eq!(done["retry_count"], 1);
}

#[tokio::test]
async fn nodes_wait_for_a_database_that_restarts() {
    let mut cluster = Cluster::start(2).await;
    let id = cluster.caller(0).submit_id(json!({"type": "t", "queue": "q"})).await;
    cluster.postgres.stop_immediately().await;
    let refused = cluster.caller(0).api.post("/v1/tasks", &json!({"type": "t"})).await;
    refused.problem_code(503, "store_unavailable");
    assert!(refused.header("retry-after").is_some(), "{refused}");
    let checks = json!({"store": "failed", "broker": "ok", "migrations": "unknown"});
    assert_eq!(cluster.caller(0).api.get("/readyz").await.value()["checks"], checks);
    cluster.until_metric(0, "punctual_store_up", |up| up == 0.0).await;
    cluster.until_metric(0, "punctual_store_errors_total{error=\"unavailable\"}", |errors| errors > 0.0).await;
    cluster.postgres.start_again().await;
    for node in 0..2 {
        eventually("the node is ready again", SOON, async || {
            let answer = cluster.caller(node).api.get("/readyz").await;
            if answer.status() == 200 { Ok(()) } else { Err(answer.to_string()) }
        })
        .await;
        cluster.until_metric(node, "punctual_store_up", |up| up > 0.5).await;
        cluster.until_metric(node, "punctual_store_connections", |open| open >= 10.0).await;
        cluster.until_metric(node, "punctual_store_call_seconds_count{call=\"heads\"}", |calls| calls > 0.0).await;
    }
    assert_eq!(id_of(&cluster.caller(1).lease_one("q").await["task"]), id);
    let away = "cannot take submissions by SQL";
    for node in 0..2 {
        cluster.until_logged(node, "submissions by SQL are taken again").await;
        let log = cluster.nodes[node].log();
        assert_eq!(log.matches(away).count(), 1, "once, however long it lasted: {log}");
    }
}

/// Nothing can be written then, though the database answers.
#[tokio::test]
async fn a_node_is_not_ready_while_the_tasks_are_locked() {
    let cluster = Cluster::start(1).await;
    let caller = cluster.caller(0);
    let locker = punctual_testkit::postgres::connect(&cluster.database).await;
    assert_eq!(caller.api.get("/readyz").await.status(), 200);
    locker.batch_execute("BEGIN; LOCK TABLE punctual.tasks IN SHARE MODE").await.expect("the table can be locked");
    eventually("the node is not ready", Duration::from_secs(5), async || {
        let answer = caller.api.get("/readyz").await;
        let checks = &answer.value()["checks"];
        if answer.status() == 503 && checks["store"] == "failed" && checks["migrations"] == "ok" {
            return Ok(());
        }
        Err(answer.to_string())
    })
    .await;
    locker.batch_execute("ROLLBACK").await.expect("the lock ends");
    eventually("the node is ready again", SOON, async || {
        let answer = caller.api.get("/readyz").await;
        if answer.status() == 200 { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn the_schema_can_be_migrated_by_hand() {
    let postgres = Postgres::start().await;
    let url = postgres.create_database().await;
    let migrate = |arguments: &[&str]| {
        let mut command = std::process::Command::new(PUNCTUAL);
        let done = command.arg("migrate").args(arguments).env("PUNCTUAL_STORE", &url).output().expect("it runs");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    assert!(migrate(&["status"]).lines().all(|line| line.ends_with("not applied")));
    assert!(migrate(&["up"]).starts_with("applied: 0001"));
    assert_eq!(migrate(&["up"]), "applied: nothing\n");
    assert!(migrate(&["status"]).lines().all(|line| line.contains(" applied 2")));
    assert!(migrate(&["down", "--to", "0"]).ends_with("0001\n"));
}

impl Cluster {
    /// Returns once a node has logged a line that contains this.
    pub async fn until_logged(&self, node: usize, sentence: &str) -> String {
        self.until_logged_any(node, &[sentence]).await
    }

    /// The same, with one of several sentences.
    pub async fn until_logged_any(&self, node: usize, sentences: &[&str]) -> String {
        eventually(&sentences.join(" or "), SOON, async || {
            let log = self.nodes[node].log();
            let is_one = |line: &&str| sentences.iter().any(|sentence| line.contains(sentence));
            let line = log.lines().find(is_one).map(str::to_owned);
            line.ok_or(log)
        })
        .await
    }

    /// Returns once `count` workers wait at a node.
    async fn until_waiting(&self, node: usize, count: u32) {
        self.until_metric(node, "punctual_waiting_workers", |waiting| (waiting - f64::from(count)).abs() < 0.5).await;
    }

    /// Returns once a metric of a node is as wanted.
    async fn until_metric(&self, node: usize, series: &str, is_so: impl Fn(f64) -> bool) {
        eventually(series, SOON, async || {
            let metrics = self.caller(node).api.get("/metrics").await.text().to_owned();
            let values = metrics.lines().filter_map(|line| line.strip_prefix(series)?.trim().parse().ok());
            if values.into_iter().any(&is_so) { Ok(()) } else { Err(metrics) }
        })
        .await;
    }
}
