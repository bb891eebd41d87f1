//! Every reason by itself, several at once, and what is expected to follow from them.

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_core::breakers::{Key, OpenBreaker, Runs};
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::json::Json;
use punctual_core::lane::{Lane, LaneId, LaneKey, Route};
use punctual_core::obstacles::{Blockers, Turn};
use punctual_core::partitions::Partition;
use punctual_core::queues::{Bucket, Pause, RateLimit};
use punctual_core::retry::RetryPolicy;
use punctual_core::state::{By, Position};
use punctual_core::task::{Body, Dependencies, Hold};
use punctual_core::trail::{Actor, Entry, FailedHow, RunError, Step};
use punctual_scheduler::fairness::Band;
use punctual_scheduler::outlook::{Crowded, Dispatch, Found};
use serde_json::{Value, json};

use super::*;
use crate::explain::facts::Taker;

const TARGET: &str = "http://127.0.0.1:1";

/// 2026-05-22T18:00:00Z.
const NOW: Timestamp = Timestamp::from_millis(1_779_472_800_000);

fn by() -> By<'static> {
    By { now: NOW, node: NodeId::new(1), actor: Actor::Client }
}

fn task(state: State, due_in_millis: i64, route: Route) -> Task {
    let key = LaneKey { tenant: "acme".into(), queue: "mail".into(), kind: "send".into(), priority: 5, route };
    let due_at = NOW.plus_millis(due_in_millis);
    Task {
        id: TaskId::new(),
        lane: Arc::new(Lane { id: LaneId::new(1), key }),
        position: Position { state, version: 1, attempts: 0, crashes: 0, cancel_requested: false },
        created_at: NOW,
        execute_at: due_at,
        due_at,
        expires_at: None,
        hold: None,
        worker: None,
        started_at: None,
        completed_at: None,
        result: None,
        progress: None,
        checkpoint: None,
        body: Body {
            payload: Json::parse("1").unwrap(),
            callback: None,
            retry_policy: RetryPolicy::default(),
            timeout_millis: 1_000,
            metadata: BTreeMap::new(),
            schedule_id: None,
            idempotency_key: None,
            ordering_key: None,
            dependencies: Dependencies::default(),
        },
        trail: by().submitted(State::Pending),
    }
}

/// A task for pull workers that is due, and for which some ask.
fn pulled() -> Facts {
    let taker = Some(Taker::Workers { are_polling: true });
    Facts { taker, ..Facts::of(task(State::Pending, 0, Route::Pull), NOW) }
}

/// A webhook that is due, and that this node dispatches.
fn pushed() -> Facts {
    let here = Dispatch { found: None, crowded: Vec::new() };
    let task = task(State::Pending, 0, Route::Push(TARGET.into()));
    Facts { taker: Some(Taker::Here(here)), ..Facts::of(task, NOW) }
}

fn ahead(tasks: u64) -> Ahead {
    Ahead { tasks, or_more: false }
}

fn codes(facts: &Facts) -> Vec<String> {
    explain(facts).reasons.into_iter().map(|reason| reason.code).collect()
}

/// The only reason, as it is written; and the expectation, in milliseconds from now.
#[track_caller]
fn told(facts: &Facts) -> (Value, Option<i64>) {
    let explained = explain(facts);
    assert_eq!(explained.reasons.len(), 1, "{explained:?}");
    let eta = explained.eta.map(|eta| eta.millis_since(NOW));
    (serde_json::to_value(&explained.reasons[0]).unwrap(), eta)
}

#[test]
fn its_time() {
    let facts = Facts::of(task(State::Pending, 1_500, Route::Pull), NOW);
    let at = "2026-05-22T18:00:01.500Z";
    let expected = json!({"code": "not_due_yet", "message": format!("it is due at {at}"), "until": at});
    assert_eq!(told(&facts), (expected, Some(1_500)));
}

#[test]
fn its_retry() {
    let mut task = task(State::Pending, 500, Route::Pull);
    task.position.attempts = 2;
    let error = RunError { code: "boom".into(), message: "it broke".into(), details: None };
    let step = Step::Failed { outcome: FailedHow::Failed, error, http_status: None };
    let (at, node, actor) = (NOW, NodeId::new(1), Actor::Client);
    task.trail.push(&Entry { at, version: 5, to: State::Pending, node, actor, step });
    let (reason, eta) = told(&Facts::of(task, NOW));
    assert_eq!((&reason["code"], eta), (&json!("waiting_for_retry"), Some(500)));
    assert_eq!(reason["message"], "attempt 2 failed (boom); the next is due at 2026-05-22T18:00:00.500Z");
}

#[test]
fn those_it_depends_on() {
    let first = Blocker { id: TaskId::new(), state: State::Running, holds: false };
    let letter = Blocker { id: TaskId::new(), state: State::DeadLettered, holds: true };
    let blockers = Blockers { first: vec![first, letter], count: 10_000 };
    let facts = Facts { blockers, ..Facts::of(task(State::Blocked, 0, Route::Pull), NOW) };
    let expected = json!({
        "code": "waiting_for_dependencies",
        "message": format!(
            "it depends on 10,000 tasks that did not come to rest yet; the first is {}, RUNNING; {} is a dead letter, and \
             its queue holds what depends on it: re-drive it",
            first.id, letter.id
        ),
        "tasks": [
            {"id": first.id, "state": "RUNNING"},
            {"id": letter.id, "state": "DEAD_LETTERED", "holds": true},
        ],
        "count": 10_000,
    });
    assert_eq!(told(&facts), (expected, None));
    let released = Facts::of(task(State::Blocked, 0, Route::Pull), NOW);
    assert_eq!(told(&released).0["count"], 0);
}

#[test]
fn its_turn() {
    let holder = TaskId::new();
    let turn = Turn { is_own: false, holder: Some((holder, State::Running)), held_by: None, ahead: ahead(2) };
    let mut facts = Facts { turn: Some(turn), ..pulled() };
    facts.task.body.ordering_key = Some("k".into());
    let expected = json!({
        "code": "waiting_for_turn",
        "message": format!(
            "it waits for its turn among the tasks with ordering key \"k\": {holder} has it, RUNNING; 2 wait before it"
        ),
        "ordering_key": "k",
        "tasks": [{"id": holder, "state": "RUNNING"}],
        "position": 3,
    });
    assert_eq!(told(&facts), (expected, None));

    let ahead = Ahead { tasks: 1_000, or_more: true };
    facts.turn = Some(Turn { holder: None, held_by: Some(holder), ahead, ..turn });
    let (reason, _) = told(&facts);
    assert_eq!(reason["tasks"], json!([{"id": holder, "state": "DEAD_LETTERED", "holds": true}]));
    assert_eq!((&reason["position"], &reason["position_or_later"]), (&json!(1_001), &json!(true)));
    let message = reason["message"].as_str().unwrap();
    assert!(message.contains("re-drive it") && message.ends_with("1,000 or more wait before it"), "{message}");

    facts.turn = Some(Turn { holder: None, ahead: super::tests::ahead(0), ..turn });
    assert!(told(&facts).0["message"].as_str().unwrap().contains("is about to be decided"));
    facts.turn = Some(Turn { is_own: true, ..turn });
    assert_eq!(codes(&facts), ["due_waiting_for_worker"]);
}

#[test]
fn a_pause_of_its_queue() {
    let until = NOW.plus_millis(5_000);
    let pause = Pause { since: NOW, by: "client".into(), reason: Some("because".into()), until: Some(until) };
    let mut facts = pulled();
    facts.queue.pause = Some(pause.clone());
    let expected = json!({
        "code": "queue_paused",
        "message": "queue mail was paused by client at 2026-05-22T18:00:00.000Z, until 2026-05-22T18:00:05.000Z: because",
        "since": "2026-05-22T18:00:00.000Z",
        "until": "2026-05-22T18:00:05.000Z",
        "by": "client",
        "reason": "because",
        "queue": "mail",
    });
    assert_eq!(told(&facts), (expected, Some(5_000)));
    facts.queue.pause = Some(Pause { until: None, reason: None, ..pause.clone() });
    let (reason, eta) = told(&facts);
    assert!(reason["message"].as_str().unwrap().ends_with(", until it is resumed"), "{reason}");
    assert_eq!((reason.get("until"), eta), (None, None));
    facts.queue.pause = Some(Pause { until: Some(NOW), ..pause });
    assert_eq!(codes(&facts), ["due_waiting_for_worker"], "it is over");
}

#[test]
fn a_pause_that_is_over_before_its_time_is_not_in_the_way() {
    let pause = |seconds: i64| {
        let until = Some(NOW.plus_millis(1_000 * seconds));
        let mut facts = Facts::of(task(State::Pending, 10_000, Route::Pull), NOW);
        facts.queue.pause = Some(Pause { since: NOW, by: "client".into(), reason: None, until });
        let explained = explain(&facts);
        (codes(&facts), explained.eta.map(|eta| eta.millis_since(NOW)))
    };
    assert_eq!(pause(10), (vec!["not_due_yet".to_owned()], Some(10_000)));
    assert_eq!(pause(20), (vec!["not_due_yet".to_owned(), "queue_paused".to_owned()], Some(20_000)));
}

#[test]
fn the_concurrency_of_its_queue() {
    let mut facts = Facts { held: 3, ahead: ahead(4), ..pulled() };
    facts.queue.settings.max_concurrency = Some(3);
    let expected = json!({
        "code": "queue_concurrency",
        "message": "queue mail runs at most 3 tasks at once, and 3 run; 4 other tasks of the queue go before it",
        "queue": "mail",
        "limit": 3,
        "running": 3,
        "position": 5,
    });
    assert_eq!(told(&facts), (expected, None));
    facts.held = 2;
    assert_eq!(codes(&facts), ["queue_concurrency"], "those before it take what is left");
    facts.ahead = ahead(0);
    assert_eq!(codes(&facts), ["due_waiting_for_worker"]);
    (facts.held, facts.ahead) = (7, ahead(0));
    assert_eq!(told(&facts).0["position"], 1, "it was lowered since");
}

#[test]
fn the_rate_of_its_queue() {
    let mut facts = Facts { ahead: ahead(4), ..pulled() };
    facts.queue.settings.rate_limit = Some(RateLimit { per_second: 0.5, burst: 2 });
    facts.bucket = Some(Bucket { tokens: 0.0, refilled_at: NOW.plus_millis(-1_000) });
    let expected = json!({
        "code": "queue_rate",
        "message": "queue mail begins 0.5 tasks a second (burst 2); 4 other tasks of the queue go before it",
        "until": "2026-05-22T18:00:09.000Z",
        "queue": "mail",
        "per_second": 0.5,
        "burst": 2,
        "position": 5,
    });
    // Half a token is there, four and a half come at two seconds each.
    assert_eq!(told(&facts), (expected, Some(9_000)));
    facts.bucket = None;
    assert_eq!(told(&facts).1, Some(6_000), "the bucket is full at first");
    facts.ahead = ahead(1);
    assert_eq!(codes(&facts), ["due_waiting_for_worker"], "there is a token for each of them");
    facts.ahead = Ahead { tasks: 10_000, or_more: true };
    let (reason, eta) = told(&facts);
    assert!(reason["message"].as_str().unwrap().ends_with("10,000 or more other tasks of the queue go before it"));
    assert_eq!((eta, &reason["position_or_later"]), (None, &json!(true)));
}

#[test]
fn an_open_breaker() {
    let breaker = OpenBreaker {
        key: Key::new("acme", TARGET),
        opened_at: NOW.plus_millis(-1_000),
        next_probe_at: NOW.plus_millis(3_000),
        runs: Runs { ok: 0, failed: 20 },
        reason: "20 of 20 failed".into(),
        half_open: false,
        probe: None,
    };
    let mut facts = Facts { breaker: Some(breaker.clone()), ..pushed() };
    let expected = json!({
        "code": "breaker_open",
        "message": format!(
            "the circuit breaker of target {TARGET} is open since 2026-05-22T17:59:59.000Z (20 of 20 failed); the next \
             probe, which may be this task, is made at 2026-05-22T18:00:03.000Z"
        ),
        "since": "2026-05-22T17:59:59.000Z",
        "until": "2026-05-22T18:00:03.000Z",
        "reason": "20 of 20 failed",
        "target": TARGET,
    });
    assert_eq!(told(&facts), (expected, Some(3_000)));
    let probe = TaskId::new();
    facts.breaker = Some(OpenBreaker { half_open: true, probe: Some(probe), ..breaker.clone() });
    let (reason, eta) = told(&facts);
    assert!(reason["message"].as_str().unwrap().contains(&format!("{probe} runs as a probe")), "{reason}");
    assert_eq!(eta, None);
    facts.breaker = Some(OpenBreaker { key: Key::of_tenant("acme"), ..breaker });
    let (reason, _) = told(&facts);
    assert!(reason["message"].as_str().unwrap().starts_with("the circuit breaker of tenant acme"), "{reason}");
    assert_eq!(reason.get("target"), None);
}

#[test]
fn nobody_who_asks_for_it() {
    let facts = Facts { taker: Some(Taker::Workers { are_polling: false }), ..pulled() };
    let (reason, eta) = told(&facts);
    assert_eq!((&reason["code"], &reason["queue"], eta), (&json!("no_worker_polling"), &json!("mail"), None));
    assert_eq!(reason["message"], "it is due, but no worker has asked for queue mail or type send in the last minute");
}

#[test]
fn a_partition_without_an_owner() {
    let partition = Partition::new(7);
    let facts = Facts { taker: Some(Taker::Nobody { partition, since: Some(NOW) }), ..pushed() };
    let (reason, eta) = told(&facts);
    assert_eq!((&reason["code"], &reason["partition"], eta), (&json!("no_partition_owner"), &json!(7), None));
    assert_eq!(reason["since"], "2026-05-22T18:00:00.000Z");
    let message = reason["message"].as_str().unwrap();
    assert!(message.contains("partition 7, which no node has owned since 2026-05-22T18:00:00.000Z"), "{message}");
    let facts = Facts { taker: Some(Taker::Nobody { partition, since: None }), ..facts };
    assert!(told(&facts).0["message"].as_str().unwrap().contains("which no node owns"));
}

#[test]
fn the_found_backlog() {
    let found = Some(Found { since: NOW.plus_millis(-500), per_second: 10 });
    let here = Dispatch { found, crowded: Vec::new() };
    let mut facts = Facts { taker: Some(Taker::Here(here)), ahead: ahead(25), ..pushed() };
    let (reason, eta) = told(&facts);
    assert_eq!((&reason["code"], eta), (&json!("found_backlog"), Some(2_500)));
    assert_eq!((&reason["per_second"], &reason["position"]), (&json!(10.0), &json!(26)));
    assert_eq!(reason["since"], "2026-05-22T17:59:59.500Z");
    facts.ahead.or_more = true;
    assert_eq!(told(&facts).1, None);
}

#[test]
fn no_free_place_for_a_webhook() {
    let crowded = vec![Crowded::Target, Crowded::Tenant, Crowded::Band(Band::Normal)];
    let facts = Facts { taker: Some(Taker::Here(Dispatch { found: None, crowded })), ..pushed() };
    let expected = json!({
        "code": "webhook_places",
        "message": format!(
            "no webhook worker of this node is free for it: the places that target {TARGET} and tenant acme and tasks of \
             normal priority may have are taken until a call ends; it is the next"
        ),
        "target": TARGET,
        "crowded": ["target", "tenant", "band"],
        "position": 1,
    });
    assert_eq!(told(&facts), (expected, None));
}

#[test]
fn nothing_but_whoever_takes_it() {
    let (reason, eta) = told(&Facts { ahead: ahead(1), ..pulled() });
    assert_eq!((&reason["code"], &reason["position"], eta), (&json!("due_waiting_for_worker"), &json!(2), None));
    assert_eq!(
        reason["message"],
        "it is due and waits for a pull worker of queue mail to take it; one other task of the queue goes before it"
    );
    assert_eq!(told(&pushed()).0["target"], TARGET);
    let (partition, node) = (Partition::new(7), NodeId::new(2));
    let elsewhere = Taker::Elsewhere { partition, node, name: Some("b".into()) };
    let (reason, _) = told(&Facts { taker: Some(elsewhere), ..pushed() });
    assert_eq!((&reason["by"], &reason["partition"]), (&json!("node_0000000000000002"), &json!(7)));
    let message = reason["message"].as_str().unwrap();
    assert!(message.contains("dispatched by node b (node_0000000000000002)"), "{message}");
}

#[test]
fn all_that_holds_at_once_is_told_in_order() {
    let pause = Pause { since: NOW, by: "client".into(), reason: None, until: Some(NOW.plus_millis(2_000)) };
    let found = Some(Found { since: NOW.plus_millis(5), per_second: 1 });
    let here = Dispatch { found, crowded: vec![Crowded::Target] };
    let mut facts = Facts { taker: Some(Taker::Here(here)), ahead: ahead(1), held: 1, ..pushed() };
    facts.queue.pause = Some(pause);
    facts.queue.settings.max_concurrency = Some(1);
    facts.queue.settings.rate_limit = Some(RateLimit { per_second: 1.0, burst: 1 });
    let all = ["queue_paused", "queue_concurrency", "queue_rate", "found_backlog", "webhook_places"];
    assert_eq!((codes(&facts), explain(&facts).eta), (all.map(str::to_owned).to_vec(), None));
    // Without what nobody knows the end of: the latest of the others.
    facts.queue.settings.max_concurrency = None;
    facts.taker = pushed().taker;
    let eta = explain(&facts).eta.map(|eta| eta.millis_since(NOW));
    assert_eq!((codes(&facts), eta), (vec!["queue_paused".to_owned(), "queue_rate".to_owned()], Some(2_000)));

    let blocked = task(State::Blocked, 9_000, Route::Pull);
    facts = Facts { task: blocked, turn: None, ..facts };
    facts.queue.pause = Some(Pause { since: NOW, by: "client".into(), reason: None, until: None });
    assert_eq!(codes(&facts), ["waiting_for_dependencies", "not_due_yet", "queue_paused"]);
}

#[test]
fn nothing_is_expected_of_a_task_that_expires_before() {
    let mut facts = Facts::of(task(State::Pending, 5_000, Route::Pull), NOW);
    facts.task.expires_at = Some(NOW.plus_millis(5_001));
    assert_eq!(told(&facts).1, Some(5_000));
    facts.task.expires_at = Some(NOW.plus_millis(5_000));
    assert_eq!(told(&facts).1, None);
}

#[test]
fn what_waits_no_longer() {
    let mut running = task(State::Running, 0, Route::Pull);
    running.hold = Some(Hold {
        worker: "w".into(),
        node: None,
        since: NOW,
        expires_at: NOW.plus_millis(60_000),
        deadline_at: NOW.plus_millis(90_000),
        lease_millis: 60_000,
    });
    let mut facts = Facts::of(running, NOW);
    let expected = json!({
        "code": "running",
        "message": "it runs",
        "since": "2026-05-22T18:00:00.000Z",
        "until": "2026-05-22T18:01:00.000Z",
        "worker_id": "w",
    });
    assert_eq!(told(&facts), (expected, None));
    facts.task.position.cancel_requested = true;
    assert_eq!(codes(&facts), ["stopping"]);
    facts.task.position.state = State::Queued;
    assert_eq!(codes(&facts), ["queued"]);
    for state in [State::Completed, State::Cancelled, State::Failed, State::DeadLettered] {
        facts.task.position.state = state;
        assert_eq!(codes(&facts), ["final"]);
    }
}

#[test]
fn numbers_are_written_for_people() {
    let written: Vec<String> = [0, 7, 999, 1_000, 10_000, 1_234_567].map(thousands).to_vec();
    assert_eq!(written, ["0", "7", "999", "1,000", "10,000", "1,234,567"]);
}
