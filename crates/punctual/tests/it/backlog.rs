//! A server that starts with many overdue tasks: it does not flood their targets, and live tasks do
//! not wait.

use std::time::Duration;

use jiff::Timestamp;
use punctual_testkit::postgres::Postgres;
use punctual_testkit::process::{Serve, TestServer};
use punctual_testkit::sink::{Hit, Sink};
use serde_json::{Value, json};

use crate::it::world::{PUNCTUAL, SOON, caller_of, seconds_between};

/// Overdue webhooks, and how many of them may be dispatched in a second.
const FOUND: u32 = 2_000;
const PER_SECOND: u32 = 200;
/// Live webhooks, each submitted when another part of the backlog has arrived.
const LIVE: usize = 40;
const PART: usize = FOUND as usize / LIVE;

#[tokio::test]
async fn live_webhooks_overtake_a_found_backlog() {
    let home = tempfile::tempdir().expect("a temporary directory can be made");
    start_on_a_backlog(Serve::new(PUNCTUAL, home.path().join("data"))).await;
}

#[tokio::test]
async fn live_webhooks_overtake_a_found_backlog_on_postgres() {
    let postgres = Postgres::start().await;
    let home = tempfile::tempdir().expect("a temporary directory can be made");
    let serve = Serve::new(PUNCTUAL, home.path().join("unused")).setting("STORE", &postgres.create_database().await);
    start_on_a_backlog(serve).await;
}

async fn start_on_a_backlog(serve: Serve) {
    let sink = Sink::start();
    let task = |path: &str| json!({"type": "t", "queue": "q", "callback_url": sink.url(path)});
    let server = pile_up(&serve, &task("/found")).await;
    drop(server);
    let server = serve.setting("SCHEDULER__BACKLOG_PER_SECOND", &PER_SECOND.to_string()).start().await;
    let began = Timestamp::now();
    let caller = caller_of(&server);
    let within = Duration::from_secs(u64::from(FOUND / PER_SECOND)) + SOON;
    let mut live = Vec::new();
    for part in 0..LIVE {
        let submitted = Timestamp::now();
        live.push((caller.submit_id(task("/live")).await, submitted));
        sink.wait_for("/found", part * PART + 1, within).await;
    }
    let found = sink.wait_for("/found", FOUND as usize, within).await;
    let arrived = sink.wait_for("/live", LIVE, SOON).await;
    for (id, submitted) in &live {
        let hits: Vec<&Hit> = arrived.iter().filter(|hit| hit.header("punctual-task-id") == id).collect();
        let [hit] = hits[..] else { panic!("{id} was delivered {} times", hits.len()) };
        let late = seconds_between(*submitted, hit.at);
        assert!(late < 1.0, "{id} was {late} s late behind the backlog");
    }
    check_flow(&found, began);
    for (id, _) in &live {
        caller.until(id, "COMPLETED").await;
    }
    let left = caller.list("/v1/tasks?limit=1000&status=PENDING&status=QUEUED&status=RUNNING").await;
    assert!(left.is_empty(), "{left:#?}");
}

/// Submits tasks that nothing dispatches, and ends the server.
async fn pile_up(serve: &Serve, task: &Value) -> TestServer {
    let mut server = serve.clone().arg("--roles").arg("api").start().await;
    caller_of(&server).submit_all(vec![task.clone(); FOUND as usize]).await;
    server.terminate();
    server.exit(SOON).await;
    server
}

/// Each arrives once, and within any second no more than the rate and one second's worth, with half
/// as much again as tolerance for a busy machine.
fn check_flow(found: &[Hit], began: Timestamp) {
    let mut ids: Vec<&str> = found.iter().map(|hit| hit.header("punctual-task-id")).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((found.len(), ids.len()), (FOUND as usize, FOUND as usize), "each is delivered once");
    let mut at: Vec<f64> = found.iter().map(|hit| seconds_between(began, hit.at)).collect();
    at.sort_by(f64::total_cmp);
    for (first, begin) in at.iter().enumerate() {
        let within = at[first..].iter().take_while(|instant| **instant < begin + 1.0).count();
        assert!(within <= 3 * PER_SECOND as usize, "{within} within a second, from {begin} s on");
    }
    let least = f64::from(FOUND - PER_SECOND) / f64::from(PER_SECOND);
    let took = at.last().expect("invariant: there are hits") - at[0];
    assert!(took > 0.9 * least, "all of it within {took} s");
}
