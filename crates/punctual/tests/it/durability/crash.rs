//! `kill -9`, at any time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use punctual_testkit::eventually::eventually;
use punctual_testkit::process::Serve;
use punctual_testkit::sink::{Sink, SinkAnswer};
use serde_json::{Value, json};

use crate::it::world::{
    Caller, FINAL, SOON, World, array, id_of, in_seconds, quick, seconds_between, settlement, worker_id, written,
};

/// Long enough to take back the tasks of a dead server and run them again.
const REPAIR_TIMEOUT: Duration = Duration::from_secs(90);

/// A server that takes back the tasks of a dead server within seconds.
fn with_short_leases(serve: Serve) -> Serve {
    let serve = serve.setting("LEADER__LEASE_SECONDS", "3").setting("LEADER__RENEWAL_SECONDS", "1");
    serve.setting("SCHEDULER__VISIBILITY_SECONDS", "5")
}

/// A submission and, once it was acknowledged, the task's id.
#[derive(Debug)]
struct Submission {
    task: Value,
    id: Option<String>,
    due: Timestamp,
}

impl Submission {
    fn by_webhook(&self) -> bool {
        self.task["callback_url"].is_string()
    }
}

/// The `n`-th task of a submitter: for a webhook or a worker, for now or for later.
fn nth(submitter: usize, n: usize, hook: &str) -> Submission {
    let due = if n % 4 < 2 { in_seconds(0.0) } else { in_seconds(2.0) };
    let mut task = json!({
        "type": "t",
        "queue": "q",
        "payload": {"submitter": submitter, "n": n},
        "idempotency_key": format!("{submitter}-{n}"),
        "execute_at": written(due),
        "timeout_seconds": 5,
        "retry_policy": quick(20),
    });
    if n.is_multiple_of(2) {
        task["callback_url"] = json!(hook);
    }
    Submission { task, id: None, due }
}

/// Submits one after the other until the server is gone; the last submission has no response.
async fn submit_until_the_end(
    caller: Caller,
    submitter: usize,
    hook: String,
    acknowledged: Arc<AtomicUsize>,
) -> Vec<Submission> {
    let mut submissions = Vec::new();
    for n in 0.. {
        let mut submission = nth(submitter, n, &hook);
        let answer = caller.api.call("POST", "/v1/tasks").json(&submission.task).try_send().await;
        let gone = answer.is_err();
        if let Ok(answer) = answer {
            submission.id = Some(id_of(&answer.expect(201)));
            acknowledged.fetch_add(1, Ordering::Relaxed);
        }
        submissions.push(submission);
        if gone {
            break;
        }
    }
    submissions
}

/// Leases and completes every other task, and holds the rest, until the server is gone.
async fn work_until_the_end(caller: Caller) {
    let worker = worker_id();
    for n in 0_u64.. {
        let wanted =
            json!({"worker_id": worker, "queues": ["q"], "max_tasks": 4, "wait_seconds": 1, "lease_seconds": 2});
        let Ok(answer) = caller.api.call("POST", "/v1/leases").json(&wanted).try_send().await else { return };
        if !n.is_multiple_of(2) {
            continue;
        }
        let leases = array(&answer.expect(200)["leases"]);
        let items: Vec<Value> = leases.iter().map(|lease| settlement(lease, json!({"outcome": "completed"}))).collect();
        if caller.api.call("POST", "/v1/leases/settle").json(&json!({ "items": items })).try_send().await.is_err() {
            return;
        }
    }
}

/// Leases and completes every task, until it is aborted.
async fn work(caller: Caller) {
    let worker = worker_id();
    loop {
        let wanted = json!({"worker_id": worker, "queues": ["q"], "max_tasks": 50, "wait_seconds": 2});
        let leases = caller.lease(wanted).await;
        caller
            .settle_all(leases.iter().map(|lease| settlement(lease, json!({"outcome": "completed"}))).collect())
            .await;
    }
}

/// Waits until no task of the tenant is in progress.
async fn all_ended(caller: &Caller) {
    eventually("every task finishes", REPAIR_TIMEOUT, async || {
        let page =
            caller.api.get("/v1/tasks?status=BLOCKED&status=PENDING&status=QUEUED&status=RUNNING&limit=1000").await;
        let left = array(&page.expect(200)["items"]);
        if left.is_empty() { Ok(()) } else { Err(format!("{} are left, such as {:#}", left.len(), left[0])) }
    })
    .await;
}

async fn all_tasks(caller: &Caller) -> BTreeMap<String, Value> {
    let mut tasks = BTreeMap::new();
    let mut cursor = String::new();
    loop {
        let page = caller.api.get(&format!("/v1/tasks?limit=1000{cursor}")).await.expect(200);
        tasks.extend(array(&page["items"]).into_iter().map(|task| (id_of(&task), task)));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return tasks,
        }
    }
}

#[tokio::test]
async fn a_call_without_retries_is_not_made_again_after_kill_9() {
    let mut world = World::start_with(with_short_leases).await;
    let sink = Sink::start();
    sink.answer("/hook", SinkAnswer::hang());
    let task =
        json!({"type": "t", "callback_url": sink.url("/hook"), "timeout_seconds": 300, "retry_policy": quick(0)});
    let id = world.caller().submit_id(task).await;
    sink.wait_for("/hook", 1, SOON).await;
    world.server.kill();
    world.restart().await;
    let task = world.caller().until(&id, "DEAD_LETTERED").await;
    assert_eq!(task["last_error"]["code"], "worker_lost", "{task:#}");
    assert_eq!(sink.hits("/hook").len(), 1, "called twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn acknowledged_tasks_finish_after_kill_9() {
    let mut world = World::start_with(with_short_leases).await;
    let sink = Sink::start();
    sink.answer("/hook", SinkAnswer::json(&json!("delivered")).after(Duration::from_millis(150)));
    let acknowledged = Arc::new(AtomicUsize::new(0));
    let submitters: Vec<_> = (0..6)
        .map(|n| {
            let counter = Arc::clone(&acknowledged);
            tokio::spawn(submit_until_the_end(world.caller(), n, sink.url("/hook"), counter))
        })
        .collect();
    let worker = tokio::spawn(work_until_the_end(world.caller()));
    eventually("load", Duration::from_mins(1), async || {
        let (count, flying) = (acknowledged.load(Ordering::Relaxed), sink.waiting());
        if count >= 400 && flying > 0 {
            Ok(())
        } else {
            Err(format!("{count} acknowledged, {flying} webhooks in flight"))
        }
    })
    .await;
    world.server.kill();
    worker.await.expect("the worker ends");
    let mut submissions = Vec::new();
    for submitter in submitters {
        submissions.extend(submitter.await.expect("a submitter ends"));
    }
    world.restart().await;
    let caller = world.caller();

    // Every acknowledged task is there at once. A submission without a response is repeated, and is
    // one task either way.
    let found = all_tasks(&caller).await;
    for submission in submissions.iter().filter(|submission| submission.id.is_some()) {
        let id = submission.id.as_ref().expect("acknowledged");
        let task = found.get(id).unwrap_or_else(|| panic!("{id} was acknowledged and is gone"));
        assert_eq!(task["idempotency_key"], submission.task["idempotency_key"]);
    }
    for submission in submissions.iter_mut().filter(|submission| submission.id.is_none()) {
        submission.id = Some(id_of(&caller.api.post("/v1/tasks", &submission.task).await.expect_any(&[200, 201])));
    }
    let known: BTreeSet<String> = submissions.iter().filter_map(|submission| submission.id.clone()).collect();
    assert_eq!(known.len(), submissions.len(), "two submissions became one task");

    let worker = tokio::spawn(work(world.caller()));
    all_ended(&caller).await;
    worker.abort();
    let ended = all_tasks(&caller).await;
    assert_eq!(ended.keys().cloned().collect::<BTreeSet<_>>(), known, "no more tasks than were submitted");
    let mut hits: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for hit in sink.hits("/hook") {
        hits.entry(hit.header("Punctual-Task-Id").to_owned()).or_default().push(hit);
    }
    for submission in &submissions {
        let id = submission.id.as_ref().expect("acknowledged");
        assert_eq!(ended[id]["status"], "COMPLETED", "{:#}", ended[id]);
        if !submission.by_webhook() {
            continue;
        }
        let hits = hits.get(id).unwrap_or_else(|| panic!("{id} is completed, but was never delivered"));
        let early = seconds_between(submission.due, hits[0].at);
        assert!(early >= 0.0, "{id} was delivered {early} s after its time");
        let tokens: Vec<u64> =
            hits.iter().map(|hit| hit.header("Punctual-Fencing-Token").parse().expect("a token")).collect();
        assert!(tokens.is_sorted_by(|a, b| a < b), "the tokens of {id}: {tokens:?}");
    }
    for id in known.iter().step_by(20) {
        caller.trail(id).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_that_is_killed_again_and_again_loses_nothing() {
    let mut world = World::start_with(with_short_leases).await;
    let mut known = BTreeSet::new();
    for round in 0..5_u64 {
        let caller = world.caller();
        let pages = (0..10).map(|n| {
            let caller = caller.apart();
            let tasks: Vec<Value> =
                (0..10).map(|m| json!({"type": "t", "queue": "q", "payload": [round, n, m]})).collect();
            tokio::spawn(async move { caller.submit_all(tasks).await })
        });
        for page in pages.collect::<Vec<_>>() {
            known.extend(page.await.expect("a batch is answered").iter().map(id_of));
        }
        world.server.kill();
        world.restart().await;
        let found: BTreeSet<String> = all_tasks(&world.caller()).await.into_keys().collect();
        assert_eq!(found, known, "after {} kills", round + 1);
    }
    let worker = tokio::spawn(work(world.caller()));
    all_ended(&world.caller()).await;
    worker.abort();
    let ended = all_tasks(&world.caller()).await;
    assert!(ended.values().all(|task| task["status"] == "COMPLETED"));
}

#[tokio::test]
async fn a_task_is_unchanged_by_a_restart() {
    let mut world = World::start().await;
    let caller = world.caller();
    let waiting = json!({
        "type": "t", "queue": "later", "delay_seconds": 600, "priority": 7, "metadata": {"k": "v"},
        "payload": {"a": [1, 2.5, null]},
        "idempotency_key": "key", "callback_url": "http://127.0.0.1:9/", "callback_headers": {"x-a": "b"},
        "expires_at": written(in_seconds(7200.0)), "timeout_seconds": 17, "retry_policy": quick(5),
    });
    let pending = caller.submit_id(waiting.clone()).await;
    let completed = caller.submit_id(json!({"type": "t", "queue": "done"})).await;
    let lease = caller.lease_one("done").await;
    caller.report("heartbeat", &lease, json!({"progress": 0.5})).await.expect(200);
    caller.report("complete", &lease, json!({"result": {"r": 1}})).await.expect(200);
    let dead = caller.submit_id(json!({"type": "t", "queue": "dead"})).await;
    let lease = caller.lease_one("dead").await;
    caller
        .report("fail", &lease, json!({"error": {"code": "bad", "message": "m"}, "retryable": false}))
        .await
        .expect(200);
    let cancelled = caller.submit_id(json!({"type": "t", "delay_seconds": 600})).await;
    caller.api.delete(&format!("/v1/tasks/{cancelled}")).await.expect(200);
    let mut before = Vec::new();
    for id in [&pending, &completed, &dead, &cancelled] {
        before.push((id, caller.task(id).await, caller.trail(id).await, caller.runs(id).await));
    }
    world.server.kill();
    world.restart().await;
    let caller = world.caller();
    for (id, task, trail, runs) in before {
        assert_eq!(caller.task(id).await, task);
        assert_eq!(caller.trail(id).await, trail);
        assert_eq!(caller.runs(id).await, runs);
    }
    let replay = caller.api.post("/v1/tasks", &waiting).await;
    assert_eq!(id_of(&replay.expect(200)), pending);
    assert_eq!(replay.header("idempotent-replayed"), Some("true"));
}

#[tokio::test]
async fn tasks_due_while_the_server_was_down_are_delivered() {
    let mut world = World::start().await;
    let sink = Sink::start();
    let due = in_seconds(1.5);
    let tasks = (0..20)
        .map(|n| json!({"type": "t", "payload": n, "callback_url": sink.url("/hook"), "execute_at": written(due)}))
        .collect();
    let tasks = world.caller().submit_all(tasks).await;
    world.server.kill();
    eventually("their time has passed", SOON, async || {
        let past = seconds_between(due, in_seconds(0.0));
        if past > 0.5 { Ok(()) } else { Err(format!("{past} s")) }
    })
    .await;
    assert_eq!(sink.all_hits().len(), 0);
    world.restart().await;
    let caller = world.caller();
    sink.wait_for("/hook", 20, SOON).await;
    for task in &tasks {
        let task = caller.until(&id_of(task), "COMPLETED").await;
        assert_eq!(task["retry_count"], 0);
    }
    assert_eq!(sink.all_hits().len(), 20);
}

#[tokio::test]
async fn a_lease_survives_the_server_that_granted_it() {
    let mut world = World::start().await;
    let id = world.caller().submit_id(json!({"type": "t", "queue": "q"})).await;
    let lease = world.caller().lease_for("q", 120).await;
    world.server.kill();
    world.restart().await;
    let caller = world.caller();
    assert_eq!(caller.task(&id).await["status"], "RUNNING");
    caller.report("heartbeat", &lease, json!({"progress": 0.5})).await.expect(200);
    caller.report("complete", &lease, json!({"result": "after all"})).await.expect(200);
    let task = caller.until(&id, "COMPLETED").await;
    assert_eq!((&task["result"], &task["retry_count"]), (&json!("after all"), &json!(0)));
}

#[tokio::test]
async fn a_webhook_in_flight_at_the_crash_is_delivered_again() {
    let mut world = World::start_with(with_short_leases).await;
    let sink = Sink::start();
    sink.script("/hook", [SinkAnswer::hang(), SinkAnswer::json(&json!("again"))]);
    let task = json!({"type": "t", "callback_url": sink.url("/hook"), "timeout_seconds": 60, "retry_policy": quick(5)});
    let id = world.caller().submit_id(task).await;
    sink.wait_for("/hook", 1, SOON).await;
    world.server.kill();
    world.restart().await;
    let task = world.caller().until_within(&id, "COMPLETED", REPAIR_TIMEOUT).await;
    assert_eq!(task["result"], "again");
    let hits = sink.hits("/hook");
    assert_eq!(hits.len(), 2);
    let token = |n: usize| hits[n].header("Punctual-Fencing-Token").parse::<u64>().expect("a token");
    assert!(token(1) > token(0));
    assert_eq!(hits[1].header("webhook-id"), id);
}

#[tokio::test]
async fn a_server_continues_after_sigstop() {
    let mut world = World::start_with(with_short_leases).await;
    let sink = Sink::start();
    let caller = world.caller();
    let due = in_seconds(1.0);
    let tasks = (0..10)
        .map(|n| json!({"type": "t", "payload": n, "callback_url": sink.url("/hook"), "execute_at": written(due)}))
        .collect();
    let tasks = caller.submit_all(tasks).await;
    world.server.process().signal("STOP");
    eventually("much later", SOON, async || {
        let past = seconds_between(due, in_seconds(0.0));
        if past > 3.0 { Ok(()) } else { Err(format!("{past} s")) }
    })
    .await;
    assert_eq!(sink.all_hits().len(), 0);
    world.server.process().signal("CONT");
    for task in &tasks {
        let task = caller.until(&id_of(task), "COMPLETED").await;
        assert!(FINAL.iter().any(|end| task["status"] == *end));
    }
    assert!(sink.all_hits().len() >= 10);
}

/// A server that starts on a dead server's directory leads at once: the lock proves that no other
/// does.
#[tokio::test]
async fn a_restarted_node_leads_at_once() {
    let mut world = World::start().await;
    let caller = world.caller();
    let id = caller.submit_id(json!({"type": "t", "queue": "q", "retry_policy": quick(3)})).await;
    caller.lease_for("q", 1).await;
    world.server.kill();
    world.restart().await;
    // The dead server's leadership would last half a minute, the lease a second.
    world.caller().until_within(&id, "PENDING", Duration::from_secs(10)).await;
}
