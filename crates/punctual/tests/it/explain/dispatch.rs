//! Reasons of a due task's executor: pull workers, or the node that dispatches webhooks.

use punctual_testkit::eventually::eventually;
use punctual_testkit::postgres::Postgres;
use punctual_testkit::process::Serve;
use punctual_testkit::sink::{Sink, SinkAnswer};
use serde_json::{Value, json};

use super::{codes, expect_says, explained, only};
use crate::it::cluster::Cluster;
use crate::it::world::{
    Caller, PUNCTUAL, SOON, World, caller_of, id_of, in_seconds, quick, seconds_between, shared, time, worker_id,
};

#[tokio::test]
async fn workers_of_the_queue_are_a_reason() {
    let caller = shared().await;
    let tasks = caller.submit_all(vec![json!({"type": "t", "queue": "lonely"}); 3]).await;
    let last = id_of(&tasks[2]);
    let (reason, eta) = only(&explained(&caller, &last).await, "no_worker_polling");
    assert_eq!((&reason["queue"], &eta), (&json!("lonely"), &json!(null)));
    expect_says(&reason, &["lonely", "type t", "last minute"]);
    caller.lease_one("lonely").await;
    let (reason, eta) = only(&explained(&caller, &last).await, "workers_busy");
    assert_eq!((&reason["position"], &eta), (&json!(2), &json!(null)));
    assert_eq!((&reason["workers"], &reason["busy"]), (&json!(1), &json!(1)));
    expect_says(&reason, &["the only worker that polls for queue lonely", "busy with 1 task", "one other task"]);
    // A worker that has polled and holds nothing.
    let wanted = json!({"worker_id": "free", "queues": ["lonely", "other"], "max_tasks": 1});
    let lease = caller.lease(wanted).await.remove(0);
    caller.report("release", &lease, json!({})).await.expect(200);
    let (reason, _) = only(&explained(&caller, &last).await, "due_waiting_for_worker");
    assert_eq!((&reason["workers"], &reason["busy"]), (&json!(2), &json!(1)));
    expect_says(&reason, &["pull worker of queue lonely"]);
}

/// Another node knows of a worker once its node has recorded its presence; it knows of its leases
/// at once.
pub async fn polled_elsewhere(acting: &Caller, asking: &Caller) {
    let tasks = asking.submit_all(vec![json!({"type": "t", "queue": "remote"}); 3]).await;
    let last = id_of(&tasks[2]);
    let (reason, _) = only(&explained(asking, &last).await, "no_worker_polling");
    assert_eq!(reason["queue"], "remote");
    let wanted = json!({"worker_id": worker_id(), "queues": ["remote"], "max_tasks": 1, "wait_seconds": 20});
    let lease = acting.lease(wanted.clone()).await.remove(0);
    acting.report("release", &lease, json!({})).await.expect(200);
    let reason = until_only(asking, &last, "due_waiting_for_worker").await;
    assert_eq!((&reason["workers"], &reason["busy"]), (&json!(1), &json!(0)));
    expect_says(&reason, &["pull worker of queue remote"]);
    acting.lease(wanted).await.remove(0);
    let (reason, eta) = only(&explained(asking, &last).await, "workers_busy");
    assert_eq!((&reason["workers"], &reason["busy"], &eta), (&json!(1), &json!(1), &json!(null)));
    expect_says(&reason, &["the only worker that polls for queue remote", "busy with 1 task"]);
}

async fn webhook(caller: &Caller, sink: &Sink) -> String {
    caller.submit_id(json!({"type": "t", "queue": "q", "callback_url": sink.url("/")})).await
}

/// A cluster without a node that dispatches.
async fn without_a_dispatcher(serve: &Serve) {
    let (server, sink) = (serve.clone().arg("--roles").arg("api").start().await, Sink::start());
    let caller = caller_of(&server);
    let id = webhook(&caller, &sink).await;
    let (reason, eta) = only(&explained(&caller, &id).await, "no_partition_owner");
    assert_eq!(eta, json!(null));
    assert!(reason["partition"].as_u64().is_some_and(|number| number < 64), "{reason:#}");
    expect_says(&reason, &["queue q", "which no node owns", "scheduler"]);
    drop(server);

    let mut server = serve.start().await;
    caller_of(&server).until(&id, "COMPLETED").await;
    server.terminate();
    server.exit(SOON).await;
    let given_up = in_seconds(0.0);
    let server = serve.clone().arg("--roles").arg("api").start().await;
    let caller = caller_of(&server);
    let id = webhook(&caller, &sink).await;
    let (reason, _) = only(&explained(&caller, &id).await, "no_partition_owner");
    let since = seconds_between(given_up, time(&reason["since"]));
    assert!((-20.0..=20.0).contains(&since), "{since}: {reason:#}");
}

#[tokio::test]
async fn a_partition_without_an_owner_is_a_reason() {
    let home = tempfile::tempdir().expect("a temporary directory can be made");
    without_a_dispatcher(&Serve::new(PUNCTUAL, home.path().join("data"))).await;
}

#[tokio::test]
async fn a_partition_without_an_owner_is_a_reason_on_postgres() {
    let postgres = Postgres::start().await;
    let home = tempfile::tempdir().expect("a temporary directory can be made");
    without_a_dispatcher(
        &Serve::new(PUNCTUAL, home.path().join("unused")).setting("STORE", &postgres.create_database().await),
    )
    .await;
}

#[tokio::test]
async fn a_found_backlog_is_a_reason() {
    let (home, sink) = (tempfile::tempdir().expect("a temporary directory can be made"), Sink::start());
    let serve = Serve::new(PUNCTUAL, home.path().join("data")).setting("SCHEDULER__BACKLOG_PER_SECOND", "1");
    let mut server = serve.clone().arg("--roles").arg("api").start().await;
    let task = json!({"type": "t", "queue": "q", "callback_url": sink.url("/")});
    let tasks = caller_of(&server).submit_all(vec![task; 60]).await;
    server.terminate();
    server.exit(SOON).await;
    let before = in_seconds(-1.0);
    let server = serve.start().await;
    let caller = caller_of(&server);
    let (reason, eta) = only(&explained(&caller, &id_of(&tasks[59])).await, "found_backlog");
    assert_eq!((&reason["per_second"], &reason["queue"]), (&json!(1.0), &json!("q")));
    assert!(time(&reason["since"]) > before, "{reason:#}");
    let position = reason["position"].as_u64().expect("a place");
    assert!((2..=60).contains(&position), "{reason:#}");
    let wait = seconds_between(in_seconds(0.0), time(&eta));
    let about = f64::from(u32::try_from(position).expect("small")) - 1.0;
    assert!((wait - about).abs() < 5.0, "{wait} s at place {position}");
    expect_says(&reason, &["was due before this node took over", "1 per second"]);
    // Tasks that have come due since are not part of the backlog.
    let live = webhook(&caller, &sink).await;
    caller.until(&live, "COMPLETED").await;
}

/// Waits until the explanation has only this reason.
async fn until_only(caller: &Caller, id: &str, code: &str) -> Value {
    eventually(code, SOON, async || {
        let answer = explained(caller, id).await;
        if codes(&answer) == [code] { Ok(answer["reasons"][0].clone()) } else { Err(format!("{answer:#}")) }
    })
    .await
}

#[tokio::test]
async fn a_target_without_a_free_slot_is_a_reason() {
    let sink = Sink::start();
    sink.answer("/", SinkAnswer::hang());
    let world = World::start_with(|serve| serve.setting("WEBHOOKS__PER_TARGET", "1")).await;
    let caller = world.caller();
    let hanging = webhook(&caller, &sink).await;
    caller.until(&hanging, "RUNNING").await;
    let id = webhook(&caller, &sink).await;
    let reason = until_only(&caller, &id, "webhook_places").await;
    let target = sink.url("");
    assert_eq!((&reason["crowded"], &reason["target"]), (&json!(["target"]), &json!(target)));
    assert_eq!(reason["position"], 1);
    expect_says(&reason, &[&target, "until a call ends"]);
}

#[tokio::test]
async fn a_tenant_or_band_without_a_free_slot_is_a_reason() {
    let sink = Sink::start();
    sink.answer("/", SinkAnswer::hang());
    let settings = |serve: Serve| {
        let serve = serve.setting("WEBHOOKS__CONCURRENCY", "8").setting("WEBHOOKS__PER_TARGET", "8");
        serve.setting("WEBHOOKS__TENANT_PERCENT", "50").setting("WEBHOOKS__BAND_PERCENT", "50")
    };
    let world = World::start_with(settings).await;
    let caller = world.caller();
    let submit = async |priority: u8| {
        caller.submit_id(json!({"type": "t", "priority": priority, "callback_url": sink.url("/")})).await
    };
    // Two of eight slots are the reserve. Half of the others are for a tenant, half of those for
    // one of its bands. First slots come from the reserve.
    for _ in 0..2 {
        caller.until(&submit(5).await, "RUNNING").await;
    }
    let reason = until_only(&caller, &submit(5).await, "webhook_places").await;
    assert_eq!(reason["crowded"], json!(["band"]), "{reason:#}");
    expect_says(&reason, &["normal priority"]);
    for priority in [9, 9, 1] {
        caller.until(&submit(priority).await, "RUNNING").await;
    }
    let reason = until_only(&caller, &submit(9).await, "webhook_places").await;
    assert_eq!(reason["crowded"], json!(["tenant"]), "{reason:#}");
    expect_says(&reason, &["tenant default"]);
}

/// Every node explains an open breaker, whichever node opened it.
pub async fn broken(acting: &Caller, asking: &Caller) {
    let sink = Sink::start();
    sink.answer("/", SinkAnswer::status(500));
    let task = json!({"type": "t", "queue": "q", "callback_url": sink.url("/"), "retry_policy": quick(50)});
    // As many failures as open a breaker with default settings.
    acting.submit_all(vec![task; 20]).await;
    let open = eventually("a breaker is open", SOON, async || {
        let open = asking.list("/v1/admin/breakers").await;
        if open.is_empty() { Err(format!("{open:#?}")) } else { Ok(open[0].clone()) }
    })
    .await;
    for caller in [acting, asking] {
        eventually("the node knows the breaker", SOON, async || {
            let metrics = caller.api.get("/metrics").await.text().to_owned();
            if metrics.lines().any(|line| line == "punctual_breakers_open 1") { Ok(()) } else { Err(metrics) }
        })
        .await;
    }
    let id = webhook(acting, &sink).await;
    for caller in [acting, asking] {
        let answer = explained(caller, &id).await;
        assert_eq!(codes(&answer), ["breaker_open"], "{answer:#}");
        let reason = &answer["reasons"][0];
        assert_eq!((&reason["target"], &reason["since"]), (&open["target"], &open["since"]));
        assert_eq!((&reason["until"], &answer["eta"]), (&open["next_probe_at"], &open["next_probe_at"]));
        assert_eq!(reason["reason"], open["reason"]);
        expect_says(reason, &[&sink.url(""), "at the earliest one task under it is tried", "or another"]);
        assert_eq!(reason.get("position"), None);
    }
    sink.answer("/", SinkAnswer::status(200));
    let which = json!({"tenant": open["tenant"], "target": sink.url("")});
    let reset = asking.api.post("/v1/admin/breakers/reset", &which).await;
    assert_eq!(reset.status(), 204, "{reset}");
    acting.until(&id, "COMPLETED").await;
}

#[tokio::test]
async fn an_open_breaker_is_a_reason() {
    let world = World::start_with(|serve| serve.setting("BREAKERS__PROBE_SECONDS", "600")).await;
    broken(&world.caller(), &world.caller()).await;
}

#[tokio::test]
async fn the_node_that_dispatches_is_named() {
    let (cluster, sink) = (Cluster::start(2).await, Sink::start());
    sink.answer("/", SinkAnswer::hang());
    let callers = [cluster.caller(0), cluster.caller(1)];
    // After this no partition moves.
    eventually("both have their share of the partitions", SOON, async || {
        let rows = callers[0].list("/v1/admin/partitions").await;
        let of_first = rows.iter().filter(|row| !row["owner"].is_null() && row["owner"] == rows[0]["owner"]).count();
        let owned = rows.iter().filter(|row| !row["owner"].is_null()).count();
        if (of_first, owned) == (32, 64) { Ok(()) } else { Err(format!("{of_first} of {owned}")) }
    })
    .await;
    // One more than a lone tenant and band may have of the 64 slots of a target.
    let task = json!({"type": "t", "queue": "q", "callback_url": sink.url("/")});
    callers[0].submit_all(vec![task; 50]).await;
    let waiting = eventually("all places are taken", SOON, async || {
        let (running, waiting) = (sink.waiting(), callers[0].list_ids("&status=PENDING").await);
        if running == 49 && waiting.len() == 1 { Ok(waiting[0].clone()) } else { Err(format!("{running} {waiting:?}")) }
    })
    .await;
    let (owner, other) = eventually("one of the nodes dispatches it", SOON, async || {
        let answers = [explained(&callers[0], &waiting).await, explained(&callers[1], &waiting).await];
        match [&codes(&answers[0])[..], &codes(&answers[1])[..]] {
            [[first], [second]] if first == "webhook_places" && second == "due_waiting_for_worker" => Ok((0, 1)),
            [[first], [second]] if first == "due_waiting_for_worker" && second == "webhook_places" => Ok((1, 0)),
            _ => Err(format!("{answers:#?}")),
        }
    })
    .await;
    let (reason, _) = only(&explained(&callers[other], &waiting).await, "due_waiting_for_worker");
    let nodes = callers[0].list("/v1/admin/nodes").await;
    let node =
        nodes.iter().find(|node| node["address"] == cluster.nodes[owner].address()).expect("the owner is listed");
    assert_eq!((&reason["by"], &reason["position"]), (&node["id"], &json!(1)));
    assert_eq!((&reason["node"], &reason["address"]), (&node["name"], &node["address"]));
    let silent = seconds_between(time(&reason["last_seen_at"]), in_seconds(0.0));
    assert!((-5.0..30.0).contains(&silent), "{silent} s: {reason:#}");
    let known = [&node["id"], &node["name"], &node["address"], &reason["last_seen_at"]];
    expect_says(&reason, &known.map(|word| word.as_str().unwrap_or_default()));
    let partitions = callers[0].list("/v1/admin/partitions").await;
    let own = partitions.iter().find(|row| row["partition"] == reason["partition"]).expect("it is one of them");
    assert_eq!(own["owner"], node["id"]);
}
