//! Circuit breakers, as operators, targets and workers see them.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use punctual_testkit::eventually::eventually;
use punctual_testkit::process::Serve;
use punctual_testkit::sink::{Sink, SinkAnswer};
use serde_json::{Value, json};

use crate::it::cluster::Cluster;
use crate::it::partitions::queue_of_each;
use crate::it::world::{Caller, SOON, World, boom, every, id_of, merged, time, worker_id};

/// How many runs have to fail, and how many tasks are submitted for that.
const MINIMUM: usize = 5;

/// A server whose breakers open after a few failures, with a probe every this many seconds.
fn with_quick_breakers(serve: Serve, probe_seconds: u32) -> Serve {
    serve
        .setting("BREAKERS__MINIMUM", &MINIMUM.to_string())
        .setting("BREAKERS__WINDOW_SECONDS", "60")
        .setting("BREAKERS__PROBE_SECONDS", &probe_seconds.to_string())
}

/// A webhook with many retries.
fn hook(url: &str, queue: &str) -> Value {
    json!({"type": "t", "queue": queue, "callback_url": url, "retry_policy": every(1_000, 0.2)})
}

async fn submit(caller: &Caller, url: &str, queue: &str, count: usize) -> Vec<String> {
    let tasks = (0..count).map(|_| hook(url, queue)).collect();
    caller.submit_all(tasks).await.iter().map(id_of).collect()
}

/// Waits until one breaker is open, and returns it.
async fn until_open(caller: &Caller) -> Value {
    eventually("a breaker is open", SOON, async || {
        let mut open = caller.list("/v1/admin/breakers").await;
        if open.len() == 1 { Ok(open.remove(0)) } else { Err(format!("{open:#?}")) }
    })
    .await
}

async fn until_closed(caller: &Caller) {
    eventually("no breaker is open", SOON, async || {
        let open = caller.list("/v1/admin/breakers").await;
        if open.is_empty() { Ok(()) } else { Err(format!("{open:#?}")) }
    })
    .await;
}

async fn until_metric(caller: &Caller, wanted: &str) {
    eventually(wanted, SOON, async || {
        let metrics = caller.api.get("/metrics").await.text().to_owned();
        if metrics.lines().any(|line| line == wanted) { Ok(()) } else { Err(metrics) }
    })
    .await;
}

/// The hits that were probes: calls that were in flight when the breaker opened arrived long before
/// the first.
fn probes(sink: &Sink, path: &str, since: Timestamp, probe_seconds: i64) -> Vec<Timestamp> {
    let after = since + SignedDuration::from_millis(probe_seconds * 800);
    sink.hits(path).iter().map(|hit| hit.at).filter(|at| *at > after).collect()
}

/// Waits until there were this many probes, none of them before its time.
async fn until_probed(sink: &Sink, path: &str, since: Timestamp, count: usize, probe_seconds: i64) -> Vec<Timestamp> {
    let made = eventually("it was probed", SOON, async || {
        let made = probes(sink, path, since, probe_seconds);
        if made.len() >= count { Ok(made) } else { Err(format!("{made:?}")) }
    })
    .await;
    for (before, at) in made.iter().enumerate() {
        let earliest = since + SignedDuration::from_secs(probe_seconds * (i64::try_from(before).unwrap_or(0) + 1));
        assert!(*at >= earliest, "probe {} of {made:?} came before {earliest}", before + 1);
    }
    made
}

#[tokio::test]
async fn a_dead_target_gets_only_probes_until_it_recovers() {
    let world = World::start_with(|serve| with_quick_breakers(serve, 2)).await;
    let (caller, sink, other_sink) = (world.caller(), Sink::start(), Sink::start());
    sink.answer("/hook", SinkAnswer::status(500));
    let first = submit(&caller, &sink.url("/hook"), "q", MINIMUM).await;
    let breaker = until_open(&caller).await;
    let target = sink.url("");
    let shown = json!({"tenant": "default", "target": target, "state": "open", "probe": null});
    for (member, expected) in shown.as_object().expect("an object") {
        assert_eq!(breaker[member], *expected, "{breaker:#}");
    }
    assert!(breaker["failures"].as_u64() >= Some(5) && breaker["failures"] == breaker["runs"], "{breaker:#}");
    assert!(breaker["reason"].as_str().is_some_and(|reason| reason.contains("within 60 seconds")), "{breaker:#}");
    let since = time(&breaker["since"]);
    assert_eq!(time(&breaker["next_probe_at"]), since + SignedDuration::from_secs(2));
    until_metric(&caller, "punctual_breakers_open 1").await;

    let waiting = submit(&caller, &sink.url("/hook"), "q", 20).await;
    // Neither another target nor another tenant is held up.
    for id in submit(&caller, &other_sink.url("/hook"), "q", 3).await {
        caller.until(&id, "COMPLETED").await;
    }
    let other = caller.of_tenant("other");
    for id in submit(&other, &sink.url("/well"), "q", 3).await {
        other.until(&id, "COMPLETED").await;
    }
    let made = until_probed(&sink, "/hook", since, 3, 2).await;
    let mut untouched = 0;
    for id in &waiting {
        let (task, runs) = (caller.task(id).await, caller.runs(id).await);
        let counted = runs.iter().filter(|run| !run["outcome"].is_null() && run["uncounted"].is_null()).count();
        assert_eq!(task["retry_count"].as_u64(), Some(counted as u64), "{task:#} {runs:#?}");
        untouched += usize::from(runs.is_empty());
    }
    assert!(untouched + made.len() + 2 >= waiting.len(), "attempts were used up: {untouched} of 20 were not tried");
    assert_eq!(caller.list("/v1/admin/breakers").await.len(), 1);

    sink.answer("/hook", SinkAnswer::status(200));
    for id in first.iter().chain(&waiting) {
        let done = caller.until(id, "COMPLETED").await;
        assert!(done["retry_count"].as_u64() < Some(100), "{done:#}");
    }
    until_closed(&caller).await;
    until_metric(&caller, "punctual_breakers_open 0").await;
    until_metric(&caller, "punctual_breaker_opened_total 1").await;
    world.server.until_logged(&["a breaker has opened", "a breaker has closed"]).await;
}

/// Opens the breaker of a target with tasks that are tried once, so that no task waits under it.
async fn until_broken(caller: &Caller, url: &str, queue: &str) -> Value {
    let task = || json!({"type": "t", "queue": queue, "callback_url": url, "retry_policy": every(0, 0.2)});
    for task in caller.submit_all((0..MINIMUM).map(|_| task()).collect()).await {
        caller.until(&id_of(&task), "DEAD_LETTERED").await;
    }
    until_open_and_known(caller).await
}

/// The same, once the node knows the breaker.
async fn until_open_and_known(caller: &Caller) -> Value {
    let breaker = until_open(caller).await;
    until_metric(caller, "punctual_breakers_open 1").await;
    breaker
}

/// Requires that a task under an open breaker has used up no attempt, even as a probe.
async fn expect_spared(caller: &Caller, id: &str) -> Vec<Value> {
    let (task, runs) = (caller.task(id).await, caller.runs(id).await);
    assert!(["PENDING", "QUEUED", "RUNNING"].iter().any(|live| task["status"] == *live), "{task:#}");
    assert_eq!(task["retry_count"], 0, "{task:#}");
    let ended: Vec<Value> = runs.into_iter().filter(|run| !run["outcome"].is_null()).collect();
    for run in &ended {
        assert_eq!((&run["attempt"], &run["outcome"]), (&json!(1), &json!("failed")), "{run:#}");
        assert_eq!(run["uncounted"], "breaker_open", "{run:#}");
        assert_eq!(run["error"]["code"], "http_500", "{run:#}");
    }
    ended
}

/// Probes use up no attempt either, however many there are.
#[tokio::test]
async fn attempts_are_not_used_up_while_a_breaker_is_open() {
    const TASKS: usize = 3;
    let world = World::start_with(|serve| with_quick_breakers(serve, 1)).await;
    let (caller, sink) = (world.caller(), Sink::start());
    sink.answer("/hook", SinkAnswer::status(500));
    let since = time(&until_broken(&caller, &sink.url("/hook"), "q").await["since"]);
    let of_two = |queue: &str| json!({"type": "t", "queue": queue, "callback_url": sink.url("/hook"), "retry_policy": every(1, 0.2)});
    // A task that must never run twice does not, even under an open breaker.
    let once = caller.submit_id(merged(of_two("q"), json!({"retry_policy": every(0, 0.2)}))).await;
    let tasks: Vec<String> =
        caller.submit_all((0..TASKS).map(|_| of_two("q")).collect()).await.iter().map(id_of).collect();
    // More failures than all of their attempts.
    until_probed(&sink, "/hook", since, 2 * TASKS + 3, 1).await;
    let mut runs = Vec::new();
    for id in &tasks {
        runs.push(expect_spared(&caller, id).await.len());
        let events = caller.trail(id).await;
        let uncounted = events.iter().filter(|event| event["uncounted"] == "breaker_open").count();
        assert!(uncounted >= runs[runs.len() - 1], "{events:#?}");
    }
    assert!(runs.iter().any(|runs| *runs > 2), "{runs:?} runs of two attempts");
    caller.until(&once, "DEAD_LETTERED").await;
    let counted = caller.runs(&once).await;
    assert_eq!((counted.len(), counted[0].get("uncounted")), (1, None), "{counted:#?}");
    let shown = caller.list("/v1/admin/breakers?tenant=default").await;
    assert_eq!(shown.len(), 1, "{shown:#?}");
    assert_eq!(shown[0]["last_probe_error"], "the webhook answered 500", "{shown:#?}");
    assert!(time(&shown[0]["last_probe_at"]) > since, "{shown:#?}");
    assert!(caller.list("/v1/admin/breakers?tenant=other").await.is_empty());

    sink.answer("/hook", SinkAnswer::status(200));
    for id in &tasks {
        let done = caller.until(id, "COMPLETED").await;
        assert_eq!(done["retry_count"], 0, "{done:#}");
    }
    until_closed(&caller).await;
}

/// The same for pull workers, whose tasks are under the breaker of their tenant.
#[tokio::test]
async fn a_failed_probe_of_pull_workers_uses_up_no_attempt() {
    let world = World::start_with(|serve| with_quick_breakers(serve, 1)).await;
    let caller = world.caller();
    let task = |retries: u32| json!({"type": "t", "queue": "q", "retry_policy": every(retries, 0.2)});
    let wanted =
        |tasks: usize| json!({"worker_id": worker_id(), "queues": ["q"], "max_tasks": tasks, "wait_seconds": 20});
    caller.submit_all((0..MINIMUM).map(|_| task(0)).collect()).await;
    for lease in caller.lease(wanted(MINIMUM)).await {
        assert_eq!(caller.report("fail", &lease, boom()).await.expect(200)["status"], "DEAD_LETTERED");
    }
    assert_eq!(until_open_and_known(&caller).await["target"], Value::Null);
    let tasks: Vec<String> = caller.submit_all(vec![task(1), task(1)]).await.iter().map(id_of).collect();
    for _ in 0..5 {
        let probe = caller.lease(wanted(10)).await;
        assert_eq!((probe.len(), &probe[0]["attempt"]), (1, &json!(1)), "{probe:#?}");
        for _ in 0..2 {
            // A repeated report gets the same response.
            assert_eq!(caller.report("fail", &probe[0], boom()).await.expect(200)["status"], "PENDING");
        }
    }
    let mut spared = 0;
    for id in &tasks {
        let runs = caller.runs(id).await;
        assert!(runs.iter().all(|run| run["uncounted"] == "breaker_open" && run["attempt"] == 1), "{runs:#?}");
        spared += runs.len();
    }
    assert_eq!(spared, 5);
    assert_eq!(caller.list("/v1/admin/breakers").await[0]["last_probe_error"], "it broke");
    // An error that a retry cannot repair makes a dead letter as always.
    let probe = caller.lease(wanted(10)).await.remove(0);
    let hopeless = merged(boom(), json!({"retryable": false}));
    assert_eq!(caller.report("fail", &probe, hopeless).await.expect(200)["status"], "DEAD_LETTERED");
    let probe = caller.lease(wanted(10)).await.remove(0);
    caller.report("complete", &probe, json!({})).await.expect(200);
    assert_eq!(caller.task(&id_of(&probe["task"])).await["retry_count"], 0);
    until_closed(&caller).await;
}

#[tokio::test]
async fn an_operator_resets_a_breaker() {
    let world = World::start_with(|serve| with_quick_breakers(serve, 3_600)).await;
    let (caller, sink) = (world.caller(), Sink::start());
    sink.answer("/hook", SinkAnswer::status(500));
    let tasks = submit(&caller, &sink.url("/hook"), "q", MINIMUM).await;
    let breaker = until_open(&caller).await;
    sink.answer("/hook", SinkAnswer::status(200));
    let since = time(&breaker["since"]);
    let waiting = submit(&caller, &sink.url("/hook"), "q", 3).await;
    // In any spelling.
    let target = sink.url("/another?path=1").replace("http://", "HTTP://");
    let reset = json!({"tenant": breaker["tenant"], "target": target});
    let unreadable = json!({"tenant": breaker["tenant"], "target": "127.0.0.1"});
    caller.api.post("/v1/admin/breakers/reset", &unreadable).await.problem_code(422, "invalid_request");
    let missing = json!({"tenant": "nobody", "target": breaker["target"]});
    caller.api.post("/v1/admin/breakers/reset", &missing).await.problem_code(404, "not_found");
    for id in &waiting {
        assert_eq!(caller.task(id).await["status"], "PENDING");
    }
    assert_eq!(probes(&sink, "/hook", since, 1), []);
    let answer = caller.api.post("/v1/admin/breakers/reset", &reset).await;
    assert_eq!(answer.status(), 204, "{answer}");
    caller.api.post("/v1/admin/breakers/reset", &reset).await.problem_code(404, "not_found");
    for id in tasks.iter().chain(&waiting) {
        caller.until(id, "COMPLETED").await;
    }
    assert!(caller.list("/v1/admin/breakers").await.is_empty());
}

#[tokio::test]
async fn a_breaker_survives_a_restart() {
    let mut world = World::start_with(|serve| with_quick_breakers(serve, 3_600)).await;
    let (caller, sink) = (world.caller(), Sink::start());
    sink.answer("/hook", SinkAnswer::status(500));
    submit(&caller, &sink.url("/hook"), "q", MINIMUM).await;
    let breaker = until_open(&caller).await;
    sink.answer("/hook", SinkAnswer::status(200));
    let waiting = submit(&caller, &sink.url("/hook"), "q", 3).await;
    world.server.kill();
    world.restart().await;
    let (caller, other_sink) = (world.caller(), Sink::start());
    assert_eq!(caller.list("/v1/admin/breakers").await, [breaker]);
    // The new process dispatches tasks that are not under the breaker, and would dispatch these
    // too.
    let well = submit(&caller, &other_sink.url("/hook"), "q", 1).await.remove(0);
    caller.until(&well, "COMPLETED").await;
    for id in &waiting {
        let task = caller.task(id).await;
        assert_eq!((&task["status"], &task["retry_count"]), (&json!("PENDING"), &json!(0)));
    }
}

#[tokio::test]
async fn pull_workers_that_always_fail_get_only_probes() {
    let world = World::start_with(|serve| with_quick_breakers(serve, 2)).await;
    let (caller, other) = (world.caller(), world.caller().of_tenant("other"));
    let task = || json!({"type": "t", "queue": "q", "retry_policy": every(1_000, 0.2)});
    caller.submit_all((0..20).map(|_| task()).collect()).await;
    other.submit_all(vec![task()]).await;
    let wanted = |tasks: usize, seconds: u32| json!({"worker_id": worker_id(), "queues": ["q"], "max_tasks": tasks, "wait_seconds": seconds});
    for lease in caller.lease(wanted(MINIMUM, 20)).await {
        caller.report("fail", &lease, boom()).await.expect(200);
    }
    let breaker = until_open(&caller).await;
    assert_eq!(breaker["target"], Value::Null, "{breaker:#}");
    let probe = caller.lease(wanted(10, 20)).await;
    assert_eq!(probe.len(), 1);
    let shown = caller.list("/v1/admin/breakers").await.remove(0);
    assert_eq!((&shown["state"], &shown["probe"]), (&json!("half_open"), &probe[0]["task"]["task_id"]), "{shown:#}");
    assert_eq!(other.lease(wanted(1, 20)).await.len(), 1, "another tenant is not held up");
    caller.report("fail", &probe[0], boom()).await.expect(200);
    let probe = caller.lease(wanted(10, 20)).await;
    assert_eq!(probe.len(), 1, "the next probe");
    caller.report("complete", &probe[0], json!({})).await.expect(200);
    until_closed(&caller).await;
    let rest = caller.lease(wanted(100, 20)).await;
    assert!(rest.len() >= 10, "{} of the rest", rest.len());
}

#[tokio::test]
async fn breakers_can_be_switched_off() {
    let world =
        World::start_with(|serve| with_quick_breakers(serve, 3_600).setting("BREAKERS__ENABLED", "false")).await;
    let (caller, sink) = (world.caller(), Sink::start());
    sink.answer("/hook", SinkAnswer::status(500));
    submit(&caller, &sink.url("/hook"), "q", MINIMUM).await;
    sink.wait_for("/hook", 10 * MINIMUM, SOON).await;
    assert!(caller.list("/v1/admin/breakers").await.is_empty());
}

/// Each node dispatches some of the queues, and sees only some of the failures.
#[tokio::test]
async fn nodes_share_a_breaker_and_its_probes() {
    let mut cluster = Cluster::start(0).await;
    cluster.serve = with_quick_breakers(cluster.serve.clone(), 4);
    cluster.join().await;
    cluster.join().await;
    let (one, two, sink) = (cluster.caller(0), cluster.caller(1), Sink::start());
    until_metric(&one, "punctual_partitions_owned 32").await;
    until_metric(&two, "punctual_partitions_owned 32").await;
    sink.answer("/hook", SinkAnswer::status(500));
    let mut tasks = Vec::new();
    for queue in 0..12 {
        tasks.extend(submit(&one, &sink.url("/hook"), &format!("q{queue}"), 2).await);
    }
    let breaker = until_open(&two).await;
    for caller in [&one, &two] {
        until_metric(caller, "punctual_breakers_open 1").await;
    }
    let known = Timestamp::now();
    // Both nodes together make no more probes than one.
    until_probed(&sink, "/hook", time(&breaker["since"]), 3, 4).await;
    sink.answer("/hook", SinkAnswer::status(200));
    let mut spared = 0;
    for id in &tasks {
        one.until_within(id, "COMPLETED", Duration::from_mins(1)).await;
        let runs = one.runs(id).await;
        let probes = runs.iter().filter(|run| time(&run["started_at"]) > known && run["outcome"] == "failed");
        assert!(probes.clone().all(|run| run["uncounted"] == "breaker_open"), "{runs:#?}");
        spared += probes.count();
    }
    assert!(spared >= 2, "whichever node settles a probe, it uses up no attempt: {spared}");
    for caller in [&one, &two] {
        until_closed(caller).await;
        until_metric(caller, "punctual_breakers_open 0").await;
    }
    let opened = cluster.nodes.iter().filter(|node| node.log().contains("a breaker has opened")).count();
    assert_eq!(opened, 1, "one of them has opened it");
}

/// Cards that were declined say nothing about the host that declined them.
#[tokio::test]
async fn refused_tasks_open_no_breaker() {
    let world = World::start_with(|serve| with_quick_breakers(serve, 60)).await;
    let (caller, sink) = (world.caller(), Sink::start());
    sink.answer("/declined", SinkAnswer::status(402));
    sink.answer("/down", SinkAnswer::status(503));
    for id in submit(&caller, &sink.url("/declined"), "q", 5 * MINIMUM).await {
        caller.until(&id, "DEAD_LETTERED").await;
    }
    // Failures that do count open it only now: the watch has seen the refusals as well.
    let down = |_| merged(hook(&sink.url("/down"), "q"), json!({"retry_policy": every(3, 600.0)}));
    caller.submit_all((0..MINIMUM).map(down).collect()).await;
    let breaker = until_open(&caller).await;
    assert_eq!(breaker["failures"], MINIMUM, "refusals were counted: {breaker:#}");
}

/// The target breaks after good runs, and the retries are fast: none is used up before the breaker
/// opens.
#[tokio::test]
async fn fast_retries_are_left_when_the_breaker_opens() {
    let world = World::start_with(|serve| with_quick_breakers(serve, 60)).await;
    let (caller, sink) = (world.caller(), Sink::start());
    for id in submit(&caller, &sink.url("/hook"), "q", 10 * MINIMUM).await {
        caller.until(&id, "COMPLETED").await;
    }
    sink.answer("/hook", SinkAnswer::status(500));
    let fast = |_| merged(hook(&sink.url("/hook"), "q"), json!({"retry_policy": every(2, 0.05)}));
    let ids: Vec<String> = caller.submit_all((0..20).map(fast).collect()).await.iter().map(id_of).collect();
    until_open(&caller).await;
    for id in ids {
        assert_eq!(caller.task(&id).await["status"], "PENDING", "{:#?}", caller.runs(&id).await);
    }
}

/// Each node sees a third of the failures, and retries are over before the nodes have added them
/// up.
#[tokio::test]
async fn nodes_together_spare_fast_retries() {
    let (cluster, sink) = (Cluster::start(3).await, Sink::start());
    sink.answer("/hook", SinkAnswer::status(500));
    let queues = queue_of_each(&cluster).await;
    // Four attempts of five tasks are 20 failures at a node: the minimum, when all are used up.
    let fast = |queue: &String| merged(hook(&sink.url("/hook"), queue), json!({"retry_policy": every(3, 0.1)}));
    let tasks = queues.iter().flat_map(|queue| std::iter::repeat_n(fast(queue), 5)).collect();
    let caller = cluster.caller(0);
    let ids: Vec<String> = caller.submit_all(tasks).await.iter().map(id_of).collect();
    until_open(&caller).await;
    for id in ids {
        assert_ne!(caller.task(&id).await["status"], "DEAD_LETTERED", "{:#?}", caller.runs(&id).await);
    }
}
