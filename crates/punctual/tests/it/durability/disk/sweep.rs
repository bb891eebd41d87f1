//! System calls that fail, one after the other: the first, the second, and so on beyond the last.
//!
//! The short form skips some ordinals of the many calls; `PUNCTUAL_LONG=1` tries every one.

use std::path::Path;

use punctual_testkit::process::Serve;
use serde_json::json;
use tokio::task::{JoinSet, LocalSet};

use super::audit::expect_whole;
use super::inject::{Fault, When, met};
use super::script::{Ledger, until_ready, until_unready};
use crate::it::durability::start::{AT_ONCE, expect_refusal};
use crate::it::world::{PUNCTUAL, SOON, World, caller_of};

/// Servers that are swept at a time.
const CONCURRENCY: usize = 3;

/// Both ways to sync a file; each is counted by itself.
const SYNC: &str = "fsync,fdatasync";

/// How the database is read.
const READ: &str = "pread64";

/// More calls than any server makes in these tests.
const CALLS_MAX: u32 = 5_000;

/// Which calls fail, and how.
#[derive(Clone, Copy, Debug)]
struct Sweep {
    call: &'static str,
    errno: &'static str,
    /// The short form tries every n-th ordinal.
    stride: u32,
    /// The least number of calls, so that a sweep without a fault fails.
    least: u32,
}

impl Sweep {
    fn nth(self, ordinal: u32) -> Fault {
        Fault::error(self.call, self.errno, When::Nth(ordinal))
    }

    /// Runs with one ordinal after the other, a few at a time, until one was beyond the last call.
    async fn run<F: Future<Output = bool> + 'static>(self, run: impl Fn(u32) -> F) {
        LocalSet::new().run_until(self.run_here(run)).await;
    }

    async fn run_here<F: Future<Output = bool> + 'static>(self, run: impl Fn(u32) -> F) {
        let stride = if std::env::var("PUNCTUAL_LONG").is_ok_and(|long| long == "1") { 1 } else { self.stride };
        let mut next = 1;
        let mut beyond = CALLS_MAX;
        let mut running = JoinSet::new();
        loop {
            while next < beyond && running.len() < CONCURRENCY {
                let (ordinal, ran) = (next, run(next));
                running.spawn_local(async move { (ordinal, ran.await) });
                next += stride;
            }
            let Some(ended) = running.join_next().await else { break };
            let (ordinal, met) = ended.unwrap_or_else(|error| panic!("{self:?}: {error}"));
            if !met {
                beyond = beyond.min(ordinal);
            }
        }
        println!("{self:?}: every {stride}. of {beyond} calls");
        assert!((self.least..CALLS_MAX).contains(&beyond), "{self:?} met {beyond} calls");
    }
}

/// The server works, a call fails, and the caller continues; then the server is stopped, perhaps
/// with a call that fails then.
async fn while_it_works(sweep: Sweep) {
    sweep.run(move |ordinal| works_with(sweep.nth(ordinal), sweep.call == READ)).await;
}

/// Whether the fault occurred.
async fn works_with(fault: Fault, reads_fail: bool) -> bool {
    let mut world = World::start().await;
    let (caller, mut ledger) = (world.caller(), Ledger::new(reads_fail));
    assert!(ledger.submit(&caller, "before", json!({"queue": "elsewhere"})).await);
    let injection = fault.attach(world.server.process().id(), &world.home().join("strace")).await;
    ledger.work(&caller).await;
    ledger.submit_at_last(&caller, "after").await;
    ledger.submit_the_rest(&caller).await;
    until_ready(&caller).await;
    world.server.terminate();
    let exit = world.server.exit(SOON).await;
    assert_eq!(exit.code, Some(0), "{fault:?}: {exit}");
    assert!(!exit.stderr.contains("panicked"), "{fault:?}: {exit}");
    let met = injection.until_the_end().await > 0;
    expect_true_after_a_restart(&world.serve, &world.data(), &ledger).await;
    met
}

/// Starts a healthy server, checks it against the acknowledgements, and audits the files it leaves.
async fn expect_true_after_a_restart(serve: &Serve, data: &Path, ledger: &Ledger) {
    let mut server = serve.start().await;
    ledger.expect_true(&caller_of(&server)).await;
    server.terminate();
    assert_eq!(server.exit(SOON).await.code, Some(0));
    expect_whole(data);
}

#[tokio::test]
async fn a_failed_fsync_while_it_works() {
    while_it_works(Sweep { call: SYNC, errno: "EIO", stride: 1, least: 8 }).await;
}

#[tokio::test]
async fn a_failed_write_while_it_works() {
    while_it_works(Sweep { call: "pwrite64", errno: "EIO", stride: 5, least: 100 }).await;
}

#[tokio::test]
async fn a_write_without_room_while_it_works() {
    while_it_works(Sweep { call: "pwrite64", errno: "ENOSPC", stride: 13, least: 100 }).await;
}

#[tokio::test]
async fn a_failed_truncation_while_it_works() {
    while_it_works(Sweep { call: "ftruncate", errno: "EIO", stride: 1, least: 2 }).await;
}

#[tokio::test]
async fn a_failed_read_while_it_works() {
    while_it_works(Sweep { call: READ, errno: "EIO", stride: 5, least: 5 }).await;
}

/// A server on a new directory, and one on the directory of a killed server.
async fn while_it_starts(sweep: Sweep) {
    sweep.run(move |ordinal| starts_with(sweep.nth(ordinal), false)).await;
    sweep.run(move |ordinal| starts_with(sweep.nth(ordinal), true)).await;
}

/// Whether the fault occurred.
async fn starts_with(fault: Fault, after_a_crash: bool) -> bool {
    let home = tempfile::tempdir().expect("a temporary directory can be made");
    let (data, log) = (home.path().join("data"), home.path().join("strace"));
    let healthy = Serve::new(PUNCTUAL, &data);
    let mut ledger = Ledger::default();
    if after_a_crash {
        let mut killed = healthy.start().await;
        ledger.work(&caller_of(&killed)).await;
        killed.kill();
    }
    match healthy.clone().under(fault.starter(&log)).try_start(SOON).await {
        Err(exit) => expect_refusal(&exit, &[&data.display().to_string()]),
        Ok(mut server) => {
            ledger.submit_at_last(&caller_of(&server), "after").await;
            server.terminate();
            let exit = server.exit(AT_ONCE).await;
            assert_eq!(exit.code, Some(0), "{fault:?}: {exit}");
        }
    }
    let met = met(&log) > 0;
    expect_true_after_a_restart(&healthy, &data, &ledger).await;
    met
}

#[tokio::test]
async fn a_failed_fsync_while_it_starts() {
    while_it_starts(Sweep { call: SYNC, errno: "EIO", stride: 1, least: 4 }).await;
}

#[tokio::test]
async fn a_failed_write_while_it_starts() {
    while_it_starts(Sweep { call: "pwrite64", errno: "EIO", stride: 9, least: 10 }).await;
}

/// The disk fails for good: reads continue, nothing is acknowledged, and the node is not ready.
/// When the disk is back, so is the server.
async fn for_good(call: &'static str, ordinal: u32) {
    let mut world = World::start().await;
    let (caller, mut ledger) = (world.caller(), Ledger::default());
    assert!(ledger.submit(&caller, "before", json!({"queue": "elsewhere"})).await);
    let fault = Fault::error(call, "EIO", When::From(ordinal));
    let injection = fault.attach(world.server.process().id(), &world.home().join("strace")).await;
    ledger.work(&caller).await;
    until_unready(&caller).await;
    for key in ["late 1", "late 2", "late 3"] {
        assert!(!ledger.submit(&caller, key, json!({})).await, "{fault:?}: acknowledged without a disk");
    }
    assert_eq!(caller.list("/v1/tasks?queue=elsewhere").await.len(), 1, "{fault:?}: reads continue");
    caller.api.get("/healthz").await.expect(200);
    assert!(injection.met() > 0);

    injection.end();
    ledger.submit_at_last(&caller, "after").await;
    until_ready(&caller).await;
    ledger.expect_true(&caller).await;
    world.server.kill();
    expect_true_after_a_restart(&world.serve, &world.data(), &ledger).await;
}

#[tokio::test]
async fn fsync_that_fails_for_good() {
    for ordinal in [1, 4] {
        for_good(SYNC, ordinal).await;
    }
}

#[tokio::test]
async fn writes_that_fail_for_good() {
    for ordinal in [1, 30] {
        for_good("pwrite64", ordinal).await;
    }
}

/// A server that cannot write says so and exits; the next one, on a healthy disk, finds everything.
#[tokio::test]
async fn a_disk_that_fails_for_good_at_the_start() {
    for call in [SYNC, "pwrite64"] {
        for after_a_crash in [false, true] {
            assert!(starts_with(Fault::error(call, "EIO", When::From(1)), after_a_crash).await);
        }
    }
}

/// A check of the checks: they notice a disk that accepts writes and loses them.
#[tokio::test]
#[should_panic(expected = "was acknowledged and is gone")]
async fn a_disk_that_lies_is_noticed() {
    let mut world = World::start().await;
    let (caller, mut ledger) = (world.caller(), Ledger::default());
    // As much as SQLite writes at most, so that it retries nothing.
    let lies = Fault::pretence("pwrite64", 4_096);
    let injection = lies.attach(world.server.process().id(), &world.home().join("strace")).await;
    assert!(ledger.submit(&caller, "lost", json!({})).await, "the server cannot know");
    world.server.kill();
    injection.until_the_end().await;
    expect_true_after_a_restart(&world.serve, &world.data(), &ledger).await;
}
