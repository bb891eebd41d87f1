//! Every reason by itself, several at once, and what is expected to follow from them.

mod breaker;
mod claimant;
mod other_tasks;
mod queue;
mod time;

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_core::ids::{NodeId, TaskId};
use punctual_core::json::Json;
use punctual_core::lane::{Lane, LaneId, LaneKey, Route};
use punctual_core::obstacles::TasksAhead;
use punctual_core::queues::{Bucket, Pause, RateLimit};
use punctual_core::retry::RetryPolicy;
use punctual_core::state::{By, Position};
use punctual_core::task::{Body, Dependencies, Hold};
use punctual_core::trail::{Actor, Entry, FailedHow, RunError, Step};
use punctual_scheduler::dispatch_status::{BacklogPace, SlotOwner, WebhookStatus};
use serde_json::{Value, json};

use super::*;
use crate::explain::facts::{ExpectedClaimant, PollingWorkers};

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
            concurrency_key: None,
            dependencies: Dependencies::default(),
        },
        trail: by().submitted(State::Pending),
    }
}

/// A task that the worker `w` holds for a minute.
fn running() -> Task {
    let hold = Hold {
        worker: "w".into(),
        node: None,
        since: NOW,
        expires_at: NOW.plus_millis(60_000),
        deadline_at: NOW.plus_millis(90_000),
        lease_millis: 60_000,
    };
    Task { hold: Some(hold), ..task(State::Running, 0, Route::Pull) }
}

/// A task for pull workers that is due, and for which some ask.
fn pulled() -> Facts {
    let claimant = Some(ExpectedClaimant::Workers(PollingWorkers { known: 2, busy: 1, tasks: 5, or_more: false }));
    Facts { claimant, ..Facts::of(task(State::Pending, 0, Route::Pull), NOW) }
}

/// A webhook that is due, and that this node dispatches.
fn pushed() -> Facts {
    let here = WebhookStatus { backlog: None, crowded: Vec::new() };
    let task = task(State::Pending, 0, Route::Push(TARGET.into()));
    Facts { claimant: Some(ExpectedClaimant::Here(here)), ..Facts::of(task, NOW) }
}

fn ahead(tasks: u64) -> TasksAhead {
    TasksAhead { tasks, or_more: false }
}

/// The step of a failed run.
fn failed(code: &'static str) -> Entry<'static> {
    let error = RunError { code: code.into(), message: "it broke".into(), details: None };
    let step = Step::Failed { outcome: FailedHow::Failed, error, http_status: None };
    Entry { at: NOW, version: 5, to: State::Pending, node: NodeId::new(1), actor: Actor::Client, step }
}

fn message(reason: &Value) -> &str {
    reason["message"].as_str().unwrap()
}

fn codes(facts: &Facts) -> Vec<String> {
    explain(facts).reasons.into_iter().map(|reason| reason.code).collect()
}

/// The only reason, as it is written; and the expectation, in milliseconds from now.
#[track_caller]
fn shown(facts: &Facts) -> (Value, Option<i64>) {
    let explained = explain(facts);
    assert_eq!(explained.reasons.len(), 1, "{explained:?}");
    let eta = explained.eta.map(|eta| eta.millis_since(NOW));
    (serde_json::to_value(&explained.reasons[0]).unwrap(), eta)
}

#[test]
fn all_reasons_are_given_in_order() {
    let pause = Pause { since: NOW, by: "client".into(), reason: None, until: Some(NOW.plus_millis(2_000)) };
    let backlog = Some(BacklogPace { since: NOW.plus_millis(5), per_second: 1 });
    let here = WebhookStatus { backlog, crowded: vec![SlotOwner::Target] };
    let mut facts = Facts { claimant: Some(ExpectedClaimant::Here(here)), ahead: ahead(1), held: 1, ..pushed() };
    facts.queue.pause = Some(pause);
    facts.queue.settings.max_concurrency = Some(1);
    facts.queue.settings.rate_limit = Some(RateLimit { per_second: 1.0, burst: 1 });
    facts.bucket = Some(Bucket { tokens: 0.0, refilled_at: NOW });
    let all = ["queue_paused", "queue_concurrency", "queue_rate", "found_backlog", "webhook_places"];
    assert_eq!((codes(&facts), explain(&facts).eta), (all.map(str::to_owned).to_vec(), None));
    // Without the reasons whose ends are unknown: the latest of the others.
    facts.queue.settings.max_concurrency = None;
    facts.claimant = pushed().claimant;
    let eta = explain(&facts).eta.map(|eta| eta.millis_since(NOW));
    assert_eq!((codes(&facts), eta), (vec!["queue_paused".to_owned(), "queue_rate".to_owned()], Some(2_000)));

    let blocked = task(State::Blocked, 9_000, Route::Pull);
    facts = Facts { task: blocked, turn: None, ..facts };
    facts.queue.pause = Some(Pause { since: NOW, by: "client".into(), reason: None, until: None });
    assert_eq!(codes(&facts), ["waiting_for_dependencies", "not_due_yet", "queue_paused"]);
}

#[test]
fn a_held_task_shows_who_holds_it() {
    let mut facts = Facts::of(running(), NOW);
    let expected = json!({
        "code": "running",
        "message": "it runs",
        "since": "2026-05-22T18:00:00.000Z",
        "until": "2026-05-22T18:01:00.000Z",
        "worker_id": "w",
    });
    assert_eq!(shown(&facts), (expected, None));
    facts.task.position.cancel_requested = true;
    assert_eq!(codes(&facts), ["stopping"]);
    facts.task.position.state = State::Queued;
    assert_eq!(codes(&facts), ["queued"]);
}

#[test]
fn a_finished_task_shows_its_last_error() {
    let mut facts = Facts::of(task(State::DeadLettered, 0, Route::Pull), NOW);
    facts.task.completed_at = Some(NOW);
    facts.task.expires_at = Some(NOW);
    let nothing = "it is DEAD_LETTERED and will not run again by itself";
    let expected = json!({"code": "final", "message": nothing, "since": NOW});
    assert_eq!(shown(&facts), (expected, None));
    assert_eq!(explain(&facts).expires_at, None, "it expires no more");
    facts.task.trail.push(&failed("first"));
    facts.task.trail.push(&failed("boom"));
    for state in [State::Cancelled, State::Failed, State::DeadLettered] {
        facts.task.position.state = state;
        let message = format!("it is {} and will not run again by itself; its last error is boom", state.as_str());
        let expected =
            json!({"code": "final", "message": message, "since": NOW, "error_code": "boom", "reason": "it broke"});
        assert_eq!(shown(&facts), (expected, None));
    }
    facts.task.position.state = State::Completed;
    assert_eq!(shown(&facts).0.get("error_code"), None, "it succeeded after all");
}

#[test]
fn a_task_not_run_because_of_another_names_it() {
    let mut facts = Facts::of(task(State::Cancelled, 0, Route::Pull), NOW);
    let parent = TaskId::new();
    let step = Step::ParentFailed { parent, ended: State::Failed };
    facts.task.trail.push(&Entry { to: State::Cancelled, step, ..failed("boom") });
    let (reason, _) = shown(&facts);
    assert_eq!((&reason["code"], &reason["error_code"]), (&json!("final"), &json!("dependency_failed")));
    assert_eq!(reason["tasks"], json!([{"id": parent, "state": "FAILED"}]));
    assert!(reason["reason"].as_str().is_some_and(|text| text.contains(&parent.to_string())), "{reason}");
}

#[test]
fn an_expired_task_shows_the_error_of_its_runs_too() {
    let mut facts = Facts::of(task(State::Failed, 0, Route::Pull), NOW);
    let expired = Entry { step: Step::Expired, to: State::Failed, version: 9, ..failed("") };
    let begun = facts.task.trail.clone();
    facts.task.trail.push(&expired);
    let (reason, _) = shown(&facts);
    let never = "it is FAILED and will not run again by itself; its last error is expired";
    assert_eq!((message(&reason), &reason["error_code"]), (never, &json!("expired")));
    assert_eq!(reason["reason"], "the task was not started by its expires_at");

    facts.task.trail = begun;
    facts.task.trail.push(&Entry { step: Step::Started { attempt: 1 }, version: 3, ..failed("") });
    facts.task.trail.push(&failed("boom"));
    facts.task.trail.push(&expired);
    let (reason, _) = shown(&facts);
    let after = "it is FAILED and will not run again by itself; it expired, and its last error before that was boom";
    assert_eq!((message(&reason), &reason["error_code"]), (after, &json!("expired")));
    assert!(reason["reason"].as_str().unwrap().ends_with("its last error was boom: it broke"), "{reason}");
}
