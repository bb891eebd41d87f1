//! A worker process that is stopped with SIGSTOP past its lease, and continued.
//!
//! The worker is a real process: this test program itself, which by its environment runs only
//! [`worker_process`].

use std::process::Command;
use std::time::Duration;

use punctual_testkit::eventually::eventually;
use punctual_testkit::http::ApiClient;
use punctual_testkit::process::Process;
use serde_json::json;

use crate::it::world::{SOON, World, id_of, in_seconds, merged, quick, seconds_between, time, worker_id};

/// The environment of the worker process: its server, the length of its lease, and how many
/// heartbeats it sends before it completes.
const SERVER: &str = "STOPPED_WORKER_SERVER";
const LEASE_SECONDS: &str = "STOPPED_WORKER_LEASE_SECONDS";
const BEATS: &str = "STOPPED_WORKER_BEATS";

/// Starts the worker: it leases one task of the queue `q`, and prints `leased`, `beat` and `done`
/// with the responses.
fn start_worker(world: &World, lease_seconds: u64, beats: u64) -> Process {
    let mut command = Command::new(std::env::current_exe().expect("a test knows its program"));
    let (_, module) = module_path!().split_once("::").expect("a module of the test program");
    command.args([&format!("{module}::worker_process"), "--exact", "--nocapture", "--test-threads=1"]);
    command.env(SERVER, world.server.url());
    command.env(LEASE_SECONDS, lease_seconds.to_string()).env(BEATS, beats.to_string());
    Process::spawn(command)
}

/// The worker process's whole life. As an ordinary test it has no server and does nothing.
#[tokio::test]
async fn worker_process() {
    let Ok(server) = std::env::var(SERVER) else { return };
    let number = |name: &str| std::env::var(name).expect("a setting").parse::<u64>().expect("a number");
    let (seconds, most_beats) = (number(LEASE_SECONDS), number(BEATS));
    let api = ApiClient::new(&server);
    let wanted = json!({"worker_id": worker_id(), "queues": ["q"], "max_tasks": 1, "wait_seconds": 30});
    let wanted = merged(wanted, json!({ "lease_seconds": seconds }));
    let lease = api.post("/v1/leases", &wanted).await.expect(200)["leases"][0].clone();
    let path = format!("/v1/tasks/{}", id_of(&lease["task"]));
    println!("\nleased {}", lease["token"]);
    let mut beats = 0;
    let beat = loop {
        let answer = api.post(&format!("{path}/heartbeat"), &json!({"token": lease["token"], "progress": 0.5})).await;
        beats += 1;
        println!("beat {beats}");
        if answer.status() != 200 || beats == most_beats {
            break answer.status();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let complete = api
        .post(&format!("{path}/complete"), &json!({"token": lease["token"], "result": "from the stopped one"}))
        .await;
    println!("done {beat} {}", complete.status());
}

#[tokio::test]
async fn a_worker_stopped_past_its_lease_changes_nothing() {
    let world = World::start().await;
    let caller = world.caller();
    let id = caller.submit_id(json!({"type": "t", "queue": "q", "retry_policy": quick(9)})).await;
    let mut worker = start_worker(&world, 1, 600);
    worker.line("beat 2", SOON).await;
    worker.signal("STOP");
    let found = caller.lease_one("q").await;
    assert_eq!((id_of(&found["task"]), &found["attempt"]), (id.clone(), &json!(2)));
    let before = caller.task(&id).await;
    worker.signal("CONT");
    // It had sent its last heartbeat, or sends another now: either is refused, and so is its
    // completion.
    assert_eq!(worker.line("done ", SOON).await, "done 409 409");
    let after = caller.task(&id).await;
    assert_eq!(after, before, "the stopped worker changed the task");
    caller.report("complete", &found, json!({"result": "from the other one"})).await.expect(200);
    assert_eq!(caller.until(&id, "COMPLETED").await["result"], "from the other one");
    let trail = caller.trail(&id).await;
    assert_eq!(trail.iter().filter(|event| event["to"] == "COMPLETED").count(), 1, "{trail:#?}");
}

#[tokio::test]
async fn a_worker_killed_in_the_middle_is_replaced() {
    let world = World::start().await;
    let caller = world.caller();
    let id = caller.submit_id(json!({"type": "t", "queue": "q", "retry_policy": quick(9)})).await;
    let mut worker = start_worker(&world, 1, 600);
    let line = worker.line("leased ", SOON).await;
    let token: u64 = line.trim_start_matches("leased ").parse().expect("a token");
    worker.kill();
    let found = caller.lease_one("q").await;
    assert_eq!((id_of(&found["task"]), &found["attempt"]), (id, &json!(2)));
    assert!(found["token"].as_u64() > Some(token));
}

#[tokio::test]
async fn a_worker_stopped_for_less_than_its_lease_completes() {
    let world = World::start().await;
    let caller = world.caller();
    let id = caller.submit_id(json!({"type": "t", "queue": "q", "retry_policy": quick(9)})).await;
    let mut worker = start_worker(&world, 20, 20);
    worker.line("beat 2", SOON).await;
    let stopped = in_seconds(0.0);
    worker.signal("STOP");
    eventually("a second has passed", SOON, async || {
        let passed = seconds_between(stopped, in_seconds(0.0));
        if passed > 1.0 { Ok(()) } else { Err(format!("{passed} s")) }
    })
    .await;
    worker.signal("CONT");
    assert_eq!(worker.line("done ", SOON).await, "done 200 200");
    let task = caller.until(&id, "COMPLETED").await;
    assert_eq!((&task["result"], &task["retry_count"]), (&json!("from the stopped one"), &json!(0)));
    assert!(time(&task["started_at"]) < stopped);
}
