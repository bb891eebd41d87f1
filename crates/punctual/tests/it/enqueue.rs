//! Tasks that are submitted by SQL, inside the submitter's own transaction.

use std::collections::BTreeSet;
use std::time::Instant;

use punctual_testkit::eventually::eventually;
use punctual_testkit::fixtures::Dice;
use punctual_testkit::postgres::{Postgres, connect};
use punctual_testkit::process::{Serve, TestServer};
use punctual_testkit::sink::{Sink, SinkAnswer};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::it::world::{
    Caller, PUNCTUAL, SOON, array, caller_of, expect_prompt, id_of, in_seconds, seconds_between, settlement, time,
    worker_id, written,
};

/// A PostgreSQL, and nodes on one of its databases.
pub struct Site {
    /// Declared first, so that the nodes end before what they need.
    pub nodes: Vec<TestServer>,
    pub serve: Serve,
    /// The database.
    pub url: String,
    _postgres: Postgres,
    _home: TempDir,
}

impl Site {
    /// Starts this many nodes one after the other.
    pub async fn start(nodes: usize) -> Self {
        let postgres = Postgres::start().await;
        let home = tempfile::tempdir().expect("a temporary directory can be made");
        let url = postgres.create_database().await;
        let serve = Serve::new(PUNCTUAL, home.path().join("unused"))
            .setting("STORE", &url)
            .setting("LEADER__LEASE_SECONDS", "3")
            .setting("LEADER__RENEWAL_SECONDS", "1");
        let mut site = Self { nodes: Vec::new(), serve, url, _postgres: postgres, _home: home };
        for _ in 0..nodes {
            site.nodes.push(site.serve.start().await);
        }
        site
    }

    pub fn caller(&self, node: usize) -> Caller {
        caller_of(&self.nodes[node])
    }

    pub async fn client(&self) -> Client {
        connect(&self.url).await
    }
}

/// Calls `punctual.enqueue` with these arguments; returns the task's id as the API writes it.
async fn enqueue(client: &Client, arguments: &str) -> String {
    let row = client.query_one(&format!("SELECT punctual.enqueue({arguments})"), &[]).await;
    let id: Uuid = row.unwrap_or_else(|error| panic!("{arguments}: {error:?}")).get(0);
    format!("task_{id}")
}

/// The SQLSTATE of a refused call.
async fn refused(client: &Client, arguments: &str) -> String {
    let answer = client.query_one(&format!("SELECT punctual.enqueue({arguments})"), &[]).await;
    let error = answer.expect_err("it is refused");
    error.code().unwrap_or_else(|| panic!("{arguments}: {error:?}")).code().to_owned()
}

/// The task, once it can be read.
async fn until_there(caller: &Caller, id: &str) -> Value {
    eventually("the task can be read", SOON, async || {
        let answer = caller.api.get(&format!("/v1/tasks/{id}")).await;
        if answer.status() == 200 { Ok(answer.value()) } else { Err(answer.to_string()) }
    })
    .await
}

async fn is_unknown(caller: &Caller, id: &str) -> bool {
    caller.api.get(&format!("/v1/tasks/{id}")).await.status() == 404
}

#[tokio::test]
async fn a_task_exists_only_if_its_transaction_commits() {
    let site = Site::start(1).await;
    let mut client = site.client().await;
    client.batch_execute("CREATE TABLE orders (id int)").await.expect("a table of the application's own");
    let mut ids = Vec::new();
    for (number, queue) in [(1, "committed"), (2, "rolled-back")] {
        let transaction = client.transaction().await.expect("a transaction begins");
        transaction.execute(&format!("INSERT INTO orders VALUES ({number})"), &[]).await.expect("a row");
        let id = enqueue(transaction.client(), &format!("'order.placed', '{number}', queue => '{queue}'")).await;
        assert!(is_unknown(&site.caller(0), &id).await, "it is there before its transaction");
        match number {
            1 => transaction.commit().await.expect("it commits"),
            _ => transaction.rollback().await.expect("it rolls back"),
        }
        ids.push(id);
    }
    let lease = site.caller(0).lease_one("committed").await;
    assert_eq!((id_of(&lease["task"]), &lease["task"]["payload"]), (ids[0].clone(), &json!(1)));
    // A task that was submitted later has arrived, so this one would have, too.
    let last = enqueue(&client, "'t', queue => 'q'").await;
    assert_eq!(id_of(&site.caller(0).lease_one("q").await["task"]), last);
    assert!(is_unknown(&site.caller(0), &ids[1]).await);
}

/// It answers until its webhooks have ended.
#[tokio::test]
async fn a_node_that_drains_knows_what_was_committed() {
    let site = Site::start(1).await;
    let (client, caller, sink) = (site.client().await, site.caller(0), Sink::start());
    sink.answer("/", SinkAnswer::hang());
    caller.submit_id(json!({"type": "t", "callback_url": sink.url("/")})).await;
    sink.wait_for("/", 1, SOON).await;
    site.nodes[0].terminate();
    eventually("it drains", SOON, async || {
        let answer = caller.api.get("/readyz").await;
        if answer.status() == 503 { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
    let id = enqueue(&client, "'t', delay_seconds => 3600").await;
    assert_eq!(caller.task(&id).await["status"], "PENDING");
}

/// Every field means the same by SQL and over HTTP.
#[tokio::test]
async fn a_task_by_sql_is_the_same_as_one_over_http() {
    let site = Site::start(1).await;
    let client = site.client().await;
    let mut dice = Dice::new(7);
    for round in 0..60 {
        let mut submission = random_submission(&mut dice, round);
        let tenant = format!("tenant-{}", round % 3);
        let mut tenants = site.caller(0);
        tenants.api = tenants.api.tenant(&tenant);
        if round % 4 == 1 {
            let parent = tenants.submit(json!({"type": "parent", "delay_seconds": 3600})).await;
            submission["depends_on"] = json!([id_of(&parent)]);
        }
        let id = enqueue(&client, &format!("{}, tenant => '{tenant}'", arguments(&submission))).await;
        let by_sql = until_there(&tenants, &id).await;
        let over_http = tenants.submit(submission.clone()).await;
        let (mut ours, mut theirs) = (by_sql.clone(), over_http.clone());
        for task in [&mut ours, &mut theirs] {
            let since = time(&task["created_at"]);
            assert_eq!(task["updated_at"], task["created_at"]);
            if submission.get("execute_at").is_none() {
                // Compare the time after the submission instead.
                // A blocked task has no next attempt.
                let instants = ["execute_at", "next_attempt_at"].into_iter();
                for instant in instants.filter(|instant| !task[*instant].is_null()).collect::<Vec<_>>() {
                    task[instant] = json!(time(&task[instant]).duration_since(since).as_millis());
                }
            }
            for own in ["task_id", "created_at", "updated_at", "idempotency_key"] {
                task.as_object_mut().expect("a task is an object").remove(own);
            }
        }
        assert_eq!(ours, theirs, "of {submission:#}");
        let events = async |task: &Value, actor: &str| {
            let mut events = tenants.trail(&id_of(task)).await;
            assert_eq!((&events[0]["at"], &events[0]["actor"]), (&task["created_at"], &json!(actor)));
            (events[0]["at"], events[0]["actor"]) = (Value::Null, Value::Null);
            events
        };
        assert_eq!(events(&by_sql, "sql").await, events(&over_http, "client").await);
        assert_eq!(tenants.runs(&id).await, Vec::<Value>::new());
    }
    let refused = client.query_one("SELECT count(*) FROM punctual.inbox_refused", &[]).await.expect("it is counted");
    assert_eq!(refused.get::<_, i64>(0), 0);
}

/// Fields of a task, each present or absent, all valid.
fn random_submission(dice: &mut Dice, round: usize) -> Value {
    let mut task = json!({"type": format!("kind.{}/{}", round % 5, dice.below(9))});
    let names = ["a", "\u{1f600}", "long name", "k'q", "k\"q", "back\\slash"];
    let payloads = [
        json!(null),
        json!({"b": [1, 2.5, -0.0, 1e300, null, true, {"": "\u{e9}\n\t"}], "a": "\u{2028}'$$\\"}),
        json!([[], {}, "", 18_446_744_073_709_551_615_u64, -9_223_372_036_854_775_808_i64]),
        json!("text"),
        json!(12.125),
    ];
    let mut may = |name: &str, value: Value| {
        if !dice.once_in(3) {
            task[name] = value;
        }
    };
    may("payload", payloads[round % payloads.len()].clone());
    may("queue", json!(format!("q-{}", round % 4)));
    may("priority", json!(round % 10));
    may("timeout_seconds", [json!(0.001), json!(86_400), json!(1.5), json!(0.057)][round % 4].clone());
    may("expires_at", json!(written(in_seconds(1e6 + 0.789))));
    may("metadata", json!({names[round % names.len()]: names[(round + 1) % names.len()], "team": "billing"}));
    let policies = [
        json!({}),
        json!({"max_retries": 0, "jitter": "none"}),
        json!({"max_retries": 1000, "backoff": "linear", "backoff_seconds": 0.25, "max_backoff_seconds": 86_400}),
        json!({"backoff_seconds": 7_200, "backoff": "fixed"}),
    ];
    may("retry_policy", policies[round % policies.len()].clone());
    may("concurrency_key", json!(format!("{} {round}", names[round % names.len()])));
    may("on_dependency_failure", json!(["cancel", "run", "fail"][round % 3]));
    match round % 3 {
        0 => task["execute_at"] = json!(written(in_seconds(9_000.123))),
        1 => task["delay_seconds"] = [json!(0), json!(5_000), json!(1_000.057)][round / 3 % 3].clone(),
        _ => {}
    }
    // A due task would be called or given its turn, and this test is not about that.
    if task.get("execute_at").is_some() {
        task["ordering_key"] = json!(format!("{} {round}", names[round % names.len()]));
        let urls = [
            "http://9.9.9.9:1/a?b='c'",
            "http://[2620:fe::9]:9/",
            "https://Example.COM/x/../y#z",
            "http://a_b.example:80",
        ];
        task["callback_url"] = json!(urls[round % urls.len()]);
        if round.is_multiple_of(2) {
            task["callback_headers"] = json!({"X-Team": "a; \"b\"\tc", "authorization": ""});
            task["callback_body"] = json!(["payload", "envelope"][round / 2 % 2]);
        }
    }
    task
}

/// The fields as named arguments.
fn arguments(submission: &Value) -> String {
    let fields = submission.as_object().expect("a submission is an object").iter();
    let argument = |(name, value): (&String, &Value)| {
        let text = match value {
            Value::String(text) if name != "payload" => text.clone(),
            Value::Array(ids) if name == "depends_on" => {
                format!("{{{}}}", ids.iter().map(Value::to_string).collect::<Vec<_>>().join(","))
            }
            other => other.to_string(),
        };
        format!("{name} => '{}'", text.replace('\'', "''"))
    };
    fields.map(argument).collect::<Vec<_>>().join(", ")
}

/// By every node, at once, with and without the prefix of its id.
#[tokio::test]
async fn a_task_by_sql_can_be_used_from_its_commit_on() {
    let site = Site::start(2).await;
    let mut client = site.client().await;
    for round in 0..20 {
        let caller = site.caller(round % 2);
        let transaction = client.transaction().await.expect("a transaction begins");
        // Not announced to the nodes, because it is due so late.
        let ids = [
            enqueue(transaction.client(), "'t', delay_seconds => 3600").await,
            enqueue(transaction.client(), "'t', delay_seconds => 3600").await,
            enqueue(transaction.client(), "'t', delay_seconds => 3600").await,
        ];
        transaction.commit().await.expect("it commits");
        let bare = |id: &String| id.strip_prefix("task_").expect("a prefix").to_owned();
        let child = caller.submit(json!({"type": "t", "depends_on": [bare(&ids[0]), &ids[1]]})).await;
        assert_eq!((&child["status"], &child["depends_on"]), (&json!("BLOCKED"), &json!([ids[0], ids[1]])));
        let cancelled = caller.api.delete(&format!("/v1/tasks/{}", ids[2])).await.expect(200);
        assert_eq!(cancelled["status"], "CANCELLED");
        let id = enqueue(&client, "'t', delay_seconds => 3600").await;
        assert_eq!(id_of(&caller.api.get(&format!("/v1/tasks/{}", bare(&id))).await.expect(200)), id);
    }
}

#[tokio::test]
async fn a_cancellation_by_sql_holds_from_its_commit_on() {
    let site = Site::start(2).await;
    let mut client = site.client().await;
    for round in 0..20 {
        let (caller, other) = (site.caller(round % 2), site.caller((round + 1) % 2));
        let kept = caller.submit(json!({"type": "t", "queue": "kept", "delay_seconds": 3600})).await;
        let task = caller.submit(json!({"type": "t", "delay_seconds": 3600})).await;
        let transaction = client.transaction().await.expect("a transaction begins");
        let by_sql = enqueue(transaction.client(), "'t'").await;
        for id in [&id_of(&task), &by_sql] {
            let row = transaction.query_one("SELECT punctual.cancel($1::text)", &[id]).await.expect("it is called");
            assert!(row.get::<_, bool>(0));
        }
        assert_eq!(other.api.get(&format!("/v1/tasks/{}", id_of(&task))).await.expect(200)["status"], "PENDING");
        transaction.commit().await.expect("it commits");
        for id in [&id_of(&task), &by_sql] {
            assert_eq!(other.api.get(&format!("/v1/tasks/{id}")).await.expect(200)["status"], "CANCELLED");
        }
        let trail = caller.trail(&id_of(&task)).await;
        assert_eq!(trail.last().expect("a step")["actor"], "sql", "{trail:?}");
        let rolled_back = client.transaction().await.expect("a transaction begins");
        rolled_back.query_one("SELECT punctual.cancel($1::text)", &[&id_of(&kept)]).await.expect("it is called");
        rolled_back.rollback().await.expect("it rolls back");
    }
    assert_eq!(site.caller(0).list("/v1/tasks?queue=kept&status=PENDING").await.len(), 20);
}

#[tokio::test]
async fn a_commit_hands_its_due_task_to_a_waiting_worker() {
    let site = Site::start(2).await;
    let mut client = site.client().await;
    let mut number = 0;
    expect_prompt("from the commit to the worker", async || {
        let mut late = Vec::new();
        for node in [0, 1, 0, 1, 0, 1, 0, 1] {
            number += 1;
            let (queue, waiting) = (format!("q{number}"), site.caller(node));
            let wanted = json!({"worker_id": worker_id(), "queues": [&queue], "max_tasks": 1, "wait_seconds": 30});
            let worker = tokio::spawn(async move { (waiting.lease(wanted).await, Instant::now()) });
            site.until_waiting(node).await;
            let transaction = client.transaction().await.expect("a transaction begins");
            let id = enqueue(transaction.client(), &format!("'t', queue => '{queue}'")).await;
            transaction.commit().await.expect("it commits");
            let committed = Instant::now();
            let (leases, woken) = worker.await.expect("the worker is answered");
            assert_eq!(leases.iter().map(|lease| id_of(&lease["task"])).collect::<Vec<_>>(), [id]);
            late.push(woken.saturating_duration_since(committed).as_secs_f64());
        }
        println!("seconds from the commit to the worker: {late:.3?}");
        late
    })
    .await;
}

#[tokio::test]
async fn an_enqueued_task_fires_on_time() {
    let site = Site::start(1).await;
    let client = site.client().await;
    let mut number = 0;
    expect_prompt("from its time to its worker", async || {
        let mut late = Vec::new();
        for delay in [1.5, 2.0, 2.5] {
            number += 1;
            let (execute_at, queue) = (in_seconds(delay), format!("later-{number}"));
            enqueue(&client, &format!("'t', execute_at => '{}', queue => '{queue}'", written(execute_at))).await;
            late.push((execute_at, queue));
        }
        let mut seconds = Vec::new();
        for (execute_at, queue) in late {
            site.caller(0).lease_one(&queue).await;
            seconds.push(seconds_between(execute_at, jiff::Timestamp::now()));
        }
        assert!(seconds.iter().all(|late| *late >= 0.0), "before its time: {seconds:?}");
        seconds
    })
    .await;
}

#[tokio::test]
async fn submissions_by_sql_wait_for_a_node() {
    let mut site = Site::start(1).await;
    site.nodes.pop().expect("a node").kill();
    let client = site.client().await;
    let id = enqueue(&client, "'t', queue => 'waited'").await;
    let expired = "'t', delay_seconds => 0, expires_at => clock_timestamp() + interval '1 millisecond'";
    let expired = enqueue(&client, expired).await;
    site.nodes.push(site.serve.start().await);
    assert_eq!(id_of(&site.caller(0).lease_one("waited").await["task"]), id);
    // Its expiry passed before a node could begin it: it fails, as every other task.
    until_there(&site.caller(0), &expired).await;
    site.caller(0).until(&expired, "FAILED").await;
}

#[tokio::test]
async fn sql_and_http_share_their_keys() {
    let site = Site::start(1).await;
    let (client, caller) = (site.client().await, site.caller(0));
    let arguments =
        "'t', '{\"a\": [1, 2]}', queue => 'q', idempotency_key => 'order-17', callback_url => 'https://Example.com'";
    let id = enqueue(&client, arguments).await;
    until_there(&caller, &id).await;
    let same = json!({"payload": {"a": [1, 2]}, "callback_url": "https://example.com/", "type": "t", "queue": "q", "idempotency_key": "order-17"});
    let replayed = caller.api.post("/v1/tasks", &same).await;
    assert_eq!(id_of(&replayed.expect(200)), id);
    assert_eq!(replayed.header("idempotent-replayed"), Some("true"));
    let other = json!({"type": "t", "idempotency_key": "order-17"});
    caller.api.post("/v1/tasks", &other).await.problem_code(422, "idempotency_key_reused");
    assert_eq!(enqueue(&client, arguments).await, id);
    assert_eq!(refused(&client, "'t', idempotency_key => 'order-17'").await, "23505");
    caller.submit(json!({"type": "t", "idempotency_key": "order-18"})).await;
    assert_eq!(refused(&client, "'t', idempotency_key => 'order-18'").await, "23505");
}

#[tokio::test]
async fn a_submission_that_a_node_refuses_is_set_aside() {
    let site = Site::start(1).await;
    let client = site.client().await;
    let own = site.nodes[0].address();
    let bad = enqueue(&client, &format!("'t', callback_url => 'http://{own}/v1/queues/q/pause'")).await;
    let good = enqueue(&client, "'t', queue => 'q'").await;
    assert_eq!(id_of(&site.caller(0).lease_one("q").await["task"]), good);
    let row = client.query_one("SELECT 'task_' || id, reason FROM punctual.inbox_refused", &[]).await.expect("one row");
    assert_eq!(row.get::<_, &str>(0), bad);
    assert_eq!(
        row.get::<_, &str>(1),
        "callback_url: points into a network that callbacks may not go to; `webhooks.allow_networks` lists those that they may"
    );
    assert!(is_unknown(&site.caller(0), &bad).await);
    site.nodes[0].until_logged(&[&bad, "punctual.inbox_refused"]).await;
    let metrics = site.caller(0).api.get("/metrics").await.text().to_owned();
    for line in ["punctual_enqueued_total{outcome=\"refused\"} 1", "punctual_enqueued_total{outcome=\"taken\"} 1"] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in {metrics}");
    }
}

/// A role that may do nothing but enqueue must not reach the node's own API, nor what else is on
/// its machine, by a name.
#[tokio::test]
async fn a_submission_by_sql_reaches_no_name_of_the_node() {
    let (site, sink) = (Site::start(1).await, Sink::start());
    let client = site.client().await;
    let own = site.nodes[0].address().replace("127.0.0.1", "localhost");
    let beside = sink.url("/").replace("127.0.0.1", "localhost");
    for url in [format!("http://{own}/v1/queues/default/pause"), beside] {
        let id = enqueue(&client, &format!("'t', callback_url => '{url}'")).await;
        until_there(&site.caller(0), &id).await;
        let task = site.caller(0).until(&id, "DEAD_LETTERED").await;
        assert_eq!(task["last_error"]["code"], "blocked_target", "{url}: {task:#}");
    }
    assert_eq!(sink.all_hits().len(), 0);
    let queue = site.caller(0).api.get("/v1/queues/default").await.expect(200);
    assert_eq!(queue["paused"], false, "{queue:#}");
}

/// An open transaction blocks neither its own lane and key over HTTP, nor nodes that start.
#[tokio::test]
async fn an_open_transaction_delays_no_other_task() {
    let mut site = Site::start(1).await;
    let mut client = site.client().await;
    let open = client.transaction().await.expect("a transaction begins");
    let id = enqueue(open.client(), "'new.kind', queue => 'new', idempotency_key => 'k'").await;
    let caller = site.caller(0);
    // A call that waited for a lock would fail after five seconds.
    for task in [
        json!({"type": "new.kind", "queue": "new"}),
        json!({"type": "new.kind", "queue": "new", "idempotency_key": "other"}),
    ] {
        caller.submit(task).await;
    }
    let leased =
        caller.lease(json!({"worker_id": worker_id(), "queues": ["new"], "max_tasks": 9, "wait_seconds": 30})).await;
    for lease in &leased {
        caller.report("complete", lease, json!({})).await.expect(200);
    }
    site.nodes.push(site.serve.start().await);
    site.caller(1).submit(json!({"type": "new.kind", "queue": "new", "delay_seconds": 60})).await;
    open.commit().await.expect("it commits");
    assert_eq!(id_of(&caller.lease_one("new").await["task"]), id);
}

/// Nodes are killed while transactions commit and roll back: committed tasks run, and no others
/// exist.
#[tokio::test]
async fn nothing_is_lost_or_doubled_when_nodes_are_killed() {
    let mut site = Site::start(2).await;
    let mut client = site.client().await;
    let mut committed = BTreeSet::new();
    for round in 0..6 {
        for number in 0..25 {
            let transaction = client.transaction().await.expect("a transaction begins");
            let id = enqueue(transaction.client(), &format!("'t', queue => 'q{}'", number % 3)).await;
            if number % 5 == 4 {
                transaction.rollback().await.expect("it rolls back");
            } else {
                transaction.commit().await.expect("it commits");
                committed.insert(id);
            }
        }
        // In the middle of taking them in.
        site.nodes[round % 2].kill();
        site.nodes[round % 2] = site.serve.start().await;
    }
    let (mut got, caller, worker) = (BTreeSet::new(), site.caller(0), worker_id());
    while got.len() < committed.len() {
        let queues = ["q0", "q1", "q2"];
        let wanted = json!({"worker_id": worker, "queues": queues, "max_tasks": 50, "wait_seconds": 60});
        let leases = caller.lease(wanted).await;
        assert!(!leases.is_empty(), "{} of {} arrived", got.len(), committed.len());
        for lease in &leases {
            assert!(got.insert(id_of(&lease["task"])), "it was handed out twice: {lease:#}");
        }
        caller
            .settle_all(leases.iter().map(|lease| settlement(lease, json!({"outcome": "completed"}))).collect())
            .await;
    }
    assert_eq!(got, committed);
    let count = "SELECT (SELECT count(*) FROM punctual.tasks) + (SELECT count(*) FROM punctual.history),
        (SELECT count(*) FROM punctual.inbox) + (SELECT count(*) FROM punctual.inbox_refused)";
    let row = client.query_one(count, &[]).await.expect("they are counted");
    let expected = i64::try_from(committed.len()).expect("a small number");
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (expected, 0));
    let listed = array(&site.caller(1).api.get("/v1/tasks?limit=1000").await.expect(200)["items"]);
    assert_eq!(listed.len(), committed.len());
}

impl Site {
    /// Returns once a worker waits at a node.
    async fn until_waiting(&self, node: usize) {
        eventually("the poll has arrived", SOON, async || {
            let metrics = self.caller(node).api.get("/metrics").await.text().to_owned();
            if metrics.lines().any(|line| line == "punctual_waiting_workers 1") { Ok(()) } else { Err(metrics) }
        })
        .await;
    }
}
