//! A full disk: a clear refusal, nothing half done, and work again as soon as there is space.

use std::collections::BTreeSet;

use punctual_testkit::eventually::eventually;
use serde_json::{Value, json};

use super::audit::expect_whole;
use super::script::{until_ready, until_unready};
use super::small_disk::SmallDisk;
use crate::it::durability::start::{AT_ONCE, expect_refusal};
use crate::it::world::{Caller, SOON, array, caller_of, id_of, worker_id};

/// Enough for the tables and some dozens of tasks of the size below.
const DISK: u64 = 4 << 20;
const PAYLOAD: usize = 64 << 10;

fn large(queue: &str) -> Value {
    json!({"type": "t", "queue": queue, "payload": "x".repeat(PAYLOAD)})
}

/// Submits until the disk is full; returns the acknowledged ids.
async fn fill(caller: &Caller) -> BTreeSet<String> {
    let mut stored = BTreeSet::new();
    for _ in 0..1_000 {
        let answer = caller.api.post("/v1/tasks", &large("q")).await;
        if answer.status() != 201 {
            answer.problem_code(503, "store_full");
            assert!(answer.header("retry-after").is_some(), "{answer}");
            return stored;
        }
        stored.insert(id_of(&answer.value()));
    }
    panic!("the disk does not fill up");
}

#[tokio::test]
async fn a_node_recovers_from_a_full_disk_without_a_restart() {
    let disk = SmallDisk::mount(DISK).await;
    disk.load(1 << 20);
    let mut server = disk.serve().start().await;
    let caller = caller_of(&server);
    let held = caller.submit_id(json!({"type": "t", "queue": "held"})).await;
    let lease = caller.lease_for("held", 600).await;
    let mut stored = fill(&caller).await;
    stored.insert(held.clone());

    // No write is acknowledged, and a refusal with "nothing was changed" is true.
    for _ in 0..3 {
        caller.api.post("/v1/tasks", &large("q")).await.problem_code(503, "store_full");
    }
    until_unready(&caller).await;
    // A small write may still fit. Every response is true.
    let completed = caller.report("complete", &lease, json!({"result": "x"})).await;
    let status = if completed.status() == 200 { "COMPLETED" } else { "RUNNING" };
    if status == "RUNNING" {
        completed.problem_code(503, "store_full");
    }
    assert_eq!(caller.task(&held).await["status"], status);
    // Reads continue.
    assert_eq!(caller.list_ids("").await.into_iter().collect::<BTreeSet<_>>(), stored);
    caller.api.get("/healthz").await.expect(200);

    disk.unload();
    eventually("it takes tasks again without a restart", SOON, async || {
        let answer = caller.api.post("/v1/tasks", &large("q")).await;
        if answer.status() == 201 { Ok(stored.insert(id_of(&answer.value()))) } else { Err(answer.to_string()) }
    })
    .await;
    caller.report("complete", &lease, json!({"result": "x"})).await.expect(200);
    until_ready(&caller).await;
    server.kill();

    let mut server = disk.serve().start().await;
    let caller = caller_of(&server);
    assert_eq!(caller.list_ids("").await.into_iter().collect::<BTreeSet<_>>(), stored);
    assert_eq!(caller.task(&held).await["status"], "COMPLETED");
    server.terminate();
    assert_eq!(server.exit(SOON).await.code, Some(0));
    expect_whole(disk.copy().path());
}

/// However little is left: SQLite fails in different places, and not always with that reason.
#[tokio::test]
async fn a_start_on_a_full_disk_says_that_it_is_full() {
    for free in [0, 4, 12, 36, 48, 100] {
        let disk = SmallDisk::mount(DISK).await;
        disk.load(usize::try_from(DISK).expect("a small disk") - free * 1_024);
        let exit = disk.serve().fail(AT_ONCE).await;
        expect_refusal(&exit, &["is full: free some space"]);
    }
}

/// The last byte is occupied: not even a claim can be written.
#[tokio::test]
async fn a_disk_without_a_free_byte_refuses_writes() {
    let disk = SmallDisk::mount(DISK).await;
    let mut server = disk.serve().start().await;
    let caller = caller_of(&server);
    let waiting = caller.submit_id(json!({"type": "t", "queue": "q"})).await;
    disk.load_all();
    until_unready(&caller).await;
    caller.api.post("/v1/tasks", &large("q")).await.problem_code(503, "store_full");
    assert_eq!(caller.task(&waiting).await["status"], "PENDING", "reads continue");
    let mut worker = json!({"worker_id": worker_id(), "queues": ["q"], "max_tasks": 1});
    // Neither a poll nor a long poll is answered as if there were nothing to do.
    for wait_seconds in [1, 0] {
        worker["wait_seconds"] = json!(wait_seconds);
        let answer = caller.api.post("/v1/leases", &worker).await;
        answer.problem_code(503, "store_full");
        assert!(answer.header("retry-after").is_some(), "{answer}");
    }

    // A call that writes nothing is still answered. It must not count as the recovery of the disk.
    caller.api.post(&format!("/v1/tasks/{waiting}/heartbeat"), &json!({"token": 1})).await.problem(409);
    let reports_recovery = || server.log().contains("transactions are committed again");
    assert!(!reports_recovery(), "{}", server.log());

    disk.unload();
    eventually("the waiting task is handed out without a restart", SOON, async || {
        let answer = caller.api.post("/v1/leases", &worker).await;
        let leases = if answer.status() == 200 { array(&answer.value()["leases"]) } else { Vec::new() };
        if leases.len() == 1 { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
    eventually(
        "the log reports the recovery",
        SOON,
        async || {
            if reports_recovery() { Ok(()) } else { Err(server.log()) }
        },
    )
    .await;

    // A server that finds no space at its start says so.
    server.kill();
    disk.load_all();
    match disk.serve().try_start(AT_ONCE).await {
        Err(exit) => expect_refusal(&exit, &["is full: free some space"]),
        Ok(mut server) => {
            assert!(server.log().contains("is full: free some space"), "{}", server.log());
            let caller = caller_of(&server);
            caller.api.post("/v1/tasks", &large("q")).await.problem_code(503, "store_full");
            assert_eq!(caller.task(&waiting).await["status"], "RUNNING");
            server.kill();
        }
    }
    disk.unload();
    let mut server = disk.serve().start().await;
    assert_eq!(caller_of(&server).task(&waiting).await["status"], "RUNNING");
    server.terminate();
    assert_eq!(server.exit(SOON).await.code, Some(0));
    expect_whole(disk.copy().path());
}
