//! Priorities and tenants share the claims and slots: counted over HTTP, on a real server.

use std::time::Duration;

use punctual_testkit::eventually::eventually;
use punctual_testkit::postgres::Postgres;
use punctual_testkit::process::Serve;
use punctual_testkit::sink::{Sink, SinkAnswer};
use serde_json::{Value, json};

use crate::it::world::{Caller, PUNCTUAL, SOON, World, caller_of, id_of, worker_id};

fn tasks(priority: u8, count: usize) -> Vec<Value> {
    vec![json!({"type": "t", "queue": "q", "priority": priority}); count]
}

async fn flood(caller: &Caller) {
    caller.submit_all([tasks(9, 300), tasks(5, 100), tasks(1, 40)].concat()).await;
}

/// How many of each band.
fn by_band(leases: &[Value]) -> [usize; 3] {
    let of = |band: std::ops::RangeInclusive<u64>| {
        leases.iter().filter(|lease| lease["task"]["priority"].as_u64().is_some_and(|it| band.contains(&it))).count()
    };
    [of(7..=9), of(4..=6), of(0..=3)]
}

async fn lease(caller: &Caller, most: usize) -> Vec<Value> {
    let wanted = json!({"worker_id": worker_id(), "queues": ["q"], "max_tasks": most, "wait_seconds": 30});
    caller.lease(wanted).await
}

#[tokio::test]
async fn low_priority_keeps_its_share_in_a_flood_of_high() {
    let world = World::start().await;
    let (single, batched) = (world.caller().stranger(), world.caller().stranger());
    flood(&single).await;
    let mut leased = Vec::new();
    for _ in 0..100 {
        leased.extend(lease(&single, 1).await);
    }
    assert_eq!(by_band(&leased), [70, 25, 5]);
    flood(&batched).await;
    assert_eq!(by_band(&lease(&batched, 100).await), [70, 25, 5]);
    // The rest is claimed from any band: no share is kept idle.
    assert_eq!(lease(&batched, 1_000).await.len(), 340);
}

#[tokio::test]
async fn low_priority_keeps_its_share_on_postgres() {
    let postgres = Postgres::start().await;
    let home = tempfile::tempdir().expect("a temporary directory can be made");
    let serve = Serve::new(PUNCTUAL, home.path().join("unused"))
        .setting("STORE", &postgres.create_database().await)
        .setting("FAIRNESS__HIGH_WEIGHT", "2")
        .setting("FAIRNESS__NORMAL_WEIGHT", "1")
        .setting("FAIRNESS__LOW_WEIGHT", "1");
    let server = serve.start().await;
    let caller = caller_of(&server);
    flood(&caller).await;
    assert_eq!(by_band(&lease(&caller, 100).await), [50, 25, 25]);
    let mut leased = Vec::new();
    for _ in 0..40 {
        leased.extend(lease(&caller, 1).await);
    }
    assert_eq!(by_band(&leased), [20, 10, 10]);
}

#[tokio::test]
async fn waiting_makes_a_task_more_urgent() {
    let world = World::start_with(|serve| serve.setting("FAIRNESS__AGING_SECONDS", "0.02")).await;
    let caller = world.caller();
    let old = id_of(&caller.submit(json!({"type": "t", "queue": "q", "priority": 0})).await);
    eventually("it has waited for long enough", SOON, async || {
        let metrics = caller.api.get("/metrics").await.text().to_owned();
        if longest_wait(&metrics, "low") > 0.2 { Ok(()) } else { Err(metrics) }
    })
    .await;
    caller.submit_all(tasks(9, 10)).await;
    let leases = lease(&caller, 1).await;
    assert_eq!(id_of(&leases[0]["task"]), old);
}

fn longest_wait(metrics: &str, band: &str) -> f64 {
    let series = format!("punctual_longest_wait_seconds{{band=\"{band}\"}} ");
    let value = metrics.lines().find_map(|line| line.strip_prefix(&series));
    value.and_then(|value| value.parse().ok()).unwrap_or(-1.0)
}

#[tokio::test]
async fn the_longest_wait_of_each_band_is_a_metric() {
    let world = World::start_with(|serve| serve.setting("SCHEDULER__SWEEP_INTERVAL_SECONDS", "0.1")).await;
    let caller = world.caller();
    let until_low_waits = async |low: std::ops::Range<f64>| {
        eventually("the wait is in the metrics", SOON, async || {
            let metrics = caller.api.get("/metrics").await.text().to_owned();
            let waits = ["high", "normal", "low"].map(|band| longest_wait(&metrics, band));
            let is_so = waits[..2] == [0.0; 2] && low.contains(&waits[2]);
            if is_so { Ok(()) } else { Err(format!("{waits:?}, not {low:?}")) }
        })
        .await;
    };
    until_low_waits(0.0..0.001).await;
    let id = id_of(&caller.submit(json!({"type": "t", "queue": "q", "priority": 3})).await);
    until_low_waits(1.0..60.0).await;
    until_low_waits(2.0..60.0).await;
    caller.api.delete(&format!("/v1/tasks/{id}")).await.expect_any(&[200, 202, 204]);
    until_low_waits(0.0..0.001).await;
}

#[tokio::test]
async fn tenants_share_pulled_tasks_by_weight() {
    share_by_their_weights(|serve| serve).await;
}

#[tokio::test]
async fn tenants_share_pulled_tasks_by_weight_on_postgres() {
    let postgres = Postgres::start().await;
    let database = postgres.create_database().await;
    share_by_their_weights(|serve| serve.setting("STORE", &database)).await;
}

/// Workers of two tenants, one with three times the weight, ask for more than a claim has.
async fn share_by_their_weights(settings: impl FnOnce(Serve) -> Serve) {
    let world = World::start_with(|serve| {
        settings(serve).setting("SCHEDULER__CLAIM_BATCH", "40").setting("FAIRNESS__TENANT_WEIGHTS", "heavy=3")
    })
    .await;
    let callers = ["heavy", "light"].map(|tenant| world.caller().of_tenant(tenant));
    for caller in &callers {
        caller.submit_all(tasks(5, 2_000)).await;
    }
    // Alone, a tenant gets all of it.
    assert_eq!(lease(&callers[1], 1_000).await.len(), 40);
    let mut draining = Vec::new();
    for caller in &callers {
        let caller = caller.clone();
        draining.push(tokio::spawn(async move {
            // Two polls per tenant, so that there is always one.
            let mut smallest = usize::MAX;
            let ask = || lease(&caller, 1_000);
            for _ in 0..10 {
                let (one, other) = tokio::join!(ask(), ask());
                smallest = smallest.min(one.len()).min(other.len());
            }
            smallest
        }));
    }
    let mut smallest = Vec::new();
    for one in draining {
        smallest.push(one.await.expect("no worker fails"));
    }
    // A claim is cut to the share while the other tenant contends.
    assert!((29..=31).contains(&smallest[0]) && (9..=11).contains(&smallest[1]), "{smallest:?}");
}

#[tokio::test]
async fn endless_webhooks_leave_slots_to_other_tenants() {
    let world =
        World::start_with(|serve| serve.setting("WEBHOOKS__CONCURRENCY", "16").setting("WEBHOOKS__PER_TARGET", "16"))
            .await;
    let sinks: Vec<Sink> = (0..8).map(|_| Sink::start()).collect();
    let greedy = world.caller().stranger();
    for sink in &sinks {
        sink.answer("/hang", SinkAnswer::hang());
        greedy.submit_all(vec![json!({"type": "t", "callback_url": sink.url("/hang")}); 8]).await;
    }
    let on_their_way = || sinks.iter().map(|sink| sink.hits("/hang").len()).sum::<usize>();
    eventually("the tenant uses all its slots", SOON, async || {
        let calls = on_their_way();
        if calls >= 8 { Ok(()) } else { Err(format!("{calls} calls")) }
    })
    .await;
    let quiet = world.caller().stranger();
    for round in 0..20 {
        let id = quiet.submit_id(json!({"type": "t", "callback_url": sinks[round % 8].url("/ok")})).await;
        quiet.until_within(&id, "COMPLETED", SOON).await;
    }
    assert!(on_their_way() <= 12, "{} of 16 places", on_their_way());
}

/// The calls that each tenant got of the first `calls` to one target with very few slots. All
/// tenants have much waiting before the first slot is taken.
async fn calls_to_a_shared_target(weights: &str, tenants: &[&str], calls: usize) -> Vec<usize> {
    let world = World::start_with(|serve| {
        serve.setting("WEBHOOKS__PER_TARGET", "4").setting("FAIRNESS__TENANT_WEIGHTS", weights)
    })
    .await;
    let sink = Sink::start();
    let callers: Vec<Caller> = tenants.iter().map(|tenant| world.caller().of_tenant(tenant)).collect();
    for (caller, tenant) in callers.iter().zip(tenants) {
        let path = format!("/{tenant}");
        sink.answer(&path, SinkAnswer::status(200).after(Duration::from_millis(5)));
        caller.api.call("PUT", "/v1/queues/q").json(&json!({"paused": true})).send().await.expect_any(&[200, 201]);
        let task = json!({"type": "t", "queue": "q", "callback_url": sink.url(&path)});
        caller.submit_all(vec![task; calls]).await;
    }
    for caller in &callers {
        caller.api.post("/v1/queues/q/resume", &json!({})).await.expect(200);
    }
    let hits = eventually("that many calls were made", SOON, async || {
        let hits = sink.all_hits();
        if hits.len() >= calls { Ok(hits) } else { Err(format!("{} calls", hits.len())) }
    })
    .await;
    // Before the last tenant was resumed, not all of them contended.
    let contended = &hits[calls / 4..calls];
    tenants.iter().map(|tenant| contended.iter().filter(|hit| hit.path == format!("/{tenant}")).count()).collect()
}

#[tokio::test]
async fn tenants_share_the_slots_of_a_target_whatever_their_names() {
    let got = calls_to_a_shared_target("", &["a", "b", "c", "d", "e", "z"], 800).await;
    assert!(got.iter().all(|calls| (90..=110).contains(calls)), "{got:?}");
}

#[tokio::test]
async fn tenants_share_the_slots_of_a_target_by_weight() {
    let got = calls_to_a_shared_target("z=3", &["a", "z"], 800).await;
    assert!((140..=160).contains(&got[0]) && (440..=460).contains(&got[1]), "{got:?}");
}

#[tokio::test]
async fn invalid_weights_are_refused() {
    let home = tempfile::tempdir().expect("a temporary directory can be made");
    for (setting, value, advice) in [
        ("PUNCTUAL_FAIRNESS__LOW_WEIGHT", "0", "must be between 1 and 1000"),
        ("PUNCTUAL_FAIRNESS__TENANT_WEIGHTS", "acme", "such as \"acme=3\""),
        ("PUNCTUAL_FAIRNESS__TENANT_WEIGHTS", "acme=0", "such as \"acme=3\""),
        ("PUNCTUAL_WEBHOOKS__TENANT_PERCENT", "101", "must be between 1 and 100"),
    ] {
        let output = tokio::process::Command::new(PUNCTUAL)
            .args(["config", "--data"])
            .arg(home.path())
            .env(setting, value)
            .output()
            .await
            .expect("the program can be started");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && stderr.contains(advice), "{setting}={value}: {stderr}");
    }
}
