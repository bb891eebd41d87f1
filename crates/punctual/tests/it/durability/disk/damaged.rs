//! Damaged files: the server refuses to start, or serves the intact tasks and reports the damage.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;

use punctual_testkit::eventually::eventually;
use rusqlite::Connection;
use serde_json::json;

use super::audit::expect_whole;
use super::script::until_unready;
use super::small_disk::SmallDisk;
use crate::it::durability::start::{AT_ONCE, expect_refusal};
use crate::it::world::{SOON, World, array, id_of, worker_id};

/// A server that accepted this many tasks and was stopped.
async fn stopped_with(tasks: usize) -> (World, Vec<String>) {
    let mut world = World::start().await;
    let all = (0..tasks).map(|n| json!({"type": "t", "queue": "q", "payload": {"n": n, "padding": "x".repeat(500)}}));
    let ids = world.caller().submit_all(all.collect()).await.iter().map(id_of).collect();
    world.server.terminate();
    assert_eq!(world.server.exit(SOON).await.code, Some(0));
    (world, ids)
}

fn database(data: &Path) -> Connection {
    Connection::open(data.join("punctual.db")).expect("the database opens")
}

/// Writes over `length` bytes of the database from `start` on.
fn scribble(data: &Path, start: u64, length: usize) {
    use std::os::unix::fs::FileExt;
    let file = File::options().write(true).open(data.join("punctual.db")).expect("the database is a file");
    file.write_all_at(&vec![0xA5; length], start).expect("it can be written to");
}

#[tokio::test]
async fn a_file_that_is_not_a_database_is_refused() {
    let (world, _) = stopped_with(1).await;
    let data = world.data();
    fs::write(data.join("punctual.db"), "not a database, but long enough to be looked at. ".repeat(200))
        .expect("a file");
    let exit = world.serve.fail(AT_ONCE).await;
    expect_refusal(&exit, &["not a database"]);
    expect_refusal(&exit, &[&data.display().to_string()]);
}

#[tokio::test]
async fn a_truncated_database_is_refused() {
    let (world, _) = stopped_with(1_000).await;
    let file = world.data().join("punctual.db");
    let whole = fs::read(&file).expect("it can be read");
    for left in [whole.len() / 2, 4_096, 2_000, 50] {
        fs::write(&file, &whole[..left]).expect("it can be cut");
        let exit = world.serve.fail(AT_ONCE).await;
        expect_refusal(&exit, &["malformed", "not a database", "cut", "damaged"]);
        expect_refusal(&exit, &[&world.data().display().to_string()]);
    }
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_refused() {
    let (mut world, ids) = stopped_with(1).await;
    let newer = "INSERT INTO schema_migrations VALUES (9999, 'of the future', '', 0)";
    database(&world.data()).execute_batch(newer).expect(newer);
    let exit = world.serve.fail(AT_ONCE).await;
    expect_refusal(&exit, &["9999"]);
    expect_refusal(&exit, &["newer"]);
    // The file is unchanged.
    database(&world.data()).execute_batch("DELETE FROM schema_migrations WHERE version = 9999").expect("a repair");
    world.restart().await;
    world.caller().task(&ids[0]).await;
}

#[tokio::test]
async fn a_directory_that_cannot_be_written_to_is_refused() {
    let disk = SmallDisk::mount(4 << 20).await;
    let mut server = disk.serve().start().await;
    server.terminate();
    assert_eq!(server.exit(SOON).await.code, Some(0));
    disk.forbid_writing();
    expect_refusal(&disk.serve().fail(AT_ONCE).await, &["read-only", "readonly"]);
}

/// One row is corrupt: it is kept for inspection, and every other task is served.
#[tokio::test]
async fn a_corrupted_row_harms_no_other() {
    for damage in [
        "UPDATE bodies SET payload = '{\"torn' WHERE seq = 2",
        "UPDATE tasks SET version = -1 WHERE seq = 2",
        "DELETE FROM bodies WHERE seq = 2",
    ] {
        let (mut world, ids) = stopped_with(3).await;
        database(&world.data()).execute_batch(damage).expect(damage);
        world.restart().await;
        let caller = world.caller();
        caller.api.get(&format!("/v1/tasks/{}", ids[1])).await.problem_code(500, "internal_error");
        let others: BTreeSet<String> = [ids[0].clone(), ids[2].clone()].into();
        assert_eq!(caller.list_ids("").await.into_iter().collect::<BTreeSet<_>>(), others, "{damage}");
        let wanted = json!({"worker_id": worker_id(), "queues": ["q"], "max_tasks": 3, "wait_seconds": 5});
        let leased: BTreeSet<String> = caller.lease(wanted).await.iter().map(|lease| id_of(&lease["task"])).collect();
        assert_eq!(leased, others, "{damage}");
        caller.api.get("/readyz").await.expect(200);
        world.server.until_logged(&["quarantine", &ids[1]]).await;
        world.server.kill();
        let kept: i64 = database(&world.data())
            .query_row("SELECT count(*) FROM quarantine WHERE seq = 2", [], |row| row.get(0))
            .expect("it can be counted");
        assert_eq!(kept, 1, "{damage}");
    }
}

/// A page in the middle of the file is overwritten: requests that read it fail, and the node is not
/// ready.
#[tokio::test]
async fn reading_an_overwritten_page_makes_the_node_unready() {
    let (mut world, ids) = stopped_with(1_000).await;
    // A page that no new task touches.
    let first = "SELECT min(pageno) FROM dbstat WHERE name = 'bodies' AND pagetype = 'leaf'";
    let page: u32 = database(&world.data()).query_row(first, [], |row| row.get(0)).expect("there is a table");
    scribble(&world.data(), u64::from(page - 1) * 4_096, 4_096);
    world.restart().await;
    let caller = world.caller();
    caller.api.get(&format!("/v1/tasks/{}", ids[0])).await.problem_code(503, "store_unavailable");
    until_unready(&caller).await;
    eventually("a sentence in the log", SOON, async || {
        let log = world.server.log();
        if log.contains("the database is damaged: restore it") { Ok(()) } else { Err(log) }
    })
    .await;
    assert_eq!(caller.api.get("/readyz").await.status(), 503, "it stays unready");
    caller.api.get("/healthz").await.expect(200);
    // An operator who restores a backup would lose this task, so it is refused.
    for _ in 0..3 {
        let refused = caller.api.post("/v1/tasks", &json!({"type": "t", "queue": "q"})).await;
        refused.problem_code(503, "store_unavailable");
    }
    // Readable tasks are still served.
    assert_eq!(caller.task(&ids[999]).await["status"], "PENDING");
}

/// The log of a killed server is gone or truncated. Tasks that were only in the log are lost, which
/// SQLite cannot notice. The tasks that are left are a prefix of all.
#[tokio::test]
async fn a_truncated_log_keeps_its_intact_prefix() {
    for keep in [None, Some(0), Some(1), Some(2), Some(3)] {
        let mut world = World::start().await;
        let caller = world.caller();
        let mut ids = Vec::new();
        for n in 0..20 {
            ids.push(caller.submit_id(json!({"type": "t", "queue": "q", "payload": n})).await);
        }
        world.server.kill();
        let log = world.data().join("punctual.db-wal");
        let length = fs::metadata(&log).expect("a killed server leaves its log").len();
        match keep {
            None => fs::remove_file(&log).expect("it can be removed"),
            Some(quarters) => {
                let file = File::options().write(true).open(&log).expect("it opens");
                file.set_len(length * quarters / 4).expect("it can be cut");
            }
        }
        world.restart().await;
        let found = world.caller().list_ids("&order=execute_at").await;
        assert_eq!(found, ids[..found.len()], "{keep:?}: not a prefix");
        let next = world.caller().submit_id(json!({"type": "t", "queue": "q"})).await;
        let wanted = json!({"worker_id": worker_id(), "queues": ["q"], "max_tasks": 100, "wait_seconds": 5});
        let leased = array(&world.caller().api.post("/v1/leases", &wanted).await.expect(200)["leases"]);
        assert_eq!(leased.len(), found.len() + 1);
        assert!(leased.iter().any(|lease| id_of(&lease["task"]) == next));
        world.server.terminate();
        assert_eq!(world.server.exit(SOON).await.code, Some(0));
        expect_whole(&world.data());
    }
}
