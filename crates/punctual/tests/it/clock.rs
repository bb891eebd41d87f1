//! A node whose wall clock jumps by hours while it runs: the database's clock decides what is due.

use jiff::{SignedDuration, Timestamp};
use punctual_testkit::clock::WallClock;
use punctual_testkit::eventually::eventually;
use punctual_testkit::postgres::Postgres;
use punctual_testkit::process::{Serve, TestServer};
use punctual_testkit::sink::{Hit, Sink};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::it::world::{
    Caller, PUNCTUAL, SOON, caller_of, id_of, in_seconds, seconds_between, time, worker_id, written,
};

/// Later than this is late: far more than a busy machine needs, and far less than the clock is off.
const LATE_SECONDS: f64 = 5.0;

/// The nodes; the first one's clock is wrong.
const WRONG: usize = 0;
const RIGHT: usize = 1;

/// Three nodes on one PostgreSQL, one of them with a wall clock of its own.
struct Cluster {
    /// Declared first, so that the nodes end before what they need.
    nodes: Vec<TestServer>,
    clock: WallClock,
    sink: Sink,
    _postgres: Postgres,
    _home: TempDir,
}

impl Cluster {
    /// The clock is ahead by this many hours from the start.
    async fn start(hours: i64) -> Self {
        let postgres = Postgres::start().await;
        let home = tempfile::tempdir().expect("a temporary directory can be made");
        let clock = WallClock::right();
        clock.set_ahead(SignedDuration::from_hours(hours));
        let serve = Serve::new(PUNCTUAL, home.path().join("unused"))
            .setting("STORE", &postgres.create_database().await)
            .setting("LEADER__LEASE_SECONDS", "3")
            .setting("LEADER__RENEWAL_SECONDS", "1");
        let wrong = serve.clone().under(clock.starter());
        let (first, second, third) = tokio::join!(wrong.start(), serve.start(), serve.start());
        Self { nodes: vec![first, second, third], clock, sink: Sink::start(), _postgres: postgres, _home: home }
    }

    fn caller(&self, node: usize) -> Caller {
        caller_of(&self.nodes[node])
    }

    /// A node as another one lists it; null until it was seen there.
    async fn listed(&self, node: usize) -> Value {
        let nodes = self.caller(RIGHT).list("/v1/admin/nodes").await;
        let address = self.nodes[node].address();
        let of_it = |listed: &&Value| listed["address"].as_str().is_some_and(|listed| listed.contains(address));
        nodes.iter().find(of_it).cloned().unwrap_or_default()
    }

    /// Waits until the list and the metric report the clocks as off by this much.
    async fn until_reported(&self, hours: i64) {
        let sentence = "the clock of this machine differs from the database's";
        eventually("it is logged", SOON, async || {
            let log = self.nodes[WRONG].log();
            if log.contains(sentence) { Ok(()) } else { Err(log) }
        })
        .await;
        assert!(!self.nodes[RIGHT].log().contains(sentence), "{}", self.nodes[RIGHT].log());
        for (node, hours) in [(WRONG, hours), (RIGHT, 0)] {
            let ahead = SignedDuration::from_hours(hours).as_secs_f64();
            let about = |seconds: f64| (seconds - ahead).abs() < LATE_SECONDS;
            eventually("the skew is reported", SOON, async || {
                let listed = self.listed(node).await;
                let metrics = self.caller(node).api.get("/metrics").await.text().to_owned();
                let gauge = metrics.lines().find_map(|line| line.strip_prefix("punctual_clock_skew_seconds "));
                let gauge: Option<f64> = gauge.and_then(|seconds| seconds.parse().ok());
                let reported = listed["skew_ms"].as_f64().is_some_and(|millis| about(millis / 1_000.0));
                if reported && gauge.is_some_and(about) { Ok(()) } else { Err(format!("{listed:#}, metric {gauge:?}")) }
            })
            .await;
        }
    }

    /// Submits webhooks of many queues, all due at an instant, to a node.
    async fn push(&self, node: usize, path: &str, due: Timestamp) -> Vec<String> {
        let task = |number: usize| {
            let (queue, at) = (format!("q{number}"), written(due));
            json!({"type": "t", "queue": queue, "execute_at": at, "callback_url": self.sink.url(path)})
        };
        self.caller(node).submit_all((0..24).map(task).collect()).await.iter().map(id_of).collect()
    }

    /// Waits for as many webhooks as there are tasks, each at its time; returns the nodes that
    /// claimed them.
    async fn in_time(&self, path: &str, ids: &[String], due: Timestamp) -> Vec<String> {
        let hits = self.sink.wait_for(path, ids.len(), SOON).await;
        assert_eq!(hits.len(), ids.len());
        for Hit { at, .. } in hits {
            expect_in_time(at, due);
        }
        let mut claimed = Vec::new();
        for id in ids {
            let trail = self.caller(RIGHT).trail(id).await;
            let claim = trail.iter().find(|step| step["reason"] == "claimed").expect("it was claimed");
            claimed.push(claim["node"].as_str().unwrap_or_default().to_owned());
        }
        claimed
    }
}

#[track_caller]
fn expect_in_time(at: Timestamp, due: Timestamp) {
    let late = seconds_between(due, at);
    // Both to the millisecond: a due instant has no smaller parts.
    assert!(at.as_millisecond() >= due.as_millisecond(), "{at} is before {due}");
    assert!(late < LATE_SECONDS, "{late} s after {due}");
}

#[tokio::test]
async fn a_clock_that_jumps_makes_no_webhook_early_or_late() {
    let cluster = Cluster::start(0).await;
    for hours in [5, -7] {
        let (before, after) = (format!("/before{hours}"), format!("/after{hours}"));
        let due = in_seconds(3.0);
        let waiting = cluster.push(RIGHT, &before, due).await;
        cluster.clock.set_ahead(SignedDuration::from_hours(hours));
        let new = cluster.push(WRONG, &after, due).await;
        let mut claimed = cluster.in_time(&before, &waiting, due).await;
        claimed.extend(cluster.in_time(&after, &new, due).await);
        cluster.until_reported(hours).await;
        // The node still claims tasks: no other node declared it dead.
        let wrong = cluster.listed(WRONG).await;
        assert!(claimed.iter().any(|node| wrong["id"] == node.as_str()), "{wrong:#} claimed none: {claimed:?}");
    }
}

#[tokio::test]
async fn a_clock_that_jumps_makes_no_pull_worker_early_or_late() {
    let cluster = Cluster::start(0).await;
    let wrong = cluster.caller(WRONG);
    for hours in [-5, 7] {
        let (queue, due) = (format!("q{hours}"), in_seconds(2.0));
        let task = json!({"type": "t", "queue": &queue, "execute_at": written(due)});
        let waiting = wrong.submit_id(task).await;
        cluster.clock.set_ahead(SignedDuration::from_hours(hours));
        let lease = wrong.lease_for(&queue, 30).await;
        expect_in_time(Timestamp::now(), due);
        assert_eq!(id_of(&lease["task"]), waiting);
        let expires_in = seconds_between(Timestamp::now(), time(&lease["lease_expires_at"]));
        assert!((25.0..31.0).contains(&expires_in), "a lease of 30 s ends in {expires_in} s");
        wrong.report("heartbeat", &lease, json!({})).await.expect(200);
        wrong.report("complete", &lease, json!({})).await.expect(200);
    }
}

#[tokio::test]
async fn a_delay_is_counted_by_the_databases_clock() {
    let cluster = Cluster::start(9).await;
    cluster.until_reported(9).await;
    let begun = Timestamp::now();
    let task = cluster.caller(WRONG).submit(json!({"type": "t", "queue": "q", "delay_seconds": 2})).await;
    let due = time(&task["execute_at"]);
    let delay = seconds_between(begun, due);
    assert!((1.9..4.0).contains(&delay), "a delay of 2 s is one of {delay} s");
    let wanted = json!({"worker_id": worker_id(), "queues": ["q"], "max_tasks": 1, "wait_seconds": 30});
    let leases = cluster.caller(RIGHT).lease(wanted).await;
    expect_in_time(Timestamp::now(), due);
    assert_eq!(leases.len(), 1);
}
