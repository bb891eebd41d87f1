//! The leader removes old data, on both stores, and nothing else.

use punctual_testkit::eventually::eventually;
use punctual_testkit::postgres::{Postgres, execute};
use punctual_testkit::process::{Serve, TestServer};
use serde_json::{Value, json};

use crate::it::world::{Caller, PUNCTUAL, SOON, caller_of, id_of};

const DAY: i64 = 24 * 3_600_000;

/// Finished tasks, one of them to become old, and one that waits.
struct Tasks {
    old: String,
    young: String,
    waiting: String,
}

fn keyed(key: &str) -> Value {
    json!({"type": "t", "queue": "q", "idempotency_key": key})
}

async fn submit_all(caller: &Caller) -> Tasks {
    let mut done = Vec::new();
    for key in ["old", "young"] {
        let id = caller.submit_id(keyed(key)).await;
        let lease = caller.lease_one("q").await;
        caller.report("complete", &lease, json!({})).await.expect(200);
        done.push(id);
    }
    let waiting = json!({"type": "t", "queue": "later", "delay_seconds": 3_600, "idempotency_key": "waiting"});
    let [old, young] = done.try_into().expect("two were done");
    Tasks { old, young, waiting: caller.submit_id(waiting).await }
}

/// The leader of a node that starts removes the old task with its key; the rest stays.
async fn check(node: &TestServer, tasks: &Tasks) {
    let caller = caller_of(node);
    eventually("old data is gone", SOON, async || {
        let answer = caller.api.get(&format!("/v1/tasks/{}", tasks.old)).await;
        if answer.status() == 404 { Ok(()) } else { Err(format!("{answer}\n{}", node.log())) }
    })
    .await;
    eventually("its key is free", SOON, async || {
        let answer = caller.api.post("/v1/tasks", &keyed("old")).await;
        if answer.status() == 201 { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
    assert_eq!(caller.task(&tasks.young).await["status"], "COMPLETED");
    assert_eq!(caller.task(&tasks.waiting).await["status"], "PENDING");
    let again = caller.api.post("/v1/tasks", &keyed("young")).await;
    assert_eq!(id_of(&again.expect(200)), tasks.young, "its key is not that old");
    let listed = caller.list_ids("").await;
    assert!(!listed.contains(&tasks.old) && listed.len() == 3, "{listed:?}");
    eventually("the log reports it", SOON, async || {
        let log = node.log();
        if log.contains("pruned old data") { Ok(()) } else { Err(log) }
    })
    .await;
}

async fn end(mut node: TestServer) {
    node.terminate();
    assert_eq!(node.exit(SOON).await.code, Some(0));
}

#[tokio::test]
async fn the_embedded_store_removes_old_data() {
    let home = tempfile::tempdir().unwrap();
    let serve = Serve::new(PUNCTUAL, home.path().join("data"));
    let node = serve.start().await;
    let tasks = submit_all(&caller_of(&node)).await;
    end(node).await;
    {
        let file = std::fs::read_dir(home.path().join("data")).unwrap().flatten().map(|entry| entry.path());
        let file = file.into_iter().find(|path| path.extension().is_some_and(|end| end == "db")).unwrap();
        let database = rusqlite::Connection::open(file).unwrap();
        let age = format!(
            "UPDATE history SET completed_at = completed_at - 91 * {DAY} WHERE seq = 1;
             UPDATE bodies SET created_at = created_at - 91 * {DAY} WHERE seq <> 2;
             UPDATE idempotency SET created_at = created_at - 91 * {DAY} WHERE key <> 'young'"
        );
        database.execute_batch(&age).unwrap();
    }
    let node = serve.start().await;
    check(&node, &tasks).await;
}

#[tokio::test]
async fn a_shared_store_removes_old_data() {
    let home = tempfile::tempdir().unwrap();
    let postgres = Postgres::start().await;
    let url = postgres.create_database().await;
    let serve = Serve::new(PUNCTUAL, home.path().join("unused")).setting("STORE", &url);
    let node = serve.start().await;
    let tasks = submit_all(&caller_of(&node)).await;
    end(node).await;
    // A separate month for the old task, as the leader creates it.
    let uuid = tasks.old.trim_start_matches("task_");
    let age = format!(
        "SET search_path = punctual;
         SELECT history_ahead((SELECT completed_at - 91 * {DAY}::bigint FROM history WHERE id = '{uuid}'), 1);
         UPDATE history SET completed_at = completed_at - 91 * {DAY}::bigint WHERE id = '{uuid}';
         UPDATE idempotency SET created_at = created_at - 91 * {DAY}::bigint WHERE key <> 'young'"
    );
    execute(&url, &age).await;
    let months = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'punctual.history'::regclass";
    let before: i64 = execute(&url, months).await[0][0].as_ref().unwrap().parse().unwrap();
    // All of that month is past.
    let node = serve.clone().setting("RETENTION__HISTORY_DAYS", "59").start().await;
    check(&node, &tasks).await;
    let after: i64 = execute(&url, months).await[0][0].as_ref().unwrap().parse().unwrap();
    assert_eq!(after, before - 1, "it went with its month");
}

#[tokio::test]
async fn zero_days_keep_everything() {
    let home = tempfile::tempdir().unwrap();
    let serve = Serve::new(PUNCTUAL, home.path().join("data"));
    let serve = serve.setting("RETENTION__HISTORY_DAYS", "0").setting("RETENTION__IDEMPOTENCY_DAYS", "0");
    let node = serve.start().await;
    let id = caller_of(&node).submit_id(keyed("k")).await;
    let again = caller_of(&node).api.post("/v1/tasks", &keyed("k")).await;
    assert_eq!(id_of(&again.expect(200)), id);
}
