//! A disk that stalls: requests are answered in time, and nothing is lost.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::audit::expect_whole;
use super::inject::Fault;
use super::script::until_ready;
use crate::it::world::{Caller, SOON, World, id_of};

/// How long the disk stalls; no request waits for that.
const STALL: Duration = Duration::from_mins(1);
/// The deadline of a request, and what a busy machine may add to it.
const DEADLINE: Duration = Duration::from_secs(1);
const ANSWER_MAX: Duration = Duration::from_secs(4);
/// Callers at a time, and how often each calls.
const CALLERS: usize = 150;
const ROUNDS: usize = 2;
/// More than are served at a time, so that some are refused at once.
const PLACES: &str = "100";
/// What refused requests may leave in memory: a payload for each call, and much to spare.
const GROWTH_MAX: u64 = 64 << 20;

fn task(caller: usize) -> Value {
    json!({"type": "t", "queue": "q", "idempotency_key": format!("caller {caller}"), "payload": "x".repeat(10_000)})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_refused_in_time_while_the_disk_stalls() {
    let deadline = DEADLINE.as_secs().to_string();
    let mut world = World::start_with(|serve| {
        serve.setting("LIMITS__REQUEST_TIMEOUT_SECONDS", &deadline).setting("LIMITS__REQUESTS_IN_FLIGHT", PLACES)
    })
    .await;
    let caller = world.caller();
    let before = caller.submit_id(json!({"type": "t", "queue": "elsewhere"})).await;
    let server = world.server.process().id();
    let memory = resident(server);
    let stall = Fault::delay("fsync,fdatasync", STALL).attach(server, &world.home().join("strace")).await;

    for _ in 0..ROUNDS {
        expect_all_refused(&caller).await;
    }
    let asked = Instant::now();
    assert_eq!(caller.api.get("/readyz").await.status(), 503, "a stalled disk cannot serve");
    assert!(asked.elapsed() < ANSWER_MAX, "{:?}", asked.elapsed());
    assert_eq!(caller.task(&before).await["status"], "PENDING", "reads continue");
    let grown = resident(server).saturating_sub(memory);
    assert!(grown < GROWTH_MAX, "{grown} bytes more in memory");

    // The disk is back. A refused submission may have happened; repeated under its key it happens
    // once.
    stall.end();
    until_ready(&caller).await;
    let mut known = BTreeSet::from([before]);
    for number in 0..CALLERS {
        known.insert(id_of(&caller.api.post("/v1/tasks", &task(number)).await.expect_any(&[200, 201])));
    }
    assert_eq!(known.len(), CALLERS + 1);
    assert_eq!(caller.list_ids("").await.into_iter().collect::<BTreeSet<_>>(), known, "each once and nothing else");
    world.server.terminate();
    assert_eq!(world.server.exit(SOON).await.code, Some(0));
    expect_whole(&world.data());
}

/// Makes all calls at once, and checks that the node is alive meanwhile.
async fn expect_all_refused(caller: &Caller) {
    let mut calls = JoinSet::new();
    for number in 0..CALLERS {
        let caller = caller.clone();
        calls.spawn(async move {
            let asked = Instant::now();
            (caller.api.post("/v1/tasks", &task(number)).await, asked.elapsed())
        });
    }
    let asked = Instant::now();
    caller.api.get("/healthz").await.expect(200);
    assert!(asked.elapsed() < DEADLINE, "/healthz took {:?}", asked.elapsed());
    while let Some(answered) = calls.join_next().await {
        let (answer, took) = answered.expect("a call is answered");
        let problem = answer.problem(503);
        assert!(
            ["store_unavailable", "overloaded"].contains(&problem["code"].as_str().unwrap_or_default()),
            "{answer}"
        );
        assert!(answer.header("retry-after").is_some(), "{answer}");
        assert!(took < ANSWER_MAX, "after {took:?}: {answer}");
    }
}

/// The memory of a process, in bytes.
fn resident(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("the process is alive");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("invariant: a process has memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1_024
}
